"""Single stories of the clean-up: what goes, what stays, and who is told."""

import logging
from dataclasses import replace
from functools import partial

import pytest

from quipu.diskless.cleaning.ownership import MARKS_PREFIX
from quipu.diskless.control_plane.interface import Replacement
from quipu.diskless.control_plane.memory import MemoryControlPlane
from quipu.diskless.control_plane.memory_tables import MemoryTables
from quipu.diskless.objects.encoding import encode_object
from quipu.diskless.objects.names import RECEIPTS_PREFIX, ObjectName
from quipu.diskless.rebuild import rebuild
from quipu.diskless.values import LogKey
from quipu.model.errors import Code
from quipu.model.ids import NodeId, Offset
from quipu.runtime.objects.errors import StoreUnavailable
from tests.diskless.cleaning.conftest import Worlds
from tests.diskless.cleaning.faults import Crash
from tests.diskless.cleaning.world import HOUR_MS, LIMITS, CleaningWorld

# -- retention and deletion


def test_old_records_go_and_their_object_after_the_grace_period(run_story: Worlds) -> None:
    """D7: retention.ms takes the record away; the object follows, but not at once."""
    async def story(world: CleaningWorld) -> None:
        (log,) = await world.create(retention_ms=HOUR_MS)
        await world.write(world.batch(log))
        world.clock.advance_ms(HOUR_MS + 1)
        await world.cleaner.retention.run()
        (bounds,) = await world.plane.bounds([log])
        assert bounds is not None
        assert bounds.log_start_offset == bounds.high_watermark == 1
        await world.cleaner.deletion.run()
        assert len(await world.keys()) == 1
        world.clock.advance_ms(world.limits.object_grace_ms + 1)
        await world.cleaner.deletion.run()
        assert await world.keys() == []
        assert await world.plane.objects() == []
        assert (world.stats.logs_moved, world.stats.objects_deleted) == (1, 1)

    run_story(story)


def test_a_log_with_much_to_remove_is_emptied_in_steps(run_story: Worlds) -> None:
    """D7: a pass goes on while the start of a log moves, and leaves what the rule keeps."""
    async def story(world: CleaningWorld) -> None:
        (log,) = await world.create(retention_bytes=1)
        retain = world.plane.retain
        world.plane.retain = partial(retain, runs_max=2)  # type: ignore[method-assign]  # steps
        for _ in range(9):
            await world.write(world.batch(log))
        await world.cleaner.retention.run()
        (bounds,) = await world.plane.bounds([log])
        assert bounds is not None
        assert (bounds.log_start_offset, bounds.high_watermark) == (8, 9)
        assert world.stats.logs_moved == 4

    run_story(story)


def test_a_crash_between_deleting_and_forgetting_leaves_a_mark(run_story: Worlds) -> None:
    """D7: diskless.cleaning.D1: the next pass deletes the object once more, and forgets it then."""
    async def story(world: CleaningWorld) -> None:
        (log,) = await world.create()
        await world.write(world.batch(log))
        await world.plane.delete_records(log, Offset(-1), world.clock.now_ms())
        world.clock.advance_ms(world.limits.object_grace_ms + 1)
        steps = 0
        while await world.plane.objects():
            world.faults.crash_in = steps
            try:
                await world.cleaner.deletion.run()
            except Crash:
                world.restart()
            known = {state.key for state in await world.plane.objects()}
            assert set(await world.keys()) <= known
            steps += 1
        assert steps > 5
        assert await world.keys() == []

    run_story(story)


def test_a_pass_deletes_no_more_than_its_bound(run_story: Worlds) -> None:
    """D7: a great deletion is spread over passes."""
    async def story(world: CleaningWorld) -> None:
        (log,) = await world.create()
        for _ in range(5):
            await world.write(world.batch(log))
        await world.delete_topic(log.topic_id)
        world.clock.advance_ms(world.limits.object_grace_ms + 1)
        left = []
        for _ in range(3):
            await world.cleaner.deletion.run()
            left.append(len(await world.keys()))
        assert left == [3, 1, 0]

    run_story(story, limits=replace(LIMITS, deletions_max=2))


def test_the_receipts_in_a_deleted_object_are_kept(run_story: Worlds) -> None:
    """D37: an object that stays can be placed in a rebuild, also if the next one is gone.

    Invariant: diskless.cleaning.D2.
    """
    async def story(world: CleaningWorld) -> None:
        long, short = await world.create(2)
        stays = await world.write(world.batch(long))
        await world.write(world.batch(short))  # has the receipt for the first one
        await world.plane.delete_records(short, Offset(-1), world.clock.now_ms())
        world.clock.advance_ms(world.limits.object_grace_ms + 1)
        await world.cleaner.deletion.run()
        assert await world.keys() == [stays.key]
        assert len(await world.keys(RECEIPTS_PREFIX)) == 1
        await world.check()
        assert world.stats.receipts_kept == 1
        await world.delete_topic(long.topic_id)
        await world.settle()
        assert await world.keys(RECEIPTS_PREFIX) == []  # nothing needs them any more

    run_story(story)


def test_objects_of_receipts_are_merged_when_they_are_many(run_story: Worlds) -> None:
    """D37: a writer that is idle again and again does not fill the store with small objects.

    Invariant: diskless.cleaning.R2.
    """
    async def story(world: CleaningWorld) -> None:
        (log,) = await world.create()
        for _ in range(20):
            await world.write(world.batch(log))
            await world.store_receipts()
        await world.cleaner.receipts.run()
        assert len(await world.keys(RECEIPTS_PREFIX)) == 20  # young ones are left alone
        world.clock.advance_ms(world.limits.orphan_grace_ms + 1)
        await world.cleaner.receipts.run()
        assert len(await world.keys(RECEIPTS_PREFIX)) == 1
        await world.check()

    run_story(story)


# -- orphans


def test_an_orphan_is_collected_and_its_late_commit_refused(run_story: Worlds) -> None:
    """D7: clients get an error that they retry; what is written again is stored once."""
    async def story(world: CleaningWorld) -> None:
        (log,) = await world.create()
        batch = world.batch(log)
        late = await world.store_object([batch])
        await world.cleaner.orphans.run()
        assert await world.keys() == [late.key]  # it is young
        world.clock.advance_ms(world.limits.orphan_grace_ms + 1)
        await world.cleaner.orphans.run()
        assert await world.keys() == []
        for _ in range(2):
            (outcome,) = await world.commit(late)
            assert outcome.code is Code.KAFKA_STORAGE_ERROR
        await world.write(batch)
        (bounds,) = await world.plane.bounds([log])
        assert bounds is not None
        assert bounds.high_watermark == 1
        await world.check()
        assert world.stats.orphans_deleted == 1

    run_story(story)


def test_a_commit_just_before_the_orphan_is_condemned_wins(run_story: Worlds) -> None:
    """D7: an object that the control plane knows is left alone, whatever the cleaner saw before.

    Invariant: diskless.cleaning.O1.
    """
    async def story(world: CleaningWorld) -> None:
        (log,) = await world.create()
        slow = await world.store_object([world.batch(log)])
        world.clock.advance_ms(world.limits.orphan_grace_ms + 1)
        known_objects = world.plane.known_objects

        async def commit_meanwhile(keys: list[str]) -> set[str]:
            known = await known_objects(keys)
            await world.commit(slow)
            return known

        world.plane.known_objects = commit_meanwhile  # type: ignore[method-assign, assignment]
        await world.cleaner.orphans.run()
        assert await world.keys() == [slow.key]
        await world.check()

    run_story(story)


def test_a_repeated_commit_of_a_forgotten_object_is_refused(run_story: Worlds) -> None:
    """D3: a commit that arrives again after hours gives no offsets to an object that is gone."""
    async def story(world: CleaningWorld) -> None:
        (log,) = await world.create()
        new = await world.write(world.batch(log))
        await world.plane.delete_records(log, Offset(-1), world.clock.now_ms())
        await world.settle()
        outcomes = await world.plane.commit(new.new_object, world.clock.now_ms())
        assert [outcome.code for outcome in outcomes] == [Code.KAFKA_STORAGE_ERROR]
        (bounds,) = await world.plane.bounds([log])
        assert bounds is not None
        assert bounds.high_watermark == 1

    run_story(story)


def test_a_writer_goes_on_after_one_of_its_objects_was_condemned(run_story: Worlds) -> None:
    """D6: a fence refuses the objects up to it, and none after it."""
    async def story(world: CleaningWorld) -> None:
        (log,) = await world.create()
        await world.store_object([world.batch(log)])
        world.clock.advance_ms(world.limits.orphan_grace_ms + 1)
        await world.cleaner.orphans.run()
        await world.write(world.batch(log))  # asserts that it is accepted
        await world.check()

    run_story(story)


def test_foreign_objects_are_left_alone_and_reported(
    run_story: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    """D7: diskless.cleaning.O2: what no writer has made is nobody's to delete."""
    foreign = ["objects/00/3-x-0", "objects/notes.txt", "other/file", "receipts/mine"]

    async def story(world: CleaningWorld) -> None:
        for key in foreign:
            await world.store.put(key, [b"mine"])
        await world.settle()
        for key in foreign:
            assert await world.store.get(key) == b"mine"
        assert world.stats.foreign_objects == 2
        assert "objects/00/3-x-0" in caplog.text

    with caplog.at_level(logging.WARNING):
        run_story(story)


def test_a_new_control_plane_deletes_nothing_of_the_old_one(
    run_story: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    """D37: if the database is lost and an empty one is there, the objects wait for a rebuild.

    Invariant: diskless.cleaning.W1.
    """
    async def story(world: CleaningWorld) -> None:
        (log,) = await world.create()
        await world.write(world.batch(log))
        await world.store_receipts()
        await world.clean()  # this one marks the store
        world.plane = MemoryControlPlane(MemoryTables(world.rng.uuid()))
        await world.settle()
        assert len(await world.keys()) == len(await world.keys(RECEIPTS_PREFIX)) == 1
        assert "quipu diskless rebuild" in caplog.text
        await rebuild(world.store, world.plane, world.clock,
                      name=ObjectName(NodeId(9), world.rng.uuid(), 0))
        assert len(await world.keys(MARKS_PREFIX)) == 1
        await world.store_object([world.batch(log)])
        await world.settle()
        await world.check()
        await world.check_nothing_is_left()  # orphans go again

    run_story(story)


# -- rewriting


async def _filled(world: CleaningWorld) -> tuple[LogKey, LogKey]:
    """Five objects of two logs; the second log has most of the bytes."""
    kept, gone = await world.create(2)
    for _ in range(5):
        await world.write(world.batch(kept), world.batch(gone, 400), world.batch(kept))
    world.clock.advance_ms(world.limits.rewrite_age_ms + 1)
    return kept, gone


def test_one_log_of_long_retention_does_not_keep_all_bytes(run_story: Worlds) -> None:
    """D7: what is left of sparse objects is written together, byte for byte at its offsets."""
    async def story(world: CleaningWorld) -> None:
        _, gone = await _filled(world)
        await world.plane.delete_records(gone, Offset(-1), world.clock.now_ms())
        await world.cleaner.rewriting.run()
        await world.check()
        states = await world.plane.objects()
        (new,) = [state for state in states if state.marked_ms is None]
        assert len(states) == 6
        assert new.run_count >= 5
        assert (world.stats.rewrites, world.stats.objects_rewritten) == (1, 5)
        await world.settle()
        assert await world.keys() == [new.key]
        await world.check()

    run_story(story)


def test_a_rewrite_that_comes_too_late_leaves_nothing(run_story: Worlds) -> None:
    """D7: if a record went meanwhile, the new object is deleted, and a late repetition refused."""
    async def story(world: CleaningWorld) -> None:
        kept, gone = await _filled(world)
        await world.plane.delete_records(gone, Offset(-1), world.clock.now_ms())
        put = world.store.put
        rewrite = world.plane.rewrite
        asked = []

        async def delete_meanwhile(*args: object, **kwargs: object) -> object:
            info = await put(*args, **kwargs)  # type: ignore[arg-type]
            await world.plane.delete_records(kept, Offset(3), world.clock.now_ms())
            return info

        async def noted(*args: object) -> bool:
            asked.append(args)
            return await rewrite(*args)  # type: ignore[arg-type]

        world.store.put = delete_meanwhile  # type: ignore[method-assign, assignment]
        world.plane.rewrite = noted  # type: ignore[method-assign, assignment]
        before = await world.keys()
        await world.cleaner.rewriting.run()
        assert await world.keys() == before
        assert world.stats.rewrites_lost == 1
        (new, replacements, now_ms), = asked
        assert not await rewrite(new, replacements, now_ms)  # type: ignore[arg-type]
        await world.check()

    run_story(story)


def test_a_rewrite_to_a_condemned_object_changes_nothing(run_story: Worlds) -> None:
    """D7: a rewriter that was paused for longer than the grace period cannot bring it back."""
    async def story(world: CleaningWorld) -> None:
        (log,) = await world.create()
        old = await world.write(world.batch(log))
        (run,) = await world.plane.object_runs(old.key)
        new = encode_object(ObjectName(NodeId(5), world.rng.uuid(), 0), old.batches,
                            created_ms=world.clock.now_ms())
        await world.store.put(new.key, new.buffers)
        world.clock.advance_ms(world.limits.orphan_grace_ms + 1)
        await world.cleaner.orphans.run()
        moved = [Replacement(run, new.key, new.coordinates[0].position)]
        stored = new.new_object._replace(batches=())
        assert not await world.plane.rewrite(stored, moved, world.clock.now_ms())
        await world.check()

    run_story(story)


def test_a_damaged_object_is_not_rewritten(
    run_story: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    """D7: damage is reported where it is; the other objects are still put together.

    Invariant: diskless.cleaning.M1.
    """
    async def story(world: CleaningWorld) -> None:
        _, gone = await _filled(world)
        await world.plane.delete_records(gone, Offset(-1), world.clock.now_ms())
        damaged = (await world.keys())[0]
        data = bytearray(await world.store.get(damaged))
        (run, *_) = await world.plane.object_runs(damaged)
        data[run.position + run.size - 1] ^= 1
        await world.store.put(damaged, [bytes(data)])
        for _ in range(2):
            await world.cleaner.rewriting.run()
        assert world.stats.damaged_objects == 1
        assert world.stats.objects_rewritten == 4
        assert damaged in caplog.text
        in_use = [state.key for state in await world.plane.objects() if state.marked_ms is None]
        assert damaged in in_use
        assert len(in_use) == 2

    with caplog.at_level(logging.WARNING):
        run_story(story)


def test_young_objects_are_not_rewritten(run_story: Worlds) -> None:
    """D7: what may be gone soon is not copied."""
    async def story(world: CleaningWorld) -> None:
        (log,) = await world.create()
        for _ in range(8):
            await world.write(world.batch(log))
        await world.cleaner.rewriting.run()
        assert world.stats.rewrites == 0

    run_story(story)


def test_a_pass_copies_no_more_than_its_bound(run_story: Worlds) -> None:
    """D7: the cost of one pass is bounded in bytes, and so is each new object.

    Invariant: diskless.cleaning.M2.
    """
    async def story(world: CleaningWorld) -> None:
        (log,) = await world.create()
        for _ in range(60):
            await world.write(world.batch(log, 900))
        world.clock.advance_ms(world.limits.rewrite_age_ms + 1)
        before = world.stats.rewritten_bytes
        await world.cleaner.rewriting.run()
        assert 0 < world.stats.rewritten_bytes - before <= world.limits.rewrite_pass_bytes
        for state in await world.plane.objects():
            assert state.live_size <= world.limits.rewrite_object_bytes
        await world.check()

    run_story(story)


def test_a_failing_store_stops_a_pass_and_harms_nothing(run_story: Worlds) -> None:
    """D7: an error before or after any request leaves work for the next pass, and nothing else."""
    async def story(world: CleaningWorld) -> None:
        _, gone = await _filled(world)
        await world.plane.delete_records(gone, Offset(-1), world.clock.now_ms())
        world.faults.error_share = 1.0
        with pytest.raises(StoreUnavailable):
            await world.store.head("objects/x")
        for run in (world.cleaner.rewriting.run, world.cleaner.deletion.run,
                    world.cleaner.orphans.run, world.cleaner.receipts.run):
            with pytest.raises(Exception, match="refused"):
                await run()
        world.faults.error_share = 0.0
        await world.check()
        await world.settle()
        await world.check_nothing_is_left()

    run_story(story)


def test_an_object_with_a_damaged_footer_is_no_orphan(
    run_story: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    """diskless.cleaning.O3: a rebuild leaves it out; nobody deletes it, and it is reported."""
    async def story(world: CleaningWorld) -> None:
        (log,) = await world.create()
        damaged = await world.write(world.batch(log))
        await world.write(world.batch(log))
        orphan = await world.store_object([world.batch(log)])
        data = bytearray(await world.store.get(damaged.key))
        data[-1] ^= 1
        await world.store.put(damaged.key, [bytes(data)])
        world.plane = MemoryControlPlane(MemoryTables(world.rng.uuid()))
        report = await rebuild(
            world.store, world.plane, world.clock,
            name=ObjectName(NodeId(9), world.rng.uuid(), 0))
        assert [key for key, _ in report.damaged] == [damaged.key]
        world.restart()
        world.clock.advance_ms(world.limits.orphan_grace_ms + 1)
        for _ in range(2):
            await world.cleaner.orphans.run()
        keys = await world.keys()
        assert damaged.key in keys
        assert damaged.key in caplog.text
        assert world.stats.damaged_objects == 2
        assert orphan.key in keys  # the rebuild has used it: nobody could know better
        alone = await world.store_object([world.batch(log)])
        world.clock.advance_ms(world.limits.orphan_grace_ms + 1)
        await world.cleaner.orphans.run()
        assert alone.key not in await world.keys()
        assert damaged.key in await world.keys()

    run_story(story)

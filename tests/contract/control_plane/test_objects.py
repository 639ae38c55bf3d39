"""Objects: listing, forgetting, rewriting, and rebuilding (diskless/control_plane/interface.py)."""

import random
from collections.abc import Sequence
from uuid import UUID, uuid4

from quipu.diskless.control_plane.interface import ControlPlane, ObjectState, Replacement
from quipu.diskless.values import BatchRun, LogBounds, LogKey, NewObject
from quipu.model.errors import Code
from quipu.model.ids import NodeId, Offset
from tests.contract.control_plane.planes import (
    NOW,
    UNKNOWN_TOPIC,
    PlaneUnderTest,
    accepted,
    all_runs,
    batch,
    committed,
    duplicate,
    opened,
    refused,
    stored,
    with_logs,
)
from tests.looped import looped


def moved(key: str, runs: Sequence[BatchRun]) -> tuple[NewObject, list[Replacement]]:
    position, replacements = 10, []
    for run in runs:
        replacements.append(Replacement(run, key, position))
        position += run.size
    return NewObject(key, NodeId(2), position + 5, []), replacements


@looped
async def test_objects_are_listed_by_key(under_test: PlaneUnderTest) -> None:
    """D4: by the order of their characters, a page at a time, the marked ones too."""
    async with with_logs(under_test) as (plane, [log]):
        keys = ["B", "a", "a-b", "a/b", "ab", "ä"]
        for key in reversed(keys):
            await plane.commit(stored(*([batch(log)] if key != "ab" else []), key=key), NOW)
        assert [each.key for each in await plane.objects()] == keys
        assert [each.key for each in await plane.objects(after="a-b", limit=2)] == ["a/b", "ab"]
        assert await plane.known_objects(["a", "ab", "c"]) == {"a", "ab"}
        assert await plane.known_objects([]) == set()
        assert await plane.object_runs("c") == []


@looped
async def test_only_unused_objects_are_forgotten(under_test: PlaneUnderTest) -> None:
    """D7: and deletable once they were unused for the grace period, oldest first."""
    async with with_logs(under_test, 3) as (plane, logs):
        for n, log in enumerate(logs):
            await plane.commit(stored(batch(log), key=f"object-{n}"), NOW)
        await plane.delete_records(logs[2], Offset(-1), NOW + 1)
        await plane.delete_records(logs[0], Offset(-1), NOW + 2)
        assert await plane.deletable_objects(NOW + 1, 10) == []
        assert await plane.deletable_objects(NOW + 2, 10) == ["object-2"]
        assert await plane.deletable_objects(NOW + 3, 1) == ["object-2"]
        await plane.forget_objects(["object-1", "object-2", "unknown"])
        assert [each.key for each in await plane.objects()] == ["object-0", "object-1"]
        await plane.forget_objects([])


@looped
async def test_small_and_mostly_dead_objects_are_found(under_test: PlaneUnderTest) -> None:
    """D7: so that one long retention does not keep whole objects."""
    async with with_logs(under_test, 2) as (plane, [a, b]):
        await plane.commit(stored(batch(a, size=10), key="small"), NOW)
        await plane.commit(stored(batch(a, size=900), batch(b, size=100), key="dead"), NOW + 1)
        await plane.commit(stored(batch(b, size=1000), key="full"), NOW + 2)
        await plane.commit(stored(batch(b, size=10), key="new"), NOW + 9)
        await plane.commit(stored(key="unused"), NOW)

        async def sparse(size: int, share: float, limit: int = 10) -> list[str]:
            found: Sequence[ObjectState] = await plane.sparse_objects(
                live_size_max=size, live_share_max=share, committed_before_ms=NOW + 9, limit=limit)
            return [each.key for each in found]

        assert await sparse(10, 0.0) == ["small"]
        assert await sparse(0, 0.5) == ["small"]  # most of its bytes are not its batches
        await plane.delete_records(a, Offset(1), NOW)
        assert await sparse(0, 0.5) == []
        await plane.delete_records(a, Offset(2), NOW)
        assert await sparse(0, 0.5) == ["dead"]
        assert await sparse(0, 0.99) == ["dead", "full"]
        assert await sparse(0, 0.99, limit=1) == ["dead"]


@looped
async def test_runs_are_rewritten_into_another_object(under_test: PlaneUnderTest) -> None:
    """D7: the same offsets at another place; what they leave is marked (diskless.C6)."""
    async with with_logs(under_test, 2) as (plane, [a, b]):
        for _ in range(3):
            await committed(plane, batch(a, 2, timestamp=NOW + 3), batch(b, 1))
        before = await all_runs(plane, a), await all_runs(plane, b)
        new, replacements = moved("rewritten", [*before[0], before[1][0]])
        assert await plane.rewrite(new, replacements, NOW + 5)
        assert await plane.rewrite(new, replacements, NOW + 6), "a repetition"
        for run, each in zip(await all_runs(plane, a), replacements, strict=False):
            assert run == each.old._replace(key="rewritten", position=each.position)
        assert await plane.object_runs("rewritten") == [
            *(await all_runs(plane, a)), (await all_runs(plane, b))[0]]
        states = {each.key: each for each in await plane.objects()}
        assert states["rewritten"] == ("rewritten", 2, new.size, 400, 4, NOW + 5, None)
        assert [states[run.key].marked_ms for run in before[1]] == [NOW + 5, None, None]
        found = await plane.find_max_timestamp(a)
        assert found is not None
        assert found.key == "rewritten"


@looped
async def test_runs_that_have_changed_are_not_rewritten(under_test: PlaneUnderTest) -> None:
    """D7: all or none: one that was removed or rewritten by another stops it."""
    async with with_logs(under_test, 2) as (plane, [a, b]):
        await committed(plane, batch(a, 2))
        await committed(plane, batch(a, 2), batch(b, 2))
        runs = await all_runs(plane, a)
        for wrong in (runs[0]._replace(position=11), runs[0]._replace(size=99),
                      runs[0]._replace(base_offset=Offset(1)), runs[0]._replace(key="other"),
                      runs[0]._replace(log=b), runs[0]._replace(log=LogKey(UNKNOWN_TOPIC, 0))):
            assert not await plane.rewrite(*moved("new", [runs[1], wrong]), NOW)
        await plane.delete_records(a, Offset(2), NOW)
        assert not await plane.rewrite(*moved("new", runs), NOW)
        assert await all_runs(plane, a) == runs[1:]
        assert "new" not in await plane.known_objects(["new"])
        assert await plane.rewrite(*moved("other", runs[1:]), NOW)
        assert not await plane.rewrite(*moved("new", runs[1:]), NOW)
        assert await plane.rewrite(*moved("empty", []), NOW)
        assert "empty" in await plane.deletable_objects(NOW + 1, 10)


@looped
async def test_a_control_plane_is_rebuilt_from_objects(under_test: PlaneUnderTest) -> None:
    """D37: in any order, twice, with what is refused left out: the same runs and producers."""
    rng = random.Random(3)
    async with with_logs(under_test, 2) as (plane, [a, b]):
        objects: list[tuple[NewObject, list[Offset]]] = []
        for n in range(20):
            new = stored(batch(a, 2, timestamp=rng.randrange(99), producer=(1, n // 8, n % 8 * 2)),
                         batch(a, 1, timestamp=rng.randrange(99)), batch(b, 3),
                         batch(b, 1, producer=(2, 0, 9)), batch(LogKey(UNKNOWN_TOPIC, 0)))
            outcomes = await plane.commit(new, NOW)
            objects.append((new, [Offset(-1) if each.is_duplicate else each.base_offset
                                  for each in outcomes]))
        runs = await all_runs(plane, a), await all_runs(plane, b)
        producers = [list(await plane.producers(log)) for log in (a, b)]
        times = [await plane.find_timestamp(a, timestamp) for timestamp in range(100)]
        topic = a.topic_id
        before = await plane.bounds([a, b])

        rebuilt = await _emptied(plane, [new.key for new, _ in objects], topic)
        rng.shuffle(objects)
        renamed = [(_of_topic(new, topic, rebuilt), offsets) for new, offsets in objects]
        for start in range(0, 20, 6):
            await plane.restore_objects(renamed[start:start + 6], NOW + 5)
        await plane.restore_objects(renamed[:3], NOW + 6)
        one, other = (LogKey(rebuilt.topic_id, 0), LogKey(rebuilt.topic_id, 1))
        assert await plane.bounds([one, other]) == before
        for log, expected in ((one, runs[0]), (other, runs[1])):
            assert list(map(_facts, await all_runs(plane, log))) == list(map(_facts, expected))
        assert [list(await plane.producers(log)) for log in (one, other)] == producers
        found = [await plane.find_timestamp(one, timestamp) for timestamp in range(100)]
        assert [run and _facts(run) for run in found] == [run and _facts(run) for run in times]
        assert await committed(plane, batch(one, 2, producer=(1, 2, 6)),
                               batch(one, 2, producer=(1, 2, 8))) == [
            duplicate(57), accepted(60)]


async def _emptied(plane: ControlPlane, keys: list[str], topic: UUID) -> LogKey:
    """Delete the topic and forget its objects; return a log of another one."""
    await plane.delete_topic(topic, NOW)
    await plane.forget_objects(keys)
    assert await plane.known_objects(keys) == set()
    fresh = uuid4()
    await plane.create_logs(fresh, "rebuilt", 2)
    return LogKey(fresh, 0)


def _facts(run: BatchRun) -> tuple[object, ...]:
    """All but the log and the object, which have other names."""
    return (*run[1:3], *run[4:])


def _of_topic(new: NewObject, old: UUID, rebuilt: LogKey) -> NewObject:
    """The object with another key, as one that was forgotten cannot come back (diskless.C10)."""
    return new._replace(key=f"again/{new.key}", batches=[
        each._replace(log=LogKey(rebuilt.topic_id, each.log.partition))
        if each.log.topic_id == old else each for each in new.batches])


@looped
async def test_restored_runs_never_overlap(under_test: PlaneUnderTest) -> None:
    """D37: diskless.C5: what is in a log already stays; a late commit of the object is known."""
    async with with_logs(under_test) as (plane, [log]):
        await committed(plane, batch(log, 5))
        again = stored(batch(log, 3), batch(log, 2), batch(log, 4), batch(log, 1))
        offsets = [Offset(-1), Offset(4), Offset(5), Offset(9)]
        await plane.restore_objects([(again, offsets)], NOW)
        assert [run[1:3] for run in await all_runs(plane, log)] == [(0, 5), (5, 10)]
        assert await plane.commit(again, NOW) == [
            refused(Code.KAFKA_STORAGE_ERROR), *(accepted(n, -1) for n in (4, 5, 9))]
        useless = stored(batch(log, 3))
        await plane.restore_objects([(useless, [Offset(0)]), (stored(), [])], NOW)
        assert useless.key in await plane.deletable_objects(NOW + 1, 10)


@looped
async def test_restored_bounds_are_never_lowered(under_test: PlaneUnderTest) -> None:
    """D37: diskless.C4: runs below the start go; what is gone already is not restored."""
    async with with_logs(under_test) as (plane, [log]):
        new = [stored(batch(log, 5)) for _ in range(4)]
        await plane.restore_objects([(each, [Offset(5 * n)]) for n, each in enumerate(new[:3])],
                                    NOW)
        await plane.restore_bounds(log, Offset(3), Offset(6), Offset(15))
        assert await plane.bounds([log]) == [LogBounds(Offset(3), Offset(6), Offset(15), 200)]
        await plane.restore_bounds(log, Offset(0), Offset(0), Offset(0))
        assert await plane.bounds([log]) == [LogBounds(Offset(3), Offset(6), Offset(15), 200)]
        assert await plane.deletable_objects(NOW + 1, 10) == [new[0].key]
        await plane.restore_objects([(new[3], [Offset(0)])], NOW)
        assert len(await all_runs(plane, log)) == 2
        await plane.restore_bounds(log, Offset(20), Offset(0), Offset(0))
        assert await plane.bounds([log]) == [LogBounds(Offset(20), Offset(20), Offset(20), 0)]
        await plane.restore_bounds(LogKey(UNKNOWN_TOPIC, 0), Offset(1), Offset(1), Offset(1))


@looped
async def test_what_was_committed_is_there_after_all_nodes_ended(
    under_test: PlaneUnderTest,
) -> None:
    """D2: diskless.C2: and opening again finds the schema as it is."""
    async with with_logs(under_test) as (plane, [log]):
        await committed(plane, batch(log, 5, producer=(1, 0, 0)))
    async with opened(under_test) as later:
        assert await committed(later, batch(log, 5, producer=(1, 0, 0))) == [duplicate(0)]
        assert len(await all_runs(later, log)) == 1

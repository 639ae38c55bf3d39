"""Random histories: whatever is written, removed, rewritten and cut off, records stay readable."""

from collections.abc import Awaitable, Callable

import pytest

from quipu.diskless.control_plane.memory import MemoryControlPlane
from quipu.diskless.control_plane.memory_tables import MemoryTables
from quipu.diskless.objects.names import ObjectName
from quipu.diskless.rebuild import rebuild
from quipu.model.errors import Code, QuipuError
from quipu.model.ids import NodeId, Offset
from tests.diskless.cleaning.conftest import Worlds
from tests.diskless.cleaning.faults import Crash
from tests.diskless.cleaning.world import HOUR_MS, CleaningWorld

STEPS = 60
SEEDS = {"memory": range(16), "sqlite": range(100, 104), "postgres": range(200, 204)}


async def produce(world: CleaningWorld) -> None:
    logs = [world.random.choice(list(world.records)) for _ in range(world.random.randrange(1, 6))]
    await world.write(*(world.batch(log, world.random.randrange(10, 400),
                                    world.random.randrange(1, 4)) for log in logs))


async def store_and_stall(world: CleaningWorld) -> None:
    """An object that is committed much later, or never."""
    log = world.random.choice(list(world.records))
    world.writer.stored.append(await world.store_object([world.batch(log)]))


async def commit_late(world: CleaningWorld) -> None:
    """What was condemned meanwhile is refused with an error that clients retry."""
    if world.writer.stored:
        new = world.writer.stored.pop(0)
        for outcome in await world.commit(new):
            assert outcome.code in {
                Code.NONE, Code.KAFKA_STORAGE_ERROR, Code.UNKNOWN_TOPIC_OR_PARTITION}


async def repeat_commit(world: CleaningWorld) -> None:
    """A commit whose answer was lost is repeated, however late: nothing is acknowledged twice."""
    log = world.random.choice(list(world.records))
    new = await world.write(world.batch(log))
    world.clock.advance_ms(world.random.choice([0, world.limits.object_grace_ms + 1]))
    await clean(world)
    before = await world.plane.bounds([log])
    await world.plane.commit(new.new_object, world.clock.now_ms())
    after = await world.plane.bounds([log])
    assert before[0] is not None
    assert after[0] is not None
    assert before[0].high_watermark == after[0].high_watermark


async def start_writer(world: CleaningWorld) -> None:
    if world.has_orderly_writers or world.random.random() < 0.5:
        await world.store_receipts()
    world.new_writer()


async def delete_records(world: CleaningWorld) -> None:
    log = world.random.choice(list(world.records))
    (bounds,) = await world.plane.bounds([log])
    assert bounds is not None
    before = world.random.randint(bounds.log_start_offset, bounds.high_watermark)
    await world.plane.delete_records(log, Offset(before), world.clock.now_ms())


async def delete_topic(world: CleaningWorld) -> None:
    if len({log.topic_id for log in world.records}) > 2:
        await world.delete_topic(world.random.choice(list(world.records)).topic_id)


async def create_topic(world: CleaningWorld) -> None:
    random = world.random
    await world.create(random.randrange(1, 4), retention_ms=random.choice([-1, HOUR_MS, HOUR_MS]),
                       retention_bytes=random.choice([-1, 500, 5_000]))


async def wait(world: CleaningWorld) -> None:
    world.clock.advance_ms(world.random.choice([1_000, 600_000, HOUR_MS, 3 * HOUR_MS]))


async def clean(world: CleaningWorld) -> None:
    """A pass that ends anywhere: by an error, or with its process."""
    world.faults.error_share = world.random.choice([0.0, 0.0, 0.1])
    world.faults.crash_in = world.random.choice([None, world.random.randrange(60)])
    try:
        await world.clean()
    except Crash:
        world.restart()
    except QuipuError:
        pass
    finally:
        world.faults.error_share, world.faults.crash_in = 0.0, None


ACTIONS: list[tuple[Callable[[CleaningWorld], Awaitable[None]], int]] = [
    (produce, 12), (store_and_stall, 2), (commit_late, 2), (repeat_commit, 1), (start_writer, 2),
    (delete_records, 2), (delete_topic, 1), (create_topic, 1), (wait, 4), (clean, 8)]


async def check_rebuilt(world: CleaningWorld) -> None:
    """A control plane that is made of the objects alone has the same records."""
    plane = MemoryControlPlane(MemoryTables(world.rng.uuid()))
    await rebuild(world.store.real, plane, world.clock, topics=await world.plane.topics(),
                  name=ObjectName(NodeId(9), world.rng.uuid(), 0))
    logs = list(world.records)
    for log, old, new in zip(logs, await world.plane.bounds(logs), await plane.bounds(logs),
                             strict=True):
        assert old is not None
        if new is None or old.high_watermark == 0:
            assert old.high_watermark == old.log_start_offset, log  # nothing was left of it
            continue
        assert new.high_watermark == old.high_watermark
        assert new.log_start_offset <= old.log_start_offset
        found = await world.read(plane, log, old.diskless_start_offset)
        assert found == await world.read(world.plane, log, old.diskless_start_offset)
    await plane.close()


async def rebuilt_history(world: CleaningWorld) -> None:
    world.has_orderly_writers = True
    await history(world)
    await check_rebuilt(world)


async def history(world: CleaningWorld) -> None:
    await create_topic(world)
    await create_topic(world)
    actions, weights = zip(*ACTIONS, strict=True)
    for action in world.random.choices(actions, weights, k=STEPS):
        await action(world)
        await world.check()
    await world.store_receipts()
    await world.settle()
    await world.check()
    await world.check_nothing_is_left()
    writer = world.writer
    while writer.stored:  # much too late
        await commit_late(world)
    await world.check()


@pytest.mark.parametrize("part", range(4))
def test_records_stay_readable_and_nothing_else_is_left(run_story: Worlds, part: int) -> None:
    """D7: no object in use is deleted, every record is byte-identical, and no orphan stays."""
    for seed in SEEDS[run_story.kind][part::4]:
        run_story(history, seed=seed)


@pytest.mark.parametrize("part", range(2))
def test_a_control_plane_can_be_rebuilt_after_any_clean_up(run_story: Worlds, part: int) -> None:
    """D37: the objects that are left have all that is needed for the same offsets again."""
    for seed in SEEDS[run_story.kind][part::2]:
        run_story(rebuilt_history, seed=1000 + seed)


def test_a_bucket_and_a_shared_database_are_cleaned_up(run_real_story: Worlds) -> None:
    """D38: the same on a real S3 server with PostgreSQL, and the control plane can be rebuilt."""
    run_real_story(rebuilt_history, seed=3000)

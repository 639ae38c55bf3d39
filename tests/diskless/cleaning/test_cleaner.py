"""The cleaner as a node runs it: in virtual time, on stores and control planes that fail."""

import asyncio
from dataclasses import replace
from uuid import uuid4

import pytest

from quipu.diskless.cleaning.cleaner import DisklessCleaner
from quipu.diskless.cleaning.limits import BadCleaningLimits
from quipu.diskless.cleaning.ownership import MARKS_PREFIX
from quipu.diskless.control_plane.memory import MemoryControlPlane
from quipu.diskless.control_plane.memory_tables import MemoryTables
from quipu.model.ids import NodeId, TimestampMs
from quipu.runtime.clock import ManualClock
from quipu.runtime.objects.memory import MemoryStore
from quipu.runtime.rng import SeededRng
from quipu.runtime.spawn import spawn
from tests.diskless.cleaning.world import HOUR_MS, LIMITS, CleaningWorld
from tests.looped import LoopClock, timeless

FAST = replace(LIMITS, object_grace_ms=20_000, coordinates_ms=10_000, give_up_ms=10_000,
               orphan_grace_ms=40_000, cleaner_interval_ms=5_000, retention_interval_ms=5_000,
               rewrite_age_ms=10_000)


class _StoryClock(ManualClock):
    """The loop's virtual time, for a world that expects to move its clock itself."""

    def now_ms(self) -> TimestampMs:
        return LoopClock().now_ms()

    def monotonic(self) -> float:
        return LoopClock().monotonic()


def new_world() -> CleaningWorld:
    clock = _StoryClock()
    plane = MemoryControlPlane(MemoryTables(uuid4()))
    world = CleaningWorld(MemoryStore(clock.now_ms), plane, limits=FAST)
    world.clock = clock
    world.store._now_ms = clock.now_ms
    world.restart()
    return world


async def _dirty(world: CleaningWorld) -> None:
    """Something for every pass to do."""
    kept, gone = await world.create(2)
    await world.create(retention_ms=HOUR_MS)
    for _ in range(6):
        await world.write(world.batch(kept), world.batch(gone, 400))
    await world.delete_topic((await world.create(1))[0].topic_id)
    await world.store_object([world.batch(kept)])
    await world.plane.delete_records(gone, -1, world.clock.now_ms())  # type: ignore[arg-type]


@timeless
async def test_a_running_cleaner_leaves_only_what_is_needed() -> None:
    """D7: all passes run by themselves, and end when the node stops."""
    world = new_world()
    await _dirty(world)
    running = spawn(world.cleaner.run(), "cleaner")
    await asyncio.sleep(300)
    assert len(await world.keys(MARKS_PREFIX)) == 1
    await world.check()
    await world.check_nothing_is_left()
    assert (world.stats.orphans_deleted, world.stats.rewrites, world.stats.failures) == (1, 1, 0)
    await world.cleaner.stop()
    await asyncio.wait_for(running, 1)
    passes = world.stats.passes
    await asyncio.sleep(100)
    assert world.stats.passes == passes > 100


@timeless
async def test_a_cleaner_survives_a_store_and_a_control_plane_that_fail() -> None:
    """D7: nothing ends it; it waits longer after each failure, and goes on when all is well."""
    world = new_world()
    await _dirty(world)
    world.faults.error_share = 1.0
    running = spawn(world.cleaner.run(), "cleaner")
    await asyncio.sleep(40)
    early = world.stats.failures
    assert early > 10
    await asyncio.sleep(80)
    assert world.stats.failures - early < 2 * early  # twice the time, but longer pauses
    assert not running.done()
    world.faults.error_share = 0.0
    await asyncio.sleep(450)
    await world.check()
    await world.check_nothing_is_left()
    await world.cleaner.stop()
    await running


@timeless
async def test_a_bug_in_one_pass_does_not_stop_the_others(
    caplog: pytest.LogCaptureFixture
) -> None:
    """D7: an error that nobody expects is logged with its place, and the rest goes on.

    Invariant: diskless.cleaning.P1.
    """
    world = new_world()
    await _dirty(world)

    async def broken(*_args: object, **_kwargs: object) -> None:
        raise ZeroDivisionError

    world.plane.sparse_objects = broken  # type: ignore[method-assign, assignment]
    running = spawn(world.cleaner.run(), "cleaner")
    await asyncio.sleep(300)
    assert world.stats.failures > 3
    assert world.stats.orphans_deleted == 1
    assert "ZeroDivisionError" in caplog.text
    assert not running.done()
    await world.cleaner.stop()


@timeless
async def test_stop_ends_a_pass_that_hangs() -> None:
    """D7: a store that never answers does not hold up the end of a node."""
    world = new_world()
    await _dirty(world)

    async def hangs(*_args: object, **_kwargs: object) -> None:
        await asyncio.sleep(1e9)

    world.store.list = hangs  # type: ignore[method-assign, assignment]
    running = spawn(world.cleaner.run(), "cleaner")
    await asyncio.sleep(100)
    await asyncio.wait_for(world.cleaner.stop(), 1)
    await asyncio.wait_for(running, 1)


@timeless
async def test_several_nodes_clean_up_together() -> None:
    """D7: every node runs every pass; none of them harms the work of another."""
    world = new_world()
    await _dirty(world)
    nodes = [NodeId(number) for number in range(3)]
    cleaners = [
        DisklessCleaner(world.store, world.plane, world.clock, SeededRng(node), node_id=node,
                        live_nodes=lambda: nodes, rules=lambda: list(world.rules.values()),
                        limits=FAST) for node in nodes]
    tasks = [spawn(each.run(), "cleaner") for each in cleaners]
    for _ in range(9):
        await asyncio.sleep(60)
        await world.check()
    await world.check_nothing_is_left()
    assert sum(each.stats.rewrites for each in cleaners) == 1
    assert len(await world.keys(MARKS_PREFIX)) == 1
    for each in cleaners:
        await each.stop()
    await asyncio.gather(*tasks)


def test_a_cleaner_with_a_grace_period_that_readers_outlast_is_refused() -> None:
    """D7: the relation between the settings is checked before anything is deleted."""
    clock = ManualClock()
    with pytest.raises(BadCleaningLimits):
        DisklessCleaner(
            MemoryStore(clock.now_ms), MemoryControlPlane(), clock, SeededRng(0),
            node_id=NodeId(0), live_nodes=list, rules=list,
            limits=replace(LIMITS, coordinates_ms=LIMITS.object_grace_ms))

"""A node moves old records by itself, and lets segments expire over both tiers."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID

import pytest

from quipu.broker.diskless.tier_orphans import TierOrphans
from quipu.broker.diskless.tiered_partition import TieredPartition
from quipu.broker.diskless.tiering import DisklessTiering
from quipu.broker.observing.stats import Stats
from quipu.broker.tiering.deleting import SegmentDeleter
from quipu.broker.tiering.roles import MetadataRoles
from quipu.diskless.control_plane.memory import MemoryControlPlane
from quipu.diskless.tiering.executor import in_thread
from quipu.diskless.tiering.steps import LogStep, StepServices
from quipu.model.ids import Offset
from quipu.model.settings import BrokerSettings, topic_settings
from quipu.remote.metadata.states import COPY_FINISHED
from quipu.runtime.rng import SeededRng
from quipu.wire.record_batch import Record, encode_batch
from tests.diskless.tiering.world import LEASE_MS, TOPIC, World

SECOND = 1_000
SEGMENT = 16 << 10  # bytes


class Node:
    """One node's tiering of the topic in a world."""

    def __init__(self, world: World, name: str = "node", **settings: str) -> None:
        self.world = world
        self.roles = MetadataRoles(world.metadata)
        self.roles.opened.set()
        self.stats = Stats()
        self.settings = {
            "remote.storage.enable": "true", "local.retention.ms": str(10 * SECOND),
            "segment.bytes": str(SEGMENT), "segment.ms": str(SECOND),
            "retention.ms": "-1", **settings}
        services = StepServices(
            plane=world.plane, metadata=world.metadata, leading=self.roles, storage=world.storage,
            store=world.segments, clock=world.clock, broker_id=1, owner=name, lease_ms=LEASE_MS)
        deleter = SegmentDeleter(world.metadata, world.storage, clock=world.clock, broker_id=1,
                                 stats=self.stats)
        self.orphans = TierOrphans(services, world.segments, stats=self.stats, grace_ms=SECOND)
        self.tiering = DisklessTiering(
            services, world.objects, deleter, partitions=self.partitions, run=in_thread,
            rng=SeededRng(1), stats=self.stats, interval_seconds=1.0)

    def partitions(self) -> list[TieredPartition]:
        return [TieredPartition(self.world.log(), TOPIC, topic_settings(
            self.settings, BrokerSettings()))]

    async def make_pass(self) -> None:
        await self.tiering.make_pass()


async def fill(world: World, objects: int = 10, first: int = 0) -> None:
    """One batch of ten records a second."""
    for number in range(first, first + objects):
        await world.commit({0: [bytes(encode_batch([
            Record(None, b"%400d" % (10 * number + i), (), world.clock.now_ms())
            for i in range(10)]))]})
        world.clock.advance_ms(SECOND)


def run(folder: Path, test: Callable[[World], Awaitable[None]]) -> None:
    async def whole() -> None:
        world = World(MemoryControlPlane(), folder)
        await world.open()
        try:
            await test(world)
        finally:
            await world.close()

    asyncio.run(whole())


def test_a_node_moves_what_is_old_and_nothing_else(tmp_path: Path) -> None:
    """D8: by local.retention.ms, in segments of segment.bytes (broker.diskless.T1)."""

    async def test(world: World) -> None:
        node = Node(world)
        await fill(world, 20)
        expected = await world.records()

        await node.make_pass()

        tier = await world.tier()
        assert 0 < (await world.bounds()).diskless_start_offset <= 100
        assert len(tier) > 1
        assert all(each.state is COPY_FINISHED for each in tier)
        assert all(each.segment_size_bytes <= SEGMENT for each in tier)
        assert await world.records() == expected
        assert node.stats.remote.copy_bytes == sum(each.segment_size_bytes for each in tier)
        assert not node.roles.leads(node.partitions()[0].partition)  # broker.diskless.T1
        assert await world.step(owner="a job") is not None

    run(tmp_path, test)


def test_a_pass_without_work_changes_nothing(tmp_path: Path) -> None:
    """D8: what is young stays, and costs no claim."""

    async def test(world: World) -> None:
        node = Node(world)
        await fill(world, 5)
        await node.make_pass()

        assert await world.tier() == []
        other = await LogStep.claimed(world.services("other"), world.log(), TOPIC)
        assert other is not None
        assert other.claim.epoch == (await _first_epoch())

    run(tmp_path, test)


async def _first_epoch() -> int:
    """The epoch of the first claim of a log."""
    plane = MemoryControlPlane()
    await plane.open()
    world = World(plane, Path("/nonexistent"))
    await plane.create_logs(world.log().topic_id, TOPIC, 1)
    claim = await plane.claim_tiering(world.log(), "first", 0, 1)
    assert claim is not None
    return claim.epoch


@pytest.mark.parametrize("setting", ["remote.log.copy.disable", "local.retention.ms"])
def test_nothing_is_moved_that_must_not_be(tmp_path: Path, setting: str) -> None:
    """D8: copying can be stopped, and records may be meant to stay."""
    value = {"remote.log.copy.disable": "true", "local.retention.ms": "-1"}[setting]

    async def test(world: World) -> None:
        node = Node(world, **{setting: value})
        await fill(world, 20)
        await node.make_pass()

        assert await world.tier() == []

    run(tmp_path, test)


def test_old_segments_expire_by_time(tmp_path: Path) -> None:
    """D7: broker.diskless.T2: retention.ms counts over both tiers; the log start moves first."""

    async def test(world: World) -> None:
        node = Node(world, **{"retention.ms": str(60 * SECOND)})
        await fill(world, 20)
        await node.make_pass()
        before = await world.tier()
        world.clock.advance_ms(45 * SECOND)
        await node.make_pass()

        after = await world.tier()
        assert after[0] != before[0]
        start = (await world.bounds()).log_start_offset
        assert start > 0
        assert after[0].start_offset == start
        assert len((await world.segments.list()).objects) == len(after)
        assert (await world.records())[0][0] == start
        world.clock.advance_ms(60 * SECOND)
        await node.make_pass()
        assert await world.tier() == []
        assert (await world.segments.list()).objects == ()

    run(tmp_path, test)


def test_old_segments_expire_by_size(tmp_path: Path) -> None:
    """D7: retention.bytes counts what is in the tier and what is not, once each."""

    async def test(world: World) -> None:
        node = Node(world)
        await fill(world, 40)
        await node.make_pass()
        whole = sum(each.segment_size_bytes for each in await world.tier())
        kept = whole // 2
        node.settings["retention.bytes"] = str(kept)
        await node.make_pass()

        size = sum(each.segment_size_bytes for each in await world.tier())
        total = size + (await world.bounds()).size
        assert kept <= total < kept + SEGMENT
        await world.records()

    run(tmp_path, test)


def test_segments_below_the_log_start_go(tmp_path: Path) -> None:
    """D7: DeleteRecords reaches into the tier; a segment goes when all of it is deleted."""

    async def test(world: World) -> None:
        node = Node(world)
        await fill(world, 30)
        await node.make_pass()
        tier = await world.tier()
        middle = tier[2].start_offset + 1
        await world.plane.delete_records(world.log(), Offset(middle), world.clock.now_ms())
        await node.make_pass()

        assert await world.tier() == tier[2:]
        assert (await world.records())[0][0] == middle

    run(tmp_path, test)


def test_a_topic_without_a_tier_any_more_forgets_it(tmp_path: Path) -> None:
    """D7: remote.storage.enable=false: the log starts where the tier ended, then segments go."""

    async def test(world: World) -> None:
        node = Node(world)
        await fill(world, 30)
        await node.make_pass()
        node.settings["remote.storage.enable"] = "false"
        await node.make_pass()

        bounds = await world.bounds()
        assert bounds.log_start_offset == bounds.diskless_start_offset > 0
        assert await world.tier() == []
        await world.records()

    run(tmp_path, test)


def test_segments_of_a_job_expire_too(tmp_path: Path) -> None:
    """D8: a node sees what others have moved, and goes on where they ended."""

    async def test(world: World) -> None:
        node = Node(world, **{"retention.bytes": "40000"})
        await fill(world, 15)
        await node.make_pass()
        world.clock.advance_ms(60 * SECOND)
        await world.step(owner="job")
        await fill(world, 15, first=15)
        before = len(await world.tier())
        await node.make_pass()

        assert len(await world.tier()) < before
        await world.records()

    run(tmp_path, test)


def test_a_lost_object_is_an_error_of_its_log_alone(tmp_path: Path) -> None:
    """D8: broker.diskless.T3: an error is logged and counted, and the next pass tries again."""

    async def test(world: World) -> None:
        node = Node(world)
        await fill(world, 20)
        run_ = (await world.plane.aged_runs(world.log(), 1 << 62))[0]
        data = await world.objects.get(run_.key)
        await world.objects.delete([run_.key])
        await node.make_pass()
        assert node.stats.remote.task_errors == node.stats.remote.copy_errors == 1

        await world.objects.put(run_.key, [data])
        await node.make_pass()
        assert (await world.bounds()).diskless_start_offset > 0
        await world.records()

    run(tmp_path, test)


def test_an_object_that_appears_late_is_deleted(tmp_path: Path) -> None:
    """D7: broker.diskless.T4: no metadata has it, and it is older than the grace period."""

    async def test(world: World) -> None:
        node = Node(world)
        await fill(world, 20)
        await node.make_pass()
        tier = await world.tier()
        (first, *_) = (await world.segments.list()).objects
        lost = first.key.replace(str(tier[0].segment_id.id), str(UUID(int=1)))
        await world.segments.put(lost, [await world.segments.get(first.key)])

        await node.orphans.sweep(node.partitions()[0])
        assert len((await world.segments.list()).objects) == len(tier) + 1  # it is young
        world.clock.advance_ms(2 * SECOND)
        await node.orphans.sweep(node.partitions()[0])
        assert len((await world.segments.list()).objects) == len(tier)
        assert node.stats.remote.orphans_deleted == 1
        await world.records()

    run(tmp_path, test)


def test_nothing_is_an_orphan_when_metadata_is_lost(tmp_path: Path) -> None:
    """D7: broker.diskless.O2: objects stay whose records are in no other place."""

    async def test(world: World) -> None:
        node = Node(world)
        await fill(world, 20)
        await node.make_pass()
        before = (await world.segments.list()).objects
        world.clock.advance_ms(10 * SECOND)
        await world.metadata.close()
        (tmp_path / "metadata.sqlite").unlink()
        world.metadata = world.make_metadata()
        await world.metadata.open()

        node = Node(world, "another")
        await node.orphans.sweep(node.partitions()[0])
        assert (await world.segments.list()).objects == before

    run(tmp_path, test)

"""Nodes that take turns to lead one partition with a tier, in virtual time, under faults.

    TierWorld(seed).run()     raises AssertionError if something is wrong

Real are all parts of tiered storage (broker/tiering, remote/metadata, remote/segments).  The
partition's log is a model that all nodes share: what is committed is committed for all of them.
The store and the metadata's storage delay, refuse, lose responses, and carry out requests late, of
nodes that have ended as well.  Nodes crash, and leaders are deposed without knowing it for a while.

Checked all the time
    readable      every committed record is on disk, or in an object that metadata finds for it
    referenced    no object is deleted while metadata refers to it as finished
    once          of finished segments, no two have the same offset
and when the faults have ended
    identical     every record is read from the tier as it was written
    no orphans    objects and metadata are the same segments, all of them finished
"""

import asyncio
from collections.abc import Sequence
from typing import Any, cast
from uuid import UUID

from quipu.broker.observing.stats import Stats
from quipu.broker.tiering.copying import SegmentCopier
from quipu.broker.tiering.deleted_partitions import DeletedPartitions, SweepView
from quipu.broker.tiering.deleting import SegmentDeleter, remote_segment
from quipu.broker.tiering.led_partition import TierServices
from quipu.broker.tiering.orphan_sweep import OrphanSweeper
from quipu.broker.tiering.remote_log import RemoteLog, TaskTimes
from quipu.broker.tiering.remote_reads import TierReads
from quipu.broker.tiering.roles import MetadataRoles, partition_of
from quipu.model.ids import Epoch
from quipu.model.partition_log import PartitionLog
from quipu.remote.metadata.changes import MetadataStorage
from quipu.remote.metadata.following import FollowerPartition
from quipu.remote.metadata.segment_metadata import RemoteLogSegmentMetadata
from quipu.remote.metadata.serde import KafkaSerde
from quipu.remote.metadata.states import COPY_FINISHED
from quipu.remote.metadata.storage.keys import PathKeyFactory
from quipu.remote.metadata.storage.memory import MemoryBackend
from quipu.remote.segments.cache import ChunkCache
from quipu.remote.segments.names import find_name
from quipu.remote.segments.remote_storage import ObjectRemoteStorage
from quipu.remote.segments.writer import CopyOptions
from quipu.runtime.objects.memory import MemoryObjects
from quipu.sim.dice import Dice
from quipu.sim.loop import SimLoop
from quipu.wire.record_batch import decode_records, parse_header
from tests.broker.tiering.world_parts import (
    SEGMENT_RECORDS_MAX,
    TOPIC_ID,
    LeaderLog,
    SharedLog,
    Wire,
    WorldBackend,
    WorldStore,
    now,
)
from tests.looped import LoopClock
from tests.remote.metadata.world import manager_of
from tests.remote.segments.builders import RUN

NODES = 3
FAULT_SECONDS = 8.0
QUIET_SECONDS = 30.0
CHECK_SECONDS = 0.05
GRACE_MS = 2000
RETENTION_SEGMENTS = 12


class WorldNode:
    """One process: everything in it ends when it crashes."""

    def __init__(self, world: "TierWorld", number: int) -> None:
        self._world = world
        self.number = number
        self.stats = Stats()
        self._task = asyncio.ensure_future(self._run())
        self.log: RemoteLog | None = None
        self.reads: TierReads | None = None
        self.led: LeaderLog | None = None

    async def _run(self) -> None:
        world, clock = self._world, LoopClock()
        rng = world.dice.fork(f"node {self.number} {clock.monotonic()}")
        store = WorldStore(world)
        metadata = await manager_of(WorldBackend(world), self.number, timeout_ms=2000)
        storage = ObjectRemoteStorage(
            store, cache=ChunkCache(1 << 20), run=RUN, clock=clock, options=CopyOptions())
        roles = MetadataRoles(metadata)
        roles.opened.set()
        deleter = SegmentDeleter(
            metadata, storage, clock=clock, broker_id=self.number, stats=self.stats)
        copier = SegmentCopier(
            metadata, storage, deleter, clock=clock, rng=rng, broker_id=self.number,
            custom_metadata_max=128, stats=self.stats)
        services = TierServices(metadata, roles, copier, deleter, clock=clock, run=RUN,
                                copies_max=2, deletions_max=2)
        self.reads = TierReads(metadata, roles, storage, clock=clock, stats=self.stats,
                               running_max=2, pending_max=9)
        view = SweepView(cluster_id=lambda: "world", topics=lambda: {TOPIC_ID},
                         is_controller=lambda: False, confirmed_term=asyncio.Future)
        deleted = DeletedPartitions(services, view, grace_ms=GRACE_MS)
        self.log = RemoteLog(
            services, TaskTimes(interval=0.05, retry=0.02, retry_max=0.5, jitter=0.5), deleted,
            OrphanSweeper(store, services, view, deleted, clock=clock, stats=self.stats,
                          grace_ms=GRACE_MS), clock=clock, rng=rng, stats=self.stats)
        await self.log.run()

    async def lead(self, epoch: Epoch) -> None:
        while self.log is None:
            await asyncio.sleep(0.001)
        self.led = LeaderLog(self._world, epoch)
        self.log.leading_began(cast("PartitionLog", self.led))

    def end_leading(self, led: LeaderLog | None) -> None:
        if led is not None and self.led is led and self.log is not None:
            led.is_active_leader = False
            self.log.leading_ended(cast("PartitionLog", led))
            self.led = None

    def crash(self) -> None:
        """End; what is on its way to the stores arrives."""
        tasks = [self._task]
        if self.log is not None:
            tasks += [task.running for task in self.log._tasks.values() if task.running]
        for task in tasks:
            task.cancel()


class TierWorld:
    """See the module."""

    def __init__(self, seed: int) -> None:
        self.dice = Dice(seed, "tier")
        self.loop = SimLoop()
        self.is_faulty = True
        self.log = SharedLog()
        self.metadata = MemoryBackend()
        self.objects = MemoryObjects(lambda: int(LoopClock().now_ms()))
        self.store_wire, self.metadata_wire = Wire(self, "store"), Wire(self, "metadata")
        self.retention_bytes = -1
        self.nodes: list[WorldNode] = []
        self.leader = 0
        self.wrong: list[str] = []  # what a check has found
        self._kept: set[asyncio.Future[Any]] = set()
        self._follower = FollowerPartition(
            MetadataStorage(self.metadata, PathKeyFactory(), KafkaSerde()),
            partition_of(cast("PartitionLog", LeaderLog(self, Epoch(0)))))

    def keep(self, task: "asyncio.Future[Any]") -> None:
        self._kept.add(task)
        task.add_done_callback(self._kept.discard)

    def run(self) -> None:
        """Run to the end, with faults first."""
        task = self.loop.create_task(self._run())
        try:
            assert self.loop.run_until(600.0, done=task.done), "it never ends"
            task.result()
        finally:
            self.loop.close()

    async def _run(self) -> None:
        self.nodes = [WorldNode(self, number) for number in range(NODES)]
        checking = asyncio.ensure_future(self._check_often())
        await self._elect()
        ends = asyncio.get_running_loop().time() + FAULT_SECONDS
        while asyncio.get_running_loop().time() < ends and not checking.done():
            await asyncio.sleep(self.dice.between(0.01, 0.2))
            await self._happen()
        self.is_faulty = False
        await self._elect()
        await self._settle(checking)
        checking.cancel()
        await self._compare()
        for node in self.nodes:
            node.crash()
        await asyncio.sleep(0)

    async def _happen(self) -> None:
        dice = self.dice
        match dice.below(10):
            case 0 | 1 | 2 | 3 | 4:
                self.log.append([1 + dice.below(SEGMENT_RECORDS_MAX)
                                 for _ in range(1 + dice.below(3))], LoopClock().now_ms())
                size = self.log.segments[-1].described.size
                if len(self.log.segments) > RETENTION_SEGMENTS:
                    self.retention_bytes = RETENTION_SEGMENTS * size
            case 5 | 6:
                self.log.trim_locally(1 + dice.below(2))
            case 7:
                await self._elect()
            case 8:
                number = dice.below(NODES)
                self.nodes[number].crash()
                self.nodes[number] = WorldNode(self, number)
                if number == self.leader:
                    await self._elect(None if dice.flip(0.7) else number)
            case _:
                await asyncio.sleep(dice.between(0, 0.5))

    async def _elect(self, number: int | None = None) -> None:
        """Another leader, or the same again; the one before learns of it later, or never."""
        before = self.nodes[self.leader]
        self.leader = self.dice.below(NODES) if number is None else number
        self.log.leader_epoch = Epoch(self.log.leader_epoch + 1)
        if before is self.nodes[self.leader]:
            before.end_leading(before.led)
        else:
            self.loop.call_later(self.dice.between(0, 0.4), before.end_leading, before.led)
        leader = self.nodes[self.leader]
        leader.end_leading(leader.led)  # of an earlier epoch
        await leader.lead(self.log.leader_epoch)

    # -- checks

    def _segments(self) -> list[RemoteLogSegmentMetadata]:
        return now(self._follower.segments())

    def check_deletion(self, keys: Sequence[str]) -> None:
        """No object that is deleted is referred to."""
        finished = {each.segment_id.id for each in self._segments() if each.state is COPY_FINISHED}
        for key in keys:
            name = find_name(key)
            if name is not None and name.segment_id in finished:
                self.wrong.append(f"{key} is deleted, and referred to")

    async def _check_often(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self._check()

    def _check(self) -> None:
        log = self.log
        assert not self.wrong, self.wrong[0]
        found: dict[int, UUID] = {}
        for each in self._segments():
            if each.state is COPY_FINISHED:
                for offset in range(each.start_offset, each.end_offset + 1):
                    assert offset not in found, f"offset {offset} is in two segments"
                    found[offset] = each.segment_id.id
        keys = {name.segment_id for info in self.objects.list().objects
                if (name := find_name(info.key)) is not None}
        for offset in range(log.log_start, log.local_start):
            segment = now(self._follower.find(log.epoch_of(offset), offset))
            assert segment is not None, f"offset {offset} is nowhere"
            assert segment.segment_id.id in keys, f"offset {offset} has no object"

    def _is_settled(self) -> bool:
        known = {each.segment_id.id for each in self._segments() if each.state is COPY_FINISHED}
        keys = {name.segment_id for info in self.objects.list().objects
                if (name := find_name(info.key)) is not None}
        return (known == keys and len(known) == len(self._segments())
                and self.log.tiered == self.log.end - 1)

    async def _settle(self, checking: "asyncio.Future[None]") -> None:
        """All is copied, and orphans are collected, some time after the faults."""
        ends = asyncio.get_running_loop().time() + QUIET_SECONDS
        while not self._is_settled():
            await asyncio.sleep(0.2)
            if checking.done():
                checking.result()
            assert asyncio.get_running_loop().time() < ends, (
                "objects and metadata differ", self.log.tiered, self.log.end,
                [(each.start_offset, each.state.name) for each in self._segments()],
                [info.key for info in self.objects.list().objects])
        if checking.done():
            checking.result()

    async def _compare(self) -> None:
        """Read everything from the tier, by the metadata that every follower finds."""
        log = self.log
        log.trim_locally(1)
        storage = ObjectRemoteStorage(WorldStore(self), cache=ChunkCache(1 << 20), run=RUN,
                                       clock=LoopClock())
        offset = int(log.log_start)
        while offset < log.local_start:
            segment = now(self._follower.find(log.epoch_of(offset), offset))
            assert segment is not None, f"offset {offset} is nowhere"
            for buffer in await storage.reader(remote_segment(segment)).read(
                    offset, 1 << 20, end=log.end, min_one=True):
                data = memoryview(buffer)
                while data:
                    size = parse_header(data).size
                    for record in decode_records(data[:size], size_max=1 << 20):
                        if record.offset >= offset:
                            assert record.offset == offset
                            assert record.value == log.values[offset]
                            offset += 1
                    data = data[size:]

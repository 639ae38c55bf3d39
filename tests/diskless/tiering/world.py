"""A log without local disk and its remote tier, with a clock that is moved by hand.

    world = World(plane, tmp_path)
    await world.open()
    await world.commit({0: [batch, batch], 1: [batch]})     # one object, batches by partition
    await world.step(0)                                     # as a broker does it
    await world.records(0)                                  # over both tiers, checked for gaps
"""

from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from uuid import UUID

from quipu.diskless.control_plane.interface import ControlPlane, FindRequest
from quipu.diskless.tiering.copying import copy_segment
from quipu.diskless.tiering.executor import in_thread, segment_storage
from quipu.diskless.tiering.plan import PlanRules
from quipu.diskless.tiering.steps import LogStep, OwnLeading, StepServices
from quipu.diskless.values import BatchCoordinates, LogBounds, LogKey, NewObject
from quipu.model.errors import Code
from quipu.model.ids import NodeId, Offset, ProducerId, TimestampMs
from quipu.remote.metadata.factory import make_metadata_manager
from quipu.remote.metadata.interface import RemoteLogMetadataManager
from quipu.remote.metadata.segment_metadata import RemoteLogSegmentMetadata, TopicIdPartition
from quipu.remote.metadata.states import COPY_FINISHED
from quipu.remote.segments.names import SegmentName
from quipu.remote.segments.remote_storage import RemoteSegment
from quipu.runtime.clock import ManualClock
from quipu.runtime.objects.memory import MemoryStore
from quipu.runtime.objects.store import ByteRange, ObjectStore
from quipu.runtime.rng import SeededRng
from quipu.wire.record_batch import decode_records, parse_header

TOPIC_ID = UUID(int=99)
TOPIC = "orders"
LEASE_MS = 1_000
AGED_MS = 10_000  # records that are as old as this are moved
HEADER = b"objects!"

Value = tuple[int, bytes | None]  # offset and value of a record


class World:
    """One topic of a few partitions, with everything that tiering needs."""

    def __init__(
        self, plane: ControlPlane, folder: Path, *, objects: ObjectStore | None = None,
        segments: ObjectStore | None = None, metadata_url: str | None = None,
        chunk_size: int = 300,
    ) -> None:
        self.clock = ManualClock()
        self.plane = plane
        self.objects: ObjectStore = objects or MemoryStore(self.clock.now_ms)
        self.segments: ObjectStore = segments or MemoryStore(self.clock.now_ms)
        self.storage = segment_storage(self.segments, chunk_size=chunk_size, compress=False)
        self.metadata_url = metadata_url or f"sqlite://{folder.absolute()}/metadata.sqlite"
        self._numbers = count()
        self.metadata = self.make_metadata()

    def make_metadata(self) -> RemoteLogMetadataManager:
        return make_metadata_manager(
            {"rlmm.config.metadata.storage.url": self.metadata_url}, broker_id=-1,
            rng=SeededRng(next(self._numbers)), cluster_id=lambda: "cluster")

    async def open(self, partitions: int = 1) -> None:
        await self.plane.open()
        await self.plane.create_logs(TOPIC_ID, TOPIC, partitions)
        await self.metadata.open()

    async def close(self) -> None:
        await self.metadata.close()
        await self.plane.close()

    def log(self, partition: int = 0) -> LogKey:
        return LogKey(TOPIC_ID, partition)

    # -- writing

    async def commit(self, batches: Mapping[int, Sequence[bytes]]) -> None:
        """Store one object, and commit its batches."""
        data, coordinates = bytearray(HEADER), []
        for partition, each in sorted(batches.items()):
            for batch in each:
                header = parse_header(memoryview(batch))
                coordinates.append(BatchCoordinates(
                    self.log(partition), len(data), len(batch), header.last_offset_delta + 1,
                    TimestampMs(header.max_timestamp), ProducerId(header.producer_id),
                    header.producer_epoch, header.base_sequence))
                data += batch
        key = f"objects/{next(self._numbers)}"
        await self.objects.put(key, [bytes(data) + b"footer"])
        outcomes = await self.plane.commit(
            NewObject(key, NodeId(1), len(data) + 6, coordinates), self.clock.now_ms())
        assert all(outcome.code is Code.NONE for outcome in outcomes), outcomes

    # -- moving

    def services(self, owner: str = "one") -> StepServices:
        return StepServices(
            plane=self.plane, metadata=self.metadata, leading=OwnLeading(self.metadata),
            storage=self.storage, store=self.segments, clock=self.clock, broker_id=-1,
            owner=owner, lease_ms=LEASE_MS)

    def rules(self, segment_size: int = 1_000) -> PlanRules:
        return PlanRules(segment_size, self.clock.now_ms())

    async def step(
        self, partition: int = 0, *, owner: str = "one", segment_size: int = 1_000,
        services: StepServices | None = None, objects: ObjectStore | None = None,
    ) -> int | None:
        """Take a step; returns how many segments were made; None: another owner has the log."""
        services = services or self.services(owner)
        step = await LogStep.claimed(services, self.log(partition), TOPIC)
        if step is None:
            return None
        for each in await step.planned(self.rules(segment_size), self.clock.now_ms() - AGED_MS):
            custom = each.custom_metadata or await copy_segment(
                each.plan, objects or self.objects, services.storage, in_thread)
            await step.finish(each.plan, custom)
        await step.end()
        return len(step.finished)

    # -- looking

    async def bounds(self, partition: int = 0) -> LogBounds:
        (found,) = await self.plane.bounds([self.log(partition)])
        assert found is not None
        return found

    async def tier(self, partition: int = 0) -> list[RemoteLogSegmentMetadata]:
        """The segments, as a process sees them that has just begun."""
        manager = self.make_metadata()
        await manager.open()
        try:
            name = TopicIdPartition(TOPIC_ID, partition, TOPIC)
            await manager.on_partition_leadership_changes({}, [name])
            return sorted(await manager.list_remote_log_segments(name), key=lambda each: each.order)
        finally:
            await manager.close()

    async def records(self, partition: int = 0) -> list[Value]:
        """All records, the old ones from the tier; fails if an offset is missing or twice there."""
        bounds = await self.bounds(partition)
        found: list[Value] = []
        reached = int(bounds.log_start_offset)
        for segment in await self.tier(partition):
            is_next = segment.start_offset <= reached < bounds.diskless_start_offset
            if segment.state is COPY_FINISHED and is_next:
                found += [each for each in await self._segment_values(segment)
                          if each[0] >= reached]
                reached = segment.end_offset + 1
        assert reached == bounds.diskless_start_offset, (reached, bounds)
        found += await self._diskless_values(partition, bounds)
        assert [each[0] for each in found] == list(
            range(bounds.log_start_offset, bounds.high_watermark))
        return found

    async def _segment_values(self, segment: RemoteLogSegmentMetadata) -> list[Value]:
        name = SegmentName(TOPIC_ID, segment.segment_id.partition.partition, segment.start_offset,
                           segment.segment_id.id)
        reader = self.storage.reader(RemoteSegment(name, segment.custom_metadata or b""))
        buffers = await reader.read(segment.start_offset, 1 << 30, end=segment.end_offset + 1,
                                    min_one=True)
        return [value for buffer in buffers for value in values_of(buffer)]

    async def _diskless_values(self, partition: int, bounds: LogBounds) -> list[Value]:
        found: list[Value] = []
        offset = bounds.diskless_start_offset
        while offset < bounds.high_watermark:
            (answer,) = await self.plane.find([FindRequest(self.log(partition), offset, 1 << 30)])
            for run in answer.runs:
                (data,) = await self.objects.get_ranges(
                    run.key, [ByteRange(run.position, run.position + run.size)])
                first = int(run.base_offset)
                for _, value in values_of(memoryview(data)):
                    if first >= bounds.diskless_start_offset:
                        found.append((first, value))
                    first += 1
                assert first == run.end_offset
                offset = run.end_offset
        return found


def values_of(data: memoryview) -> list[tuple[int, bytes | None]]:
    """Offsets and values of the records of some batches."""
    found, position = [], 0
    while position < len(data):
        size = parse_header(data, position).size
        found += [(record.offset, record.value) for record in decode_records(
            data[position : position + size], size_max=1 << 20)]
        position += size
    return found


def next_offset(values: Sequence[Value]) -> Offset:
    return Offset(values[-1][0] + 1)

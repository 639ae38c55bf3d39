"""Random histories of writers, a control plane and a store, to rebuild the control plane from."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from quipu.diskless.control_plane.interface import BatchOutcome, FindRequest
from quipu.diskless.control_plane.memory import MemoryControlPlane
from quipu.diskless.objects.encoding import EncodedObject, PendingBatch, encode_object
from quipu.diskless.objects.names import ObjectName
from quipu.diskless.objects.reading import check_run
from quipu.diskless.objects.receipts import LogNote, Receipt, make_notes, make_receipt
from quipu.diskless.values import LogKey
from quipu.model.errors import Code
from quipu.model.ids import NodeId, Offset, TimestampMs
from quipu.runtime.clock import ManualClock
from quipu.runtime.objects.memory import MemoryStore
from quipu.runtime.objects.store import ByteRange
from quipu.wire.record_batch import decode_records
from tests.diskless.objects.builders import batch_of

TOPIC = UUID(int=77)
LOGS = [LogKey(TOPIC, partition) for partition in range(3)]


class AcknowledgedBatch(NamedTuple):
    """A batch that its producer was told is stored."""

    log: LogKey
    base_offset: Offset
    values: tuple[bytes, ...]


@dataclass
class TestWriter:
    """A writer that puts receipts into its next object."""

    __test__ = False
    node_id: int
    writer: UUID
    sequence: int = 0
    receipts: list[Receipt] = field(default_factory=list)
    notes: list[LogNote] = field(default_factory=list)
    unreceipted: list[AcknowledgedBatch] = field(default_factory=list)

    def next_name(self) -> ObjectName:
        name = ObjectName(NodeId(self.node_id), self.writer, self.sequence)
        self.sequence += 1
        return name


class History:
    """A store with objects of several writers, and what was acknowledged."""

    def __init__(self, topic_id: UUID = TOPIC) -> None:
        self.topic_id = topic_id
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock.now_ms)
        self.plane = MemoryControlPlane()
        self.receipted: list[AcknowledgedBatch] = []
        self.unreceipted: list[AcknowledgedBatch] = []
        self.deleted_below: dict[LogKey, int] = {}
        self._writers: dict[int, TestWriter] = {}
        self._writer_count = 0
        self._value = 0

    async def begin(self) -> None:
        await self.plane.create_logs(self.topic_id, "topic", len(LOGS))

    def writer(self, node_id: int) -> TestWriter:
        if node_id not in self._writers:
            self._writer_count += 1
            self._writers[node_id] = TestWriter(
                node_id, UUID(int=self.topic_id.int ^ self._writer_count))
        return self._writers[node_id]

    def new_batch(
        self, log: int, count: int, producer: tuple[int, int, int] | None = None
    ) -> PendingBatch:
        values = []
        for _ in range(count):
            self._value += 1
            values.append(b"%d" % self._value)
        return batch_of(LogKey(self.topic_id, log), *values, producer=producer,
                        timestamp=TimestampMs(self.clock.now_ms()))

    async def upload(self, node_id: int, batches: Iterable[PendingBatch]) -> EncodedObject:
        writer = self.writer(node_id)
        encoded = encode_object(writer.next_name(), list(batches), created_ms=self.clock.now_ms(),
                                receipts=writer.receipts, notes=writer.notes)
        await self.store.put(encoded.key, encoded.buffers, if_absent=True)
        self.receipted += writer.unreceipted
        writer.receipts, writer.notes, writer.unreceipted = [], [], []
        return encoded

    async def commit(self, node_id: int, encoded: EncodedObject) -> list[BatchOutcome]:
        writer = self.writer(node_id)
        outcomes = list(await self.plane.commit(encoded.new_object, self.clock.now_ms()))
        writer.receipts.append(make_receipt(encoded.name, outcomes))
        writer.notes += make_notes(encoded.coordinates, outcomes)
        for batch, outcome in zip(encoded.batches, outcomes, strict=True):
            if outcome.code is Code.NONE and not outcome.is_duplicate:
                writer.unreceipted.append(AcknowledgedBatch(
                    batch.log, outcome.base_offset, values_of(batch.data)))
        return outcomes

    async def flush(self, node_id: int, batches: Iterable[PendingBatch]) -> list[BatchOutcome]:
        return await self.commit(node_id, await self.upload(node_id, batches))

    async def stop(self, node_id: int) -> None:
        """The writer ends well: what it knows is stored as receipts alone."""
        await self.upload(node_id, [])
        self._writers.pop(node_id, None)

    def crash(self, node_id: int) -> None:
        """The writer is gone, with receipts that it had not stored yet."""
        writer = self._writers.pop(node_id, None)
        self.unreceipted += writer.unreceipted if writer is not None else []

    async def delete_records(self, log: int, before: int) -> None:
        await self.plane.delete_records(LOGS[log], Offset(before), self.clock.now_ms())
        self.deleted_below[LOGS[log]] = max(self.deleted_below.get(LOGS[log], 0), before)

    def crash_all(self) -> None:
        for node_id in list(self._writers):
            self.crash(node_id)


def values_of(data: bytes | bytearray | memoryview) -> tuple[bytes, ...]:
    return tuple(record.value or b"" for record in decode_records(memoryview(data),
                                                                  size_max=1 << 20))


async def read_log(
    store: MemoryStore, plane: MemoryControlPlane, log: LogKey
) -> dict[int, bytes]:
    """Every record of a log, as the control plane says where it is; checks that it is dense."""
    (bounds,) = await plane.bounds([log])
    assert bounds is not None
    records: dict[int, bytes] = {}
    offset = bounds.diskless_start_offset
    while offset < bounds.high_watermark:
        (found,) = await plane.find([FindRequest(log, offset, 1)])
        for run in found.runs:
            assert run.base_offset <= offset < run.end_offset, (run, offset)
            (data,) = await store.get_ranges(
                run.key, [ByteRange(run.position, run.position + run.size)])
            for batch in check_run(memoryview(data), run):
                values = values_of(memoryview(data)[batch.start : batch.end])
                records |= {batch.base_offset + number: value
                            for number, value in enumerate(values)}
            offset = run.end_offset
    return {offset: value for offset, value in records.items()
            if offset >= bounds.log_start_offset}

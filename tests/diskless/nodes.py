"""Nodes that write and read diskless topics, over one store and one control plane."""

import asyncio
from collections.abc import Callable, Iterator
from typing import NamedTuple
from uuid import UUID

from quipu.diskless.control_plane.interface import BatchOutcome, ControlPlane
from quipu.diskless.control_plane.memory import MemoryControlPlane
from quipu.diskless.control_plane.memory_tables import MemoryTables
from quipu.diskless.reading.reader import DisklessRead, DisklessReader, ReaderLimits
from quipu.diskless.values import LogKey
from quipu.diskless.writing.limits import WriterLimits
from quipu.diskless.writing.writer import DisklessWriter
from quipu.model.errors import QuipuError
from quipu.model.ids import NodeId, Offset
from quipu.model.partition_log import T
from quipu.runtime.objects.memory import MemoryStore
from quipu.runtime.objects.store import ObjectStore
from quipu.runtime.rng import SeededRng
from quipu.wire.record_batch import (
    BatchHeader,
    Record,
    check_batch,
    decode_records,
    encode_batch,
    parse_header,
)
from tests.diskless.faults import FaultyPlane, FaultyStore
from tests.looped import LoopClock

TOPIC = UUID(int=7)
LOG = LogKey(TOPIC, 0)
Outcome = BatchOutcome | QuipuError


def encoded(
    *values: str, producer: tuple[int, int, int] = (-1, -1, -1), timestamp: int = 1000,
    compression: int = 0,
) -> memoryview:
    """A batch of these values; `producer` is its id, epoch and base sequence."""
    producer_id, epoch, sequence = producer
    return memoryview(encode_batch(
        [Record(None, value.encode(), timestamp=timestamp) for value in values],
        compression=compression, producer_id=producer_id, producer_epoch=epoch,
        base_sequence=sequence))


class Node:
    """A writer and a reader that share a store and a control plane."""

    def __init__(
        self, store: ObjectStore, plane: ControlPlane, *, node_id: int = 1,
        limits: WriterLimits | None = None, reader_limits: ReaderLimits | None = None,
    ) -> None:
        clock = LoopClock()
        self.store, self.plane = FaultyStore(store), FaultyPlane(plane)
        self.advanced: list[LogKey] = []
        self.reader = DisklessReader(
            self.store, self.plane, clock, limits=reader_limits or ReaderLimits(),
            on_advance=self.advanced.append)
        self.writer = DisklessWriter(
            self.store, self.plane, clock, SeededRng(node_id), node_id=NodeId(node_id),
            limits=limits or WriterLimits(), on_committed=self.reader.committed)
        self.reader.start()

    def append(
        self, *values: str, log: LogKey = LOG, producer: tuple[int, int, int] = (-1, -1, -1)
    ) -> "asyncio.Future[Outcome]":
        """Append a batch of these values."""
        return self.append_batch(encoded(*values, producer=producer), log)

    def append_batch(self, batch: memoryview, log: LogKey = LOG) -> "asyncio.Future[Outcome]":
        header = parse_header(batch)
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.writer.append(log, batch, header, answer.set_result)
        return answer

    async def read(
        self, offset: int = 0, max_bytes: int = 1 << 20, *, log: LogKey = LOG,
        min_one: bool = True,
    ) -> DisklessRead:
        """Read, and wait if the bytes must be fetched; raises what the read raises."""
        return await read(self.reader, offset, max_bytes, log=log, min_one=min_one)

    async def values(self, log: LogKey = LOG, *, max_bytes: int = 1 << 20) -> list[str]:
        """All records of a log; their offsets are dense."""
        await self.reader.refresh([log])
        found: list[str] = []
        bounds = self.reader.bounds(log)
        assert bounds is not None
        while len(found) < bounds.high_watermark:
            answer = await self.read(len(found), max_bytes, log=log)
            assert answer.size == sum(map(len, answer.buffers)) > 0
            for header, batch in batches(answer.buffers):
                assert header.base_offset == len(found), (header, len(found))
                assert header.leader_epoch == 0
                found += [(record.value or b"").decode()
                          for record in decode_records(batch, size_max=1 << 24)]
        assert len(found) == bounds.high_watermark
        return found

    async def close(self) -> None:
        await self.writer.close()
        await self.reader.close()


async def read(
    reader: DisklessReader, offset: int, max_bytes: int = 1 << 20, *, log: LogKey = LOG,
    min_one: bool = True,
) -> DisklessRead:
    found = reader.read(log, Offset(offset), max_bytes, min_one=min_one)
    if isinstance(found, DisklessRead):
        return found
    arrived = asyncio.get_running_loop().create_future()
    found.when_arrived(lambda: arrived.set_result(None))
    await arrived
    try:
        again = reader.read(log, Offset(offset), max_bytes, min_one=min_one)
    finally:
        found.cancel()
    assert isinstance(again, DisklessRead)
    return again


def batches(buffers: list[memoryview]) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield every batch, checked as a client checks it."""
    for buffer in buffers:
        position = 0
        while position < len(buffer):
            header = parse_header(buffer, position)
            batch = buffer[position : position + header.size]
            produced = bytearray(batch)
            produced[:8] = bytes(8)
            check_batch(memoryview(produced), size_max=1 << 30)
            yield header, batch
            position += header.size


class World(NamedTuple):
    """What nodes share."""

    store: ObjectStore
    plane: Callable[[], ControlPlane]

    async def node(
        self, node_id: int = 1, *, limits: WriterLimits | None = None,
        reader_limits: ReaderLimits | None = None,
    ) -> Node:
        plane = self.plane()
        await plane.open()
        await plane.create_logs(TOPIC, "topic", 4)
        return Node(self.store, plane, node_id=node_id, limits=limits,
                    reader_limits=reader_limits)


def memory_world() -> World:
    tables = MemoryTables()
    return World(MemoryStore(LoopClock().now_ms), lambda: MemoryControlPlane(tables))


async def run_here(work: Callable[[], T]) -> T:
    """Work that would run elsewhere, if it were long."""
    return work()

"""A remote tier in memory: it keeps the bytes of segments, and gives them back some turns later.

    tier = MemoryTier()
    ReplicatedPartition(..., remote_reads=tier)
    tier.copy(partition.tier)              # every segment that may be copied; gives the last offset

A test may hold the bytes back with `holds_reads`, and let them arrive with `arrive`.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import NamedTuple

from quipu.model.errors import OffsetOutOfRange
from quipu.model.ids import Epoch, LogOffset, Offset, TimestampMs
from quipu.model.partition_log import PartitionLog, PendingRead, TimestampAndOffset
from quipu.model.tiered_log import TierableSegment, TieredLog
from quipu.wire.fast import slices
from quipu.wire.record_batch import decode_records, parse_header
from quipu.wire.stored_batch import parse_stored

TURNS = 3


class Copy(NamedTuple):
    """A segment that the tier has."""

    segment: TierableSegment
    data: bytes
    index: bytes
    producers: bytes


class RemoteRead:
    """Bytes on their way: a `PendingRead`."""

    def __init__(self, tier: "MemoryTier", offset: int) -> None:
        self._tier = tier
        self.offset = offset
        self.has_arrived = False
        self._notify: Callable[[], None] | None = None

    def when_arrived(self, arrived: Callable[[], None]) -> None:
        assert self._notify is None, "asked twice"
        self._notify = arrived
        if self.has_arrived:
            arrived()

    def cancel(self) -> None:
        self._notify = None
        if self in self._tier.reads:
            self._tier.reads.remove(self)

    def arrive(self) -> None:
        if not self.has_arrived and self in self._tier.reads:
            self.has_arrived = True
            if self._notify is not None:
                self._notify()


class MemoryTier:
    """The copies of one partition's segments; see `quipu.model.tiered_log.RemoteReads`."""

    def __init__(self) -> None:
        self.copies: list[Copy] = []
        self.reads: list[RemoteRead] = []  # that nobody has cancelled
        self.read_count = 0
        self.holds_reads = False

    def copy(self, log: TieredLog) -> Offset | None:
        """Copy every segment that may be; give the last offset, None if there was none."""
        found = log.segments()
        for segment in found:
            source = log.open(segment)
            source.check()
            self.copies.append(Copy(segment, bytes(source.data), source.index, source.producers))
            source.release()
        return Offset(found[-1].end_offset - 1) if found else None

    def read(
        self, log: PartitionLog, offset: Offset, max_bytes: int, *, min_one: bool, end: Offset
    ) -> list[memoryview] | PendingRead:
        if not any(copy.segment.base_offset <= offset < copy.segment.end_offset
                   for copy in self.copies):
            raise OffsetOutOfRange(str(log.topic_partition), offset, -1, -1)
        if any(read.offset == offset and read.has_arrived for read in self.reads):
            return self._batches(offset, max_bytes, min_one=min_one, end=end)
        pending = RemoteRead(self, offset)
        self.reads.append(pending)
        self.read_count += 1
        if not self.holds_reads:
            _turns_later(TURNS, pending.arrive)
        return pending

    def _batches(
        self, offset: int, max_bytes: int, *, min_one: bool, end: int
    ) -> list[memoryview]:
        buffers: list[memoryview] = []
        for copy in self.copies:
            if copy.segment.end_offset > offset:
                found, size, _ = slices(
                    memoryview(copy.data), 0, offset=offset, end_offset=end, limit=max_bytes,
                    min_one=min_one and not buffers)
                buffers += found
                max_bytes -= size
        return buffers

    def arrive(self) -> None:
        """Let all bytes arrive that were held back."""
        for read in list(self.reads):
            read.arrive()

    async def find_timestamp(
        self, log: PartitionLog, timestamp_ms: int, *, start: Offset, end: Offset
    ) -> TimestampAndOffset | None:
        del log
        await asyncio.sleep(0)
        return next((found for found in self._records(start, end)
                     if found.timestamp >= timestamp_ms), None)

    async def find_max_timestamp(
        self, log: PartitionLog, *, start: Offset, end: Offset
    ) -> TimestampAndOffset | None:
        del log
        await asyncio.sleep(0)
        return max(self._records(start, end), key=lambda found: found.timestamp, default=None)

    async def stored_batches(
        self, log: PartitionLog, offset: Offset, start: LogOffset, end: LogOffset, *,
        size_max: int,
    ) -> bytes:
        del log, offset
        await asyncio.sleep(0)
        found = b""
        for copy in self.copies:
            position = 0
            while position < len(copy.data):
                header = parse_stored(memoryview(copy.data), position)
                if start <= header.log_offset < end:
                    found += copy.data[position : position + header.size]
                position += header.size
        return found[:size_max]

    def _records(self, start: int, end: int) -> Iterator[TimestampAndOffset]:
        for buffer in self._batches(start, 1 << 40, min_one=True, end=end):
            data = memoryview(buffer)
            while data:
                header = parse_header(data)
                for record in decode_records(data[: header.size], size_max=1 << 24):
                    if start <= record.offset < end:
                        yield TimestampAndOffset(
                            TimestampMs(record.timestamp), Offset(record.offset),
                            Epoch(header.leader_epoch))
                data = data[header.size :]


def _turns_later(count: int, call: Callable[[], None]) -> None:
    if count == 0:
        call()
    else:
        asyncio.get_running_loop().call_soon(_turns_later, count - 1, call)

"""Segments of random batches for the tests of this room, and what should be read back of them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar
from uuid import UUID

from hypothesis import strategies as st

from quipu.model.batch_types import CHECKPOINT, DATA
from quipu.model.partition_log import RunLong
from quipu.remote.segments.cache import ChunkCache
from quipu.remote.segments.footer import SegmentEpoch
from quipu.remote.segments.names import SegmentName
from quipu.remote.segments.pointer import SegmentPointer
from quipu.remote.segments.reader import SegmentReader
from quipu.remote.segments.writer import CopyOptions, SegmentToCopy, write_segment
from quipu.runtime.objects.errors import StoreUnavailable
from quipu.runtime.objects.memory import MemoryStore
from quipu.runtime.objects.store import ByteRange, ObjectStore
from quipu.wire.record_batch import LOG_APPEND_TIME_BIT, Record, encode_batch
from quipu.wire.stored_batch import PREFIX_SIZE, pack_prefix
from tests.looped import LoopClock

NOW_MS = 1_700_000_000_000
NAME = SegmentName(UUID(int=7), 3, 1000, UUID(int=99))
CACHE_SIZE = 1 << 20
DEFAULTS = CopyOptions()

T = TypeVar("T")


class Spec(NamedTuple):
    """One batch to make."""

    batch_type: int = DATA
    record_count: int = 1
    value_size: int = 10
    timestamp: int = NOW_MS  # of its first record; each later one is a millisecond newer
    compression: int = 0
    attributes: int = 0


class Made(NamedTuple):
    """One batch that was made."""

    spec: Spec
    position: int
    base_offset: int
    log_offset: int
    stored: bytes

    @property
    def end_offset(self) -> int:
        return self.base_offset + (self.spec.record_count if self.spec.batch_type == DATA else 0)


@dataclass(frozen=True)
class MadeSegment:
    """A segment, and its batches one by one."""

    segment: SegmentToCopy
    batches: list[Made]
    data: bytes

    @property
    def data_batches(self) -> list[Made]:
        return [each for each in self.batches if each.spec.batch_type == DATA]

    def expected(
        self, offset: int, max_bytes: int, *, min_one: bool, end: int | None = None
    ) -> bytes:
        """What a client gets that reads at `offset`."""
        end = self.segment.end_offset if end is None else end
        found = b""
        for each in self.data_batches:
            if each.end_offset <= offset:
                continue
            batch = each.stored[PREFIX_SIZE:]
            fits = len(found) + len(batch) <= max_bytes
            if each.base_offset >= end or (not fits and (found or not min_one)):
                break
            found += batch
        return found

    def first_as_new(self, timestamp: int, start_offset: int) -> tuple[int, int] | None:
        """Time and offset of the first record that is as new, by looking at all of them."""
        for each in self.data_batches:
            newest = each.spec.timestamp + each.spec.record_count - 1
            for delta in range(each.spec.record_count):
                by_append = bool(each.spec.attributes & LOG_APPEND_TIME_BIT)
                time = newest if by_append else each.spec.timestamp + delta
                if each.base_offset + delta >= start_offset and time >= timestamp:
                    return time, each.base_offset + delta
        return None


def make_segment(specs: Sequence[Spec], name: SegmentName = NAME) -> MadeSegment:
    made: list[Made] = []
    offset, log_offset, position = name.start_offset, name.start_offset + 5, 0
    for spec in specs:
        records = [Record(b"k%d" % number, bytes([number % 251]) * spec.value_size,
                          timestamp=spec.timestamp + number)
                   for number in range(spec.record_count)]
        batch = encode_batch(
            records, base_offset=offset, leader_epoch=1, compression=spec.compression,
            attributes=spec.attributes)
        stored = pack_prefix(batch, batch_type=spec.batch_type, log_offset=log_offset) + batch
        made.append(Made(spec, position, offset, log_offset, stored))
        offset, position = made[-1].end_offset, position + len(stored)
        log_offset += spec.record_count
    data = b"".join(each.stored for each in made)
    newest = max((each.spec.timestamp + each.spec.record_count - 1 for each in made
                  if each.spec.batch_type == DATA), default=-1)
    return MadeSegment(SegmentToCopy(
        name=name, topic=".a-topic", data=memoryview(data), size=len(data), end_offset=offset,
        log_start=name.start_offset + 5, log_end=log_offset, max_timestamp=newest,
        epochs=(SegmentEpoch(1, name.start_offset, name.start_offset + 5),),
        producer_snapshot=b"snapshot"), made, data)


specs = st.builds(
    Spec,
    batch_type=st.sampled_from([DATA, DATA, DATA, CHECKPOINT, 200]),
    record_count=st.integers(1, 4),
    value_size=st.sampled_from([0, 1, 30, 300, 3000]),
    timestamp=st.integers(NOW_MS, NOW_MS + 30),
    compression=st.sampled_from([0, 0, 4]),
    attributes=st.sampled_from([0, 0, LOG_APPEND_TIME_BIT]),
)
segments = st.lists(specs, min_size=1, max_size=25).map(make_segment)
options = st.builds(
    CopyOptions, chunk_size=st.sampled_from([77, 300, 1000, 4000, 1 << 20]),
    compress=st.booleans(), index_interval=st.sampled_from([1, 200, 5000]))


async def run_here(work):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 as RunLong
    """Work in a thread, without one."""
    await asyncio.sleep(0)
    return work()


RUN: RunLong = run_here


class CountingStore(MemoryStore):
    """A store that counts what is read, and fails on demand."""

    def __init__(self) -> None:
        super().__init__(lambda: NOW_MS)
        self.ranges: list[ByteRange] = []
        self.gate: asyncio.Event | None = None  # reads wait for it
        self.refuse = 0  # reads that fail
        self.flip = 0  # reads whose bytes are wrong
        self.running = self.running_max = 0

    @property
    def read_size(self) -> int:
        return sum(end - start for start, end in self.ranges)

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[bytes]:
        self.ranges += ranges
        self.running += 1
        self.running_max = max(self.running, self.running_max)
        try:
            if self.gate is not None:
                await self.gate.wait()
            if self.refuse:
                self.refuse -= 1
                raise StoreUnavailable("refused")
            found = await super().get_ranges(key, ranges)
            if self.flip:
                self.flip -= 1
                found = [flipped(each, len(each) // 2) for each in found]
            return found
        finally:
            self.running -= 1


def flipped(data: bytes, position: int) -> bytes:
    """The same bytes with one bit changed."""
    return data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :]


async def put(
    store: ObjectStore, made: MadeSegment, how: CopyOptions = DEFAULTS
) -> SegmentPointer:
    return await write_segment(store, made.segment, how, run=RUN, clock=LoopClock())


def reader_of(
    store: ObjectStore, made: MadeSegment, pointer: SegmentPointer, *,
    cache: ChunkCache | None = None, read_ahead: int = 0,
) -> SegmentReader:
    return SegmentReader(store, made.segment.name, pointer, cache=cache or ChunkCache(CACHE_SIZE),
                         run=RUN, read_ahead=read_ahead)


def joined(buffers: Sequence[memoryview]) -> bytes:
    return b"".join(buffers)

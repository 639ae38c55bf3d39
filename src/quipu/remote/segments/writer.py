"""Writes a segment as one object: its chunks, the footer, the trailer.

Chunks are cut, checked and compressed in threads, one ahead of the store, so that no more than a
few of them are in memory.  An object whose write fails may be there or not: it is never used,
because no metadata gets its pointer, and is found as an orphan (orphans.py).

Invariants
    remote.segments.W1  a damaged segment is not copied: `CorruptLog` is raised before its footer is
                        written, and the object is not stored
    remote.segments.W2  the object has the size that the pointer says, or the write fails
    remote.segments.W3  a footer that a reader would refuse is not written
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Final, Protocol

from crc32c import crc32c

from quipu.model.errors import CorruptLog
from quipu.model.partition_log import RunLong
from quipu.model.token_bucket import TokenBucket
from quipu.remote.segments.chunks import (
    ChunkPlace,
    CutChunk,
    ReadAt,
    cut_chunk,
    scan_marks,
    thin_marks,
)
from quipu.remote.segments.errors import SegmentDamaged
from quipu.remote.segments.footer import (
    CHUNKS_MAX,
    SEGMENT_SIZE_MAX,
    ChunkEntry,
    IndexMark,
    SegmentEpoch,
    SegmentFooter,
    decode_footer,
    encode_footer,
    encode_index,
)
from quipu.remote.segments.names import SegmentName
from quipu.remote.segments.pointer import SegmentPointer
from quipu.runtime.clock import Clock
from quipu.runtime.objects.store import Buffer, ObjectInfo
from quipu.runtime.spawn import spawn
from quipu.wire.scan_run import Expected
from quipu.wire.stored_batch import STORED_HEADER_SIZE, parse_stored

CHUNK_SIZE: Final = 4 << 20
INDEX_INTERVAL: Final = 256 << 10
PART_SIZE: Final = 16 << 20  # of what is passed to the store at a time; a chunk may be larger


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentToCopy:
    """A complete segment, as its owner describes it; the bytes must not change meanwhile."""

    name: SegmentName
    topic: str
    data: memoryview | Path  # its stored batches
    size: int  # bytes of them; a file may be longer
    end_offset: int
    log_start: int
    log_end: int
    max_timestamp: int
    epochs: tuple[SegmentEpoch, ...] = ()
    producer_snapshot: bytes = b""
    transaction_index: bytes | None = None
    index: list[IndexMark] | None = None  # of the segment, if there is one; else it is scanned

    def __post_init__(self) -> None:
        assert 0 < self.size <= SEGMENT_SIZE_MAX, self.size
        assert self.name.start_offset <= self.end_offset, self
        assert self.log_start < self.log_end, self


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOptions:
    """How segments are written."""

    chunk_size: int = CHUNK_SIZE
    compress: bool = False  # chunks, with zstd
    index_interval: int = INDEX_INTERVAL

    def __post_init__(self) -> None:
        assert self.chunk_size >= STORED_HEADER_SIZE, self.chunk_size
        assert self.index_interval > 0, self.index_interval


class PartsStore(Protocol):
    """What a writer needs of an object store."""

    async def put_parts(self, key: str, parts: AsyncIterable[Buffer]) -> ObjectInfo:
        """Store an object from parts; see `ObjectStore`."""
        ...


class SegmentWriter:
    """Writes segments to one store; `run` runs work in a thread."""

    def __init__(
        self, store: PartsStore, options: CopyOptions, *, run: RunLong, clock: Clock,
        throttle: TokenBucket | None = None,
    ) -> None:
        self._store = store
        self._options = options
        self._run = run
        self._clock = clock
        self._throttle = throttle

    async def write(self, segment: SegmentToCopy) -> SegmentPointer:
        """Store the segment under its name's key; return what a reader needs."""
        key = segment.name.key
        copy = _Copy(segment, self._options)
        source = _Source(segment.data)
        parts = self._parts(copy, source.read)
        try:
            info = await self._store.put_parts(key, parts)
        finally:
            with suppress(RuntimeError):  # a store that was cancelled may still be asking for one
                await parts.aclose()
            source.close()
        assert copy.pointer is not None  # the parts have ended
        if info.size != copy.pointer.object_size:  # remote.segments.W2
            raise SegmentDamaged(f"{key}: the store has {info.size} bytes of "
                                 f"{copy.pointer.object_size}; copy the segment again")
        return copy.pointer

    async def _parts(self, copy: "_Copy", read: ReadAt) -> AsyncGenerator[memoryview, None]:
        """The bytes of the object, a part at a time; the next chunk is made meanwhile."""

        async def cut_next() -> CutChunk | None:
            return await self._run(lambda: copy.cut(read))

        making = spawn(_outcome(cut_next()), "cut a chunk")
        try:
            while True:
                chunk = await making
                if isinstance(chunk, CorruptLog):
                    raise chunk  # remote.segments.W1
                if chunk is None:
                    break
                making = spawn(_outcome(cut_next()), "cut a chunk")
                for start in range(0, len(chunk.stored), PART_SIZE):
                    yield await self._throttled(chunk.stored[start : start + PART_SIZE])
        finally:
            making.cancel()
        yield await self._throttled(memoryview(await self._run(lambda: copy.end(read))))

    async def _throttled(self, part: memoryview) -> memoryview:
        if self._throttle is not None and self._throttle.is_limited:
            seconds = self._throttle.take(len(part), self._clock.monotonic())
            if seconds > 0:
                await asyncio.sleep(seconds)
        return part


async def write_segment(
    store: PartsStore, segment: SegmentToCopy, options: CopyOptions, *, run: RunLong, clock: Clock,
    throttle: TokenBucket | None = None,
) -> SegmentPointer:
    """Store one segment; see `SegmentWriter.write`."""
    writer = SegmentWriter(store, options, run=run, clock=clock, throttle=throttle)
    return await writer.write(segment)


async def _outcome(work: Awaitable[CutChunk | None]) -> CutChunk | CorruptLog | None:
    """The chunk, or the error as a value: a task that fails unseen would be logged."""
    try:
        return await work
    except CorruptLog as error:
        return error


class _Copy:
    """The state of one copy; used by one thread at a time."""

    def __init__(self, segment: SegmentToCopy, options: CopyOptions) -> None:
        self._segment = segment
        self._options = options
        self._chunk_size = max(  # two neighbours are larger than one chunk: so many are enough
            options.chunk_size, 2 * segment.size // (CHUNKS_MAX - 1) + 1)
        self._chunks: list[ChunkEntry] = []  # without their bytes
        self._place = ChunkPlace(0, 0, segment.log_start)
        self.pointer: SegmentPointer | None = None

    def cut(self, read: ReadAt) -> CutChunk | None:
        """The next chunk; None after the last one."""
        segment, place = self._segment, self._place
        if place.start == segment.size:
            return None
        chunk = cut_chunk(read, place, end=segment.size, chunk_size=self._chunk_size,
                          compress=self._options.compress)
        entry = chunk.entry
        self._place = ChunkPlace(entry.position + entry.stored_size, entry.start + entry.size,
                                 chunk.log_end)
        self._chunks.append(entry)
        return chunk

    def end(self, read: ReadAt) -> bytes:
        """Footer and trailer; raises `CorruptLog` if the chunks are not what was described."""
        segment = self._segment
        first = self._chunks[0].first_offset
        if self._place.log_offset != segment.log_end or first != segment.name.start_offset:
            raise CorruptLog(  # remote.segments.W1
                f"{segment.name.key}: the segment has log offsets up to {self._place.log_offset}, "
                f"not {segment.log_end}, and begins at {first}")
        interval = self._options.index_interval
        chunks = tuple(self._chunks)
        marks = self._scan(read, interval) if segment.index is None else segment.index
        marks = thin_marks(marks, interval, chunks)
        footer = encode_footer(SegmentFooter(
            segment.name, segment.topic, segment.end_offset, segment.log_start, segment.log_end,
            segment.max_timestamp, segment.size, chunks,
            encode_index(marks, start_offset=segment.name.start_offset,
                         log_start=segment.log_start),
            segment.epochs, segment.producer_snapshot, segment.transaction_index))
        decode_footer(footer, position=self._place.position)  # remote.segments.W3
        self.pointer = SegmentPointer(self._place.position, len(footer), crc32c(footer))
        return footer + self.pointer.encode_trailer()

    def _scan(self, read: ReadAt, interval: int) -> list[IndexMark]:
        """The index of a segment without one, chunk by chunk."""
        found: list[IndexMark] = []
        newest = -1
        for entry in self._chunks:
            data = read(entry.start, entry.size)
            header = parse_stored(data)
            marks, newest_here = scan_marks(
                data, Expected(entry.log_offset, entry.first_offset, header.leader_epoch),
                interval)
            found += [(offset, log_offset, entry.start + position, max(newest, before))
                      for offset, log_offset, position, before in marks]
            newest = max(newest, newest_here)
        return found


class _Source:
    """The bytes of a segment, from memory or from a file; used by one thread at a time."""

    def __init__(self, data: memoryview | Path) -> None:
        self._data = data
        self._file: BufferedReader | None = None

    def read(self, position: int, size: int) -> memoryview:
        if isinstance(self._data, memoryview):
            return self._data[position : position + size]
        try:
            if self._file is None:
                self._file = self._data.open("rb")
            self._file.seek(position)
            return memoryview(self._file.read(size))
        except OSError as error:
            raise CorruptLog(f"{self._data}: {error.strerror}") from error

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

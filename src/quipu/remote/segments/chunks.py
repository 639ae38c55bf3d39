"""Chunks of a segment: cut from stored batches, and checked when they are read back.

A chunk is a run of whole batches of at most `chunk_size` bytes; a batch that is larger is a chunk
of its own.  Pure, and made for threads: nearly all time is spent without the interpreter's lock.

Invariants
    remote.segments.K1  only whole, undamaged batches are cut into chunks: every checksum was
                        computed
    remote.segments.K2  a chunk that passes `check_chunk` has the bytes that were written: checksum
                        of the chunk, of each batch, and the log offsets that the footer says
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import cramjam
from crc32c import crc32c

from quipu.model.errors import CorruptLog
from quipu.model.ids import NO_TIMESTAMP
from quipu.remote.segments.errors import SegmentDamaged
from quipu.remote.segments.footer import (
    CHUNK_SIZE_MAX,
    COMPRESSED_SIZE_MAX,
    SEGMENT_SIZE_MAX,
    ChunkEntry,
    IndexMark,
)
from quipu.runtime.objects.store import Buffer
from quipu.wire.scan_run import Expected, scan_run, sound_end
from quipu.wire.stored_batch import (
    STORED_HEADER_SIZE,
    Fault,
    check_header,
    check_stored,
    parse_stored,
)

ZSTD_LEVEL: Final = 3

ReadAt = Callable[[int, int], memoryview]  # position, size: up to `size` bytes of the segment


class CutChunk(NamedTuple):
    """A chunk as it is to be stored."""

    entry: ChunkEntry
    stored: memoryview
    log_end: int  # the log offset after its last batch


class ChunkPlace(NamedTuple):
    """Where the next chunk begins: in the object, in the segment, by log offset."""

    position: int
    start: int
    log_offset: int


def cut_chunk(
    read: ReadAt, place: ChunkPlace, *, end: int, chunk_size: int, compress: bool
) -> CutChunk:
    """The chunk that begins at `place`, of a segment of `end` bytes; raises `CorruptLog`."""
    start = place.start
    window = min(chunk_size, end - start)
    while True:
        view = read(start, window)
        if len(view) < window:
            raise CorruptLog(f"a segment of {end} bytes ends at {start + len(view)}")
        size, log_end = sound_end(view, 0, window, place.log_offset)  # remote.segments.K1
        if size == window:
            break
        fault = check_header(view, size)
        if fault is not Fault.TOO_SHORT or start + window == end:
            raise CorruptLog(f"the batch at position {start + size} of a segment cannot be "
                             f"copied: {fault if isinstance(fault, Fault) else 'it is damaged'}")
        if size > 0:
            break
        window = _larger(view, window, end - start)
    data = view[:size]
    stored = _compressed(data) if compress else data
    header = parse_stored(data)
    return CutChunk(
        ChunkEntry(place.position, len(stored), size, header.base_offset, place.log_offset,
                   crc32c(stored), start), stored, log_end)


def _larger(view: memoryview, window: int, left: int) -> int:
    """The size of the batch at the start of `view`, which does not lie whole in it."""
    needed = STORED_HEADER_SIZE if len(view) < STORED_HEADER_SIZE else parse_stored(view).size
    if needed <= window or needed > min(left, CHUNK_SIZE_MAX):
        raise CorruptLog(f"a batch of {needed} bytes in a segment that has {left} left")
    return needed


def _compressed(data: memoryview) -> memoryview:
    """The compressed bytes, or the same ones if that does not make them fewer."""
    if len(data) > COMPRESSED_SIZE_MAX:
        return data
    stored = memoryview(cramjam.zstd.compress(data, level=ZSTD_LEVEL))
    return stored if len(stored) < len(data) else data


def check_chunk(stored: Buffer, entry: ChunkEntry, *, log_end: int) -> memoryview:
    """The batches of a chunk from its stored bytes, or `SegmentDamaged` (remote.segments.K2)."""
    if len(stored) != entry.stored_size:
        raise SegmentDamaged(f"a chunk has {len(stored)} bytes, not {entry.stored_size}")
    if crc32c(stored) != entry.crc:
        raise SegmentDamaged("a chunk with a bad checksum")
    data = memoryview(stored)
    if entry.is_compressed:
        data = memoryview(bytearray(entry.size))
        try:
            written = cramjam.zstd.decompress_into(stored, data)
        except cramjam.DecompressionError:
            written = -1
        if written != entry.size:
            raise SegmentDamaged("a chunk that cannot be decompressed")
        data = data.toreadonly()
    if sound_end(data, 0, entry.size, entry.log_offset) != (entry.size, log_end):
        raise SegmentDamaged("a chunk with a damaged batch")
    if parse_stored(data).base_offset != entry.first_offset:
        raise SegmentDamaged("a chunk that begins with another offset than its footer says")
    return data


def thin_marks(
    marks: list[IndexMark], interval: int, chunks: Sequence[ChunkEntry]
) -> list[IndexMark]:
    """Of the entries of a segment's index, about one for each `interval` bytes.

    The first one of each chunk is among them, so that a search seldom begins in the chunk before.
    """
    found: list[IndexMark] = []
    due, chunk_starts = 0, iter([chunk.start for chunk in chunks])
    chunk_start = next(chunk_starts)
    for mark in marks:
        position = mark[2]
        if position >= min(due, chunk_start):
            found.append(mark)
            due = position + interval
            while chunk_start <= position:
                chunk_start = next(chunk_starts, SEGMENT_SIZE_MAX + 1)
    return found


def scan_marks(
    data: memoryview, expected: Expected, interval: int
) -> tuple[list[IndexMark], int]:
    """The entries for an index, and the largest timestamp, from batches that are undamaged.

    For callers that have no index of the segment; it takes the interpreter's lock.
    """
    position, due, newest = 0, 0, int(NO_TIMESTAMP)
    marks: list[IndexMark] = []
    log_offset, offset, epoch = expected
    while position < len(data):
        run = scan_run(data, position, Expected(log_offset, offset, epoch), mark_due=due,
                       mark_interval=interval)
        marks += [(*mark[:3], max(newest, mark[3])) for mark in run.marks]
        newest = max(newest, run.max_timestamp)
        position, log_offset, offset = run.end, run.log_end, run.end_offset
        due = marks[-1][2] + interval if marks else 0
        if position == len(data):
            break
        header = check_stored(data, position)
        if isinstance(header, Fault):
            raise CorruptLog(f"the batch at position {position} of a segment: {header}")
        if position >= due:
            marks.append((offset, log_offset, position, newest))
            due = position + interval
        if header.next_offset > header.base_offset:
            newest = max(newest, header.max_timestamp)
        position += header.size
        log_offset, offset, epoch = header.next_log_offset, header.next_offset, header.leader_epoch
    return marks, newest

"""The footer of a segment's object: what the segment is, where its chunks lie, and its indexes.

      0 topic id 16 | 16 segment id 16 | 32 partition i32 | 36 format u16 = 1 |
     38 size of the topic's name u16 | 40 start offset i64 | 48 end offset i64 |
     56 log start i64 | 64 log end i64 | 72 largest timestamp i64 | 80 segment size i64 |
     88 chunks u32 | 92 index entries u32 | 96 epochs u32 | 100 size of the producer snapshot u32 |
    104 size of the transaction index i32, -1 if there is none
    108 topic name, UTF-8
    per chunk, 36 bytes: position in the object i64 | stored size u32 | size u32 |
        first offset i64 | first log offset i64 | CRC-32C of the stored bytes u32
    per index entry, 20 bytes: offset delta u32 | log offset delta u32 | position in the segment u32
        | largest timestamp of the data batches before it i64
    per epoch, 20 bytes: epoch i32 | start offset i64 | start log offset i64
    producer snapshot | transaction index
All big endian.  docs/internals/segment-object.md has the whole format.

Invariants
    remote.segments.F1  decoding uses all bytes, or raises `MalformedBytes`; the memory that it
                        takes is at most a constant times the size of the footer
    remote.segments.F2  chunks follow each other without gaps, in the object and in the segment;
                        each begins and ends at the boundary of a batch
    remote.segments.F3  first offsets of chunks never fall, first log offsets grow; those of the
                        first chunk are the segment's own

A chunk is compressed (zstd) if its stored size is less than its size.
Not here: where the footer lies (pointer.py), whether the chunks hold what it says (chunks.py).
"""

from bisect import bisect_left, bisect_right
from itertools import starmap
from operator import attrgetter
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from quipu.model.bounds import EPOCH_MAX, OFFSET_MAX
from quipu.model.errors import MalformedBytes
from quipu.model.ids import NO_TIMESTAMP
from quipu.remote.segments.errors import UnknownSegmentFormat
from quipu.remote.segments.names import PARTITION_MAX, SegmentName
from quipu.remote.segments.pointer import FOOTER_SIZE_MAX, FORMAT
from quipu.runtime.objects.store import Buffer

CHUNKS_MAX: Final = 1 << 16
CHUNK_SIZE_MAX: Final = (1 << 30) + (1 << 16)  # a batch as large as topics allow, and its header
COMPRESSED_SIZE_MAX: Final = 64 << 20  # larger chunks are never compressed: bounds memory
EPOCHS_MAX: Final = 100_000
TOPIC_SIZE_MAX: Final = 255
SEGMENT_SIZE_MAX: Final = (1 << 32) - 1
_HEAD: Final = Struct(">16s16siHHqqqqqqIIIIi")
_CHUNK: Final = Struct(">qIIqqI")
_ENTRY: Final = Struct(">IIIq")
_EPOCH: Final = Struct(">iqq")
_CHUNK_MEMORY: Final = 320  # bytes that a decoded chunk entry takes, with its numbers

assert _HEAD.size == 108
assert _CHUNK.size == 36
assert _ENTRY.size == 20

IndexMark = tuple[int, int, int, int]  # offset, log offset, position, largest timestamp before it


class ChunkEntry(NamedTuple):
    """One chunk: a run of whole batches."""

    position: int  # in the object
    stored_size: int
    size: int
    first_offset: int
    log_offset: int
    crc: int  # CRC-32C of the stored bytes
    start: int  # position in the segment

    @property
    def is_compressed(self) -> bool:
        return self.stored_size < self.size


class SegmentEpoch(NamedTuple):
    """Where a leader epoch begins, by both offsets."""

    epoch: int
    offset: int
    log_offset: int


_first_offset = attrgetter("first_offset")
_log_offset = attrgetter("log_offset")
_start = attrgetter("start")


class SegmentFooter(NamedTuple):
    """A decoded footer; the index stays encoded, because few of its entries are used."""

    name: SegmentName
    topic: str
    end_offset: int
    log_start: int
    log_end: int
    max_timestamp: int
    segment_size: int
    chunks: tuple[ChunkEntry, ...]
    entries: bytes  # of the index
    epochs: tuple[SegmentEpoch, ...]
    producer_snapshot: bytes
    transaction_index: bytes | None

    @property
    def memory_size(self) -> int:
        """About how many bytes of memory it takes."""
        return (len(self.entries) + len(self.producer_snapshot) + len(self.transaction_index or b"")
                + _CHUNK_MEMORY * (len(self.chunks) + len(self.epochs) + 2))

    def log_end_of(self, number: int) -> int:
        """The log offset after the last batch of a chunk."""
        following = number + 1
        return self.chunks[following].log_offset if following < len(self.chunks) else self.log_end

    def find_chunk(self, offset: int) -> int:
        """The number of the chunk in which the search for a client offset begins."""
        return max(0, bisect_right(self.chunks, offset, key=_first_offset) - 1)

    def find_chunk_by_log_offset(self, log_offset: int) -> int:
        return max(0, bisect_right(self.chunks, log_offset, key=_log_offset) - 1)

    def find_chunk_at(self, position: int) -> int:
        """The number of the chunk that holds a byte of the segment."""
        return max(0, bisect_right(self.chunks, position, key=_start) - 1)

    def find_position(self, offset: int) -> int:
        """A position in the segment at or before the batch that holds `offset`."""
        delta = offset - self.name.start_offset
        return self._entry(bisect_right(self._numbers, delta, key=self._field(0)) - 1)

    def find_position_by_time(self, timestamp: int) -> int:
        """A position before which all records are older than `timestamp`."""
        return self._entry(bisect_left(self._numbers, timestamp, key=self._field(3)) - 1)

    @property
    def _numbers(self) -> range:
        return range(len(self.entries) // _ENTRY.size)

    def _field(self, field: int):  # type: ignore[no-untyped-def]  # noqa: ANN202 a key function
        data, unpack, size = self.entries, _ENTRY.unpack_from, _ENTRY.size
        return lambda number: unpack(data, number * size)[field]

    def _entry(self, number: int) -> int:
        position: int = self._field(2)(max(0, number)) if self.entries else 0
        return position

    def marks(self) -> list[IndexMark]:
        """All entries of the index, with absolute offsets."""
        base, log_base = self.name.start_offset, self.log_start
        return [(base + offset, log_base + log_offset, position, newest)
                for offset, log_offset, position, newest in _ENTRY.iter_unpack(self.entries)]


# --- writing ----------------------------------------------------------------------------------


def encode_index(marks: list[IndexMark], *, start_offset: int, log_start: int) -> bytes:
    """The entries of the index, relative to the segment's first offsets."""
    return b"".join(starmap(_ENTRY.pack, (
        (offset - start_offset, log_offset - log_start, position, newest)
        for offset, log_offset, position, newest in marks)))


def encode_epochs(epochs: tuple[SegmentEpoch, ...]) -> bytes:
    return b"".join(starmap(_EPOCH.pack, epochs))


def encode_footer(footer: SegmentFooter) -> bytes:
    """The footer's bytes; what decoding would refuse is a bug of the caller."""
    topic = footer.topic.encode()
    transactions = footer.transaction_index
    name = footer.name
    head = _HEAD.pack(
        name.topic_id.bytes, name.segment_id.bytes, name.partition, FORMAT, len(topic),
        name.start_offset, footer.end_offset, footer.log_start, footer.log_end,
        footer.max_timestamp, footer.segment_size, len(footer.chunks),
        len(footer.entries) // _ENTRY.size, len(footer.epochs), len(footer.producer_snapshot),
        -1 if transactions is None else len(transactions))
    data = b"".join((
        head, topic, *(_CHUNK.pack(*chunk[:-1]) for chunk in footer.chunks), footer.entries,
        encode_epochs(footer.epochs), footer.producer_snapshot, transactions or b""))
    assert len(data) <= FOOTER_SIZE_MAX, len(data)
    return data


# --- reading ----------------------------------------------------------------------------------


def decode_footer(data: Buffer, *, position: int) -> SegmentFooter:
    """The footer at `position` of its object; raises `MalformedBytes` (remote.segments.F1)."""
    if not _HEAD.size <= len(data) <= FOOTER_SIZE_MAX:
        raise MalformedBytes(f"a segment's footer of {len(data)} bytes")
    data = bytes(data)
    (topic_id, segment_id, partition, version, topic_size, start_offset, end_offset, log_start,
     log_end, max_timestamp, segment_size, chunk_count, entry_count, epoch_count, snapshot_size,
     transactions_size) = _HEAD.unpack_from(data)
    if version != FORMAT:
        raise UnknownSegmentFormat(f"a segment's footer of format {version}")
    sizes = (topic_size, chunk_count * _CHUNK.size, entry_count * _ENTRY.size,
             epoch_count * _EPOCH.size, snapshot_size, max(0, transactions_size))
    if _HEAD.size + sum(sizes) != len(data) or transactions_size < -1:
        raise MalformedBytes(f"a segment's footer of {len(data)} bytes holds {sum(sizes)}")
    if not (1 <= chunk_count <= CHUNKS_MAX and epoch_count <= EPOCHS_MAX
            and 1 <= topic_size <= TOPIC_SIZE_MAX and 0 <= partition <= PARTITION_MAX
            and 0 <= start_offset <= end_offset <= OFFSET_MAX
            and 0 <= log_start < log_end <= OFFSET_MAX and max_timestamp >= NO_TIMESTAMP
            and 0 < segment_size <= SEGMENT_SIZE_MAX):
        raise MalformedBytes("a segment's footer with numbers out of bounds")
    parts, at = [], _HEAD.size
    for size in sizes:
        parts.append(data[at : at + size])
        at += size
    topic, chunks, index, epochs, snapshot, transactions = parts
    footer = SegmentFooter(
        SegmentName(UUID(bytes=topic_id), partition, start_offset, UUID(bytes=segment_id)),
        _text(topic), end_offset, log_start, log_end, max_timestamp, segment_size,
        _chunks(chunks), index, _epochs(epochs), snapshot,
        None if transactions_size < 0 else transactions)
    _check_chunks(footer, position)
    _check_index(footer)
    return footer


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise MalformedBytes("a segment's footer whose topic is not UTF-8") from None


def _chunks(data: bytes) -> tuple[ChunkEntry, ...]:
    found, start = [], 0
    for fields in _CHUNK.iter_unpack(data):
        found.append(ChunkEntry._make((*fields, start)))
        start += fields[2]
    return tuple(found)


def _check_chunks(footer: SegmentFooter, position: int) -> None:
    """Raise unless remote.segments.F2 and remote.segments.F3 hold, as far as the table shows."""
    at, first, log_offset = 0, footer.name.start_offset, footer.log_start - 1
    for chunk in footer.chunks:
        if (chunk.position != at or not 0 < chunk.stored_size <= chunk.size <= CHUNK_SIZE_MAX
                or (chunk.is_compressed and chunk.size > COMPRESSED_SIZE_MAX)
                or not first <= chunk.first_offset <= footer.end_offset
                or not log_offset < chunk.log_offset < footer.log_end):
            raise MalformedBytes(f"a segment's footer with a bad chunk at {chunk.position}")
        at, first, log_offset = at + chunk.stored_size, chunk.first_offset, chunk.log_offset
    head, last = footer.chunks[0], footer.chunks[-1]
    if (at != position or last.start + last.size != footer.segment_size
            or head.first_offset != footer.name.start_offset
            or head.log_offset != footer.log_start):
        raise MalformedBytes("a segment's footer whose chunks are not the whole segment")


def _check_index(footer: SegmentFooter) -> None:
    """Raise unless all three keys of the index only grow and lie within the segment."""
    before = (0, 0, -1, NO_TIMESTAMP)
    for entry in _ENTRY.iter_unpack(footer.entries):
        offset, log_offset, position, newest = entry
        if (position <= before[2] or offset < before[0] or log_offset < before[1]
                or newest < before[3]):
            raise MalformedBytes(f"a segment's footer with a bad index entry {entry}")
        before = entry
    if (before[2] >= footer.segment_size
            or before[0] > footer.end_offset - footer.name.start_offset
            or before[1] >= footer.log_end - footer.log_start):
        raise MalformedBytes("a segment's footer with an index entry outside the segment")


def _epochs(data: bytes) -> tuple[SegmentEpoch, ...]:
    epochs = tuple(starmap(SegmentEpoch, _EPOCH.iter_unpack(data)))
    before = SegmentEpoch(-1, 0, -1)
    for each in epochs:
        if not (before.epoch < each.epoch <= EPOCH_MAX and before.offset <= each.offset
                and before.log_offset < each.log_offset <= OFFSET_MAX):
            raise MalformedBytes(f"a segment's footer with a bad epoch {each}")
        before = each
    return epochs

"""The index of one segment: where to start looking for an offset or a timestamp.

An entry names a batch: its two offsets relative to the segment's, its position, and the largest
timestamp of the data batches before it.  There is one entry for the first batch, and then one per
`index.interval.bytes`.  All three keys only grow, so every look-up is a binary search for the
last entry at or before the key; the caller walks batches from there.

The file is a cache.  It is written once the segment is complete and durable, so a sound index is
also the proof that the segment needs no check; anything else is rebuilt from the segment.

    0  magic "QIDX" | 4 layout u8 = 1 | 5 zero u24 | 8 entry count u32 | 12 CRC-32C of entries u32
    16 segment size i64 | 24 base offset i64 | 32 end offset i64 | 40 log end i64
    48 largest timestamp of data i64 | 56 created ms i64 | 64 CRC-32C of bytes 0 to 63 u32
    68 entries, each: offset delta u32 | log offset delta u32 | position u32 | timestamp i64
All big endian.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import starmap
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from quipu.model.errors import MalformedBytes
from quipu.model.ids import NO_TIMESTAMP

MAGIC: Final = b"QIDX"
LAYOUT: Final = 1
DELTA_MAX: Final = 2**32 - 1  # of offsets within a segment; it rolls before
HEADER: Final = Struct(">4sB3xIIqqqqqqI")
HEADER_SIZE: Final = HEADER.size
ENTRY: Final = Struct(">IIIq")
ENTRY_SIZE: Final = ENTRY.size
_pack_entry = ENTRY.pack
_CRC_SIZE: Final = 4

assert HEADER_SIZE == 68
assert ENTRY_SIZE == 20


class IndexEntry(NamedTuple):
    """One batch; the offsets are relative to the segment's."""

    offset_delta: int
    log_offset_delta: int
    position: int
    max_timestamp_before: int


class Summary(NamedTuple):
    """What is known of a complete segment without looking into it."""

    size: int
    base_offset: int
    end_offset: int
    log_end: int
    max_timestamp: int
    created_ms: int


class Index:
    """Entries in their encoded form, in memory or mapped from a file."""

    __slots__ = ("_data",)

    def __init__(self, data: bytearray | memoryview | None = None) -> None:
        self._data = bytearray() if data is None else data

    def __len__(self) -> int:
        return len(self._data) // ENTRY_SIZE

    @property
    def size(self) -> int:
        """Bytes of the entries."""
        return len(self._data)

    @property
    def entries(self) -> bytes:
        """A copy of the entries, encoded."""
        return bytes(self._data)

    def __getitem__(self, number: int) -> IndexEntry:
        return IndexEntry._make(ENTRY.unpack_from(self._data, number * ENTRY_SIZE))

    def add(self, entry: IndexEntry | tuple[int, int, int, int]) -> None:
        """Put an entry, or the numbers of one, at the end."""
        assert type(self._data) is bytearray, "a mapped index is complete"
        self._data += _pack_entry(*entry)

    def add_all(self, entries: Sequence[tuple[int, int, int, int]]) -> None:
        """Put the numbers of several at the end."""
        assert type(self._data) is bytearray, "a mapped index is complete"
        self._data += b"".join(starmap(_pack_entry, entries))

    def find_offset(self, delta: int) -> IndexEntry:
        """The last entry whose batch starts at or before `delta`."""
        return self._last(0, delta)

    def find_log_offset(self, delta: int) -> IndexEntry:
        """The same by log offset."""
        return self._last(1, delta)

    def _last(self, field: int, key: int) -> IndexEntry:
        count = len(self)
        assert count > 0, "an index names the first batch"
        last = self[count - 1]
        if last[field] <= key:  # most reads are at the end
            return last
        data, unpack = self._data, ENTRY.unpack_from
        number = bisect_right(
            range(count), key, key=lambda each: unpack(data, each * ENTRY_SIZE)[field])
        return self[max(0, number - 1)]

    def around(self, position: int) -> tuple[IndexEntry, IndexEntry | None]:
        """The last entry whose batch lies at or before `position`, and the one after it."""
        data, unpack, count = self._data, ENTRY.unpack_from, len(self)
        assert count > 0, "an index names the first batch"
        number = bisect_right(
            range(count), position, key=lambda each: unpack(data, each * ENTRY_SIZE)[2])
        return self[max(0, number - 1)], self[number] if number < count else None

    def find_timestamp(self, timestamp: int) -> IndexEntry:
        """The last entry before which every data batch is older than `timestamp`."""
        assert len(self) > 0, "an index names the first batch"
        data, unpack = self._data, ENTRY.unpack_from
        number = bisect_left(
            range(len(self)), timestamp, key=lambda each: unpack(data, each * ENTRY_SIZE)[3])
        return self[max(0, number - 1)]

    def encode(self, summary: Summary) -> bytes:
        """The file's bytes."""
        head = HEADER.pack(MAGIC, LAYOUT, len(self), crc32c(self._data), *summary, 0)[:-_CRC_SIZE]
        return b"".join((head, crc32c(head).to_bytes(_CRC_SIZE, "big"), self._data))


def decode_summary(data: bytes | memoryview) -> Summary:
    """Check and read the header alone; raises `MalformedBytes`."""
    if len(data) < HEADER_SIZE:
        raise MalformedBytes(f"index of {len(data)} bytes is shorter than its header")
    magic, layout, _, _, *summary, crc = HEADER.unpack_from(data)
    if crc32c(data[: HEADER_SIZE - _CRC_SIZE]) != crc:
        raise MalformedBytes("index with a bad header checksum")
    if magic != MAGIC or layout != LAYOUT:
        raise MalformedBytes(f"index with layout {layout}, this version reads {LAYOUT}")
    return Summary(*summary)


def decode_index(data: memoryview) -> tuple[Summary, Index]:
    """Check and read the whole file; raises `MalformedBytes`."""
    summary = decode_summary(data)
    count, crc = HEADER.unpack_from(data)[2:4]
    entries = data[HEADER_SIZE:]
    if len(entries) != count * ENTRY_SIZE:
        raise MalformedBytes(f"index of {count} entries has {len(entries)} bytes of them")
    if crc32c(entries) != crc:
        raise MalformedBytes("index with a bad checksum")
    if count == 0 or ENTRY.unpack_from(entries) != (0, 0, 0, NO_TIMESTAMP):
        raise MalformedBytes("index that does not begin with the first batch")
    return summary, Index(entries)

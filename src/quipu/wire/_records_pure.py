"""The walk over a batch's records in plain Python: the same as `_records.pyx`, for comparison.

`walk_records` checks that the records match the batch's header; `are_plain` does the same for a
whole batch in one call; `find_time` looks for a timestamp in records; the others compute the
largest decompressed size of a batch from its framing alone.
None of them makes an object per record, and none raises: a fault is returned as a number, because
only one batch in a million needs a message.

Not here: errors for faults (record_check.py), the compression codecs (compression.py).
"""

from enum import IntEnum
from typing import Final, NamedTuple

from quipu.model.errors import MalformedBytes
from quipu.wire.record_batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    HEADER_SIZE_MIN,
    RECORD_SIZE_MIN,
    VARLONG_SIZE_MAX,
    parse_header,
    read_varint,
)

KEYLESS_MAX: Final = 100  # records without a key that a response names: it must stay small
NO_TIMESTAMP: Final = -1
TIMESTAMP_MIN: Final = -(1 << 63)
TIMESTAMP_MAX: Final = (1 << 63) - 1

LZ4_MAGIC: Final = 0x184D2204
LZ4_BLOCK_SIZES: Final = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
LZ4_RATIO_MAX: Final = 255
ZSTD_MAGIC: Final = 0xFD2FB528
ZSTD_BLOCK_SIZE_MAX: Final = 128 << 10
XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER_SIZE: Final = 16  # magic, version, lowest compatible version
SNAPPY_RATIO_MAX: Final = 22  # the best ratio: three bytes copy 64
SNAPPY_BLOCK_SIZE_MIN: Final = 512  # on average, if there are many: clients make blocks of 32 KiB
SNAPPY_BLOCKS_SMALL_MAX: Final = 64
NO_FRAME: Final = -1


class RecordFault(IntEnum):
    """What is wrong with a record; the numbers are shared with `_records.pyx`."""

    NONE = 0
    MISSING = 1  # the batch has fewer records than its header says
    LENGTH = 2  # the record reaches past the end of the batch, or is too small
    ATTRIBUTES = 3  # not zero: none are defined
    TIMESTAMP = 4  # not a valid varint, or out of range
    OFFSET_DELTA = 5  # not the index of the record
    KEY = 6  # longer than its record
    VALUE = 7
    HEADERS = 8  # more or longer than fit in the record
    HEADER_NAME = 9  # null or not UTF-8
    EXCESS = 10  # bytes in the record after its headers
    TRAILING = 11  # bytes in the batch after its last record
    KEYLESS = 12  # no key, where keys are required


class RecordsSeen(NamedTuple):
    """The result of a walk; timestamps are those of the records before the fault."""

    fault: int  # a RecordFault
    record: int  # index of the record with the fault
    position: int  # where that record starts
    oldest: int  # smallest timestamp of the records that have one; -1 if none has
    newest: int
    keyless: list[int]  # indexes of the first records without a key, if keys are required


class TimeFound(NamedTuple):
    """The result of a search for a timestamp."""

    offset_delta: int  # of the record; -1: all are older; -2: the records cannot be decoded
    timestamp: int  # of that record; else the largest seen, -1 if there was none


class _Bad(Exception):
    """Raised to stop decoding a record that has a fault."""

    def __init__(self, fault: RecordFault) -> None:
        super().__init__(fault)
        self.fault = fault


class _Record(NamedTuple):
    timestamp: int
    offset_delta: int
    has_key: bool
    end: int


def are_plain(batch: memoryview, keyed: bool) -> bool:  # noqa: FBT001 called for every batch
    """Whether the batch is not compressed and its records match its header, with timestamps.

    False does not mean that it is invalid: `record_check.check_records` then decides.
    """
    header = parse_header(batch)
    if header.attributes & COMPRESSION_MASK:
        return False
    seen = walk_records(batch, HEADER_SIZE, header.count, header.base_timestamp, keyed=keyed)
    return seen.fault == 0 and seen.newest == header.max_timestamp


def walk_records(
    data: memoryview, start: int, count: int, base_timestamp: int, *,
    keyed: bool = False, threaded: bool = False,
) -> RecordsSeen:
    """Check the `count` records that must fill `data` from `start` on.

    `keyed` requires that all have keys.  `threaded` is for callers in a worker thread: the compiled
    function then releases the interpreter's lock.
    """
    del threaded
    position, size = start, len(data)
    oldest, newest = TIMESTAMP_MAX, TIMESTAMP_MIN
    keyless: list[int] = []
    fault, index = RecordFault.NONE, 0
    for index in range(max(count, 0)):
        try:
            record = _read(data, position, base_timestamp)
            if record.offset_delta != index:
                raise _Bad(RecordFault.OFFSET_DELTA)
        except _Bad as bad:
            fault = RecordFault.MISSING if position == size else bad.fault
            break
        if keyed and not record.has_key and len(keyless) < KEYLESS_MAX:
            keyless.append(index)
        newest = max(newest, record.timestamp)
        if record.timestamp != NO_TIMESTAMP:
            oldest = min(oldest, record.timestamp)
        position = record.end
    else:
        index = max(count, 0)
        if position != size:
            fault = RecordFault.TRAILING
        elif keyless:
            fault, index = RecordFault.KEYLESS, keyless[0]
    if newest == TIMESTAMP_MIN:
        newest = NO_TIMESTAMP
    return RecordsSeen(int(fault), index, position - start,
                       NO_TIMESTAMP if oldest == TIMESTAMP_MAX else oldest, newest, keyless)


def find_time(
    data: memoryview, start: int, count: int, base_timestamp: int, *,
    wanted: int, first_delta: int,
) -> TimeFound:
    """The first record at or after `first_delta` whose timestamp is at least `wanted`."""
    position, newest = start, NO_TIMESTAMP
    for _ in range(max(count, 0)):
        try:
            record = _read(data, position, base_timestamp)
        except _Bad:
            return TimeFound(-2, newest)
        if record.offset_delta >= first_delta:
            if record.timestamp >= wanted:
                return TimeFound(record.offset_delta, record.timestamp)
            newest = max(newest, record.timestamp)
        position = record.end
    return TimeFound(-1, newest)


def _read(data: memoryview, position: int, base_timestamp: int) -> _Record:
    size, at = _number(data, position, RecordFault.LENGTH)
    end = at + size
    if size < RECORD_SIZE_MIN - 1 or end > len(data):
        raise _Bad(RecordFault.LENGTH)
    view = data[:end]
    if view[at] != 0:
        raise _Bad(RecordFault.ATTRIBUTES)
    delta, at = _number(view, at + 1, RecordFault.TIMESTAMP, VARLONG_SIZE_MAX)
    timestamp = base_timestamp + delta
    if not TIMESTAMP_MIN < timestamp < TIMESTAMP_MAX:
        raise _Bad(RecordFault.TIMESTAMP)
    offset_delta, at = _number(view, at, RecordFault.OFFSET_DELTA)
    if offset_delta < 0:
        raise _Bad(RecordFault.OFFSET_DELTA)
    key_size, at = _bytes(view, at, RecordFault.KEY)
    _, at = _bytes(view, at, RecordFault.VALUE)
    at = _headers(view, at)
    if at != end:
        raise _Bad(RecordFault.EXCESS)
    return _Record(timestamp, offset_delta, key_size >= 0, end)


def _headers(view: memoryview, at: int) -> int:
    count, at = _number(view, at, RecordFault.HEADERS)
    if not 0 <= count * HEADER_SIZE_MIN <= len(view) - at:
        raise _Bad(RecordFault.HEADERS)
    for _ in range(count):
        size, start = _number(view, at, RecordFault.HEADERS)
        if size == -1:
            raise _Bad(RecordFault.HEADER_NAME)
        if not 0 <= size <= len(view) - start:
            raise _Bad(RecordFault.HEADERS)
        try:
            str(view[start : start + size], "utf-8")
        except UnicodeDecodeError:
            raise _Bad(RecordFault.HEADER_NAME) from None
        _, at = _bytes(view, start + size, RecordFault.HEADERS)
    return at


def _number(view: memoryview, at: int, fault: RecordFault, size_max: int = 5) -> tuple[int, int]:
    try:
        return read_varint(view, at, size_max)
    except MalformedBytes:
        raise _Bad(fault) from None


def _bytes(view: memoryview, at: int, fault: RecordFault) -> tuple[int, int]:
    """The size of a byte string, -1 for null, and the position after it."""
    size, at = _number(view, at, fault)
    if not -1 <= size <= len(view) - at:
        raise _Bad(fault)
    return size, at + max(size, 0)


# --- the largest decompressed size of a batch -------------------------------------------------


def lz4_size_max(data: memoryview) -> int:
    """The largest decompressed size of `data`; `NO_FRAME` unless it is one lz4 frame."""
    size = len(data)
    if size < 7 or _little(data, 0, 4) != LZ4_MAGIC:
        return NO_FRAME
    flags, block_size = data[4], LZ4_BLOCK_SIZES.get(data[5] >> 4)
    if flags >> 6 != 1 or flags & 0x02 or data[5] & 0x8F or block_size is None:
        return NO_FRAME  # another version, or unknown bits
    if flags & 0x01:
        return NO_FRAME  # a dictionary, which no client has
    has_size = bool(flags & 0x08)
    at = 7 + (8 if has_size else 0)
    if at > size:
        return NO_FRAME
    bound = 0
    while True:
        if size - at < 4:
            return NO_FRAME
        length = _little(data, at, 4)
        at += 4
        if length == 0:
            break
        raw, length = length >> 31, length & 0x7FFF_FFFF
        at += length + (4 if flags & 0x10 else 0)
        if length > block_size or at > size:
            return NO_FRAME
        bound += length if raw else min(block_size, length * LZ4_RATIO_MAX)
    if at + (4 if flags & 0x04 else 0) != size:
        return NO_FRAME
    return min(bound, _little(data, 6, 8)) if has_size else bound


def zstd_size_max(data: memoryview) -> int:
    """The largest decompressed size of `data`; `NO_FRAME` unless it is one zstd frame."""
    size = len(data)
    if size < 6 or _little(data, 0, 4) != ZSTD_MAGIC:
        return NO_FRAME
    descriptor = data[4]
    single = bool(descriptor & 0x20)
    if descriptor & 0x0B:
        return NO_FRAME  # a reserved bit, or a dictionary, which no client has
    at = 5 + (0 if single else 1)
    content_bytes = (1 if single else 0, 2, 4, 8)[descriptor >> 6]
    if size - at < content_bytes:
        return NO_FRAME
    content = _little(data, at, content_bytes) + (256 if content_bytes == 2 else 0)
    at += content_bytes
    bound, last = 0, False
    while not last:
        if size - at < 3:
            return NO_FRAME
        head = _little(data, at, 3)
        last, kind, length = bool(head & 1), head >> 1 & 3, head >> 3
        at += 3 + (1 if kind == 1 else length)
        if kind == 3 or length > ZSTD_BLOCK_SIZE_MAX or at > size:
            return NO_FRAME
        bound += ZSTD_BLOCK_SIZE_MAX if kind == 2 else length
    if at + (4 if descriptor & 0x04 else 0) != size:
        return NO_FRAME
    return min(bound, content) if content_bytes else bound


def snappy_size_max(data: memoryview) -> int:
    """The decompressed size of `data`: one snappy block, or several after xerial's header.

    `NO_FRAME` if it is neither, if a block's size exceeds snappy's best ratio, or if the blocks are
    so small that decompressing them costs too much for their bytes.
    """
    size = len(data)
    if bytes(data[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _snappy_block(data, 0, size)
    at, total, blocks = XERIAL_HEADER_SIZE, 0, 0
    if size < at:
        return NO_FRAME
    while at < size:
        if size - at < 4:
            return NO_FRAME
        length = int.from_bytes(data[at : at + 4], "big", signed=True)
        at += 4
        if not 0 < length <= size - at:
            return NO_FRAME
        held = _snappy_block(data, at, at + length)
        if held == NO_FRAME:
            return NO_FRAME
        total, blocks, at = total + held, blocks + 1, at + length
    if blocks > SNAPPY_BLOCKS_SMALL_MAX + total // SNAPPY_BLOCK_SIZE_MIN:
        return NO_FRAME
    return total


def _snappy_block(data: memoryview, start: int, end: int) -> int:
    value = 0
    for index in range(min(5, end - start)):
        byte = data[start + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value if value <= (end - start) * SNAPPY_RATIO_MAX else NO_FRAME
    return NO_FRAME


def _little(data: memoryview, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")

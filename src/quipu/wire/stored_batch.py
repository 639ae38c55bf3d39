"""The format of a batch in a file: a prefix of 16 bytes, then the Kafka batch as on the wire.

    0  header_crc u32   CRC-32C over bytes 4 to 36: the prefix, and the batch up to its own crc
    4  type u8          see model/batch_types.py; never 0
    5  layout u8        1
    6  reserved u16     0
    8  log_offset i64   counts the records of every type
    16 the Kafka batch (record_batch.py); its baseOffset counts the records that clients see
All big endian.  docs/internals/stored-batch.md has a worked example, byte by byte.

Invariants
    wire.D1  every byte is covered by a checksum: what the broker sets by header_crc, the rest by
             Kafka's crc; and header_crc covers Kafka's crc, so a header cannot be paired with
             another batch's body
    wire.D2  every batch holds both of its offsets: a data batch takes up lastOffsetDelta + 1 of
             each; any other type takes up as many log offsets and no client offset
    wire.D3  type 0 is never written, and never read as a batch

Checks of stored bytes return a `Fault` instead of raising: a scan normally finds one at the torn
end of a log, and must distinguish them.
Not here: in which file and at which position a batch is (storage/).
"""

import struct
from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from crc32c import crc32c

from quipu.model.batch_types import DATA, UNSET
from quipu.wire.record_batch import (
    BATCH_LENGTH_MIN,
    CRC_START,
    HEADER_SIZE,
    LENGTH_START,
    MAGIC,
    BatchHeader,
)

LAYOUT: Final = 1
PREFIX_SIZE: Final = 16
STORED_HEADER: Final = struct.Struct(">IBBHqqiibIhiqqqhii")
STORED_HEADER_SIZE: Final = STORED_HEADER.size
COVERED_START: Final = 4  # header_crc covers [COVERED_START, COVERED_END)
COVERED_END: Final = PREFIX_SIZE + CRC_START
BATCH_LENGTH_MAX: Final = 2**31 - 1 - PREFIX_SIZE - LENGTH_START

assert STORED_HEADER_SIZE == PREFIX_SIZE + HEADER_SIZE

_COVERED: Final = struct.Struct(">BBHqqiibI")
_CRC: Final = struct.Struct(">I")
_PREFIX_COVERED_SIZE: Final = PREFIX_SIZE - COVERED_START
_BODY_CRC_START: Final = PREFIX_SIZE + CRC_START

assert _COVERED.size == COVERED_END - COVERED_START

_pack_covered = _COVERED.pack
_pack_crc = _CRC.pack
_unpack_stored = STORED_HEADER.unpack_from
_new_tuple = tuple.__new__


class Fault(StrEnum):
    """What is wrong with stored bytes, in the order of the checks."""

    TOO_SHORT = "too short"  # the file ends within the batch: a torn write
    HEADER_CRC = "bad header checksum"
    LAYOUT = "unknown layout"  # of a later version, or not a Kafka batch of magic 2
    UNSET_TYPE = "type unset"  # a bug of the writer: the checksum is right
    LENGTH = "length out of bounds"
    BODY_CRC = "bad body checksum"


class StoredHeader(NamedTuple):
    """Prefix and Kafka header of a stored batch, in the order of the layout."""

    header_crc: int
    batch_type: int
    layout: int
    reserved: int
    log_offset: int
    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which a header has no use for

    @property
    def size(self) -> int:
        """Bytes in the file, prefix included."""
        return PREFIX_SIZE + LENGTH_START + self.batch_length

    @property
    def next_log_offset(self) -> int:
        """The log offset of the batch that follows (wire.D2)."""
        return self.log_offset + self.last_offset_delta + 1

    @property
    def next_offset(self) -> int:
        """The client offset of the batch that follows (wire.D2)."""
        width = self.last_offset_delta + 1 if self.batch_type == DATA else 0
        return self.base_offset + width

    @property
    def batch(self) -> BatchHeader:
        """The Kafka header alone."""
        return _new_tuple(BatchHeader, self[5:])


# --- writing ----------------------------------------------------------------------------------


def stamp(
    batch: memoryview | bytearray,
    header: BatchHeader,
    *,
    batch_type: int,
    log_offset: int,
    base_offset: int,
    leader_epoch: int,
) -> bytes:
    """Set offset and epoch in `batch`, in place, and return the prefix to write before it.

    `header` is the checked header of the batch, with the offset and epoch from before.
    """
    assert batch_type != UNSET  # wire.D3
    covered = _pack_covered(batch_type, LAYOUT, 0, log_offset, base_offset, header[1],
                            leader_epoch, MAGIC, header[4])
    batch[:CRC_START] = covered[_PREFIX_COVERED_SIZE:]
    return _pack_crc(crc32c(covered)) + covered[:_PREFIX_COVERED_SIZE]


def pack_prefix(
    batch: memoryview | bytes | bytearray, *, batch_type: int, log_offset: int
) -> bytes:
    """The prefix of a batch that already has its offset and epoch."""
    assert batch_type != UNSET  # wire.D3
    covered = struct.pack(">BBHq", batch_type, LAYOUT, 0, log_offset) + bytes(batch[:CRC_START])
    assert len(covered) == _COVERED.size
    return _pack_crc(crc32c(covered)) + covered[:_PREFIX_COVERED_SIZE]


# --- reading ----------------------------------------------------------------------------------


def parse_stored(data: memoryview, position: int = 0) -> StoredHeader:
    """The header at `position`, unchecked: for bytes that `check_header` has passed before."""
    return _new_tuple(StoredHeader, _unpack_stored(data, position))


def check_header(
    data: memoryview, position: int = 0, *, end: int | None = None
) -> StoredHeader | Fault:
    """The header at `position` if it is valid and its batch ends by `end`, else its fault.

    Without `end`, the end of `data` counts.  The body is not read: `check_body` does that.
    """
    left = (len(data) if end is None else end) - position
    if left < STORED_HEADER_SIZE:
        return Fault.TOO_SHORT
    header = _new_tuple(StoredHeader, _unpack_stored(data, position))
    covered = data[position + COVERED_START : position + COVERED_END]
    if crc32c(covered) != header.header_crc:  # wire.D1
        return Fault.HEADER_CRC
    if header.layout != LAYOUT or header.reserved != 0 or header.magic != MAGIC:
        return Fault.LAYOUT
    if header.batch_type == UNSET:
        return Fault.UNSET_TYPE  # wire.D3
    if not BATCH_LENGTH_MIN <= header.batch_length <= BATCH_LENGTH_MAX:
        return Fault.LENGTH
    if header.size > left:
        return Fault.TOO_SHORT
    return header


def check_body(data: memoryview, position: int, header: StoredHeader) -> Fault | None:
    """`Fault.BODY_CRC` if Kafka's checksum does not match the bytes that it covers, else None."""
    body = data[position + _BODY_CRC_START : position + header.size]
    return None if crc32c(body) == header.crc else Fault.BODY_CRC


def check_stored(
    data: memoryview, position: int = 0, *, end: int | None = None
) -> StoredHeader | Fault:
    """`check_header` and then `check_body`."""
    header = check_header(data, position, end=end)
    if isinstance(header, Fault):
        return header
    return check_body(data, position, header) or header


def walk_headers(
    data: memoryview, position: int = 0, *, end: int | None = None
) -> Iterator[tuple[int, StoredHeader | Fault]]:
    """Yield position and header of each batch, without its body; ends after the first fault."""
    end = len(data) if end is None else end
    while position < end:
        found = check_header(data, position, end=end)
        yield position, found
        if isinstance(found, Fault):
            return
        position += found.size


def kafka_batch(data: memoryview, position: int, header: StoredHeader) -> memoryview:
    """The bytes past the prefix: what a Kafka client gets."""
    return data[position + PREFIX_SIZE : position + header.size]

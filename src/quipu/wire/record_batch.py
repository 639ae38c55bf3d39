"""The Kafka record batch (magic 2): its header, the check of a produced batch, and its records.

    0  baseOffset i64 | 8 batchLength i32 | 12 partitionLeaderEpoch i32 | 16 magic i8 | 17 crc u32
    21 attributes i16 | 23 lastOffsetDelta i32 | 27 baseTimestamp i64 | 35 maxTimestamp i64
    43 producerId i64 | 51 producerEpoch i16 | 53 baseSequence i32 | 57 count i32 | 61 records
All big endian.  batchLength counts from byte 12; crc is CRC-32C over byte 21 to the end, so the
broker can set the offset and the epoch of a batch without computing the checksum again.

Invariants
    wire.R1  a header from `check_batch` is consistent: the batch fills its buffer, the checksum
             is right, count = lastOffsetDelta + 1 >= 1, the bytes can hold that many records, no
             attribute is unknown, and a producer id comes with an epoch and a sequence
    wire.R2  decoding never reads outside a record's own length, nor produces more than `size_max`
             bytes

Apart from the checksum, `check_batch` takes the same time for one record as for ten thousand.
Not here: the check of records (record_check.py), the format of a batch in a file (stored_batch.py),
the compression codecs (compression.py).
"""

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from crc32c import crc32c

from quipu.model.errors import Code, MalformedBytes, RequestError
from quipu.wire.compression import Compression, compress, decompress

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = HEADER.size
LENGTH_START: Final = 12  # batchLength counts the bytes from here
CRC_START: Final = 21  # the checksum covers the bytes from here
BATCH_LENGTH_MIN: Final = HEADER_SIZE - LENGTH_START
MAGIC: Final = 2

CODEC_POSITION: Final = 22  # the byte of the attributes whose low bits name the codec
COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20

VARINT_SIZE_MAX: Final = 5
VARLONG_SIZE_MAX: Final = 10
RECORD_SIZE_MIN: Final = 7  # length, attributes, two deltas, key, value and header count
EXPANSION_MAX: Final = 1 << 15  # the best ratio: zstd stores 128 KiB of one byte in 4 bytes
DECOMPRESSED_SIZE_MAX: Final = 256 << 20  # of one batch's records: no topic accepts more
HEADER_SIZE_MIN: Final = 2  # of one record header: a key length and a value length

assert HEADER_SIZE == 61

_unpack_header = HEADER.unpack_from
_new_tuple = tuple.__new__
_CRC_FIELD: Final = struct.Struct(">I")
_CRC_POSITION: Final = 17
_ATTRIBUTES: Final = struct.Struct(">h")
_MAX_TIMESTAMP: Final = struct.Struct(">q")
_MAX_TIMESTAMP_POSITION: Final = 35
_ATTRIBUTES_KNOWN: Final = (
    COMPRESSION_MASK | LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT)
_ATTRIBUTES_PLAIN_MAX: Final = Compression.ZSTD  # above it, a flag or an unknown codec is set


class TimestampType(IntEnum):
    """Whether the producer or the broker set the timestamps of a batch."""

    CREATE_TIME = 0  # the producer, per record
    LOG_APPEND_TIME = 1  # the broker: max_timestamp holds for every record


class BatchHeader(NamedTuple):
    """The 61 bytes before the records, in the order of the format."""

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
        """Bytes of the whole batch, header included."""
        return LENGTH_START + self.batch_length

    @property
    def last_offset(self) -> int:
        """Offset of the last record, inclusive."""
        return self.base_offset + self.last_offset_delta

    @property
    def compression(self) -> int:
        """The codec number; 5 to 7 are no `Compression`."""
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        """Whether the broker set the timestamps."""
        is_append_time = self.attributes & LOG_APPEND_TIME_BIT
        return TimestampType.LOG_APPEND_TIME if is_append_time else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a transaction marker instead of records."""
        return bool(self.attributes & CONTROL_BIT)


class Record(NamedTuple):
    """One record.  Decoding sets `offset`; encoding ignores it and numbers records itself."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int = -1
    offset: int = 0


class NotOneBatch(RequestError):
    """What a producer sent for a partition is not one whole batch of the current format."""

    code = Code.INVALID_RECORD

    def __init__(self, message: str, *, code: Code | None = None) -> None:
        super().__init__(f"invalid batch: {message}", code=code)


def parse_header(data: memoryview, position: int = 0) -> BatchHeader:
    """The header at `position`; only that it lies within `data` is checked."""
    if position < 0 or len(data) - position < HEADER_SIZE:
        raise MalformedBytes(f"batch header needs {HEADER_SIZE} bytes at position {position}, "
                             f"have {max(0, len(data) - position)}")
    return _new_tuple(BatchHeader, _unpack_header(data, position))


def body_crc(batch: memoryview) -> int:
    """The checksum that the header of `batch`, which is one whole batch, must have."""
    return crc32c(batch[CRC_START:])


# --- a batch from a producer ------------------------------------------------------------------


def check_batch(data: memoryview, *, size_max: int) -> BatchHeader:
    """Check the one batch that a producer may send per partition, and return its header (wire.R1).

    Raises `RequestError` with the error code that Kafka returns for the same fault.
    """
    size = len(data)
    if size > size_max:
        raise RequestError(f"batch of {size} bytes exceeds max.message.bytes = {size_max}",
                           code=Code.MESSAGE_TOO_LARGE)
    if size < HEADER_SIZE:
        raise NotOneBatch(f"{size} bytes are less than a batch header of {HEADER_SIZE}")
    header = _new_tuple(BatchHeader, _unpack_header(data, 0))
    (base_offset, batch_length, _, magic, crc, attributes, last_offset_delta,
     _, _, producer_id, _, _, count) = header
    if magic != MAGIC:
        raise _wrong_magic(magic)
    if batch_length + LENGTH_START != size:
        raise _wrong_length(batch_length, size)
    if crc32c(data[CRC_START:]) != crc:
        raise _corrupt(f"checksum is {body_crc(data):#010x}, header says {crc:#010x}")
    if count < 1 or last_offset_delta != count - 1 or base_offset != 0:
        raise _invalid(f"count {count}, lastOffsetDelta {last_offset_delta} and baseOffset "
                       f"{base_offset} must be n, n - 1 and 0, with n at least 1")
    if producer_id != -1 or not 0 <= attributes <= _ATTRIBUTES_PLAIN_MAX:
        _check_unusual(header)
    if count > count_max(size - HEADER_SIZE, attributes):
        raise _invalid(f"{count} records cannot lie in {size - HEADER_SIZE} bytes")
    return header


def check_one_batch(data: memoryview) -> None:
    """Check only what `check_batch` checks without its checksum: that this is one whole batch."""
    if len(data) < HEADER_SIZE:
        raise NotOneBatch(f"{len(data)} bytes are less than a batch header of {HEADER_SIZE}")
    header = parse_header(data)
    if header.magic != MAGIC:
        raise _wrong_magic(header.magic)
    if header.size != len(data):
        raise _wrong_length(header.batch_length, len(data))


def count_max(size: int, attributes: int) -> int:
    """The largest number of records that `size` bytes can hold, compressed or not.

    A header with a larger count would leave offsets without a record.
    """
    if attributes & COMPRESSION_MASK:
        size = min(size * EXPANSION_MAX, DECOMPRESSED_SIZE_MAX)
    return size // RECORD_SIZE_MIN


def _check_unusual(header: BatchHeader) -> None:
    """Check a batch that has a producer id or flags."""
    if header.attributes & ~_ATTRIBUTES_KNOWN:
        raise _invalid(f"attributes {header.attributes & 0xFFFF:#06x} have bits that mean nothing")
    if header.compression > Compression.ZSTD:
        raise RequestError(f"compression codec {header.compression} is unknown; "
                           "use none, gzip, snappy, lz4 or zstd",
                           code=Code.UNSUPPORTED_COMPRESSION_TYPE)
    if header.is_control:
        raise _invalid("control batches are written by the broker only")
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        raise RequestError("LogAppendTime is set by the broker only; send CreateTime",
                           code=Code.INVALID_TIMESTAMP)
    if header.producer_id == -1:
        if header.is_transactional:
            raise _invalid("a transactional batch needs a producer id")
    elif header.producer_id < 0 or header.producer_epoch < 0 or header.base_sequence < 0:
        raise _invalid(f"producer id {header.producer_id}, epoch {header.producer_epoch} and "
                       f"sequence {header.base_sequence}: none may be negative")


def _corrupt(message: str) -> RequestError:
    return RequestError(f"corrupt batch: {message}", code=Code.CORRUPT_MESSAGE)


def _invalid(message: str) -> RequestError:
    return RequestError(f"invalid batch: {message}", code=Code.INVALID_RECORD)


def _wrong_magic(magic: int) -> RequestError:
    if magic in (0, 1):
        return NotOneBatch(f"message format {magic} is no longer written; send format {MAGIC}, "
                        "which every client since Kafka 0.11 can")
    return _corrupt(f"message format {magic} does not exist")


def _wrong_length(batch_length: int, size: int) -> RequestError:
    rest = size - LENGTH_START - batch_length
    if batch_length < BATCH_LENGTH_MIN or 0 < rest <= CRC_START:
        return _corrupt(f"batchLength {batch_length} does not match the {size} bytes sent")
    if rest < 0:
        return NotOneBatch(f"batchLength {batch_length} needs more than the {size} bytes sent")
    return NotOneBatch(f"{size} bytes hold more than one batch; send one per partition")


def set_max_timestamp(batch: memoryview, timestamp_ms: int) -> BatchHeader:
    """Correct the largest timestamp, in place, and compute the checksum again."""
    _MAX_TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_POSITION, timestamp_ms)
    _CRC_FIELD.pack_into(batch, _CRC_POSITION, body_crc(batch))
    return parse_header(batch)


def set_log_append_time(batch: memoryview, timestamp_ms: int) -> BatchHeader:
    """Set LogAppendTime with `timestamp_ms`, in place, and compute the checksum again."""
    (attributes,) = _ATTRIBUTES.unpack_from(batch, CRC_START)
    _ATTRIBUTES.pack_into(batch, CRC_START, attributes | LOG_APPEND_TIME_BIT)
    return set_max_timestamp(batch, timestamp_ms)


# --- records, both directions -----------------------------------------------------------------


def encode_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    compression: int = Compression.NONE,
    attributes: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """A whole batch of at least one record; the first has `base_offset`.

    `attributes` are flags other than the codec, for example `CONTROL_BIT`.
    """
    assert attributes & COMPRESSION_MASK == 0, attributes  # the codec has its own parameter
    body = bytearray()
    base_timestamp = max_timestamp = -1
    count = 0
    for record in records:
        if count == 0:
            base_timestamp = max_timestamp = record.timestamp
        elif record.timestamp > max_timestamp:
            max_timestamp = record.timestamp
        _encode_record(body, record, count, record.timestamp - base_timestamp)
        count += 1
    assert count > 0  # an empty batch would take up no offsets
    packed = compress(Compression(compression), body)
    batch = bytearray(HEADER_SIZE + len(packed))
    HEADER.pack_into(batch, 0, base_offset, len(batch) - LENGTH_START, leader_epoch, MAGIC, 0,
                     attributes | compression, count - 1, base_timestamp, max_timestamp,
                     producer_id, producer_epoch, base_sequence, count)
    batch[HEADER_SIZE:] = packed
    _CRC_FIELD.pack_into(batch, _CRC_POSITION, body_crc(memoryview(batch)))
    return batch


def decode_records(batch: memoryview, *, size_max: int) -> Iterator[Record]:
    """Yield the records of one whole batch of at most `size_max` decompressed bytes (wire.R2).

    The checksum is not checked.  Raises `MalformedBytes`, maybe after some records.
    """
    header = parse_header(batch)
    if header.size != len(batch):
        raise MalformedBytes(f"batch says it has {header.size} bytes, has {len(batch)}")
    if header.compression > Compression.ZSTD:
        raise MalformedBytes(f"compression codec {header.compression} is unknown")
    codec = Compression(header.compression)
    yield from decode_body(
        memoryview(decompress(codec, batch[HEADER_SIZE:], size_max=size_max)), header)


def decode_body(data: memoryview, header: BatchHeader) -> Iterator[Record]:
    """Yield the records of the batch with this header from its decompressed bytes (wire.R2)."""
    if not 0 <= header.count * RECORD_SIZE_MIN <= len(data):
        raise MalformedBytes(f"{header.count} records cannot lie in {len(data)} bytes")
    position = 0
    for _ in range(header.count):
        record, position = _decode_record(data, position, header)
        yield record
    if position != len(data):
        raise MalformedBytes(f"{len(data) - position} bytes follow the last record")


def _encode_record(out: bytearray, record: Record, offset_delta: int, timestamp_delta: int) -> None:
    body = bytearray(1)  # attributes of a record: none are defined
    write_varint(body, timestamp_delta)
    write_varint(body, offset_delta)
    _write_bytes(body, record.key)
    _write_bytes(body, record.value)
    write_varint(body, len(record.headers))
    for name, value in record.headers:
        _write_bytes(body, name.encode())
        _write_bytes(body, value)
    write_varint(out, len(body))
    out += body


def _decode_record(data: memoryview, position: int, header: BatchHeader) -> tuple[Record, int]:
    size, start = read_varint(data, position)
    end = start + size
    if size < RECORD_SIZE_MIN - 1 or end > len(data):
        raise MalformedBytes(f"record of {size} bytes at position {start} "
                             f"does not fit in {len(data)}")
    view = data[:end]  # wire.R2: nothing below can read past the record
    timestamp_delta, at = read_varint(view, start + 1, VARLONG_SIZE_MAX)  # + 1: attributes
    offset_delta, at = read_varint(view, at)
    if not 0 <= offset_delta <= header.last_offset_delta:
        raise MalformedBytes(f"offset delta {offset_delta} of the record at position {position} "
                             f"is outside [0, {header.last_offset_delta}]")
    key, at = _read_bytes(view, at)
    value, at = _read_bytes(view, at)
    headers, at = _read_headers(view, at)
    if at != end:
        raise MalformedBytes(f"record at position {position} has {end - at} bytes too many")
    timestamp = (header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT
                 else header.base_timestamp + timestamp_delta)
    return Record(key, value, headers, timestamp, header.base_offset + offset_delta), end


def _read_headers(
    data: memoryview, position: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, position = read_varint(data, position)
    if not 0 <= count * HEADER_SIZE_MIN <= len(data) - position:
        raise MalformedBytes(f"{count} record headers cannot lie in {len(data) - position} bytes")
    headers = []
    for _ in range(count):
        name, position = _read_bytes(data, position)
        if name is None:
            raise MalformedBytes(f"null name of a record header before position {position}")
        value, position = _read_bytes(data, position)
        headers.append((name.decode(errors="replace"), value))  # as the Java client reads them
    return tuple(headers), position


def _write_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(0x01)  # zigzag of -1
        return
    write_varint(out, len(value))
    out += value


def _read_bytes(data: memoryview, position: int) -> tuple[bytes | None, int]:
    size, position = read_varint(data, position)
    if size == -1:
        return None, position
    end = position + size
    if size < 0 or end > len(data):
        raise MalformedBytes(f"{size} bytes at position {position} do not fit in {len(data)}")
    return bytes(data[position:end]), end


def write_varint(out: bytearray, value: int) -> None:
    """Append a signed varint: zigzag encoded, then seven bits per byte, lowest first."""
    assert -(1 << 63) <= value < 1 << 63, value
    rest = (value << 1) ^ (value >> 63)
    while rest >= 0x80:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)


def read_varint(
    data: memoryview, position: int, size_max: int = VARINT_SIZE_MAX
) -> tuple[int, int]:
    """A signed varint and the position after it; `size_max` is 5 for 32 bits, 10 for 64."""
    if position < len(data) and data[position] < 0x80:  # nearly always
        return (data[position] >> 1) ^ -(data[position] & 1), position + 1
    rest = shift = 0
    end = min(len(data), position + size_max)
    for at in range(position, end):
        byte = data[at]
        rest |= (byte & 0x7F) << shift
        if byte < 0x80:
            if rest >= 1 << (32 if size_max == VARINT_SIZE_MAX else 64):
                raise MalformedBytes(f"number at position {position} is out of range")
            return (rest >> 1) ^ -(rest & 1), at + 1
        shift += 7
    raise MalformedBytes(f"number at position {position} does not end within {size_max} bytes")

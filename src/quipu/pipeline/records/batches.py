"""Arguments, results and checks of batches, shared by the compiled and the plain reader.

A run of batches is read a chunk at a time.  A chunk ends when it holds `size_max` bytes of
records, so it never has more than that and one batch; with the limit on a batch, no Arrow array
reaches the 2 GiB that its offsets can count, whatever sizes the batches claim.
"""

from typing import Final, NamedTuple

import pyarrow as pa

from quipu.model.errors import Code, ErrorKind, MalformedBytes, QuipuError
from quipu.pipeline.types import TIMESTAMPTZ
from quipu.wire.compression import Compression, decompress
from quipu.wire.record_batch import (
    BATCH_LENGTH_MIN,
    HEADER_SIZE,
    LENGTH_START,
    MAGIC,
    RECORD_SIZE_MIN,
    BatchHeader,
    body_crc,
    parse_header,
)

BATCH_SIZE_MAX: Final = 256 << 20  # of one batch's records, decompressed
EXPANSION_MAX: Final = 1 << 15  # the most of any codec: zstd encodes 128 KiB in 4 bytes
CHUNK_SIZE_MAX: Final = 1 << 30
CHUNK_SIZE: Final = 64 << 20
OFFSET_MAX: Final = 1 << 62  # far from where sums overflow in C
NO_TIMESTAMP: Final = -1

HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string(), nullable=False),
                                pa.field("value", pa.binary())])
HEADERS_TYPE: Final = pa.list_(pa.field("item", HEADER_TYPE, nullable=False))


class CorruptRecords(QuipuError):
    """A batch is corrupt; `offset` is its base offset, -1 if it has none."""

    kind = ErrorKind.CORRUPT
    code = Code.CORRUPT_MESSAGE

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"the batch at offset {offset} is corrupt: {reason}")
        self.offset = offset


class WantedColumns(NamedTuple):
    """The columns to read; others are skipped."""

    key: bool = True
    value: bool = True
    offset: bool = True
    timestamp: bool = True
    timestamp_type: bool = False
    headers: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The schema of the result: the wanted fields, in this order."""
        return pa.schema([field for field, wanted in zip(_FIELDS, self, strict=True) if wanted])


_FIELDS: Final = (
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("timestamp", TIMESTAMPTZ),
    pa.field("timestamp_type", pa.int32(), nullable=False),  # 0: the producer's, 1: the broker's
    pa.field("headers", HEADERS_TYPE, nullable=False),  # empty if there are none
)


class OffsetSpan(NamedTuple):
    """The offsets to read, and the bytes of records to read at once."""

    first: int
    end: int  # exclusive
    size_max: int = CHUNK_SIZE
    is_checked: bool = False  # the batches' checksums were compared in this process before


class Chunk(NamedTuple):
    """Some of a run's records as columns."""

    position: int  # in the run, after the last batch that was read
    next_offset: int  # after all records that were read or skipped
    arrays: list[pa.Array]  # of the wanted columns


def whole_batch(data: memoryview, position: int) -> BatchHeader | None:
    """The header of the batch at `position`, None if the run ends before the batch does."""
    if len(data) - position < HEADER_SIZE:
        return None
    header = parse_header(data, position)
    if header.magic != MAGIC:
        raise CorruptRecords(header.base_offset, f"message format {header.magic}, "
                             f"where only {MAGIC} is known (Kafka's since 0.11)")
    if header.batch_length < BATCH_LENGTH_MIN:
        raise CorruptRecords(header.base_offset, f"a length of {header.batch_length} bytes")
    if header.size > len(data) - position:
        return None
    if not 0 <= header.base_offset <= OFFSET_MAX or header.last_offset_delta < 0:
        raise CorruptRecords(header.base_offset, "its offsets are out of range: last offset delta "
                             f"{header.last_offset_delta}")
    return header


def check_crc(batch: memoryview, header: BatchHeader) -> None:
    """Raise CorruptRecords if the checksum of a batch is wrong."""
    if (found := body_crc(batch)) != header.crc:
        raise CorruptRecords(header.base_offset, f"its checksum is {found:#010x}, "
                             f"the header says {header.crc:#010x}")


def body_of(batch: memoryview, header: BatchHeader) -> memoryview:
    """The bytes of a batch's records, decompressed; raises if its count of records cannot fit."""
    if header.compression > Compression.ZSTD:
        raise CorruptRecords(header.base_offset,
                             f"compression codec {header.compression} is unknown")
    codec = Compression(header.compression)
    if header.count == 0:  # compaction may leave a batch without records
        return memoryview(b"")
    # Also bounded by the size of the batch: decompressing random bytes stops early.
    size_max = min(BATCH_SIZE_MAX, len(batch) * EXPANSION_MAX)
    try:
        body = memoryview(decompress(codec, batch[HEADER_SIZE:], size_max=size_max))
    except MalformedBytes as error:
        raise CorruptRecords(header.base_offset, str(error)) from error
    if not 0 <= header.count * RECORD_SIZE_MIN <= len(body):
        raise CorruptRecords(header.base_offset,
                             f"{header.count} records cannot lie in {len(body)} bytes")
    return body


def texts_of(data: pa.BinaryArray) -> pa.StringArray:
    """Bytes as text; those that are not UTF-8 with replacement characters, as Java reads them."""
    try:
        return data.cast(pa.string())  # checks all bytes once, and shares the buffers
    except pa.ArrowInvalid:
        return pa.array([None if one is None else one.decode(errors="replace")
                         for one in data.to_pylist()], pa.string())


assert LENGTH_START + BATCH_LENGTH_MIN == HEADER_SIZE
assert CHUNK_SIZE_MAX + BATCH_SIZE_MAX < 1 << 31

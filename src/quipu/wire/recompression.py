"""Compresses the records of a batch with another codec: what compression.type asks for.

Offsets, timestamps, producer id, epoch and sequence, and every attribute but the codec stay as they
are; the length and the checksum are those of the new bytes.

Not here: when a batch must be recompressed (broker/serving/record_checks.py), its check
(record_check.py).
"""

import struct
from typing import Final

from crc32c import crc32c

from quipu.model.errors import Code, RequestError
from quipu.wire.compression import Compression, compress
from quipu.wire.record_batch import (
    CODEC_POSITION,
    COMPRESSION_MASK,
    CRC_START,
    HEADER_SIZE,
    LENGTH_START,
)

_LENGTH: Final = struct.Struct(">i")
_LENGTH_POSITION: Final = 8
_CRC: Final = struct.Struct(">I")
_CRC_POSITION: Final = 17


def recompress(
    batch: memoryview, records: memoryview, codec: Compression, level: int | None, *, size_max: int
) -> bytearray:
    """The batch with its decompressed `records` compressed by `codec`; `batch` is not changed.

    RequestError if it would be larger than `size_max`, the topic's max.message.bytes.
    """
    body = memoryview(records) if codec is Compression.NONE else compress(codec, records, level)
    size = HEADER_SIZE + len(body)
    if size > size_max:
        raise RequestError(
            f"batch of {size} bytes after compression by {codec.name.lower()} exceeds "
            f"max.message.bytes = {size_max}; send smaller batches", code=Code.MESSAGE_TOO_LARGE)
    made = bytearray(size)
    made[:HEADER_SIZE] = batch[:HEADER_SIZE]
    made[HEADER_SIZE:] = body
    made[CODEC_POSITION] = made[CODEC_POSITION] & ~COMPRESSION_MASK | codec
    _LENGTH.pack_into(made, _LENGTH_POSITION, size - LENGTH_START)
    _CRC.pack_into(made, _CRC_POSITION, crc32c(memoryview(made)[CRC_START:]))
    return made

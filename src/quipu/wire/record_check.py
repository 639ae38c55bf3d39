"""Checks that a batch's records match its header, before the batch is stored.

A checksum only shows that the bytes are those that were sent.  Consumers rely on the header: they
take the next offset from it, skip by it, and fail where the records differ.  So a stored batch has:

    wire.K1  only whole records: lengths, numbers and headers of a record end where its length says,
             its attributes are 0, names of headers are UTF-8
    wire.K2  offset delta n in the n-th record, and no bytes after the last one
    wire.K3  if it is compressed, one frame of its codec and nothing after it: clients disagree
             about a second frame
    wire.K4  a decompressed size within the limit: the framing bounds the size before memory is
             allocated, so that a batch that may exceed the limit is refused first; if the framing
             is wrong, the codec fails

A wrong largest timestamp in the header is no error: as Kafka does, the broker corrects it, because
some clients do not set it.
Not here: the walk over records (records.py), header and checksum (`record_batch.check_batch`).
"""

import mmap
import re
import zlib
from collections.abc import Callable
from typing import Final

import cramjam

from quipu.model.errors import Code, RequestError
from quipu.wire.compression import Compression, decompress_into
from quipu.wire.record_batch import CODEC_POSITION, COMPRESSION_MASK, HEADER_SIZE, BatchHeader
from quipu.wire.records import (
    NO_FRAME,
    RecordFault,
    RecordsSeen,
    lz4_size_max,
    snappy_size_max,
    walk_records,
    zstd_size_max,
)

GZIP_RATIO_MAX: Final = 1032  # the best ratio of deflate
GZIP_SIZE_MIN: Final = 18
_GZIP_MAGIC: Final = re.compile(rb"\x1f\x8b\x08")
BOUND_RATIO_MAX: Final = 2  # lz4, zstd: no client's frame has a bound above twice its content
HEAP_SIZE_MAX: Final = 1 << 20  # larger buffers are mapped: freed at once, only written pages taken

RecordErrors = tuple[tuple[int, str], ...]  # the index of a record, and what is wrong with it

_WORDS: Final = {
    RecordFault.MISSING: "the batch ends before it, and its header counts {count} records",
    RecordFault.LENGTH: "its length does not fit in the batch",
    RecordFault.ATTRIBUTES: "its attributes are not 0",
    RecordFault.TIMESTAMP: "its timestamp is out of range",
    RecordFault.OFFSET_DELTA: "its offset delta is not {index}",
    RecordFault.KEY: "its key does not fit in it",
    RecordFault.VALUE: "its value does not fit in it",
    RecordFault.HEADERS: "its headers do not fit in it",
    RecordFault.HEADER_NAME: "the name of a header is not UTF-8",
    RecordFault.EXCESS: "there are bytes after its headers",
    RecordFault.TRAILING: "there are bytes after the last record",
    RecordFault.KEYLESS: "it has no key, and the topic's cleanup.policy includes compact",
}
_CAUSE: Final = "; the client that made it has a bug: the batch was not stored"


class InvalidRecords(RequestError):
    """A batch with invalid records; `record_errors` names them (KIP-467)."""

    code = Code.INVALID_RECORD

    def __init__(
        self, message: str, record_errors: RecordErrors = (), *, code: Code | None = None
    ) -> None:
        super().__init__(message, code=code)
        self.record_errors = record_errors


def check_records(
    batch: memoryview, header: BatchHeader, *, keyed: bool, size_max: int, threaded: bool = False
) -> RecordsSeen:
    """Check the records; RequestError if one is invalid (wire.K1, wire.K2).

    `keyed` requires keys, as a compacted topic does; `size_max` is the largest decompressed size of
    the records; `threaded` is passed to `walk_records`.
    """
    records = decompress_records(batch, size_max) if header.attributes else None
    return check_decompressed(batch, records, header, keyed=keyed, threaded=threaded)


def check_decompressed(
    batch: memoryview, records: memoryview | None, header: BatchHeader, *, keyed: bool,
    threaded: bool = False,
) -> RecordsSeen:
    """As `check_records`; `records` are the decompressed ones, None if they are not compressed."""
    if records is None:
        seen = walk_records(batch, HEADER_SIZE, header.count, header.base_timestamp,
                            keyed=keyed, threaded=threaded)
    else:
        seen = walk_records(records, 0, header.count, header.base_timestamp,
                            keyed=keyed, threaded=threaded)
    if seen.fault:
        raise _invalid(seen, header)
    return seen


def decompressed_size_max(batch: memoryview) -> int:
    """The largest decompressed size that a batch's framing allows; -1 if the framing is invalid.

    Cheap: the records themselves are not read.
    """
    codec = batch[CODEC_POSITION] & COMPRESSION_MASK
    bound = _BOUNDS.get(codec)
    return NO_FRAME if bound is None else bound(batch[HEADER_SIZE:])


def _gzip_size(body: memoryview) -> int:
    if len(body) < GZIP_SIZE_MIN:
        return NO_FRAME
    size = int.from_bytes(body[-4:], "little")
    return size if size <= len(body) * GZIP_RATIO_MAX else NO_FRAME


_BOUNDS: Final[dict[int, Callable[[memoryview], int]]] = {
    Compression.NONE: len, Compression.GZIP: _gzip_size, Compression.SNAPPY: snappy_size_max,
    Compression.LZ4: lz4_size_max, Compression.ZSTD: zstd_size_max,
}


def decompress_records(batch: memoryview, size_max: int) -> memoryview | None:
    """The decompressed records; None if not compressed; or RequestError (wire.K3, wire.K4)."""
    codec = batch[CODEC_POSITION] & COMPRESSION_MASK
    if codec == Compression.NONE:
        return None
    size = decompressed_size_max(batch)
    if size < 0:
        raise _no_frame(codec)
    is_exact = codec <= Compression.SNAPPY  # gzip and snappy; for others it is an upper bound
    if size > size_max * (1 if is_exact else BOUND_RATIO_MAX):
        raise _too_large(size, size_max)
    room = min(size, size_max)
    target = memoryview(bytearray(room) if room <= HEAP_SIZE_MAX else mmap.mmap(-1, room))
    body = batch[HEADER_SIZE:]
    try:
        written = decompress_into(codec, body, target)
    except cramjam.DecompressionError as error:
        if size > size_max:
            raise _too_large(size, size_max) from error
        raise InvalidRecords(f"invalid batch: {_name(codec)} cannot be decompressed: {error}"
                             f"{_CAUSE}") from error
    if codec == Compression.GZIP and (written != size or _begins_empty(body)):
        raise _no_frame(codec)
    return target[:written]


def _begins_empty(body: memoryview) -> bool:
    """Whether the body begins with an empty gzip frame; other frames change the size written."""
    if _GZIP_MAGIC.search(body, 1) is None:
        return False
    try:
        return not zlib.decompressobj(wbits=31).decompress(body, 1)
    except zlib.error:
        return True  # the two libraries disagree about it


def _name(codec: int) -> str:
    return Compression(codec).name.lower() if codec <= Compression.ZSTD else f"codec {codec}"


def _no_frame(codec: int) -> InvalidRecords:
    return InvalidRecords(f"invalid batch: its records are not one {_name(codec)} frame{_CAUSE}")


def _too_large(size: int, size_max: int) -> RequestError:
    return RequestError(
        f"batch of up to {size} bytes once decompressed exceeds "
        f"max.decompressed.message.bytes = {size_max}; send smaller batches",
        code=Code.MESSAGE_TOO_LARGE)


def _invalid(seen: RecordsSeen, header: BatchHeader) -> InvalidRecords:
    words = _WORDS[RecordFault(seen.fault)].format(index=seen.record, count=header.count)
    if seen.fault == RecordFault.KEYLESS:
        return InvalidRecords(
            f"record {seen.record}: {words}; give every record a key, or change the topic's "
            "cleanup.policy", tuple((index, words) for index in seen.keyless))
    where = f"record {seen.record} of {header.count}, at byte {seen.position} of the records"
    index = min(seen.record, header.count - 1)
    return InvalidRecords(f"invalid batch: {where}: {words}{_CAUSE}", ((index, words),))

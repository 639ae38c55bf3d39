"""Record batches of two Fetch responses, compared.

Kafka ends a response at a limit of bytes in the middle of a batch, which clients ignore; here only
whole batches are sent.  So whole batches are compared, and where a limit of bytes was requested one
side may have more of them than the other.  A batch is its header and its records; the leader epoch
is relative, and of batches with LogAppendTime the time is left out.
"""

from collections.abc import Iterator
from typing import Any

from quipu.wire.compression import Compression, decompress
from quipu.wire.record_batch import (
    HEADER_SIZE,
    LENGTH_START,
    LOG_APPEND_TIME_BIT,
    parse_header,
)
from tests.differential.both import Both

DECOMPRESSED_MAX = 64 << 20


def records_difference(
    kafka: memoryview | None, quipu: memoryview | None, first_epochs: Both, *, limited: bool
) -> tuple[str, str] | None:
    """The classes of two sets of records if they differ, else None."""
    if kafka is None or quipu is None:
        return None if kafka is quipu else (_null(kafka), _null(quipu))
    theirs = list(_batches(kafka, first_epochs.kafka))
    ours = list(_batches(quipu, first_epochs.quipu))
    if theirs == ours:
        return None
    shared = min(len(theirs), len(ours))
    if theirs[:shared] != ours[:shared]:
        return "batches", "other batches"
    if limited and (shared or not theirs):
        return None
    return f"{_count(len(theirs))} batches", f"{_count(len(ours))} batches"


def _count(number: int) -> str:
    return "no" if number == 0 else "some" if number == 1 else "several"


def _null(records: memoryview | None) -> str:
    return "null" if records is None else "empty" if not len(records) else "batches"


def _batches(data: memoryview, first_epoch: int) -> Iterator[tuple[Any, ...]]:
    position = 0
    while len(data) - position >= HEADER_SIZE:
        header = parse_header(data, position)
        if position + header.size > len(data):
            return
        body = data[position + HEADER_SIZE : position + header.size]
        yield _normalised(header, bytes(body), first_epoch)
        position += LENGTH_START + header.batch_length


def _normalised(header: Any, body: bytes, first_epoch: int) -> tuple[Any, ...]:
    values = header._asdict()
    values["leader_epoch"] -= first_epoch
    del values["crc"], values["producer_id"]
    if header.attributes & LOG_APPEND_TIME_BIT:
        del values["max_timestamp"]
    if header.compression and header.compression <= Compression.ZSTD:
        del values["batch_length"]
        body = bytes(decompress(
            Compression(header.compression), memoryview(body), size_max=DECOMPRESSED_MAX))
    return (*values.items(), body)

"""Reads a chunk of a run of batches into Arrow columns: the plain twin of `_columns.pyx`.

Batches before the span, or hidden by their transaction, are skipped.  A chunk ends before the first
batch that is incomplete or lies after the span, and before a corrupt batch, unless that is its
first; a corrupt batch at the start raises `CorruptRecords`.  So all whole batches before a corrupt
one are read, and then the corrupt one is reported.
"""

from collections.abc import Iterator

import pyarrow as pa

from quipu.model.errors import MalformedBytes
from quipu.pipeline.records.batches import (
    NO_TIMESTAMP,
    Chunk,
    CorruptRecords,
    OffsetSpan,
    WantedColumns,
    body_of,
    check_crc,
    whole_batch,
)
from quipu.pipeline.records.transactions import Transactions
from quipu.pipeline.types import MILLIS_MAX, MILLIS_MIN
from quipu.wire.record_batch import (
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Record,
    decode_body,
)

_Row = tuple[Record, int]  # and its timestamp type


def gather(
    data: memoryview, position: int, span: OffsetSpan, wanted: WantedColumns,
    transactions: Transactions,
) -> Chunk:
    """The chunk that begins at `position`."""
    start = position
    next_offset = span.first
    size = 0
    rows: list[_Row] = []
    while size < span.size_max:
        try:
            header = whole_batch(data, position)
            if header is None:
                break
            if header.base_offset >= span.end:
                next_offset = span.end
                break
            batch = data[position : position + header.size]
            body = seen_body(batch, header, span, transactions)
            records = list(records_of(body, header)) if body else []
        except CorruptRecords:
            if position == start:
                raise
            break
        kind = int(header.timestamp_type)
        rows += ((record, kind) for record in records if span.first <= record.offset < span.end)
        size += len(body)
        next_offset = max(next_offset, header.last_offset + 1)
        position += header.size
    return Chunk(position, next_offset, _arrays(rows, wanted))


def gather_runs(
    runs: list[memoryview], span: OffsetSpan, wanted: WantedColumns, transactions: Transactions
) -> Chunk | None:
    """All records of some runs, of whole batches each, as one chunk, without joining the runs.

    None if that is not one chunk of plain batches: `gather` then reads the joined runs, with other
    `transactions`, as these may have seen some of the batches.
    """
    assert span.first <= span.end
    del runs, wanted, transactions  # in Python, to join them costs next to nothing
    return None


def seen_body(
    batch: memoryview, header: BatchHeader, span: OffsetSpan, transactions: Transactions
) -> memoryview:
    """The bytes of a batch's records; empty if it is hidden or before the span."""
    if not span.is_checked:
        check_crc(batch, header)
    is_transactional = header.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT)
    if (is_transactional and transactions.hide(batch)) or header.last_offset < span.first:
        return memoryview(b"")
    return body_of(batch, header)


def records_of(body: memoryview, header: BatchHeader) -> Iterator[Record]:
    """All records of a batch, every byte of it checked."""
    try:
        yield from decode_body(body, header)
    except MalformedBytes as error:
        raise CorruptRecords(header.base_offset, str(error)) from error


def _arrays(rows: list[_Row], wanted: WantedColumns) -> list[pa.Array]:
    values = (
        (record.key for record, _ in rows),
        (record.value for record, _ in rows),
        (record.offset for record, _ in rows),
        (_microseconds(record.timestamp) for record, _ in rows),
        (kind for _, kind in rows),
        ([{"key": name, "value": value} for name, value in record.headers] for record, _ in rows),
    )
    columns = [column for column, is_wanted in zip(values, wanted, strict=True) if is_wanted]
    return [pa.array(column, field.type)
            for column, field in zip(columns, wanted.schema, strict=True)]


def _microseconds(timestamp: int) -> int | None:
    """The timestamp in microseconds; null if it is not set, or out of range."""
    if timestamp == NO_TIMESTAMP or not MILLIS_MIN <= timestamp <= MILLIS_MAX:
        return None
    return timestamp * 1000

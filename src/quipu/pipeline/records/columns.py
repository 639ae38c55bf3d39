"""`read_columns`: turns the record batches of a Fetch response into Arrow columns.

    for part in read_columns(data, first=offset, end=end, wanted=Wanted(headers=True)):
        ...  # part.batch
        offset = part.next_offset

The columns are those of `WantedColumns.schema`.  Usually there is one part; a run that decompresses
to more than `size_max` bytes has several, each made when the iterator reaches it.  After the last
part, `next_offset` is where to fetch next; if it is `end` or more, all was read.  If there is no
part, `data` has no whole batch: fetch more bytes.

It is compiled if a compiler was found, else in plain Python, as with QUIPU_PURE=1; `COMPILED` says
which is used.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa

from quipu.pipeline.records import _columns_pure
from quipu.pipeline.records.batches import (
    CHUNK_SIZE,
    CHUNK_SIZE_MAX,
    Chunk,
    CorruptRecords,
    OffsetSpan,
    WantedColumns,
)
from quipu.pipeline.records.transactions import Aborted, Transactions

try:
    from quipu.pipeline.records._columns import gather, gather_runs
except ImportError:
    from quipu.pipeline.records._columns_pure import gather, gather_runs

COMPILED: Final = gather is not _columns_pure.gather

__all__ = ["COMPILED", "Aborted", "ColumnsPart", "CorruptRecords", "WantedColumns", "read_columns",
           "read_runs"]


class ColumnsPart(NamedTuple):
    """Some records of a run, in order."""

    batch: pa.RecordBatch
    next_offset: int


def read_runs(
    runs: list[memoryview], *, first: int, end: int, wanted: WantedColumns,
    aborted: Iterable[Aborted] | None = None, is_checked: bool = False,
) -> Iterator[ColumnsPart]:
    """As `read_columns` of the joined runs, each of whole batches.

    `is_checked`: the checksums of all batches were compared in this process before.
    """
    assert 0 <= first <= end, (first, end)
    span = OffsetSpan(first, end, is_checked=is_checked)
    is_one = len(runs) == 1
    chunk = None if is_one else gather_runs(runs, span, wanted, Transactions(aborted))
    if chunk is None:
        data = runs[0] if is_one else memoryview(b"".join(runs))
        yield from _parts(data, span, wanted, Transactions(aborted))
    else:
        yield _part(chunk, wanted)


def read_columns(
    data: bytes | memoryview,
    *,
    first: int,
    end: int,
    wanted: WantedColumns,
    aborted: Iterable[Aborted] | None = None,
    size_max: int = CHUNK_SIZE,
) -> Iterator[ColumnsPart]:
    """The records with offsets in [first, end), in parts of about `size_max` bytes.

    `aborted` are the transactions that the response names; None reads uncommitted records too.
    Raises `CorruptRecords` after it has yielded everything before the corrupt batch.
    """
    assert 0 <= first <= end, (first, end)
    assert 0 < size_max <= CHUNK_SIZE_MAX, size_max
    yield from _parts(memoryview(data), OffsetSpan(first, end, size_max), wanted,
                      Transactions(aborted))


def _parts(
    run: memoryview, span: OffsetSpan, wanted: WantedColumns, transactions: Transactions
) -> Iterator[ColumnsPart]:
    position = 0
    while span.first < span.end:
        chunk = gather(run, position, span, wanted, transactions)
        if chunk.position == position and chunk.next_offset == span.first:
            return
        position, span = chunk.position, span._replace(first=chunk.next_offset)
        yield _part(chunk, wanted)


def _part(chunk: Chunk, wanted: WantedColumns) -> ColumnsPart:
    batch = pa.RecordBatch.from_arrays(chunk.arrays, schema=wanted.schema)
    return ColumnsPart(batch, chunk.next_offset)

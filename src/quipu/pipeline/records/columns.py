"""Raw record batches, as a Fetch response has them, to Arrow columns.

    for part in read_columns(data, first=offset, end=end, wanted=Wanted(headers=True)):
        ...  # part.batch
        offset = part.next_offset

The columns are those of `Wanted.schema`.  Usually there is one part; a run that decompresses to
more than `size_max` bytes gives several, each made when it is asked for.  After the last part,
`next_offset` is where to fetch next; `end` or more: all was read.  No part at all: `data` holds
no whole batch, fetch more bytes.

Compiled where a compiler was found, else in plain Python; QUIPU_PURE=1 makes the plain one serve,
`COMPILED` tells which does.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa

from quipu.pipeline.records import _columns_pure
from quipu.pipeline.records.batches import (
    CHUNK_SIZE,
    CHUNK_SIZE_MAX,
    CorruptRecords,
    Span,
    Wanted,
)
from quipu.pipeline.records.transactions import Aborted, Transactions

try:
    from quipu.pipeline.records._columns import gather
except ImportError:
    from quipu.pipeline.records._columns_pure import gather

COMPILED: Final = gather is not _columns_pure.gather

__all__ = ["COMPILED", "Aborted", "CorruptRecords", "Part", "Wanted", "read_columns"]


class Part(NamedTuple):
    """Records of a run, one after the other."""

    batch: pa.RecordBatch
    next_offset: int


def read_columns(
    data: bytes | memoryview,
    *,
    first: int,
    end: int,
    wanted: Wanted,
    aborted: Iterable[Aborted] | None = None,
    size_max: int = CHUNK_SIZE,
) -> Iterator[Part]:
    """The records with offsets in [first, end), in parts of about `size_max` bytes.

    `aborted` are the transactions that the response names; None reads uncommitted records too.
    Raises `CorruptRecords` after everything before the damage was given.
    """
    assert 0 <= first <= end, (first, end)
    assert 0 < size_max <= CHUNK_SIZE_MAX, size_max
    run = memoryview(data)
    transactions = Transactions(aborted)
    position, next_offset = 0, first
    while next_offset < end:
        span = Span(next_offset, end, size_max)
        chunk = gather(run, position, span, wanted, transactions)
        if chunk.position == position and chunk.next_offset == next_offset:
            return
        position, next_offset = chunk.position, chunk.next_offset
        yield Part(pa.RecordBatch.from_arrays(chunk.arrays, schema=wanted.schema), next_offset)

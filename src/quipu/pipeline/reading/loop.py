"""`read_ranges`: the loop of every task that reads: ranges in, Arrow batches out.

    settings = options.client                     # a ClientSettings, see `options`
    for read in read_ranges(settings, ranges, Wanted(headers=True)):
        read.range.topic, read.range.partition, read.batch      # a pa.RecordBatch, Wanted.schema

The data source `quipu` adds topic and partition to the batch; sources with a format decode its key
and value columns.  Connections are kept by the process (`quipu.client.shared`).  Batches of one
partition come in the order of the log; no record of a range comes twice.  Old records may come from
a remote tier's objects (direct.py), and all others from brokers, in the same form.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from quipu.client.cluster import Cluster
from quipu.client.fetch import FetchedBatches, OnLoss, fetch, raise_loss
from quipu.client.ranges import Range
from quipu.client.settings import ClientSettings
from quipu.client.shared import shared
from quipu.pipeline.reading.direct import DirectReading, ObjectBatches
from quipu.pipeline.records.columns import (
    Aborted,
    ColumnsPart,
    WantedColumns,
    read_columns,
    read_runs,
)
from quipu.pipeline.source import DirectRead


class Read(NamedTuple):
    """Some records of a range."""

    range: Range
    batch: pa.RecordBatch
    next_offset: int  # after the last record, and after skipped ones


def read_ranges(
    settings: ClientSettings, ranges: Iterable[Range], wanted: WantedColumns, *,
    on_loss: OnLoss = raise_loss, direct: DirectRead = DirectRead.AUTO,
) -> Iterator[Read]:
    """Every record of every range; only committed records if `settings` say so."""
    for fetched in _batches(shared(settings), ranges, on_loss, direct):
        for part in _columns(fetched, wanted, read_committed=settings.read_committed):
            if part.batch.num_rows:
                yield Read(fetched.range, part.batch, part.next_offset)


def _columns(
    fetched: FetchedBatches | ObjectBatches, wanted: WantedColumns, *, read_committed: bool
) -> Iterator[ColumnsPart]:
    if isinstance(fetched, ObjectBatches):  # none of its transactions was aborted
        return read_runs(
            fetched.runs, first=fetched.first, end=fetched.range.end, wanted=wanted,
            aborted=() if read_committed else None, is_checked=True)
    aborted = [Aborted(*each) for each in fetched.aborted] if read_committed else None
    return read_columns(
        fetched.records, first=fetched.first, end=fetched.range.end, wanted=wanted,
        aborted=aborted)


def _batches(
    cluster: Cluster, ranges: Iterable[Range], on_loss: OnLoss, direct: DirectRead
) -> Iterator[FetchedBatches | ObjectBatches]:
    """The batches of ranges: from objects as far as that goes, the rest through brokers."""
    left = yield from DirectReading(cluster, direct, on_loss).read(ranges)
    yield from fetch(cluster, left, on_loss=on_loss)

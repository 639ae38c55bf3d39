"""The loop that every reading task runs: ranges in, Arrow batches out.

    settings = options.client                     # a ClientSettings, see `options`
    for read in read_ranges(settings, ranges, Wanted(headers=True)):
        read.range.topic, read.range.partition, read.batch      # a pa.RecordBatch, Wanted.schema

The raw source puts topic and partition beside the batch; sources with a format decode its key and
value columns.  Connections are kept by the process (`quipu.client.shared`).  Batches of one
partition come in the order of the log; nothing of a range comes twice.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from quipu.client.fetch import OnLoss, fetch, raise_loss
from quipu.client.ranges import Range
from quipu.client.settings import ClientSettings
from quipu.client.shared import shared
from quipu.pipeline.records.columns import Aborted, Wanted, read_columns


class Read(NamedTuple):
    """Some records of a range."""

    range: Range
    batch: pa.RecordBatch
    next_offset: int  # after the last record, and after what was passed over


def read_ranges(
    settings: ClientSettings, ranges: Iterable[Range], wanted: Wanted, *,
    on_loss: OnLoss = raise_loss,
) -> Iterator[Read]:
    """Every record of every range; `settings` say whether only those that are committed."""
    for fetched in fetch(shared(settings), ranges, on_loss=on_loss):
        aborted = [Aborted(*each) for each in fetched.aborted] if settings.read_committed else None
        for part in read_columns(
            fetched.records, first=fetched.first, end=fetched.range.end, wanted=wanted,
            aborted=aborted,
        ):
            if part.batch.num_rows:
                yield Read(fetched.range, part.batch, part.next_offset)

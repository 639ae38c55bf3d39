"""Folds events in memory, for a table that is not stored.

    found = fold_in_memory(shape, parcels)     of one bucket, which is empty before
    found.errors(), found.rows(columns)        as `reading` returns them for a table

It does in memory what `store.merge_bucket` does to an empty bucket: for snapshots, which would
otherwise write a table, flush it to disk, read it once and delete it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from quipu.pipeline.envelopes.events import ERROR, Action
from quipu.pipeline.envelopes.parcels import unpack
from quipu.pipeline.tables.contract import TableShape
from quipu.pipeline.tables.merging import I64
from quipu.pipeline.tables.reading import copied, copies_of, places_of
from quipu.pipeline.tables.store import fold_events
from quipu.pipeline.tables.timing import TimeProgress
from quipu.pipeline.tables.waiting_events import release


class Folded(NamedTuple):
    """Events, and the rows and errors that are left after all of them."""

    shape: TableShape
    events: pa.Table
    copies: I64  # for each event: how many copies of its row the table has
    wrong: I64  # the indexes of events that are outstanding errors

    def errors(self) -> list[str]:
        """Outstanding errors."""
        if not len(self.wrong):
            return []
        texts = self.events.column(self.shape.events.place(ERROR))
        found: list[str] = texts.take(pa.array(self.wrong)).to_pylist()
        return found

    def rows(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows, in the order and about in the batches of their events."""
        first = self.shape.events.stored_start
        table = self.events.select([first + place for place in places_of(self.shape, columns)])
        start = 0
        for batch in table.to_batches():
            times = self.copies[start:start + batch.num_rows]
            start += batch.num_rows
            if times.any():
                yield from copied(pa.Table.from_batches([batch]), times)


def fold_in_memory(shape: TableShape, parcels: Iterable[bytes]) -> Folded:
    """Fold the parcels of one bucket, which is empty before."""
    events = unpack(shape.events, parcels)
    if shape.events.timed:
        events = release(shape, TimeProgress(), events).effective
    fold = fold_events(shape, (), events)
    has_row = fold.row >= 0
    copies = np.zeros(events.num_rows, np.int64)
    copies[fold.row[has_row]] = copies_of(shape, fold.entries)[has_row]
    return Folded(shape, events, copies, np.sort(fold.row[fold.entries.action == Action.ERROR]))

"""SUBSCRIBE: the rows of a view, then every change, until the subscription is closed.

    for version, diff, row in pipeline.subscribe("orders_by_day"): ...

The first rows are those of the newest version, with diff 1; after them come the rows that each
version added (1) and removed (-1).  The sums of the diffs of equal rows are always the view.
"""

import threading
from collections.abc import Iterator
from typing import NamedTuple

from quipu.pipeline.spark.views.changelog import changes_after, snapshot
from quipu.pipeline.spark.views.view import View
from quipu.pipeline.views.changes import DIFF, ViewChange


class RowChange(NamedTuple):
    """A row that a version added, if diff is 1, or removed, if it is -1."""

    version: int
    diff: int
    row: dict[str, object]


class Subscription:
    """An iterator of the changes of a view's rows; `close` ends it, also from another thread.

    `changes` has the same changes as Arrow batches, a `ViewChange` for each version.
    """

    def __init__(self, view: View, *, with_snapshot: bool) -> None:
        self.columns = tuple(view.schema.names)
        self.schema = view.schema
        self._view = view
        self._stop = threading.Event()
        self.changes = self._run(with_snapshot=with_snapshot)
        self._rows = (row for change in self.changes for row in _rows(change))

    def __iter__(self) -> Iterator[RowChange]:
        return self._rows

    def __next__(self) -> RowChange:
        return next(self._rows)

    def close(self) -> None:
        """End the iterator after the changes that are being read."""
        self._stop.set()

    def _run(self, *, with_snapshot: bool) -> Iterator[ViewChange]:
        view = self._view
        version = view.files.latest()
        view.files.hold(version.number)
        view.files.check(version)
        if with_snapshot:
            yield snapshot(view, version)
        yield from changes_after(view, version.number, self._stop)


def _rows(change: ViewChange) -> Iterator[RowChange]:
    for batch in change.batches:
        diffs = batch.column(DIFF).to_pylist()
        for diff, row in zip(diffs, batch.drop_columns([DIFF]).to_pylist(), strict=True):
            yield from [RowChange(change.version, 1 if diff > 0 else -1, row)] * abs(diff)

"""SUBSCRIBE: the rows of a view, then every change, for as long as somebody listens.

    for version, diff, row in pipeline.subscribe("orders_by_day"): ...

The first rows are those of the newest version, with diff 1; after them, each version tells which
rows came (1) and which went (-1).  Adding up the diffs of equal rows gives the view, always.
"""

import threading
from collections.abc import Iterator
from typing import NamedTuple

from quipu.pipeline.spark.following import Step, snapshot, steps_after
from quipu.pipeline.spark.relations import DIFF
from quipu.pipeline.spark.views import View


class Change(NamedTuple):
    """A row that came or went."""

    version: int
    diff: int
    row: dict[str, object]


class Subscription:
    """An iterator of changes; `close` ends it, also from another thread.

    Whoever wants many rows at once takes `steps` instead: whole versions, as Arrow batches.
    """

    def __init__(self, view: View, *, with_snapshot: bool) -> None:
        self.columns = tuple(view.schema.names)
        self.schema = view.schema
        self._view = view
        self._stop = threading.Event()
        self.steps = self._run(with_snapshot=with_snapshot)
        self._changes = (change for step in self.steps for change in _changes(step))

    def __iter__(self) -> Iterator[Change]:
        return self._changes

    def __next__(self) -> Change:
        return next(self._changes)

    def close(self) -> None:
        """No more changes after those that are under way."""
        self._stop.set()

    def _run(self, *, with_snapshot: bool) -> Iterator[Step]:
        view = self._view
        version = view.latest()
        view.hold(version.number)
        view.check(version)
        if with_snapshot:
            yield snapshot(view, version)
        yield from steps_after(view, version.number, self._stop)


def _changes(step: Step) -> Iterator[Change]:
    for batch in step.batches:
        diffs = batch.column(DIFF).to_pylist()
        for diff, row in zip(diffs, batch.drop_columns([DIFF]).to_pylist(), strict=True):
            yield from [Change(step.version, 1 if diff > 0 else -1, row)] * abs(diff)

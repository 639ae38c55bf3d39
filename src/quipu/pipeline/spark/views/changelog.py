"""The changes of a view: its rows in one version, and then its changes, version by version.

SUBSCRIBE shows each `ViewChange`, and sinks write it.
"""

import threading
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from quipu.model.errors import QuipuError
from quipu.pipeline.spark.views.source_changes import view_changes
from quipu.pipeline.spark.views.view import View
from quipu.pipeline.views.changes import DIFF, ViewChange, with_diff
from quipu.pipeline.views.stored_rows import stored_changes, stored_rows
from quipu.pipeline.views.versions import Version

POLL_SECONDS = 0.02


class ViewDropped(QuipuError):
    """The view whose changes are read was dropped, or replaced."""


def snapshot(view: View, version: Version) -> ViewChange:
    """All rows of a view in a version."""
    found: Iterator[pa.RecordBatch]
    if view.stored is not None:
        found = (batch.append_column(DIFF, pa.array(np.ones(batch.num_rows, np.int64)))
                 for batch in stored_rows(view.files, view.stored, version))
    else:
        found = _collected(view.frame(version).withColumn(DIFF, f.lit(1).cast("bigint")))
    batches = _held(view, version.number, found)
    return ViewChange(version.number, True, view.schema, batches)  # noqa: FBT003


def change(view: View, since: int, until: int) -> ViewChange:
    """The rows that were added and removed from one version of a view to another."""
    found = (_collected(view_changes(view, since, until)) if view.stored is None
             else stored_changes(view.files, view.stored, since, until))
    return ViewChange(until, False, view.schema, _held(view, since, found))  # noqa: FBT003


def _collected(frame: DataFrame) -> Iterator[pa.RecordBatch]:
    yield from frame.toArrow().to_batches()


def _held(
    view: View, number: int, batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Batches of a version, which is held until the last of them has been read."""
    wanted = with_diff(view.schema)
    for batch in batches:
        view.files.hold(number)
        yield batch.cast(wanted)


def changes_after(view: View, after: int, stop: threading.Event) -> Iterator[ViewChange]:
    """The changes after a version, as versions appear, until `stop` is set.

    Several versions that exist already are one change.  Raises OutstandingErrors if a source
    with ERRORS = 'strict' has errors, ViewDropped if the view was dropped.
    """
    while not stop.is_set():
        newest = view.files.latest()
        if not view.files.versions.exists():
            raise ViewDropped(f"{view.plan.name} was dropped, or replaced")
        if newest.number <= after:
            stop.wait(POLL_SECONDS)
            continue
        view.files.check(newest)
        yield change(view, after, newest.number)
        view.files.hold(newest.number)
        after = newest.number

"""Following a view: what it holds, and then what changes, version by version.

`Step` is what SUBSCRIBE shows and sinks write.  Its batches have the columns of the view, and after
them `#diff`: how many copies of the row there are more (or, below zero, less) than before.
"""

import threading
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from quipu.model.errors import QuipuError
from quipu.pipeline.spark import versions
from quipu.pipeline.spark.kept_rows import are_kept, kept_changes, kept_rows
from quipu.pipeline.spark.relations import DIFF
from quipu.pipeline.spark.versions import Version
from quipu.pipeline.spark.view_changes import changes
from quipu.pipeline.spark.views import View

LOOK_SECONDS = 0.02


class ViewDropped(QuipuError):
    """There is nothing left to follow."""


class Step(NamedTuple):
    """From one version to another; of a snapshot, from nothing."""

    version: int
    is_snapshot: bool
    schema: pa.Schema  # of the rows, without #diff
    batches: Iterator[pa.RecordBatch]


def with_diff(schema: pa.Schema) -> pa.Schema:
    """The columns of a step's batches."""
    return schema.append(pa.field(DIFF, pa.int64(), nullable=False))


def snapshot(view: View, version: Version) -> Step:
    """All that a version holds."""
    found: Iterator[pa.RecordBatch]
    if are_kept(view):
        found = (batch.append_column(DIFF, pa.array(np.ones(batch.num_rows, np.int64)))
                 for batch in kept_rows(view, version))
    else:
        found = _collected(view.frame(version).withColumn(DIFF, f.lit(1).cast("bigint")))
    batches = _held(view, version.number, found)
    return Step(version.number, True, view.schema, batches)  # noqa: FBT003


def change(view: View, since: int, until: int) -> Step:
    """What became of the rows from one version to another."""
    found = (kept_changes(view, since, until) if are_kept(view)
             else _collected(changes(view, since, until)))
    return Step(until, False, view.schema, _held(view, since, found))  # noqa: FBT003


def _collected(frame: DataFrame) -> Iterator[pa.RecordBatch]:
    yield from frame.toArrow().to_batches()


def _held(
    view: View, number: int, batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Batches that may be asked for slowly, from a version that stays until the last of them."""
    wanted = with_diff(view.schema)
    for batch in batches:
        view.hold(number)
        yield batch.cast(wanted)


def next_version(view: View, after: int) -> int | None:
    """The version that follows one; None if that is the newest."""
    return next((number for number in versions.numbers(view.versions) if number > after), None)


def steps_after(view: View, after: int, stop: threading.Event) -> Iterator[Step]:
    """Changes as they come, until `stop` is set; a strict source's errors are raised.

    Several versions that are there already are told as one.
    """
    while not stop.is_set():
        newest = view.latest()
        if not view.versions.exists():
            raise ViewDropped(f"{view.plan.name} was dropped, or replaced")
        if newest.number <= after:
            stop.wait(LOOK_SECONDS)
            continue
        view.check(newest)
        yield change(view, after, newest.number)
        view.hold(newest.number)
        after = newest.number

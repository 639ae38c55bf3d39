"""Updates the table of results of a view.

A version of a view whose query is not linear is its query over its sources' tables in that version.
Either the whole result is computed again, or, if that is known to give the same, only its change
(`queries/analysis.py`), for a GROUP BY by group (`queries/aggregates.py`).
"""

from collections.abc import Iterator
from functools import reduce

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from quipu.pipeline.execution.task_rows import (
    COLUMNS,
    TaskRow,
    TaskRowKind,
    from_batches,
    json_row,
    to_batches,
)
from quipu.pipeline.spark.queries.aggregates import negated
from quipu.pipeline.spark.views.source_changes import signed_changes
from quipu.pipeline.spark.views.tasks import ArrowTask, collected, merging, shuffled
from quipu.pipeline.spark.views.view import View
from quipu.pipeline.tables.commits import TableAt
from quipu.pipeline.tables.contract import BucketState
from quipu.pipeline.views.aggregation import GroupedQuery, ToEvents
from quipu.pipeline.views.group_merge import group_events, merge_groups
from quipu.pipeline.views.merge_task import MergeBucket, merge_parcels
from quipu.pipeline.views.result_merge import pack_result, replace_bucket, row_events
from quipu.pipeline.views.versions import NO_VERSION, Version

RESULT = 0  # the number of the only table of these tasks


def result_states(
    view: View, base: TableAt, before: Version, after: Version, *, small: bool, cores: int,
) -> list[BucketState]:
    """The changed buckets of a view's table of results in the version `after`."""
    if view.plan.grouped is not None:
        return _grouped(view, view.plan.grouped, base, before, after, small=small, cores=cores)
    if view.plan.analysis.is_product and before.number != NO_VERSION:
        frames = [each.with_diff for each in signed_changes(
            view, before, after, product=True, small=small)]
        return _changed(frames, base, after.number, cores, events=row_events)
    frame = view.through_query(lambda name: view.source_frame(name, after))
    return _replaced(frame, base, after.number, cores)


def _grouped(
    view: View, grouped: GroupedQuery, base: TableAt, before: Version, after: Version, *,
    small: bool, cores: int,
) -> list[BucketState]:
    """The buckets whose groups change from one version to another."""
    aggregation = grouped.aggregation
    if before.number == NO_VERSION:
        frames = [view.through_query(
            lambda name: view.source_frame(name, after), aggregation.query)]
    else:
        frames = [
            each.frame if each.sign > 0 else negated(each.frame, aggregation)
            for each in signed_changes(view, before, after, query=aggregation.query,
                                       product=grouped.is_product, small=small)
            if each.sign > 0 or aggregation.takes_back
        ]
    return _changed(frames, base, after.number, cores, events=group_events(aggregation),
                    merge=merge_groups(aggregation))


def _changed(
    frames: list[DataFrame], base: TableAt, version: int, cores: int, *, events: ToEvents,
    merge: MergeBucket = merge_parcels,
) -> list[BucketState]:
    """The buckets after the events made from the rows of some DataFrames."""
    if not frames:
        return []
    frame = reduce(DataFrame.unionByName, frames)
    return _merged(frame, base, cores, events, merging({RESULT: base}, version, merge))


def _replaced(frame: DataFrame, base: TableAt, version: int, cores: int) -> list[BucketState]:
    """The changed buckets, so that the table has exactly the rows of a DataFrame."""
    return _merged(frame, base, cores, row_events, _replacing(base, version, cores))


def _merged(
    frame: DataFrame, base: TableAt, cores: int, events: ToEvents, merge: ArrowTask,
) -> list[BucketState]:
    parcels = frame.mapInArrow(_packing(base, events), COLUMNS)
    found = collected(shuffled(parcels, cores).mapInArrow(merge, COLUMNS))
    return [BucketState.from_json(row.json) for row in found]


def _packing(base: TableAt, events: ToEvents) -> ArrowTask:
    return lambda batches: to_batches(
        TaskRow(RESULT, parcel.bucket, TaskRowKind.PARCEL, parcel.data)
        for parcel in pack_result(base, events, batches))


def _replacing(base: TableAt, version: int, cores: int) -> ArrowTask:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parcels: dict[int, list[bytes]] = {}
        for row in from_batches(batches):
            parcels.setdefault(row.bucket, []).append(row.data)
        context = TaskContext.get()
        assert context is not None
        for bucket in range(context.partitionId(), base.shape.buckets, cores):
            state = replace_bucket(base, bucket, parcels.pop(bucket, []), version)
            if state is not None:
                yield from to_batches([json_row(
                    RESULT, bucket, TaskRowKind.BUCKET_STATE, state.to_json())])

    return run

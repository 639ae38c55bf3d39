"""Reads sources that are not materialized, from the start to the present end of their topics.

Rows of ENVELOPE NONE come straight from the tasks that read them.  Events of the other envelopes
are merged by bucket, in memory; no table is written.
"""

from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from quipu.client.shared import shared
from quipu.pipeline.envelopes.contract import OutstandingErrors, refuse
from quipu.pipeline.envelopes.dead_letters import LETTERS
from quipu.pipeline.envelopes.events import event_shape
from quipu.pipeline.envelopes.parcels import Packer
from quipu.pipeline.execution.arrow_columns import (
    needed_columns,
    nullable,
    with_nullable_columns,
)
from quipu.pipeline.execution.pruning import PrunedSource, prune, read_options
from quipu.pipeline.execution.source_reader import source_reader_of
from quipu.pipeline.execution.task_rows import (
    SCHEMA,
    TaskRow,
    TaskRowKind,
    from_batches,
    to_batches,
)
from quipu.pipeline.reading.ranges import Task
from quipu.pipeline.reading.stream import snapshot
from quipu.pipeline.source import PlannedSource
from quipu.pipeline.spark.queries.analysis import spark_schema
from quipu.pipeline.spark.queries.relations import from_tasks, with_all_columns
from quipu.pipeline.spark.session.sessions import parallelism
from quipu.pipeline.spark.views.tasks import shuffled
from quipu.pipeline.tables.contract import TableShape
from quipu.pipeline.tables.in_memory import fold_in_memory
from quipu.pipeline.types import schema_of
from quipu.pipeline.views.inputs import warn_recreated

NO_SECRET = bytes(16)  # a table for one query needs no protection from chosen keys


def source_frame(spark: SparkSession, source: PlannedSource, needed: frozenset[str]) -> DataFrame:
    """The present rows of a source, with the needed columns."""
    given = prune(source, needed)
    tasks = tasks_of(spark, source)
    frame = _folded(spark, given, tasks, needed) if source.is_keyed else from_tasks(
        spark, schema_of(given.source.columns), [partial(_rows, given, task) for task in tasks])
    return with_all_columns(frame, spark_schema(schema_of(source.columns)))


def dead_letters(spark: SparkSession, source: PlannedSource) -> DataFrame:
    """The bad records among the present records of a source."""
    given = prune(source, frozenset(column.name for column in source.columns))
    return from_tasks(spark, LETTERS, [
        partial(_letters, given, task) for task in tasks_of(spark, source)
    ])


def tasks_of(spark: SparkSession, source: PlannedSource) -> list[Task]:
    """The present ranges of the topics of a source, divided among tasks."""
    options = read_options(source)
    return snapshot(shared(options.client), options, parallelism(spark), warn_recreated)


def _rows(given: PrunedSource, task: Task) -> Iterator[pa.RecordBatch]:
    for found in source_reader_of(given).read(task):
        refuse(given.source, found.opened.letters)
        yield with_nullable_columns(found.opened.batch)


def _letters(given: PrunedSource, task: Task) -> Iterator[pa.RecordBatch]:
    for found in source_reader_of(given).read(task):
        yield with_nullable_columns(found.opened.letters)


def _folded(
    spark: SparkSession, given: PrunedSource, tasks: list[Task], needed: frozenset[str],
) -> DataFrame:
    events = event_shape(given.source)
    cores = min(parallelism(spark), max(len(tasks), 1))
    shape = TableShape(events, 1 if events.timed else cores, NO_SECRET)
    columns = needed_columns(events.row, needed)
    parcels = from_tasks(spark, SCHEMA, [partial(_parcels, given, shape, task) for task in tasks])
    by_bucket = parcels.coalesce(1) if shape.buckets == 1 else shuffled(parcels, shape.buckets)
    schema = nullable(pa.schema([events.row.field(name) for name in columns]))
    return by_bucket.mapInArrow(_folding(given.source.name, shape, columns), spark_schema(schema))


def _parcels(given: PrunedSource, shape: TableShape, task: Task) -> Iterator[pa.RecordBatch]:
    packer = Packer(shape.events, buckets=shape.buckets)
    for found in source_reader_of(given).read(task):
        refuse(given.source, found.opened.letters)
        packer.add(found.messages, found.opened.batch)
    yield from to_batches(TaskRow(0, parcel.bucket, TaskRowKind.PARCEL, parcel.data)
                          for parcel in packer.parcels())


def _folding(
    name: str, shape: TableShape, columns: list[str],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parcels: dict[int, list[bytes]] = {}
        for row in from_batches(batches):
            parcels.setdefault(row.bucket, []).append(row.data)
        for bucket in sorted(parcels):
            found = fold_in_memory(shape, parcels.pop(bucket))
            for text in found.errors():
                raise OutstandingErrors(f"source {name}: {text}")
            for batch in found.rows(columns):
                yield with_nullable_columns(batch)

    return run

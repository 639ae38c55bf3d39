"""Sources that nobody keeps, read as they are now: from the start to the end of their topics.

Rows of ENVELOPE NONE come straight from the tasks that read them.  Events of the other envelopes
are folded by bucket, in memory; no table is written.
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
from quipu.pipeline.reading.ranges import Task
from quipu.pipeline.reading.stream import snapshot
from quipu.pipeline.source import Source
from quipu.pipeline.spark.analysis import spark_schema
from quipu.pipeline.spark.feed import take_note
from quipu.pipeline.spark.merging import partition_of
from quipu.pipeline.spark.opening import opener_of
from quipu.pipeline.spark.pruning import Pruned, options_of, pruned
from quipu.pipeline.spark.relations import from_tasks, nullable, plain, shown, some_columns
from quipu.pipeline.spark.session import parallelism
from quipu.pipeline.spark.tasks import SCHEMA, Item, Kind, from_batches, to_batches
from quipu.pipeline.tables.at_once import fold_at_once
from quipu.pipeline.tables.contract import TableShape
from quipu.pipeline.types import schema_of

NO_SECRET = bytes(16)  # nobody can choose keys for a table that is gone in a moment


def source_frame(spark: SparkSession, source: Source, needed: frozenset[str]) -> DataFrame:
    """The rows of a source up to this moment, with the columns that are needed."""
    given = pruned(source, needed)
    tasks = tasks_of(spark, source)
    frame = _folded(spark, given, tasks, needed) if source.is_keyed else from_tasks(
        spark, schema_of(given.source.columns), [partial(_rows, given, task) for task in tasks])
    return shown(frame, spark_schema(schema_of(source.columns)))


def dead_letters(spark: SparkSession, source: Source) -> DataFrame:
    """The records of a source up to this moment that cannot be used."""
    given = pruned(source, frozenset(column.name for column in source.columns))
    return from_tasks(spark, LETTERS, [
        partial(_letters, given, task) for task in tasks_of(spark, source)
    ])


def tasks_of(spark: SparkSession, source: Source) -> list[Task]:
    """What there is to read now, shared out among tasks."""
    options = options_of(source)
    return snapshot(shared(options.client), options, parallelism(spark), take_note)


def _rows(given: Pruned, task: Task) -> Iterator[pa.RecordBatch]:
    for found in opener_of(given).run(task):
        refuse(given.source, found.opened.letters)
        yield plain(found.opened.batch)


def _letters(given: Pruned, task: Task) -> Iterator[pa.RecordBatch]:
    for found in opener_of(given).run(task):
        yield plain(found.opened.letters)


def _folded(
    spark: SparkSession, given: Pruned, tasks: list[Task], needed: frozenset[str],
) -> DataFrame:
    events = event_shape(given.source)
    cores = min(parallelism(spark), max(len(tasks), 1))
    shape = TableShape(events, 1 if events.timed else cores, NO_SECRET)
    columns = some_columns(events.row, needed)
    parcels = from_tasks(spark, SCHEMA, [partial(_parcels, given, shape, task) for task in tasks])
    shared_out = parcels.coalesce(1) if shape.buckets == 1 else parcels.repartitionById(
        shape.buckets, partition_of(shape.buckets))
    schema = nullable(pa.schema([events.row.field(name) for name in columns]))
    return shared_out.mapInArrow(_folding(given.source.name, shape, columns), spark_schema(schema))


def _parcels(given: Pruned, shape: TableShape, task: Task) -> Iterator[pa.RecordBatch]:
    packer = Packer(shape.events, buckets=shape.buckets)
    for found in opener_of(given).run(task):
        refuse(given.source, found.opened.letters)
        packer.add(found.messages, found.opened.batch)
    yield from to_batches(Item(0, parcel.bucket, Kind.PARCEL, parcel.data)
                          for parcel in packer.parcels())


def _folding(
    name: str, shape: TableShape, columns: list[str],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parcels: dict[int, list[bytes]] = {}
        for item in from_batches(batches):
            parcels.setdefault(item.bucket, []).append(item.data)
        for bucket in sorted(parcels):
            found = fold_at_once(shape, parcels.pop(bucket))
            for text in found.errors():
                raise OutstandingErrors(f"source {name}: {text}")
            for batch in found.rows(columns):
                yield plain(batch)

    return run

"""DataFrames of tables: tasks read the needed columns from Arrow files.

`with_all_columns` adds the columns that are not needed, as NULL, which costs nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from quipu.pipeline.execution.arrow_columns import nullable, with_nullable_columns
from quipu.pipeline.spark.queries.analysis import spark_schema
from quipu.pipeline.spark.session.sessions import empty, parallelism
from quipu.pipeline.sql.query_names import quoted
from quipu.pipeline.tables.commits import TableAt
from quipu.pipeline.tables.contract import BucketState
from quipu.pipeline.tables.reading import bucket_histories, changes, rows
from quipu.pipeline.views.append_files import RowFile, read_rows
from quipu.pipeline.views.changes import DIFF

TASK_ROWS_MIN = 50_000  # fewer are read faster by one task than by two
_T = TypeVar("_T")

ReadTask = Callable[[], Iterable[pa.RecordBatch]]


def from_tasks(spark: SparkSession, schema: pa.Schema, reads: Sequence[ReadTask]) -> DataFrame:
    """A DataFrame of the batches that some functions return, each called in its own task."""
    shown_as = spark_schema(nullable(schema))
    if not reads:
        return empty(spark, shown_as)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from reads[number]()

    return spark.range(0, len(reads), 1, len(reads)).mapInArrow(run, shown_as)


def with_all_columns(frame: DataFrame, schema: StructType) -> DataFrame:
    """A DataFrame with all columns of a schema, in order; those that it does not have are NULL."""
    there = set(frame.columns)
    return frame.select(*(
        f.col(quoted(field.name)) if field.name in there
        else f.lit(None).cast(field.dataType).alias(field.name)
        for field in schema.fields
    ))


def table_frame(spark: SparkSession, table: TableAt, columns: Sequence[str]) -> DataFrame:
    """The rows of a table by key in one version."""
    shape = table.shape
    schema = pa.schema([shape.events.row.field(name) for name in columns])
    groups = spread([(state, state.rows) for state in table.manifest.buckets],
                    parallelism(spark))
    return from_tasks(spark, schema, [
        partial(_read_buckets, table, group, list(columns)) for group in groups
    ])


def _read_buckets(
    table: TableAt, states: Sequence[BucketState], columns: list[str],
) -> Iterator[pa.RecordBatch]:
    for state in states:
        for batch in rows(table.directory, table.shape, state, columns):
            yield with_nullable_columns(batch)


def table_changes_frame(
    spark: SparkSession, table: TableAt, since: int, columns: Sequence[str],
) -> DataFrame:
    """The rows that were added to and removed from a table by key since a version, with #diff."""
    fields = [table.shape.events.row.field(name) for name in columns]
    schema = pa.schema([*fields, pa.field(DIFF, pa.int64())])
    histories = bucket_histories(table.directory, since, table.manifest.version)
    groups = spread([(states, 1) for states in histories], 1)
    return from_tasks(spark, schema, [
        partial(_read_changes, table, group, list(columns)) for group in groups
    ])


def _read_changes(
    table: TableAt, buckets: Sequence[Sequence[BucketState]], columns: list[str],
) -> Iterator[pa.RecordBatch]:
    for states in buckets:
        for batch in changes(table.directory, table.shape, states, columns):
            yield with_nullable_columns(batch)


def appended_frame(
    spark: SparkSession, directory: Path, schema: pa.Schema, files: Sequence[RowFile],
    columns: Sequence[str],
) -> DataFrame:
    """The rows of some files of an append-only table."""
    groups = spread([(file, file.rows) for file in files], parallelism(spark))
    wanted = pa.schema([schema.field(name) for name in columns])
    return from_tasks(spark, wanted, [
        partial(_read_files, directory, schema, group, list(columns)) for group in groups
    ])


def _read_files(
    directory: Path, schema: pa.Schema, files: Sequence[RowFile], columns: list[str],
) -> Iterator[pa.RecordBatch]:
    for batch in read_rows(directory, schema, files, columns):
        yield with_nullable_columns(batch)


def spread(weighted: Sequence[tuple[_T, int]], cores: int) -> list[list[_T]]:
    """Divide items into at most `cores` groups of about equal weight; fewer for few rows."""
    total = sum(weight for _, weight in weighted)
    count = max(1, min(cores, len(weighted), -(-total // TASK_ROWS_MIN)))
    groups: list[list[_T]] = [[] for _ in range(count)]
    loads = [0] * count
    for thing, weight in sorted(weighted, key=lambda each: -each[1]):
        least = loads.index(min(loads))
        groups[least].append(thing)
        loads[least] += weight
    return [group for group in groups if group]

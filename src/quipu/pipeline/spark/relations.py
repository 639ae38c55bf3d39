"""Tables as DataFrames: tasks read Arrow files, and Spark gets the columns that it needs.

`shown` gives a relation all its columns: those that nobody needs are NULL, and cost nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from quipu.pipeline.spark.analysis import quoted, spark_schema
from quipu.pipeline.spark.growing import Piece, read_pieces
from quipu.pipeline.spark.session import empty, parallelism
from quipu.pipeline.tables.commits import TableAt
from quipu.pipeline.tables.contract import BucketState
from quipu.pipeline.tables.reading import bucket_histories, changes, rows

DIFF = "#diff"  # beside rows: how many copies came, or went
TASK_ROWS_MIN = 50_000  # fewer are read sooner by one task than by two
_T = TypeVar("_T")

Read = Callable[[], Iterable[pa.RecordBatch]]


def from_tasks(spark: SparkSession, schema: pa.Schema, reads: Sequence[Read]) -> DataFrame:
    """A DataFrame of what some functions read, each in a task of its own."""
    shown_as = spark_schema(nullable(schema))
    if not reads:
        return empty(spark, shown_as)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from reads[number]()

    return spark.range(0, len(reads), 1, len(reads)).mapInArrow(run, shown_as)


def nullable(schema: pa.Schema) -> pa.Schema:
    """The same columns; they may be NULL, and so may the fields of their records.

    A record that is NULL has NULLs in it, which Arrow refuses in a field that must not be NULL.
    """
    return pa.schema([_nullable(field) for field in schema])


def _nullable(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_nullable(each) for each in kind])
    elif pa.types.is_list(kind):
        kind = pa.list_(_nullable(kind.value_field))
    elif pa.types.is_map(kind):
        kind = pa.map_(kind.key_type, _nullable(kind.item_field).type)
    return pa.field(field.name, kind)


def shown(frame: DataFrame, schema: StructType) -> DataFrame:
    """All columns of a relation, in order, of which the frame has some."""
    there = set(frame.columns)
    return frame.select(*(
        f.col(quoted(field.name)) if field.name in there
        else f.lit(None).cast(field.dataType).alias(field.name)
        for field in schema.fields
    ))


def some_columns(schema: pa.Schema, needed: frozenset[str]) -> list[str]:
    """The needed columns in order; at least one, so that rows can be counted: a small one."""
    found = [name for name in schema.names if name in needed]
    return found or [min(schema, key=_width).name]


def _width(field: pa.Field) -> int:
    return field.type.bit_width if pa.types.is_primitive(field.type) else 1_000


def table_frame(spark: SparkSession, table: TableAt, columns: Sequence[str]) -> DataFrame:
    """The rows of a table by key, in one version."""
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
            yield plain(batch)


def table_changes(
    spark: SparkSession, table: TableAt, since: int, columns: Sequence[str],
) -> DataFrame:
    """What has become of a table by key since one of its versions: the columns, and #diff."""
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
            yield plain(batch)


def grown_frame(
    spark: SparkSession, directory: Path, schema: pa.Schema, pieces: Sequence[Piece],
    columns: Sequence[str],
) -> DataFrame:
    """The rows of a growing table."""
    groups = spread([(piece, piece.rows) for piece in pieces], parallelism(spark))
    wanted = pa.schema([schema.field(name) for name in columns])
    return from_tasks(spark, wanted, [
        partial(_read_grown, directory, schema, group, list(columns)) for group in groups
    ])


def _read_grown(
    directory: Path, schema: pa.Schema, pieces: Sequence[Piece], columns: list[str],
) -> Iterator[pa.RecordBatch]:
    for batch in read_pieces(directory, schema, pieces, columns):
        yield plain(batch)


def plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """As Spark wants it: every column may be NULL."""
    return batch.cast(nullable(batch.schema))


def spread(weighted: Sequence[tuple[_T, int]], cores: int) -> list[list[_T]]:
    """Things as so many groups of about equal weight as there are cores; fewer if all is little."""
    total = sum(weight for _, weight in weighted)
    count = max(1, min(cores, len(weighted), -(-total // TASK_ROWS_MIN)))
    groups: list[list[_T]] = [[] for _ in range(count)]
    loads = [0] * count
    for thing, weight in sorted(weighted, key=lambda each: -each[1]):
        least = loads.index(min(loads))
        groups[least].append(thing)
        loads[least] += weight
    return [group for group in groups if group]

"""The columns of a record, with the names and types of Spark's Kafka source.

    key, value binary | topic string | partition int | offset bigint | timestamp timestamp
    timestampType int (0: set by the producer, 1: by the broker) | headers array of key and value,
    null if a record has none
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from quipu.pipeline.reading.loop import Read
from quipu.pipeline.reading.options import COLUMNS, BadOption
from quipu.pipeline.records.columns import WantedColumns

REPEATED_ROWS_MAX: Final = 1 << 16  # of a column of one value that is kept
REPEATED_MAX: Final = 4  # columns that are kept

HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(), "value": BinaryType(), "topic": StringType(),
    "partition": IntegerType(), "offset": LongType(), "timestamp": TimestampType(),
    "timestampType": IntegerType(), "headers": ArrayType(HEADER),
}
assert tuple(TYPES) == COLUMNS

_HEADER_FIELDS: Final = (pa.field("key", pa.string()), pa.field("value", pa.binary()))


def schema_of(columns: Sequence[str]) -> StructType:
    """Spark's schema of some columns."""
    return StructType([StructField(name, TYPES[name]) for name in columns])


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The names of a schema's columns; raises BadOption if one is unknown, or of another type."""
    for field in schema.fields:
        if field.name not in TYPES:
            raise BadOption(f"schema: there is no column {field.name[:80]!r}; there are "
                            f"{', '.join(COLUMNS)}")
        if field.dataType != TYPES[field.name]:
            raise BadOption(f"schema: {field.name} is {TYPES[field.name].simpleString()}, "
                            f"not {field.dataType.simpleString()}")
    return tuple(schema.fieldNames())


def wanted_of(columns: Sequence[str]) -> WantedColumns:
    """The parts of records that have to be read for some columns."""
    return WantedColumns(
        key="key" in columns, value="value" in columns, timestamp="timestamp" in columns,
        timestamp_type="timestampType" in columns, headers="headers" in columns,
        offset="offset" in columns or not {*columns} - {"topic", "partition"})


def batches(reads: Iterator[Read], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Arrow batches with some columns of the records that were read."""
    schema = to_arrow_schema(schema_of(columns), timezone="UTC")
    makers = [_MAKERS[name] for name in columns]
    for read in reads:
        yield pa.RecordBatch.from_arrays([make(read) for make in makers], schema=schema)


def _headers(read: Read) -> pa.Array:
    """The headers as Spark has them: null instead of an empty list, and Spark's field names."""
    given = read.batch.column("headers")
    pairs = given.values
    fields = pa.StructArray.from_arrays(
        [pairs.field("key"), pairs.field("value")], fields=list(_HEADER_FIELDS))
    none = pa.array(np.diff(given.offsets.to_numpy()) == 0)
    kind = pa.list_(pa.field("element", fields.type))
    return pa.ListArray.from_arrays(given.offsets, fields, type=kind, mask=none)


def _repeated(value: str | pa.Scalar, rows: int) -> pa.Array:
    """A column of one value; a slice of one that is there already, as a rule."""
    if rows > REPEATED_ROWS_MAX:
        return pa.repeat(value, rows)
    return _kept(value, 1 << rows.bit_length()).slice(0, rows)


@lru_cache(maxsize=REPEATED_MAX)
def _kept(value: str | pa.Scalar, rows: int) -> pa.Array:
    return pa.repeat(value, rows)


def _named(name: str) -> Callable[[Read], pa.Array]:
    return lambda read: read.batch.column(name)


_MAKERS: Final[dict[str, Callable[[Read], pa.Array]]] = {
    "key": _named("key"),
    "value": _named("value"),
    "topic": lambda read: _repeated(read.range.topic, read.batch.num_rows),
    "partition": lambda read: _repeated(
        pa.scalar(read.range.partition, pa.int32()), read.batch.num_rows),
    "offset": _named("offset"),
    "timestamp": _named("timestamp"),
    "timestampType": _named("timestamp_type"),
    "headers": _headers,
}

"""The columns of a record as Spark's Kafka source has them: types, and batches of them.

    key, value binary | topic string | partition int | offset bigint | timestamp timestamp
    timestampType int (0: set by the producer, 1: by the broker) | headers array of key and value,
    null where a record has none
"""

from collections.abc import Callable, Iterator, Sequence
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
from quipu.pipeline.records.columns import Wanted

HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(), "value": BinaryType(), "topic": StringType(),
    "partition": IntegerType(), "offset": LongType(), "timestamp": TimestampType(),
    "timestampType": IntegerType(), "headers": ArrayType(HEADER),
}
assert tuple(TYPES) == COLUMNS

_HEADER_FIELDS: Final = (pa.field("key", pa.string()), pa.field("value", pa.binary()))


def schema_of(columns: Sequence[str]) -> StructType:
    """What Spark is told."""
    return StructType([StructField(name, TYPES[name]) for name in columns])


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The columns that a schema asks for, in its order; it may be the reader's own words."""
    for field in schema.fields:
        if field.name not in TYPES:
            raise BadOption(f"schema: there is no column {field.name[:80]!r}; there are "
                            f"{', '.join(COLUMNS)}")
        if field.dataType != TYPES[field.name]:
            raise BadOption(f"schema: {field.name} is {TYPES[field.name].simpleString()}, "
                            f"not {field.dataType.simpleString()}")
    return tuple(schema.fieldNames())


def wanted_of(columns: Sequence[str]) -> Wanted:
    """What has to be read of each record."""
    return Wanted(
        key="key" in columns, value="value" in columns, timestamp="timestamp" in columns,
        timestamp_type="timestampType" in columns, headers="headers" in columns,
        offset="offset" in columns or not {*columns} - {"topic", "partition"})


def batches(reads: Iterator[Read], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """What Spark is given."""
    schema = to_arrow_schema(schema_of(columns), timezone="UTC")
    makers = [_MAKERS[name] for name in columns]
    for read in reads:
        yield pa.RecordBatch.from_arrays([make(read) for make in makers], schema=schema)


def _headers(read: Read) -> pa.Array:
    """Null instead of an empty list, and the names that Spark gives the parts of a list."""
    given = read.batch.column("headers")
    pairs = given.values
    fields = pa.StructArray.from_arrays(
        [pairs.field("key"), pairs.field("value")], fields=list(_HEADER_FIELDS))
    none = pa.array(np.diff(given.offsets.to_numpy()) == 0)
    kind = pa.list_(pa.field("element", fields.type))
    return pa.ListArray.from_arrays(given.offsets, fields, type=kind, mask=none)


def _named(name: str) -> Callable[[Read], pa.Array]:
    return lambda read: read.batch.column(name)


_MAKERS: Final[dict[str, Callable[[Read], pa.Array]]] = {
    "key": _named("key"),
    "value": _named("value"),
    "topic": lambda read: pa.repeat(read.range.topic, read.batch.num_rows),
    "partition": lambda read: pa.repeat(
        pa.scalar(read.range.partition, pa.int32()), read.batch.num_rows),
    "offset": _named("offset"),
    "timestamp": _named("timestamp"),
    "timestampType": _named("timestamp_type"),
    "headers": _headers,
}

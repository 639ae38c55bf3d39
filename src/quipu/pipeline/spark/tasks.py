"""What tasks hand on to each other and to the driver: a few rows with large values.

    source   int     which of the feed's sources
    bucket   int     of its table; -1 for what is for none
    kind     int     `Kind`
    data     binary  a parcel of events; or JSON
"""

import json
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Any, NamedTuple

import pyarrow as pa

COLUMNS = "source int, bucket int, kind int, data binary"
SCHEMA = pa.schema([
    ("source", pa.int32()), ("bucket", pa.int32()), ("kind", pa.int32()), ("data", pa.binary()),
])
NO_BUCKET = -1


class Kind(IntEnum):
    """What `data` is."""

    PARCEL = 0  # events for a bucket
    GROWN = 1  # JSON: a `Piece` of rows
    DEAD = 2  # JSON: a `Piece` of dead letters
    COUNTS = 3  # JSON: `Counts` of what was read
    STATE = 4  # JSON: a `BucketState`, merged


class Item(NamedTuple):
    """One row of that."""

    source: int
    bucket: int
    kind: Kind
    data: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 JSON is any
        return json.loads(self.data)


def json_item(source: int, bucket: int, kind: Kind, value: object) -> Item:
    """An item whose data is JSON."""
    return Item(source, bucket, kind, json.dumps(value).encode())


def to_batches(items: Iterable[Item]) -> Iterator[pa.RecordBatch]:
    """Items for Spark, one at a time: each may be large."""
    for item in items:
        yield pa.RecordBatch.from_arrays(
            [pa.array([value], kind) for value, kind in zip(item, SCHEMA.types, strict=True)],
            schema=SCHEMA,
        )


def from_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[Item]:
    """Items from Spark."""
    for batch in batches:
        for source, bucket, kind, data in zip(
            *(column.to_pylist() for column in batch.columns), strict=True
        ):
            yield Item(source, bucket, Kind(kind), data)

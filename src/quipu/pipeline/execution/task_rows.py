"""The rows that tasks send to each other and to the driver: a few rows with large values.

    source   int     the number of the view's source that the row is about
    bucket   int     the bucket of that source's table; -1 if the row is about no bucket
    kind     int     `TaskRowKind`: what `data` holds
    data     binary  a parcel of events, or JSON
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


class TaskRowKind(IntEnum):
    """What the `data` of a task row holds."""

    PARCEL = 0  # events for a bucket
    APPENDED = 1  # JSON: a `RowFile` with rows of an append-only table
    DEAD_LETTERS = 2  # JSON: a `RowFile` with dead letters
    COUNTS = 3  # JSON: `SourceCounts` of what was read
    BUCKET_STATE = 4  # JSON: a `BucketState`, merged


class TaskRow(NamedTuple):
    """One row that a task sends; the module's docstring lists its columns."""

    source: int
    bucket: int
    kind: TaskRowKind
    data: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 JSON is any
        return json.loads(self.data)


def json_row(source: int, bucket: int, kind: TaskRowKind, value: object) -> TaskRow:
    """A task row whose data is a value as JSON."""
    return TaskRow(source, bucket, kind, json.dumps(value).encode())


def to_batches(rows: Iterable[TaskRow]) -> Iterator[pa.RecordBatch]:
    """Task rows as Arrow batches of one row each, because each may be large."""
    for row in rows:
        yield pa.RecordBatch.from_arrays(
            [pa.array([value], kind) for value, kind in zip(row, SCHEMA.types, strict=True)],
            schema=SCHEMA,
        )


def from_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[TaskRow]:
    """The task rows in Arrow batches."""
    for batch in batches:
        for source, bucket, kind, data in zip(
            *(column.to_pylist() for column in batch.columns), strict=True
        ):
            yield TaskRow(source, bucket, TaskRowKind(kind), data)

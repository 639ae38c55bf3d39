"""Dead letters: bad records with all their columns, topic, partition, offset and error."""

from typing import Final

import numpy as np
import pyarrow as pa

from quipu.pipeline.envelopes.contract import Messages
from quipu.pipeline.envelopes.row_errors import Mask
from quipu.pipeline.records.columns import WantedColumns

EVERYTHING: Final = WantedColumns(timestamp_type=True, headers=True)
_FIELDS: Final = ("offset", "timestamp", "headers", "key", "value")
LETTERS: Final = pa.schema([
    pa.field("topic", pa.string(), nullable=False),
    pa.field("partition", pa.int32(), nullable=False),
    *(EVERYTHING.schema.field(name).with_nullable(name != "offset") for name in _FIELDS),
    pa.field("error", pa.string(), nullable=False),
])


def no_letters() -> pa.RecordBatch:
    """A batch without dead letters."""
    return pa.RecordBatch.from_pylist([], LETTERS)


def letters(messages: Messages, bad: Mask, texts: pa.StringArray) -> pa.RecordBatch:
    """The dead letters of the messages that are `bad`."""
    rows = pa.array(np.flatnonzero(bad))
    if len(rows) == 0:
        return no_letters()
    records = all_columns(messages)
    found = [records.column(name).take(rows) if name in records.schema.names
             else _unknown(LETTERS.field(name).type, len(rows)) for name in _FIELDS]
    return pa.RecordBatch.from_arrays([
        pa.repeat(pa.scalar(messages.topic), len(rows)),
        pa.repeat(pa.scalar(messages.partition, pa.int32()), len(rows)),
        *found, texts.take(rows)], schema=LETTERS)


def all_columns(messages: Messages) -> pa.RecordBatch:
    """The records with all columns; they are read again if a column is missing."""
    missing = set(_FIELDS) - set(messages.records.schema.names)
    if not missing or messages.reread is None:
        return messages.records
    records = messages.reread()
    assert records.num_rows == messages.size, (records.num_rows, messages.size)
    return records


def _unknown(kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(-1), count) if pa.types.is_integer(kind) else pa.nulls(count, kind)

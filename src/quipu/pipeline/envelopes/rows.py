"""Parts of rows, and errors of messages, shared by the envelopes."""

from collections.abc import Sequence

import pyarrow as pa

from quipu.pipeline.envelopes.contract import Messages
from quipu.pipeline.envelopes.dead_letters import all_columns
from quipu.pipeline.envelopes.row_errors import Mask, RowErrors, bad_rows, decode_errors
from quipu.pipeline.source import KeyShape, PlannedSource
from quipu.pipeline.types import Column


def key_shown(source: PlannedSource, columns: Sequence[pa.Array] | None) -> list[pa.Array]:
    """The key columns that the source shows; `columns` are those of the key's format."""
    if source.key_shape is KeyShape.HIDDEN or columns is None:
        return []
    if source.key_shape is KeyShape.FLAT:
        return list(columns)
    record = source.key_columns[0].type
    return [pa.StructArray.from_arrays(list(columns), fields=list(record))]


def error_shown(column: Column | None, texts: pa.StringArray) -> list[pa.Array]:
    """The column of inline errors, if there is one: a record with a description."""
    if column is None:
        return []
    return [pa.StructArray.from_arrays([texts], fields=list(column.type), mask=texts.is_null())]


def with_bad_records(messages: Messages) -> Messages:
    """The messages; with all columns of their records if one could not be decoded."""
    if len(bad_rows(messages.value.errors)) or (
        messages.key is not None and len(bad_rows(messages.key.errors))
    ):
        return messages._replace(records=all_columns(messages), reread=None)
    return messages


def add_value_errors(messages: Messages, row_errors: RowErrors) -> None:
    """Set the errors of messages whose value could not be decoded."""
    errors = messages.value.errors
    rows = bad_rows(errors)
    if len(rows):
        row_errors.add(rows, decode_errors(errors, rows, _column(messages.records, "value")))


def add_key_errors(messages: Messages, row_errors: RowErrors, matters: Mask) -> None:
    """Set the errors of messages in `matters` whose key could not be decoded."""
    assert messages.key is not None
    errors = messages.key.errors
    rows = bad_rows(errors)
    rows = rows[matters[rows]]
    if len(rows):
        data = _column(messages.records, "key")
        row_errors.add(rows, decode_errors(errors, rows, data, "key: "))


def _column(records: pa.RecordBatch, name: str) -> pa.Array | None:
    return records.column(name) if name in records.schema.names else None


def selected(batch: pa.RecordBatch, kept: Mask) -> pa.RecordBatch:
    """Some rows of a batch."""
    return batch if kept.all() else batch.filter(pa.array(kept))

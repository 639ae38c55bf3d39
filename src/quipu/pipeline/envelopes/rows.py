"""Rows out of decoded messages, and what is wrong with messages: what envelopes have in common."""

from collections.abc import Sequence

import pyarrow as pa

from quipu.pipeline.envelopes.contract import Messages
from quipu.pipeline.envelopes.dead_letters import all_columns
from quipu.pipeline.envelopes.faults import Faults, Mask, bad_rows, decode_errors
from quipu.pipeline.source import KeyShape, Source
from quipu.pipeline.types import Column


def key_shown(source: Source, columns: Sequence[pa.Array] | None) -> list[pa.Array]:
    """The key as the source shows it; `columns` are those of its format."""
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
    """The messages, with all columns of their records if one could not be decoded."""
    if len(bad_rows(messages.value.errors)) or (
        messages.key is not None and len(bad_rows(messages.key.errors))
    ):
        return messages._replace(records=all_columns(messages), reread=None)
    return messages


def value_faults(messages: Messages, faults: Faults) -> None:
    """Complain about values that could not be decoded."""
    errors = messages.value.errors
    rows = bad_rows(errors)
    if len(rows):
        faults.add(rows, decode_errors(errors, rows, _column(messages.records, "value")))


def key_faults(messages: Messages, faults: Faults, matters: Mask) -> None:
    """Complain about keys that could not be decoded, where it `matters`."""
    assert messages.key is not None
    errors = messages.key.errors
    rows = bad_rows(errors)
    rows = rows[matters[rows]]
    if len(rows):
        data = _column(messages.records, "key")
        faults.add(rows, decode_errors(errors, rows, data, "key: "))


def _column(records: pa.RecordBatch, name: str) -> pa.Array | None:
    return records.column(name) if name in records.schema.names else None


def selected(batch: pa.RecordBatch, kept: Mask) -> pa.RecordBatch:
    """Some rows of a batch."""
    return batch if kept.all() else batch.filter(pa.array(kept))

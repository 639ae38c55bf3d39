"""The value's row: columns that the statement defines, and rows inside of envelopes.

JSON has the columns of the statement, or else one, the document.  Debezium's and Materialize's
messages wrap a row: with Avro the schema tells its columns, with JSON the statement must.
"""

from dataclasses import replace

import pyarrow as pa

from quipu.pipeline.formats.specs import Avro, Debezium, Json, Materialize
from quipu.pipeline.plan.column_types import resolve_type
from quipu.pipeline.plan.draft import Draft
from quipu.pipeline.plan.include import DEBEZIUM_ITEMS, DEBEZIUMS
from quipu.pipeline.source import EnvelopeKind, ItemKind
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.text import Span
from quipu.pipeline.types import Column, sql_name

_DEFINE = "define the row's columns after the source's name: (id bigint, name text, …)"


def define_columns(draft: Draft) -> Draft:
    """Columns with types, for JSON."""
    defined = [item for item in draft.statement.columns if item.type is not None]
    if not defined:
        return draft
    if not isinstance(draft.value, Json):
        raise SqlError("Columns can be defined for VALUE FORMAT JSON only", defined[0].name.span,
                       hint="name the columns without types; the format knows the types")
    columns = tuple(Column(item.name.text, resolve_type(item.type), item.nullable)
                    for item in defined if item.type is not None)
    return replace(draft, value=Json(columns), value_columns=columns)


def unwrap_rows(draft: Draft) -> Draft:
    """The row within Debezium's and Materialize's messages."""
    kind = draft.envelope.kind
    if kind not in (*DEBEZIUMS, EnvelopeKind.MATERIALIZE):
        return draft
    written = draft.statement.value_format
    span = written.span if written is not None else draft.statement.span
    name = "MATERIALIZE" if kind is EnvelopeKind.MATERIALIZE else "DEBEZIUM"
    if not isinstance(draft.value, Avro | Json):
        raise SqlError(f"ENVELOPE {name} requires that VALUE FORMAT is set to AVRO or JSON", span,
                       hint="write VALUE FORMAT AVRO USING …, or use ENVELOPE UPSERT")
    if isinstance(draft.value, Json) and not draft.value.columns:
        raise SqlError(f"ENVELOPE {name} with FORMAT JSON needs the columns of the row", span,
                       hint=_DEFINE)
    inner = Json() if isinstance(draft.value, Json) else draft.value
    if kind is EnvelopeKind.MATERIALIZE:
        row = draft.value_columns if isinstance(inner, Json) else _updated_row(draft, span)
        return replace(draft, value=Materialize(inner, row), value_columns=row)
    row = draft.value_columns if isinstance(inner, Json) else _debezium_row(draft, span)
    return replace(draft, value=Debezium(inner, row), value_columns=row)


def _debezium_row(draft: Draft, span: Span) -> tuple[Column, ...]:
    columns = {column.name: column for column in draft.value_columns}
    hint = "the schema must be the one that Debezium registers for values"
    after = columns.get("after")
    if after is None:
        raise SqlError("'after' column missing from debezium input", span, hint=hint)
    if not pa.types.is_struct(after.type):
        raise SqlError(f"Incorrect type for Debezium value, expected Record, got "
                       f"{sql_name(after.type)}", span, hint=hint)
    before = columns.get("before")
    if before is not None and not pa.types.is_struct(before.type):
        raise SqlError("'before' column must be of type record", span, hint=hint)
    if before is not None and not before.type.equals(after.type):
        raise SqlError("'before' type differs from 'after' column", span, hint=hint)
    for item in draft.statement.include:
        if item.kind in DEBEZIUM_ITEMS and not _has_field(columns, item.kind):
            raise SqlError(f"The messages have no field for {item.kind.value.upper()}", item.span,
                           hint="leave it out")
    return tuple(Column(field.name, field.type, field.nullable) for field in after.type)


def _has_field(columns: dict[str, Column], kind: ItemKind) -> bool:
    if kind is ItemKind.DEBEZIUM_OP:
        return "op" in columns
    source = columns.get("source")
    wanted = "ts_ms" if kind is ItemKind.DEBEZIUM_TIMESTAMP else "table"
    return (source is not None and pa.types.is_struct(source.type)
            and source.type.get_field_index(wanted) >= 0)


def _updated_row(draft: Draft, span: Span) -> tuple[Column, ...]:
    """The row in `updates`, a list of records with `data`, `time` and `diff`."""
    for column in draft.value_columns:
        for kind in (column.type, *(_fields(column.type))):
            if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
                names = [field.name for field in kind.value_type]
                if {"data", "time", "diff"} <= set(names):
                    data = kind.value_type.field("data").type
                    return tuple(Column(each.name, each.type, each.nullable) for each in data)
    raise SqlError("ENVELOPE MATERIALIZE requires a list of records with data, time and diff", span,
                   hint="the schema must be the one of Materialize's own messages")


def _fields(kind: pa.DataType) -> list[pa.DataType]:
    return [field.type for field in kind] if pa.types.is_struct(kind) else []

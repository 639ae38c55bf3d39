"""Pass: finds the columns of the value's row, from the format or from the statement.

JSON has the columns of the statement, or else one column, the document.  Debezium's and
Materialize's messages contain a row: with Avro its columns are in the schema, with JSON the
statement must define them.
"""

from dataclasses import replace

from quipu.pipeline.formats import debezium, materialize
from quipu.pipeline.formats.avro.schema import AvroSchemaError
from quipu.pipeline.formats.casts import CannotCast
from quipu.pipeline.formats.json.values import check_type
from quipu.pipeline.formats.specs import Avro, Debezium, Json, Materialize
from quipu.pipeline.plan.column_types import resolve_type
from quipu.pipeline.plan.draft import Draft
from quipu.pipeline.plan.formats import made
from quipu.pipeline.plan.include import DEBEZIUMS
from quipu.pipeline.source import EnvelopeKind
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.statements import ColumnItem
from quipu.pipeline.sql.text import TextSpan
from quipu.pipeline.types import Column

_DEFINE = "define the row's columns after the source's name: (id bigint, name text, …)"


def find_columns(draft: Draft) -> Draft:
    """Find the columns of the row, and the spec of a value that contains it."""
    defined = [item for item in draft.statement.columns if item.type is not None]
    if defined and not isinstance(draft.value, Json):
        raise SqlError("Columns can be defined for VALUE FORMAT JSON only", defined[0].name.span,
                       hint="name the columns without types; the format knows the types")
    columns = tuple(_column(item) for item in defined)
    if draft.envelope.kind in (*DEBEZIUMS, EnvelopeKind.MATERIALIZE):
        return _unwrapped(draft, columns)
    if columns:
        return replace(draft, value=Json(columns), value_columns=columns)
    return replace(draft, value_columns=made(draft.value, _span(draft)).columns)


def _column(item: ColumnItem) -> Column:
    assert item.type is not None
    kind = resolve_type(item.type)
    try:
        check_type(kind)
    except CannotCast as error:
        raise SqlError(f"JSON cannot be read as {error}", item.type.span,
                       hint="read it as json, which keeps it as text") from None
    return Column(item.name.text, kind, item.nullable)


def _unwrapped(draft: Draft, defined: tuple[Column, ...]) -> Draft:
    """The row within Debezium's and Materialize's messages."""
    is_debezium = draft.envelope.kind in DEBEZIUMS
    name = "DEBEZIUM" if is_debezium else "MATERIALIZE"
    if not isinstance(draft.value, Avro | Json):
        raise SqlError(f"ENVELOPE {name} requires that VALUE FORMAT is set to AVRO or JSON",
                       _span(draft), hint="write VALUE FORMAT AVRO USING …, or use ENVELOPE UPSERT")
    if isinstance(draft.value, Avro):
        defined = _row_of_schema(draft.value.schema, _span(draft), is_debezium=is_debezium)
    elif not defined:
        raise SqlError(f"ENVELOPE {name} with FORMAT JSON needs the columns of the row",
                       _span(draft), hint=_DEFINE)
    value = (Debezium if is_debezium else Materialize)(draft.value, defined)
    made(value, _span(draft))
    return replace(draft, value=value, value_columns=defined)


def _row_of_schema(schema: str, span: TextSpan, *, is_debezium: bool) -> tuple[Column, ...]:
    try:
        if is_debezium:
            return debezium.row_columns_of(schema)
        return materialize.row_columns_of(schema)
    except AvroSchemaError as error:
        raise SqlError(str(error), span, hint="the schema must be the one that goes with the "
                                              "envelope; or use ENVELOPE UPSERT") from None


def _span(draft: Draft) -> TextSpan:
    written = draft.statement.value_format
    return written.span if written is not None else draft.statement.span

"""Pass: finds what identifies a row: the message's key, or columns of the row (I7, I8).

    NONE              the key is shown with INCLUDE KEY, and may be missing: its columns are
                      nullable
    UPSERT            needs a key, which is always shown; KEY AS renames it
    DEBEZIUM UPSERT   needs a key or a PRIMARY KEY; the row contains it, so it is not shown again
    DEBEZIUM          messages contain the rows to remove; only with metadata it needs a key or a
                      PRIMARY KEY, to know which of several equal rows is removed
    MATERIALIZE       the same, by a PRIMARY KEY: a message has many rows, so its key is not used
"""

from dataclasses import replace

import pyarrow as pa

from quipu.pipeline.formats.specs import Bytes, Debezium, Json, Text
from quipu.pipeline.plan.draft import Draft
from quipu.pipeline.plan.formats import made
from quipu.pipeline.plan.include import DEBEZIUMS
from quipu.pipeline.source import EnvelopeKind, KeyShape
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.printer import item_text
from quipu.pipeline.sql.statements import AvroClause, Name
from quipu.pipeline.sql.text import TextSpan
from quipu.pipeline.types import Column, sql_name

_KEY_FORMATS = "write KEY FORMAT … VALUE FORMAT … instead of FORMAT …"


def require_key(draft: Draft) -> Draft:
    """Raise SqlError if the envelope or INCLUDE needs a key and there is none."""
    kind = draft.envelope.kind
    if draft.key is not None:
        return draft
    if kind is EnvelopeKind.UPSERT:
        raise SqlError("ENVELOPE [DEBEZIUM] UPSERT requires that KEY FORMAT be specified",
                       draft.envelope.span, hint=_KEY_FORMATS)
    for item in draft.statement.include:
        if item.kind is None:
            raise SqlError("INCLUDE KEY requires specifying KEY FORMAT .. VALUE FORMAT, got bare "
                           "FORMAT", item.span, hint=_KEY_FORMATS)
    if draft.statement.primary_key:
        return draft
    if kind is EnvelopeKind.DEBEZIUM_UPSERT:
        written = draft.statement.value_format
        bare_registry = (draft.statement.bare_format and isinstance(written, AvroClause)
                         and written.registry is not None)
        message = ("Key schema is required for ENVELOPE DEBEZIUM" if bare_registry
                   else "ENVELOPE [DEBEZIUM] UPSERT requires that KEY FORMAT be specified")
        raise SqlError(message, draft.envelope.span,
                       hint=f"{_KEY_FORMATS}, or name PRIMARY KEY (…) NOT ENFORCED columns")
    if kind in (EnvelopeKind.DEBEZIUM, EnvelopeKind.MATERIALIZE) and draft.statement.include:
        _refuse_keyless_metadata(draft)
    return draft


def _refuse_keyless_metadata(draft: Draft) -> None:
    """Raise SqlError: of equal rows with different metadata, it is unknown which is removed."""
    item = draft.statement.include[0]
    name = draft.envelope.kind.value.upper()
    instead = ("write KEY FORMAT … and ENVELOPE DEBEZIUM UPSERT"
               if draft.envelope.kind is EnvelopeKind.DEBEZIUM else "use ENVELOPE UPSERT")
    raise SqlError(
        f"INCLUDE {item_text(item)} with ENVELOPE {name} requires a key: without one it is unknown "
        "which row, with which metadata, a message removes", item.span,
        hint=f"name the key's columns with PRIMARY KEY (…) NOT ENFORCED, or {instead}; ENVELOPE "
             "NONE shows every message as a row")


def shape_key(draft: Draft) -> Draft:
    """Find how the key is shown, and its columns."""
    if draft.envelope.kind in (*DEBEZIUMS, EnvelopeKind.MATERIALIZE):
        return _hidden_key(draft)
    if draft.key is None:
        return draft
    fields = draft.key_fields
    if draft.envelope.kind is EnvelopeKind.NONE:  # a message may have no key
        fields = tuple(field._replace(nullable=True) for field in fields)
    alias = next((item.alias for item in draft.statement.include if item.kind is None), None)
    if alias is None:
        return replace(draft, key_columns=fields, key_shape=KeyShape.FLAT)
    if len(fields) == 1:
        renamed = fields[0]._replace(name=alias.text)
        return replace(draft, key_columns=(renamed,), key_shape=KeyShape.FLAT)
    record = pa.struct([field.field for field in fields])
    return replace(draft, key_columns=(Column(alias.text, record, nullable=False),),
                   key_shape=KeyShape.RECORD)


def _hidden_key(draft: Draft) -> Draft:
    """Check that the row contains the columns of the key, which is not shown."""
    key, row = draft.key, {column.name: column for column in draft.value_columns}
    names = draft.statement.primary_key
    if isinstance(key, Json) and names:  # PRIMARY KEY names the columns of the key
        columns = tuple(row[name.text] for name in names if name.text in row)
        key = Json(columns, key.name, payload=isinstance(draft.value, Debezium))
        made(key, names[0].span.to(names[-1].span))
        return replace(draft, key=key, key_fields=columns)
    if isinstance(key, Text | Bytes | Json):
        return draft
    at = draft.statement.key_format or draft.statement.value_format
    span = at.span if at is not None else draft.statement.span
    for field in draft.key_fields:
        if field.name not in row:
            raise SqlError(f"Value schema missing primary key column: {field.name}", span,
                           hint="the columns of the key must be columns of the row")
        if not field.type.equals(row[field.name].type):
            raise SqlError(
                f"key and value column types do not match: key {sql_name(field.type)} vs. value "
                f"{sql_name(row[field.name].type)}", span,
                hint="the columns of the key must be columns of the row")
    return draft


def identify_rows(draft: Draft) -> Draft:
    """Check the columns of PRIMARY KEY; they are the rows' identity if there is no other key."""
    names = draft.statement.primary_key
    shown = [column.name for column in draft.value_columns]
    everything = [*shown, *(column.name for column in draft.key_columns),
                  *(item.column.name for item in draft.items)]
    for index, name in enumerate(names):
        if name.text not in everything:
            raise SqlError(f"No such column in source key constraint: {name.text}", name.span,
                           hint=f"there are {', '.join(everything)}")
        if name.text in [earlier.text for earlier in names[:index]]:
            raise SqlError(f"Repeated column name in source key constraint: {name.text}",
                           name.span, hint="name it once")
    if draft.envelope.kind in (EnvelopeKind.NONE, EnvelopeKind.UPSERT) or draft.key is not None:
        return draft
    for name in names:
        _require_data(name, shown, name.span)
    return replace(draft, identity=tuple(name.text for name in names))


def _require_data(name: Name, shown: list[str], span: TextSpan) -> None:
    if name.text not in shown:
        raise SqlError(f"Column {name.text} is not part of the row, so it cannot be its key", span,
                       hint=f"there are {', '.join(shown)}")

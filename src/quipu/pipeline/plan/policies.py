"""Pass: what is done with bad records; and the order in which records count (I15, I16)."""

from dataclasses import replace

import pyarrow as pa

from quipu.pipeline.plan.draft import Draft
from quipu.pipeline.source import EnvelopeKind, ErrorPolicy, MetadataKind
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.types import Column

ERROR = pa.struct([pa.field("description", pa.string(), nullable=False)])
ERROR_NAME = "error"
_SELF_RETRACTING = (EnvelopeKind.DEBEZIUM, EnvelopeKind.MATERIALIZE)


def choose_errors(draft: Draft) -> Draft:
    """Choose the error policy; inline errors get a column, and make the value's nullable."""
    given = draft.options.get("errors")
    inline = draft.envelope.inline_errors
    if inline and given is not None and draft.errors is not ErrorPolicy.INLINE:
        raise SqlError(f"ENVELOPE … INLINE and ERRORS = '{draft.errors.value}' contradict each "
                       "other", given.span, hint="leave one of them out")
    if not inline and draft.errors is not ErrorPolicy.INLINE:
        if (column := draft.options.get("error column")) is not None:
            raise SqlError("ERROR COLUMN requires ERRORS = 'inline'", column.span,
                           hint="leave it out, or write ERRORS = 'inline'")
        return draft
    if draft.envelope.kind in _SELF_RETRACTING:
        assert given is not None  # the grammar gives these envelopes no INLINE of their own
        raise SqlError("ERRORS = 'inline' requires ENVELOPE NONE, UPSERT or DEBEZIUM UPSERT",
                       given.value_span, hint="write ERRORS = 'dead letter' or 'strict'")
    named = draft.envelope.error_name
    name = named.text if named is not None else _option_name(draft)
    columns = tuple(column._replace(nullable=True) for column in draft.value_columns)
    return replace(draft, errors=ErrorPolicy.INLINE, error_column=Column(name, ERROR),
                   value_columns=columns)


def _option_name(draft: Draft) -> str:
    option = draft.options.get("error column")
    if option is None:
        return ERROR_NAME
    if not isinstance(option.value, str) or not option.value:
        raise SqlError("ERROR COLUMN must be a column's name", option.value_span,
                       hint="write ERROR COLUMN = 'error', for example")
    return option.value


def order_of(draft: Draft) -> MetadataKind | None:
    """The order of ORDER BY: TIMESTAMP or the name of its column; the offset breaks ties."""
    names = draft.envelope.order_by
    if not names:
        return None
    timestamps = {"timestamp", *(item.column.name for item in draft.items
                                 if item.kind is MetadataKind.TIMESTAMP)}
    offsets = {"offset", *(item.column.name for item in draft.items
                           if item.kind is MetadataKind.OFFSET)}
    if names[0].text not in timestamps:
        raise SqlError(f"ORDER BY ({names[0].text}) is not possible", names[0].span,
                       hint="write ORDER BY (TIMESTAMP); without it the offset decides")
    for name in names[1:2]:
        if name.text not in offsets:
            raise SqlError("Only OFFSET can follow TIMESTAMP", name.span,
                           hint="write ORDER BY (TIMESTAMP, OFFSET)")
    if len(names) > 2:
        raise SqlError("Nothing can follow OFFSET", names[2].span,
                       hint="write ORDER BY (TIMESTAMP, OFFSET)")
    return MetadataKind.TIMESTAMP

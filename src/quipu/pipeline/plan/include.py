"""Pass: checks INCLUDE against the envelope, and adds metadata columns (I1, I2, I16)."""

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from quipu.pipeline.formats.headers import can_be_header
from quipu.pipeline.plan.column_types import resolve_type
from quipu.pipeline.plan.draft import Draft
from quipu.pipeline.source import EnvelopeKind, MetadataItem, MetadataKind
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.printer import item_text
from quipu.pipeline.sql.statements import Include
from quipu.pipeline.types import TIMESTAMPTZ, Column

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False),
                              pa.field("value", pa.binary())]))
# The column of each item, if it is not renamed; HEADER has no name of its own.
ITEM_COLUMNS: Mapping[MetadataKind, Column] = {
    MetadataKind.TIMESTAMP: Column("timestamp", TIMESTAMPTZ),
    MetadataKind.TIMESTAMP_TYPE: Column("timestamp_type", pa.string()),
    MetadataKind.OFFSET: Column("offset", pa.int64()),
    MetadataKind.PARTITION: Column("partition", pa.int32(), nullable=False),
    MetadataKind.TOPIC: Column("topic", pa.string(), nullable=False),
    MetadataKind.HEADERS: Column("headers", HEADERS, nullable=False),
    MetadataKind.HEADER: Column("header", pa.string()),
    MetadataKind.DEBEZIUM_OP: Column("debezium_op", pa.string()),
    MetadataKind.DEBEZIUM_TIMESTAMP: Column("debezium_timestamp", TIMESTAMPTZ),
    MetadataKind.DEBEZIUM_TABLE: Column("debezium_table", pa.string()),
}
assert set(ITEM_COLUMNS) == set(MetadataKind)  # an item without a row has no column
DEBEZIUM_ITEMS = (
    MetadataKind.DEBEZIUM_OP, MetadataKind.DEBEZIUM_TIMESTAMP, MetadataKind.DEBEZIUM_TABLE)
DEBEZIUMS = (EnvelopeKind.DEBEZIUM, EnvelopeKind.DEBEZIUM_UPSERT)


def check_include(draft: Draft) -> Draft:
    """Raise SqlError for items that cannot be used with the envelope."""
    kind = draft.envelope.kind
    keys = [item for item in draft.statement.include if item.kind is None]
    if keys and kind in DEBEZIUMS:
        raise SqlError("Cannot use INCLUDE KEY with ENVELOPE DEBEZIUM: Debezium values include all "
                       "keys.", keys[0].span, hint="leave KEY out")
    if keys and kind is EnvelopeKind.MATERIALIZE:
        raise SqlError("Cannot use INCLUDE KEY with ENVELOPE MATERIALIZE: the rows include all "
                       "keys.", keys[0].span, hint="leave KEY out, or use ENVELOPE UPSERT")
    if len(keys) > 1:
        raise SqlError("INCLUDE KEY is given twice", keys[1].span, hint="leave one of them out")
    for item in draft.statement.include:
        if item.kind in DEBEZIUM_ITEMS and kind not in DEBEZIUMS:
            raise SqlError(f"INCLUDE {item.kind.value.upper()} requires ENVELOPE DEBEZIUM or "
                           "DEBEZIUM UPSERT", item.span,
                           hint="leave it out, or use ENVELOPE DEBEZIUM UPSERT")
    return draft


def add_metadata(draft: Draft) -> Draft:
    """Add a column for every item, in the order of INCLUDE (I6)."""
    items = tuple(_item(item) for item in draft.statement.include if item.kind is not None)
    return replace(draft, items=items)


def _item(written: Include) -> MetadataItem:
    assert written.kind is not None
    column = ITEM_COLUMNS[written.kind]
    if written.type is not None:
        column = column._replace(type=_header_type(written))
    if written.alias is not None:
        column = column._replace(name=written.alias.text)
    return MetadataItem(written.kind, column, written.header)


def _header_type(written: Include) -> pa.DataType:
    assert written.type is not None
    kind = resolve_type(written.type)
    if not can_be_header(kind):
        raise SqlError(f"A header cannot be read as {item_text(written).rpartition(' ')[2]}",
                       written.type.span, hint="read it as text, bytes, json or a number")
    return kind

"""Metadata columns: the columns of INCLUDE, from the records and from their topic and partition.

    wanted_by(items)     the columns of records that they need; others are not read (I4)
    item_columns(…)      the columns, in order; a header that cannot be converted is a row's error

Not here: headers by name and type (`formats/headers.py`).
"""

from collections.abc import Sequence
from typing import Final, assert_never

import pyarrow as pa

from quipu.pipeline.envelopes.contract import Messages
from quipu.pipeline.envelopes.row_errors import Mask, RowErrors, bad_rows, decode_errors
from quipu.pipeline.formats.headers import header_column
from quipu.pipeline.records.columns import WantedColumns
from quipu.pipeline.source import MetadataItem, MetadataKind

# columns of the value in the formats of change events (formats room)
BEFORE: Final = 0
AFTER: Final = 1
OPERATION: Final = 2
CHANGED_AT: Final = 3
TABLE: Final = 4

_TIMESTAMP_TYPES: Final = pa.array(["CreateTime", "LogAppendTime"])


def wanted_by(
    items: Sequence[MetadataItem], *, offset: bool = False, timestamp: bool = False,
) -> WantedColumns:
    """The record columns behind metadata columns, besides key and value."""
    kinds = {item.kind for item in items}
    return WantedColumns(
        key=False,
        offset=offset or MetadataKind.OFFSET in kinds,
        timestamp=timestamp or MetadataKind.TIMESTAMP in kinds,
        timestamp_type=MetadataKind.TIMESTAMP_TYPE in kinds,
        headers=bool(kinds & {MetadataKind.HEADERS, MetadataKind.HEADER}))


def item_columns(
    items: Sequence[MetadataItem], messages: Messages, row_errors: RowErrors, matters: Mask,
) -> list[pa.Array]:
    """The metadata columns of messages; errors are set only for messages in `matters`."""
    return [_column(item, messages, row_errors, matters) for item in items]


def _column(
    item: MetadataItem, messages: Messages, row_errors: RowErrors, matters: Mask,
) -> pa.Array:
    kind, target = item.kind, item.column.type
    match kind:
        case MetadataKind.TOPIC:
            return pa.repeat(pa.scalar(messages.topic, target), messages.size)
        case MetadataKind.PARTITION:
            return pa.repeat(pa.scalar(messages.partition, target), messages.size)
        case MetadataKind.OFFSET | MetadataKind.TIMESTAMP:
            return messages.records.column(kind.value)
        case MetadataKind.TIMESTAMP_TYPE:
            return _TIMESTAMP_TYPES.take(messages.records.column("timestamp_type"))
        case MetadataKind.HEADERS:  # their items are not nullable; the column's type lacks that
            return messages.records.column("headers").cast(target)
        case MetadataKind.HEADER:
            return _header(item, messages, row_errors, matters)
        case MetadataKind.DEBEZIUM_OP:
            return messages.value.columns[OPERATION]
        case MetadataKind.DEBEZIUM_TIMESTAMP:
            return messages.value.columns[CHANGED_AT]
        case MetadataKind.DEBEZIUM_TABLE:
            return messages.value.columns[TABLE]
        case _:
            assert_never(kind)


def _header(
    item: MetadataItem, messages: Messages, row_errors: RowErrors, matters: Mask,
) -> pa.Array:
    found = header_column(messages.records.column("headers"), item.header, item.column.type)
    rows = bad_rows(found.errors)
    rows = rows[matters[rows]]
    if len(rows):
        row_errors.add(rows, decode_errors(found.errors, rows, None))
    return found.values

"""Metadata columns: what INCLUDE asks for, from the records and from where they were read.

    wanted_by(items)     which columns of records they need; the others are not made (I4)
    item_columns(…)      the columns, in order; headers that cannot be converted are faults

Not here: headers by name and type (`formats/headers.py`).
"""

from collections.abc import Sequence
from typing import Final, assert_never

import pyarrow as pa

from quipu.pipeline.envelopes.contract import Messages
from quipu.pipeline.envelopes.faults import Faults, Mask, bad_rows, decode_errors
from quipu.pipeline.formats.headers import header_column
from quipu.pipeline.records.columns import Wanted
from quipu.pipeline.source import Item, ItemKind

# columns of the value in the formats of change events (formats room)
BEFORE: Final = 0
AFTER: Final = 1
OPERATION: Final = 2
CHANGED_AT: Final = 3
TABLE: Final = 4

_TIMESTAMP_TYPES: Final = pa.array(["CreateTime", "LogAppendTime"])


def wanted_by(items: Sequence[Item], *, offset: bool = False, timestamp: bool = False) -> Wanted:
    """The record columns behind metadata columns, besides key and value."""
    kinds = {item.kind for item in items}
    return Wanted(
        key=False,
        offset=offset or ItemKind.OFFSET in kinds,
        timestamp=timestamp or ItemKind.TIMESTAMP in kinds,
        timestamp_type=ItemKind.TIMESTAMP_TYPE in kinds,
        headers=bool(kinds & {ItemKind.HEADERS, ItemKind.HEADER}))


def item_columns(
    items: Sequence[Item], messages: Messages, faults: Faults, matters: Mask,
) -> list[pa.Array]:
    """The metadata columns of messages; only where it `matters` can they be wrong."""
    return [_column(item, messages, faults, matters) for item in items]


def _column(item: Item, messages: Messages, faults: Faults, matters: Mask) -> pa.Array:
    kind, target = item.kind, item.column.type
    match kind:
        case ItemKind.TOPIC:
            return pa.repeat(pa.scalar(messages.topic, target), messages.size)
        case ItemKind.PARTITION:
            return pa.repeat(pa.scalar(messages.partition, target), messages.size)
        case ItemKind.OFFSET | ItemKind.TIMESTAMP:
            return messages.records.column(kind.value)
        case ItemKind.TIMESTAMP_TYPE:
            return _TIMESTAMP_TYPES.take(messages.records.column("timestamp_type"))
        case ItemKind.HEADERS:  # no item of theirs is null, which SQL's type cannot say
            return messages.records.column("headers").cast(target)
        case ItemKind.HEADER:
            return _header(item, messages, faults, matters)
        case ItemKind.DEBEZIUM_OP:
            return messages.value.columns[OPERATION]
        case ItemKind.DEBEZIUM_TIMESTAMP:
            return messages.value.columns[CHANGED_AT]
        case ItemKind.DEBEZIUM_TABLE:
            return messages.value.columns[TABLE]
        case _:
            assert_never(kind)


def _header(item: Item, messages: Messages, faults: Faults, matters: Mask) -> pa.Array:
    found = header_column(messages.records.column("headers"), item.header, item.column.type)
    rows = bad_rows(found.errors)
    rows = rows[matters[rows]]
    if len(rows):
        faults.add(rows, decode_errors(found.errors, rows, None))
    return found.values

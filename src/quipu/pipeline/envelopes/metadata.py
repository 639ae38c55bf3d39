"""Metadata columns: what INCLUDE asks for, from the records and from where they were read.

    wanted_by(items)     which columns of records they need; the others are not made (I4)
    item_columns(…)      the columns, in order; headers that cannot be converted are faults

A header that a record does not have is NULL; of several with one name the last counts.  A header
as another type than bytes is text, converted as SQL would.
"""

from collections.abc import Sequence
from typing import Final, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from quipu.pipeline.envelopes.contract import Messages
from quipu.pipeline.envelopes.faults import Faults, Mask
from quipu.pipeline.records.columns import Wanted
from quipu.pipeline.source import Item, ItemKind

Numbers = npt.NDArray[np.int64]

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
        case ItemKind.OFFSET | ItemKind.TIMESTAMP | ItemKind.HEADERS:
            return _as(messages.records.column(kind.value), target)
        case ItemKind.TIMESTAMP_TYPE:
            found = messages.records.column("timestamp_type")
            return _TIMESTAMP_TYPES.take(found) if pa.types.is_string(target) \
                else _as(found, target)
        case ItemKind.HEADER:
            return _header(item, messages, faults, matters)
        case ItemKind.DEBEZIUM_OP:
            return _as(messages.value.columns[OPERATION], target)
        case ItemKind.DEBEZIUM_TIMESTAMP:
            return _as(messages.value.columns[CHANGED_AT], target)
        case ItemKind.DEBEZIUM_TABLE:
            return _as(messages.value.columns[TABLE], target)
        case _:
            assert_never(kind)


def _as(column: pa.Array, target: pa.DataType) -> pa.Array:
    return column if column.type.equals(target) else column.cast(target)


def _header(item: Item, messages: Messages, faults: Faults, matters: Mask) -> pa.Array:
    values = last_headers(messages.records.column("headers"), item.header)
    found, bad = converted(values, item.column.type)
    bad = bad[matters[bad]]
    if len(bad):
        faults.add(bad, (f"Decode error: header {item.header!r} is not {item.column.type} "
                         f'(original bytes: "{data[:64].hex()}")'
                         for data in values.take(pa.array(bad)).to_pylist()))
    return found


def last_headers(headers: pa.ListArray, name: str) -> pa.BinaryArray:
    """The value of each record's last header of that name, null where there is none."""
    elements = headers.flatten()
    matches = np.flatnonzero(pc.equal(elements.field(0), name).to_numpy(zero_copy_only=False))
    counts = pc.fill_null(headers.value_lengths(), 0).to_numpy(zero_copy_only=False)
    owner = np.repeat(np.arange(len(headers)), counts)
    place = np.full(len(headers), -1, np.int64)
    place[owner[matches]] = matches  # of several the last is what remains
    return elements.field(1).take(pa.array(place, mask=place < 0))


def converted(values: pa.BinaryArray, target: pa.DataType) -> tuple[pa.Array, Numbers]:
    """Bytes as another type, and which of them cannot be; those are null."""
    if pa.types.is_binary(target):
        return values, np.zeros(0, np.int64)
    parts: list[pa.Array] = []
    bad: list[int] = []
    _convert(values, target, parts, bad, 0)
    return pa.concat_arrays(parts), np.array(bad, np.int64)


def _convert(
    values: pa.Array, target: pa.DataType, parts: list[pa.Array], bad: list[int], start: int,
) -> None:
    """All at once if that works; else by halves, so that few bad ones cost few more attempts."""
    try:
        parts.append(values.cast(pa.string()).cast(target))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if len(values) == 1:
            parts.append(pa.nulls(1, target))
            bad.append(start)
            return
        middle = len(values) // 2
        _convert(values.slice(0, middle), target, parts, bad, start)
        _convert(values.slice(middle), target, parts, bad, start + middle)

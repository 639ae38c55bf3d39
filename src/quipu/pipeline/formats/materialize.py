"""Decodes change messages of Materialize (its CDCv2), in Avro or JSON.

A topic of such messages is the history of a table.  A message is one of

    updates     [{"data": row, "time": long, "diff": long}, …]
                at that time there are `diff` more (or, if negative, fewer) copies of that row
    progress    {"lower": [long], "upper": [long], "counts": [{"time": long, "count": long}, …]}
                all updates with lower <= time < upper were sent, and how many there are at each
                time (times that are not named have none)

Messages may come twice and in any order: an update that comes twice counts once, and it counts only
when progress has covered its time.  That is done in `tables/timing.py`; here `decode` decodes
messages, and `changes_of` returns their updates and progress.

As Avro, the schema is the union of both; as JSON, a message may also be Avro's JSON of it,
{"array": [update, …]} or {"com.materialize.cdc.progress": {…}}.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quipu.pipeline.formats.avro.format import AvroFormat
from quipu.pipeline.formats.avro.schema import (
    AvroSchemaError,
    SchemaNode,
    branch_names,
    columns_of,
    parse,
)
from quipu.pipeline.formats.contract import Decoded, null_where
from quipu.pipeline.formats.json.format import JsonFormat
from quipu.pipeline.formats.spans import Mask, mask_of
from quipu.pipeline.formats.specs import Avro, Json, Materialize
from quipu.pipeline.registry.client import RegistryClient
from quipu.pipeline.types import Column

NO_CHANGE: Final = "no change message: it has neither updates nor progress"
INCOMPLETE: Final = "an update lacks its data, its time or its diff"
NO_PROGRESS: Final = ("progress has a `lower` and an `upper` of at most one time each, and "
                      "`counts` with a time and a count each")

_COUNTS: Final = pa.list_(pa.struct([("time", pa.int64()), ("count", pa.int64())]))
_PROGRESS: Final = pa.struct([("lower", pa.list_(pa.int64())), ("upper", pa.list_(pa.int64())),
                              ("counts", _COUNTS)])
_IN_AVRO: Final = "com.materialize.cdc.progress"


class MaterializeChanges(NamedTuple):
    """The updates and the progress of messages."""

    update_message: pa.Array  # int64: which message an update is from, counting from 0
    row: pa.StructArray
    time: pa.Array
    diff: pa.Array
    progress: pa.StructArray  # lower, upper, counts


def row_columns_of(schema: str) -> tuple[Column, ...]:
    """The columns of the row in an Avro schema of change messages; raises AvroSchemaError."""
    updates, _ = _branches(parse(schema))
    fields = {field.name: field.type for field in updates.inner[0].fields}
    return columns_of(fields["data"])


def changes_of(decoded: Decoded) -> MaterializeChanges:
    """All updates and all progress of decoded messages."""
    updates, progress = decoded.columns
    items = updates.flatten()
    row, time, diff = (pc.struct_field(items, name) for name in ("data", "time", "diff"))
    return MaterializeChanges(pc.list_parent_indices(updates).cast(pa.int64()), row, time, diff,
                   progress.drop_null())


def decoded_columns(row: Sequence[Column]) -> tuple[Column, ...]:
    """The columns of MaterializeFormat, for a row of these columns."""
    record = pa.struct([pa.field(each.name, each.type) for each in row])
    update = pa.struct([("data", record), ("time", pa.int64()), ("diff", pa.int64())])
    return Column("updates", pa.list_(update)), Column("progress", _PROGRESS)


class MaterializeFormat:
    """Decodes change messages to two columns, updates and progress; one of them is null."""

    def __init__(self, spec: Materialize, registry_client: RegistryClient | None = None) -> None:
        self.columns = decoded_columns(spec.row)
        self._inner = (
            _JsonChanges(spec.row) if isinstance(spec.inner, Json)
            else _AvroChanges(spec.inner, registry_client))

    def decode(self, data: pa.BinaryArray) -> Decoded:
        return self._inner.decode(data)


class _JsonChanges:
    """Decodes JSON; a message that is a list is put into an object first."""

    def __init__(self, row: Sequence[Column]) -> None:
        self._updates = decoded_columns(row)[0].type
        strict = pa.list_(pa.struct([
            pa.field("data", pa.struct([column.field for column in row])),
            *list(self._updates.value_type)[1:]]))
        self._format = JsonFormat(Json((
            Column("array", strict), Column(_IN_AVRO, _PROGRESS),
            *(Column(each.name, each.type) for each in _PROGRESS))))

    def decode(self, data: pa.BinaryArray) -> Decoded:
        listed = pc.match_substring_regex(data, r"^\s*\[")
        wrapped = pc.binary_join_element_wise(b'{"array":', data, b"}", b"")
        columns, errors, absent = self._format.decode(pc.if_else(listed, wrapped, data))
        updates, progress, lower, upper, counts = columns
        flat = pc.and_(lower.is_valid(), upper.is_valid())
        if pc.any(flat, min_count=0).as_py():
            bare = pa.StructArray.from_arrays(
                [lower, upper, counts], fields=list(_PROGRESS), mask=pc.invert(flat))
            progress = pc.if_else(flat, bare, progress)
        nothing = pc.and_(pc.and_(updates.is_null(), progress.is_null()),
                          pc.and_not(errors.is_null(), absent))
        return _checked(Decoded([updates.cast(self._updates), progress],
                                pc.if_else(nothing, NO_CHANGE, errors), absent))


def _checked(decoded: Decoded) -> Decoded:
    """The messages, with errors for those that lack required fields."""
    (updates, progress), errors, absent = decoded
    for wrong, text in ((_lacking(updates, "data", "time", "diff"), INCOMPLETE),
                         (_no_progress(progress), NO_PROGRESS)):
        if wrong.any():
            errors = pc.coalesce(errors, pc.if_else(pa.array(wrong), text, pa.scalar(
                None, pa.string())))
    if errors.null_count < len(errors):
        updates, progress = null_where(errors.is_valid(), [updates, progress])
    return Decoded([updates, progress], errors, absent)


def _no_progress(progress: pa.StructArray) -> Mask:
    """The messages with progress that lacks its times or counts."""
    lower, upper, counts = (pc.struct_field(progress, field.name) for field in _PROGRESS)
    wrong = _lacking(counts, "time", "count")
    for times in (lower, upper):
        is_one = mask_of(pc.less_equal(pc.list_value_length(times), 1))  # false for null
        wrong |= ~is_one | _lacking(times)
    found: Mask = wrong & mask_of(progress.is_valid())
    return found


def _lacking(lists: pa.ListArray, *names: str) -> Mask:
    """The rows whose list has an item that is null or lacks one of these fields."""
    items = lists.flatten()
    is_null = items.is_null()
    for name in names:
        is_null = pc.or_(is_null, pc.struct_field(items, name).is_null())
    found = np.zeros(len(lists), np.bool_)
    found[pc.list_parent_indices(lists).filter(is_null)] = True
    return found


class _AvroChanges:
    """Decodes Avro, whose schema is a union: its branches become the fields of one column."""

    def __init__(self, spec: Avro, client: RegistryClient | None) -> None:
        node = parse(spec.schema)
        updates, progress = _branches(node)
        branches = node.alternatives()
        names = dict(zip((id(each) for each in branches), branch_names(branches), strict=True))
        self._updates = names[id(updates)]
        self._progress = None if progress is None else names[id(progress)]
        self._format = AvroFormat(spec, client)

    def decode(self, data: pa.BinaryArray) -> Decoded:
        (column,), errors, absent = self._format.decode(data)
        if self._progress is None:
            return Decoded([column, pa.nulls(len(data), _PROGRESS)], errors, absent)
        return _checked(Decoded([pc.struct_field(column, self._updates),
                                 pc.struct_field(column, self._progress)], errors, absent))


def _branches(node: SchemaNode) -> tuple[SchemaNode, SchemaNode | None]:
    """The array of updates and the record of progress in a schema of changes."""
    updates = [each for each in node.alternatives()
               if each.kind == "array" and _has_longs(each.inner[0], "time", "diff")
               and any(field.name == "data" and field.type.kind == "record"
                       for field in each.inner[0].fields)]
    progress = [each for each in node.alternatives() if each.kind == "record"]
    if len(updates) != 1 or len(updates) + len(progress) != len(node.alternatives()):
        raise AvroSchemaError("ENVELOPE MATERIALIZE takes a union of an array of updates "
                              "(data, time, diff) and a record of progress")
    if progress and [each[:2] for each in columns_of(progress[0])] != [
            (each.name, each.type) for each in _PROGRESS]:
        raise AvroSchemaError("ENVELOPE MATERIALIZE takes a record of progress with lower, upper "
                              "and counts")
    return updates[0], progress[0] if progress else None


def _has_longs(record: SchemaNode, *names: str) -> bool:
    kinds = {field.name: field.type.kind for field in record.fields}
    return record.kind == "record" and all(kinds.get(name) == "long" for name in names)

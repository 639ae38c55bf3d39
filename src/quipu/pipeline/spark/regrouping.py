"""What a change makes of a table by group: the groups that it is about, added up anew.

Events of such a table are parts of groups (`aggregates.py`), several of a group where some rows
came and others went.  A task has all events of a bucket's groups; it looks up how those groups
were, adds everything up, and merges the groups as they are now.  A group without rows goes.
"""

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quipu.pipeline.envelopes.events import IDENTITY, KIND, Action, EventShape
from quipu.pipeline.envelopes.identity import encode_rows
from quipu.pipeline.envelopes.parcels import unpack
from quipu.pipeline.spark.aggregates import ROWS, Aggregation, Part, ToEvents
from quipu.pipeline.spark.merging import Merge
from quipu.pipeline.tables.commits import TableAt
from quipu.pipeline.tables.contract import BucketState
from quipu.pipeline.tables.reading import rows_of
from quipu.pipeline.tables.store import merge_events

_SUM = pa.decimal128(38, 0)  # of whole numbers, so that one that is too large is an error
_NAN = pa.scalar(float("nan"))


def part_events(aggregation: Aggregation) -> ToEvents:
    """Parts of groups as events, one of each group: of several, a parcel would have the last."""
    def events(shape: EventShape, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = batch.select(shape.row.names).cast(shape.row)
        groups = [rows.column(name) for name in aggregation.groups]
        identities = encode_rows(groups) if groups else pa.array(
            [b""] * rows.num_rows, pa.binary())
        actions = pa.array(np.full(rows.num_rows, Action.ROW, np.uint8))
        found = pa.table([identities, actions, *rows.columns], schema=shape.schema)
        (whole,) = added_up(found, aggregation).combine_chunks().to_batches()
        return whole

    return events


def regrouping(aggregation: Aggregation) -> Merge:
    """How parcels of parts become a bucket's new state."""
    return partial(_regroup, aggregation)


def _regroup(
    aggregation: Aggregation, base: TableAt, bucket: int, parcels: Iterable[bytes], version: int,
) -> BucketState:
    state = base.manifest.bucket(bucket)
    shape = base.shape.events
    delta = added_up(unpack(shape, parcels), aggregation)
    known, rows = rows_of(base.directory, base.shape, state, delta)
    front = delta.select([0, 1]).take(pa.array(known))
    old = pa.table([*front.columns, *rows.columns], schema=shape.schema)
    events = _without_empty(added_up(pa.concat_tables([old, delta]), aggregation), aggregation)
    return merge_events(base.directory, base.shape, state, events, version)


def added_up(events: pa.Table, aggregation: Aggregation) -> pa.Table:
    """One event for each group."""
    schema = events.schema
    identity = IDENTITY.name
    columns = {identity: events.column(0), "#place": pa.array(np.arange(len(events)))}
    wanted = [("#place", "min")]
    for part in aggregation.parts:
        for name, column, how in _to_add_up(part, events.column(part.name)):
            columns[name] = column
            wanted.append((name, how))
    found = pa.table(columns).group_by(identity, use_threads=False).aggregate(wanted)
    first = events.take(found.column("#place_min"))
    for part in aggregation.parts:
        place = schema.get_field_index(part.name)
        column = _added_up(part, found, schema.field(place).type)
        first = first.set_column(place, schema.field(place), column)
    return first


def _to_add_up(part: Part, column: pa.ChunkedArray) -> Sequence[tuple[str, pa.ChunkedArray, str]]:
    if part.combine == "sum" and pa.types.is_integer(column.type):
        return [(part.name, column.cast(_SUM), "sum")]
    if pa.types.is_floating(column.type):  # Spark's NaN is greater than all numbers, Arrow's is not
        no_number = pc.is_nan(column)
        numbers = pc.if_else(no_number, pa.scalar(None, column.type), column)
        return [(part.name, numbers, part.combine), (f"{part.name}?", no_number, "any")]
    return [(part.name, column, part.combine)]


def _added_up(part: Part, found: pa.Table, kind: pa.DataType) -> pa.ChunkedArray:
    value = found.column(f"{part.name}_{part.combine}")
    if pa.types.is_floating(kind):
        has_nan = pc.fill_null(found.column(f"{part.name}?_any"), False)  # noqa: FBT003
        wins = has_nan if part.combine == "max" else pc.and_(has_nan, pc.is_null(value))
        value = pc.if_else(wins, _NAN.cast(kind), value)
    return value.cast(kind)


def _without_empty(events: pa.Table, aggregation: Aggregation) -> pa.Table:
    """A group without rows is deleted, unless it is the group of all rows."""
    if not aggregation.groups:
        return events
    gone = pc.equal(events.column(ROWS), 0)
    kind = pc.if_else(gone, *(pa.scalar(each, KIND.type) for each in (Action.DELETE, Action.ROW)))
    return events.set_column(1, events.schema.field(1), kind)

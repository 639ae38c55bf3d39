"""The change of a GROUP BY added to the groups that it concerns.

Events of a table by group are partial aggregates (`aggregation.py`), several of one group if rows
were added and others removed.  A task has all events of a bucket's groups; it looks up the old
groups, adds everything up, and merges the new groups.  A group without rows is deleted.
"""

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quipu.pipeline.envelopes.events import IDENTITY, KIND, Action, EventShape
from quipu.pipeline.envelopes.identity import encode_rows
from quipu.pipeline.envelopes.parcels import unpack
from quipu.pipeline.tables.commits import TableAt
from quipu.pipeline.tables.contract import BucketState
from quipu.pipeline.tables.reading import rows_of
from quipu.pipeline.tables.store import merge_events
from quipu.pipeline.views.aggregation import ROWS, Aggregation, PartialAggregate, ToEvents
from quipu.pipeline.views.merge_task import MergeBucket

_SUM = pa.decimal128(38, 0)  # of whole numbers, so that one that is too large is an error
_NAN = pa.scalar(float("nan"))


def group_events(aggregation: Aggregation) -> ToEvents:
    """A function that makes events of partial aggregates, one of each group.

    Of several events of one group a parcel would keep the last one only.
    """
    def events(shape: EventShape, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = batch.select(shape.row.names).cast(shape.row)
        groups = [rows.column(name) for name in aggregation.groups]
        identities = encode_rows(groups) if groups else pa.array(
            [b""] * rows.num_rows, pa.binary())
        actions = pa.array(np.full(rows.num_rows, Action.ROW, np.uint8))
        found = pa.table([identities, actions, *rows.columns], schema=shape.schema)
        assert found.num_rows > 0, shape
        (whole,) = added_up(found, aggregation).combine_chunks().to_batches()
        assert whole.num_rows <= rows.num_rows, (whole.num_rows, rows.num_rows)
        return whole

    return events


def merge_groups(aggregation: Aggregation) -> MergeBucket:
    """A function that adds parcels of partial aggregates to the groups of a bucket."""
    return partial(_merge_groups, aggregation)


def _merge_groups(
    aggregation: Aggregation, base: TableAt, bucket: int, parcels: Iterable[bytes], version: int,
) -> BucketState:
    state = base.manifest.bucket(bucket)
    shape = base.shape.events
    delta = added_up(unpack(shape, parcels), aggregation)
    known, rows = rows_of(base.directory, base.shape, state, delta)
    assert len(known) == rows.num_rows, (bucket, len(known), rows.num_rows)
    assert len(known) <= delta.num_rows, (bucket, len(known))  # each group is in `delta` once
    front = delta.select([0, 1]).take(pa.array(known))
    old = pa.table([*front.columns, *rows.columns], schema=shape.schema)
    events = _without_empty(added_up(pa.concat_tables([old, delta]), aggregation), aggregation)
    assert events.num_rows == delta.num_rows, (bucket, events.num_rows)  # the same groups
    return merge_events(base.directory, base.shape, state, events, version)


def added_up(events: pa.Table, aggregation: Aggregation) -> pa.Table:
    """The events with those of one group added up: one event for each group."""
    assert aggregation.partials, aggregation
    schema = events.schema
    identity = IDENTITY.name
    columns = {identity: events.column(0), "#place": pa.array(np.arange(len(events)))}
    wanted = [("#place", "min")]
    for part in aggregation.partials:
        for name, column, how in _to_add_up(part, events.column(part.name)):
            columns[name] = column
            wanted.append((name, how))
    found = pa.table(columns).group_by(identity, use_threads=False).aggregate(wanted)
    first = events.take(found.column("#place_min"))
    for part in aggregation.partials:
        place = schema.get_field_index(part.name)
        column = _added_up(part, found, schema.field(place).type)
        first = first.set_column(place, schema.field(place), column)
    assert first.schema == schema, (first.schema, schema)
    assert first.num_rows == found.num_rows, (first.num_rows, found.num_rows)
    return first


def _to_add_up(
    part: PartialAggregate, column: pa.ChunkedArray,
) -> Sequence[tuple[str, pa.ChunkedArray, str]]:
    if part.combine == "sum" and pa.types.is_integer(column.type):
        return [(part.name, column.cast(_SUM), "sum")]
    if pa.types.is_floating(column.type):  # Spark's NaN is greater than all numbers, Arrow's is not
        no_number = pc.is_nan(column)
        numbers = pc.if_else(no_number, pa.scalar(None, column.type), column)
        return [(part.name, numbers, part.combine), (f"{part.name}?", no_number, "any")]
    return [(part.name, column, part.combine)]


def _added_up(part: PartialAggregate, found: pa.Table, kind: pa.DataType) -> pa.ChunkedArray:
    value = found.column(f"{part.name}_{part.combine}")
    if pa.types.is_floating(kind):
        has_nan = pc.fill_null(found.column(f"{part.name}?_any"), False)  # noqa: FBT003
        wins = has_nan if part.combine == "max" else pc.and_(has_nan, pc.is_null(value))
        value = pc.if_else(wins, _NAN.cast(kind), value)
    return value.cast(kind)


def _without_empty(events: pa.Table, aggregation: Aggregation) -> pa.Table:
    """The events, with deletes for groups without rows; the group of all rows always stays."""
    if not aggregation.groups:
        return events
    gone = pc.equal(events.column(ROWS), 0)
    kind = pc.if_else(gone, *(pa.scalar(each, KIND.type) for each in (Action.DELETE, Action.ROW)))
    return events.set_column(1, events.schema.field(1), kind)

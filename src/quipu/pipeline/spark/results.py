"""Results of queries that cannot be followed row by row, kept as tables of counted rows.

A version of such a view is its query over its sources' tables in that version.  The result goes
into a table whose rows are their own identities, with counts: what is there and stays is not
written again, and the table's changelog is the difference of two results, copies counted.

Either the whole result is computed anew (`replaced`), or, where that is known to be the same, only
what has changed (`changed`, see `analysis`).
"""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from quipu.pipeline.envelopes.contract import Messages
from quipu.pipeline.envelopes.events import Action, EventShape, Keeping
from quipu.pipeline.envelopes.identity import encode_rows
from quipu.pipeline.envelopes.parcels import Packer, Parcel, unpack
from quipu.pipeline.formats.contract import Decoded
from quipu.pipeline.spark.aggregates import ToEvents
from quipu.pipeline.spark.merging import Merge, collected, merge_parcels, merging, partition_of
from quipu.pipeline.spark.relations import DIFF, nullable
from quipu.pipeline.spark.tasks import COLUMNS, Item, Kind, from_batches, json_item, to_batches
from quipu.pipeline.tables.commits import TableAt
from quipu.pipeline.tables.contract import BucketState
from quipu.pipeline.tables.reading import rows
from quipu.pipeline.tables.store import merge_events

RESULT = 0  # the one table that these tasks know


def result_shape(schema: pa.Schema) -> EventShape:
    """The events of a table of results."""
    return EventShape(keeping=Keeping.COUNTS, row=nullable(schema))


def replaced(frame: DataFrame, base: TableAt, version: int, cores: int) -> list[BucketState]:
    """The table's buckets when it holds what the query gives now."""
    parcels = frame.mapInArrow(_packing(base, row_events), COLUMNS)
    shared = parcels.repartitionById(cores, partition_of(cores))
    found = collected(shared.mapInArrow(_replacing(base, version, cores), COLUMNS))
    return [BucketState.from_json(item.json) for item in found]


def changed(
    frame: DataFrame, base: TableAt, version: int, cores: int, *, events: ToEvents,
    merge: Merge = merge_parcels,
) -> list[BucketState]:
    """The table's buckets after some events."""
    parcels = frame.mapInArrow(_packing(base, events), COLUMNS)
    shared = parcels.repartitionById(cores, partition_of(cores))
    found = collected(shared.mapInArrow(merging({RESULT: base}, version, merge), COLUMNS))
    return [BucketState.from_json(item.json) for item in found]


def events_of(shape: EventShape, rows: pa.RecordBatch, diffs: pa.Array) -> pa.RecordBatch:
    """Rows as events that add copies of them, or take copies away."""
    return pa.RecordBatch.from_arrays([
        encode_rows(rows.columns), pa.array(np.full(rows.num_rows, Action.ROW, np.uint8)),
        diffs, *rows.columns,
    ], schema=shape.schema)


def _copies(count: int, diff: int) -> pa.Array:
    return pa.array(np.full(count, diff, np.int64))


Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def _packing(base: TableAt, events: ToEvents) -> Task:
    return lambda batches: to_batches(
        Item(RESULT, parcel.bucket, Kind.PARCEL, parcel.data)
        for parcel in packed(base, events, batches))


def packed(
    base: TableAt, events: ToEvents, batches: Iterable[pa.RecordBatch],
) -> Iterator[Parcel]:
    """Rows of a result as parcels for its table."""
    shape = base.shape.events
    packer = Packer(shape, buckets=base.shape.buckets)
    for number, batch in enumerate(batches):
        if batch.num_rows:
            packer.add(_place(number), events(shape, batch))
    return packer.parcels()


def row_events(shape: EventShape, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows that are there, or, with #diff, that came and went."""
    if DIFF not in batch.schema.names:
        return events_of(shape, batch.cast(shape.row), _copies(batch.num_rows, 1))
    return events_of(shape, batch.drop_columns([DIFF]).cast(shape.row), batch.column(DIFF))


def _place(number: int) -> Messages:
    """Rows of a result come from no messages, and in no order; parcels want to know."""
    records = pa.RecordBatch.from_pydict({"offset": [number]})
    return Messages("", 0, records, Decoded([], pa.nulls(1, pa.string()), pa.array([False])))


def _replacing(base: TableAt, version: int, cores: int) -> Task:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parcels: dict[int, list[bytes]] = {}
        for item in from_batches(batches):
            parcels.setdefault(item.bucket, []).append(item.data)
        context = TaskContext.get()
        assert context is not None
        for bucket in range(context.partitionId(), base.shape.buckets, cores):
            state = _replace(base, bucket, parcels.pop(bucket, []), version)
            if state is not None:
                yield from to_batches([json_item(RESULT, bucket, Kind.STATE, state.to_json())])

    return run


def _replace(
    base: TableAt, bucket: int, parcels: Iterable[bytes], version: int,
) -> BucketState | None:
    """What was there goes, what is there now comes; of what is the same, nothing is left."""
    shape = base.shape.events
    state = base.manifest.bucket(bucket)
    came = unpack(shape, parcels)
    went = [events_of(shape, batch, _copies(batch.num_rows, -1))
            for batch in rows(base.directory, base.shape, state)]
    events = pa.concat_tables([came, pa.Table.from_batches(went, shape.schema)])
    if events.num_rows == 0:
        return None
    return merge_events(base.directory, base.shape, state, events, version)

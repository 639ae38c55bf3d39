"""Results of queries as tables of counted rows: rows as events, and a whole result replaced.

In a table of results a row is its own identity, with a count: what is there and stays is not
written again, and the table's changelog is the difference of two results, copies counted.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from quipu.pipeline.envelopes.contract import Messages
from quipu.pipeline.envelopes.events import Action, EventShape, Keeping
from quipu.pipeline.envelopes.identity import encode_rows
from quipu.pipeline.envelopes.parcels import Packer, Parcel, unpack
from quipu.pipeline.execution.arrow_columns import nullable
from quipu.pipeline.formats.contract import Decoded
from quipu.pipeline.tables.commits import TableAt
from quipu.pipeline.tables.contract import BucketState
from quipu.pipeline.tables.reading import rows
from quipu.pipeline.tables.store import merge_events
from quipu.pipeline.views.aggregation import ToEvents
from quipu.pipeline.views.changes import DIFF


def result_shape(schema: pa.Schema) -> EventShape:
    """The shape of the events of a table of results."""
    return EventShape(keeping=Keeping.COUNTS, row=nullable(schema))


def row_events(shape: EventShape, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Events that add rows; of a batch with #diff, that add or take away so many copies."""
    if DIFF not in batch.schema.names:
        return _events(shape, batch.cast(shape.row), _copies(batch.num_rows, 1))
    return _events(shape, batch.drop_columns([DIFF]).cast(shape.row), batch.column(DIFF))


def pack_result(
    base: TableAt, events: ToEvents, batches: Iterable[pa.RecordBatch],
) -> Iterator[Parcel]:
    """Rows of a result as parcels of events for its table."""
    shape = base.shape.events
    packer = Packer(shape, buckets=base.shape.buckets)
    for number, batch in enumerate(batches):
        if batch.num_rows:
            packer.add(_no_messages(number), events(shape, batch))
    return packer.parcels()


def replace_bucket(
    base: TableAt, bucket: int, parcels: Iterable[bytes], version: int,
) -> BucketState | None:
    """Let a bucket hold exactly the rows in some parcels; None if it was and stays empty.

    Old rows are taken away and new ones added: of those that are the same nothing is written.
    """
    shape = base.shape.events
    state = base.manifest.bucket(bucket)
    came = unpack(shape, parcels)
    went = [_events(shape, batch, _copies(batch.num_rows, -1))
            for batch in rows(base.directory, base.shape, state)]
    events = pa.concat_tables([came, pa.Table.from_batches(went, shape.schema)])
    if events.num_rows == 0:
        return None
    merged = merge_events(base.directory, base.shape, state, events, version)
    assert merged.bucket == bucket, (merged.bucket, bucket)
    assert merged.version == version, (merged.version, version)
    return merged


def _events(shape: EventShape, rows: pa.RecordBatch, diffs: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([
        encode_rows(rows.columns), pa.array(np.full(rows.num_rows, Action.ROW, np.uint8)),
        diffs, *rows.columns,
    ], schema=shape.schema)


def _copies(count: int, diff: int) -> pa.Array:
    return pa.array(np.full(count, diff, np.int64))


def _no_messages(number: int) -> Messages:
    """What a packer is given in place of messages: rows of a result come from none, in no order."""
    records = pa.RecordBatch.from_pydict({"offset": [number]})
    return Messages("", 0, records, Decoded([], pa.nulls(1, pa.string()), pa.array([False])))

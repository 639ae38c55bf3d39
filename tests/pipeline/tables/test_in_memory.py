"""Events folded with no table against dicts, and against a table: a snapshot shows the same."""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.pipeline.envelopes.events import Action, EventShape
from quipu.pipeline.envelopes.parcels import Packer
from quipu.pipeline.tables.contract import TableShape
from quipu.pipeline.tables.in_memory import Folded, fold_in_memory
from tests.pipeline.tables.table_maker import (
    COUNTS,
    LATEST,
    ORDERED,
    SECRET,
    STRICT,
    Event,
    Model,
    events_batch,
    messages_at,
)
from tests.pipeline.tables.test_table_model import batches

SHAPES = {"latest": LATEST, "strict": STRICT, "ordered": ORDERED, "counts": COUNTS}


def folded(shape: EventShape, chunks: list[list[Event]], *, buckets: int) -> list[Folded]:
    """Chunks of one partition, each in a parcel of its own, by bucket."""
    parcels: dict[int, list[bytes]] = {}
    for index, chunk in enumerate(chunks):
        packer = Packer(shape, buckets=buckets)
        packer.add(messages_at(index), events_batch(shape, chunk))
        for bucket, data in packer.parcels():
            parcels.setdefault(bucket, []).insert(0, data)  # not in order: that is restored
    return [fold_in_memory(TableShape(shape, buckets, SECRET), data) for data in parcels.values()]


@pytest.mark.parametrize("name", SHAPES)
@settings(max_examples=30, deadline=None)
@given(st.data())
def test_a_snapshot_is_what_a_dict_holds_in_the_end(name: str, data: st.DataObject) -> None:
    """I12, I15: rows with their copies, and errors that are outstanding."""
    shape = SHAPES[name]
    actions = [Action.ROW, *([Action.ERROR] if shape.errors else []),
               *([] if shape is COUNTS else [Action.DELETE])]
    chunks = [chunk for batch in data.draw(batches(actions)) for chunk in batch]
    model = Model(shape)
    for event in (event for chunk in chunks for event in chunk):
        model.apply(event)
    found = folded(shape, chunks, buckets=2)
    rows = [batch for each in found for batch in each.rows()]
    assert Counter((row["key"], row["value"]) for batch in rows
                   for row in batch.to_pylist()) == model.rows()
    assert sorted(text for each in found for text in each.errors()) == model.errors()


def test_only_the_columns_that_are_wanted_are_given_and_in_that_order() -> None:
    """I4."""
    (found,) = folded(STRICT, [[Event("a", value=1), Event("b", value=2), Event("a", value=3)]],
                      buckets=1)
    (batch,) = found.rows(["value"])
    assert batch.to_pydict() == {"value": [2, 3]}
    (batch,) = found.rows(["value", "key"])
    assert batch.schema.equals(pa.schema([("value", pa.int64()), ("key", pa.string())]))

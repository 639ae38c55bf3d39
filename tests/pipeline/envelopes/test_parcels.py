"""Parcels: every event arrives, in its bucket, in order, and nothing else is taken for one."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quipu.pipeline.envelopes.events import Slot
from quipu.pipeline.envelopes.parcels import ForeignParcel, Packer, unpack
from tests.pipeline.tables.table_maker import (
    COUNTS,
    LATEST,
    ORDERED,
    Event,
    events_batch,
    messages_at,
)


@given(st.lists(st.lists(st.sampled_from("abcdefg"), max_size=6), max_size=5),
       st.integers(1, 5), st.permutations(range(5)))
def test_events_arrive_in_order(
    chunks: list[list[str]], buckets: int, order: list[int],
) -> None:
    """Whatever the order in which parcels come: topic, partition, offset decide."""
    arrived: dict[int, list[bytes]] = {}
    packer = Packer(COUNTS, buckets=buckets)
    for index in [each for each in order if each < len(chunks)]:
        events = [Event(key, value=index) for key in chunks[index]]
        packer.add(messages_at(index % 2, partition=index // 2), events_batch(COUNTS, events))
        if index % 2:  # some parcels have several chunks, some have one
            for bucket, data in packer.parcels():
                arrived.setdefault(bucket, []).append(data)
    for bucket, data in packer.parcels():
        arrived.setdefault(bucket, []).append(data)

    found = [unpack(COUNTS, parcels).to_pylist() for parcels in arrived.values()]
    assert sorted((row["key"], row["value"]) for rows in found for row in rows) == \
        sorted((key, index) for index, chunk in enumerate(chunks) for key in chunk)
    for rows in found:
        assert [row["value"] for row in rows] == sorted(row["value"] for row in rows)
    keys = [{row["#identity"] for row in rows} for rows in found]
    assert sum(map(len, keys)) == len(set().union(*keys))  # an identity is in one bucket


def test_of_many_events_of_few_keys_only_the_last_travel() -> None:
    """Slots are kept apart; the order of what travels stays; tables that need all get all."""
    events = [Event("ab"[number % 2], value=number, slot=Slot(number % 3 // 2 * 2))
              for number in range(600)]
    want = {(event.key, event.slot): event.value for event in events}
    for shape, count in ((LATEST, len(want)), (ORDERED, 600), (COUNTS, 600)):
        packer = Packer(shape, buckets=1)
        packer.add(messages_at(0), events_batch(shape, events))
        (parcel,) = packer.parcels()
        values = unpack(shape, [parcel.data]).column("value").to_pylist()
        assert len(values) == count
        assert values == sorted(values)
        assert set(want.values()) <= set(values)


def test_many_keys_all_travel() -> None:
    events = [Event(str(number), value=number) for number in range(2000)]
    packer = Packer(LATEST, buckets=1)
    packer.add(messages_at(0), events_batch(LATEST, events))
    (parcel,) = packer.parcels()

    assert unpack(LATEST, [parcel.data]).column("value").to_pylist() == list(range(2000))


def test_a_packer_that_was_emptied_is_empty() -> None:
    packer = Packer(LATEST, buckets=2)
    packer.add(messages_at(0), events_batch(LATEST, [Event("a")]))
    assert packer.size > 0
    assert len(list(packer.parcels())) == 1
    assert packer.size == 0
    assert list(packer.parcels()) == []
    assert unpack(LATEST, []).num_rows == 0


def test_foreign_bytes_are_refused() -> None:
    packer = Packer(LATEST, buckets=1)
    with pytest.raises(ForeignParcel, match="#diff int64"):
        packer.add(messages_at(0), events_batch(COUNTS, [Event("a")]))
    packer.add(messages_at(0), events_batch(LATEST, [Event("a")]))
    (parcel,) = packer.parcels()
    with pytest.raises(ForeignParcel, match=r"wanted .*#diff int64"):
        unpack(COUNTS, [parcel.data])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, LATEST.schema) as writer:
        writer.write_batch(events_batch(LATEST, [Event("a")]))
    for data in (b"", b"abc", parcel.data[:-40], sink.getvalue().to_pybytes()):
        with pytest.raises(ForeignParcel):
            unpack(LATEST, [data])
    with pytest.raises(ValueError, match="there can be 1 to 4096"):
        Packer(LATEST, buckets=0)

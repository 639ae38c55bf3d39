"""Parcels: every event arrives, in its bucket, in order, and nothing else is taken for one."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quipu.pipeline.envelopes.parcels import ForeignParcel, Packer, unpack
from tests.pipeline.tables.table_maker import COUNTS, LATEST, Event, events_batch, messages_at


@given(st.lists(st.lists(st.sampled_from("abcdefg"), max_size=6), max_size=5),
       st.integers(1, 5), st.permutations(range(5)))
def test_events_arrive_in_order(
    chunks: list[list[str]], buckets: int, order: list[int],
) -> None:
    """Whatever the order in which parcels come: topic, partition, offset decide."""
    arrived: dict[int, list[bytes]] = {}
    packer = Packer(LATEST, buckets=buckets)
    for index in [each for each in order if each < len(chunks)]:
        events = [Event(key, value=index) for key in chunks[index]]
        packer.add(messages_at(index % 2, partition=index // 2), events_batch(LATEST, events))
        if index % 2:  # some parcels have several chunks, some have one
            for bucket, data in packer.parcels():
                arrived.setdefault(bucket, []).append(data)
    for bucket, data in packer.parcels():
        arrived.setdefault(bucket, []).append(data)

    found = [unpack(LATEST, parcels).to_pylist() for parcels in arrived.values()]
    assert sorted((row["#identity"].decode(), row["value"]) for rows in found for row in rows) == \
        sorted((key, index) for index, chunk in enumerate(chunks) for key in chunk)
    for rows in found:
        assert [row["value"] for row in rows] == sorted(row["value"] for row in rows)
    keys = [{row["key"] for row in rows} for rows in found]
    assert sum(map(len, keys)) == len(set().union(*keys))  # a key is in one bucket


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

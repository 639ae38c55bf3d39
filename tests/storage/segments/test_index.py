"""The index: look-ups against a plain search, and the file's bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quipu.model.errors import MalformedBytes
from quipu.storage.segments.index import (
    HEADER_SIZE,
    Index,
    IndexEntry,
    Summary,
    decode_index,
    decode_summary,
)

SUMMARY = Summary(5000, 100, 400, 900, 1234, 99)


@st.composite
def indexes(draw: st.DrawFn) -> Index:
    """Keys that grow, as in a segment: client offsets and times may stay the same."""
    index = Index()
    offset = log_offset = position = 0
    timestamp = -1
    for _ in range(draw(st.integers(1, 30))):
        index.add(IndexEntry(offset, log_offset, position, timestamp))
        step = draw(st.integers(0, 3))
        offset, log_offset = offset + step, log_offset + step + draw(st.integers(1, 2))
        position += draw(st.integers(1, 50))
        timestamp += draw(st.integers(0, 3))
    return index


@given(indexes(), st.integers(0, 150))
def test_a_look_up_is_the_last_entry_at_or_before_the_key(index: Index, key: int) -> None:
    """V1: by binary search, as a plain search finds it."""
    entries = [index[number] for number in range(len(index))]
    assert index.find_offset(key) == [e for e in entries if e.offset_delta <= key][-1]
    assert index.find_log_offset(key) == [e for e in entries if e.log_offset_delta <= key][-1]
    older = [e for e in entries if e.max_timestamp_before < key]
    assert index.find_timestamp(key) == (older or entries[:1])[-1]


@given(indexes())
def test_an_index_survives_its_file(index: Index) -> None:
    """V1: and no cut and no flipped bit goes unnoticed."""
    data = index.encode(SUMMARY)
    summary, again = decode_index(memoryview(data))
    assert summary == decode_summary(data[:HEADER_SIZE]) == SUMMARY
    assert [again[n] for n in range(len(again))] == [index[n] for n in range(len(index))]
    for size in range(len(data)):
        with pytest.raises(MalformedBytes):
            decode_index(memoryview(data[:size]))
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        with pytest.raises(MalformedBytes):
            decode_index(memoryview(damaged))


def test_the_bytes_of_an_index_file() -> None:
    """T8: the layout of storage/segments/index.py, byte by byte."""
    index = Index()
    index.add(IndexEntry(0, 0, 0, -1))
    index.add(IndexEntry(3, 6, 4100, 1_700_000_000_000))
    assert index.encode(SUMMARY).hex(" ", 4) == (
        "51494458 01000000 00000002 " + index.encode(SUMMARY)[12:16].hex()
        + " 00000000 00001388 00000000 00000064 00000000 00000190 00000000 00000384"
        " 00000000 000004d2 00000000 00000063 " + index.encode(SUMMARY)[64:68].hex()
        + " 00000000 00000000 00000000 ffffffff ffffffff"
        " 00000003 00000006 00001004 0000018b cfe56800")

"""Footers, pointers, trailers and keys: what was encoded is decoded, and nothing else is."""

import tracemalloc
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.model.errors import MalformedBytes, QuipuError
from quipu.remote.segments.errors import UnknownSegmentFormat
from quipu.remote.segments.footer import (
    CHUNK_SIZE_MAX,
    ChunkEntry,
    SegmentEpoch,
    SegmentFooter,
    decode_footer,
    encode_footer,
    encode_index,
)
from quipu.remote.segments.names import SegmentName, find_name, partition_prefix
from quipu.remote.segments.pointer import (
    FOOTER_SIZE_MAX,
    POINTER_SIZE,
    TRAILER_SIZE,
    SegmentPointer,
    decode_pointer,
    decode_trailer,
)
from quipu.runtime.objects.keys import check_key

NAME = SegmentName(UUID(int=1), 2, 100, UUID(int=3))
CHUNKS = (ChunkEntry(0, 50, 200, 100, 200, 1, 0), ChunkEntry(50, 300, 300, 110, 215, 2, 200))
FOOTER = SegmentFooter(
    NAME, "päper", 120, 200, 230, 99, 500, CHUNKS,
    encode_index([(100, 200, 0, -1), (110, 215, 200, 50)], start_offset=100, log_start=200),
    (SegmentEpoch(0, 100, 200), SegmentEpoch(4, 110, 215)), b"producers", b"")
DATA = encode_footer(FOOTER)
POSITION = 350

pointers = st.builds(
    SegmentPointer, st.integers(1, 1 << 40), st.integers(1, FOOTER_SIZE_MAX),
    st.integers(0, (1 << 32) - 1))


def test_a_footer() -> None:
    """remote.segments.F1: all of it, with and without a transaction index."""
    assert decode_footer(DATA, position=POSITION) == FOOTER
    without = FOOTER._replace(transaction_index=None)
    assert decode_footer(encode_footer(without), position=POSITION) == without
    assert FOOTER.marks() == [(100, 200, 0, -1), (110, 215, 200, 50)]


def test_look_ups() -> None:
    """The last chunk or entry at or before what is wanted."""
    assert [FOOTER.find_chunk(offset) for offset in (0, 100, 109, 110, 500)] == [0, 0, 0, 1, 1]
    assert [FOOTER.find_position(offset) for offset in (100, 109, 110)] == [0, 0, 200]
    assert [FOOTER.find_position_by_time(time) for time in (0, 50, 51)] == [0, 0, 200]
    assert [FOOTER.find_chunk_at(position) for position in (0, 199, 200)] == [0, 0, 1]
    assert [FOOTER.find_chunk_by_log_offset(each) for each in (200, 214, 215)] == [0, 0, 1]
    assert [FOOTER.log_end_of(number) for number in (0, 1)] == [215, 230]
    assert FOOTER._replace(entries=b"").find_position(115) == 0


@given(st.integers(0, len(DATA) - 1), st.integers(0, 255), st.integers(0, len(DATA)))
def test_any_change_is_found_or_harmless(at: int, byte: int, size: int) -> None:
    """remote.segments.F1: with a checksum that fits, it is still decoded whole or refused."""
    for data in (DATA[:at] + bytes([byte]) + DATA[at + 1 :], DATA[:size], DATA + DATA[:size]):
        try:
            footer = decode_footer(data, position=POSITION)
        except (MalformedBytes, UnknownSegmentFormat):
            continue
        assert encode_footer(footer) == data


@given(st.binary(max_size=300))
@settings(max_examples=200)
def test_any_bytes(data: bytes) -> None:
    """remote.segments.F1, remote.segments.P1: none of them is anything but refused."""
    for decode in (lambda: decode_footer(data, position=POSITION), lambda: decode_pointer(data),
                   lambda: decode_trailer(data)):
        with pytest.raises(QuipuError):
            decode()


@pytest.mark.parametrize("wrong", [
    FOOTER._replace(chunks=CHUNKS[:1]),
    FOOTER._replace(chunks=()),
    FOOTER._replace(chunks=(CHUNKS[0], CHUNKS[1]._replace(position=51))),
    FOOTER._replace(chunks=(CHUNKS[0], CHUNKS[1]._replace(first_offset=99))),
    FOOTER._replace(chunks=(CHUNKS[0], CHUNKS[1]._replace(log_offset=200))),
    FOOTER._replace(chunks=(CHUNKS[0], CHUNKS[1]._replace(stored_size=301))),
    FOOTER._replace(chunks=(CHUNKS[0], CHUNKS[1]._replace(size=CHUNK_SIZE_MAX + 1))),
    FOOTER._replace(chunks=(CHUNKS[0]._replace(size=100 << 20), CHUNKS[1])),
    FOOTER._replace(chunks=(CHUNKS[0]._replace(log_offset=201), CHUNKS[1])),
    FOOTER._replace(end_offset=99), FOOTER._replace(log_end=200), FOOTER._replace(topic=""),
    FOOTER._replace(max_timestamp=-2), FOOTER._replace(segment_size=501),
    FOOTER._replace(entries=FOOTER.entries[20:] + FOOTER.entries[:20]),
    FOOTER._replace(entries=encode_index([(130, 201, 3, 0)], start_offset=100, log_start=200)),
    FOOTER._replace(entries=encode_index([(100, 201, 500, 0)], start_offset=100, log_start=200)),
    FOOTER._replace(epochs=FOOTER.epochs[::-1]),
    FOOTER._replace(name=NAME._replace(partition=-1)),
], ids=range(19))
def test_footers_that_contradict_themselves(wrong: SegmentFooter) -> None:
    """remote.segments.F2, remote.segments.F3: whoever holds a footer need not check it again."""
    with pytest.raises(MalformedBytes):
        decode_footer(encode_footer(wrong), position=POSITION)
    with pytest.raises(MalformedBytes):
        decode_footer(DATA, position=POSITION + 1)


def test_a_footer_of_many_counts_takes_no_memory() -> None:
    """remote.segments.F1: counts are compared with the bytes before anything is made of them."""
    data = bytearray(DATA)
    data[88:104] = b"\xff" * 16
    tracemalloc.start()
    with pytest.raises(MalformedBytes):
        decode_footer(bytes(data), position=POSITION)
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


@given(pointers)
def test_pointers_and_trailers(pointer: SegmentPointer) -> None:
    """remote.segments.P1: in the metadata and in the object, each by its own bytes."""
    assert decode_pointer(pointer.encode()) == pointer
    assert decode_trailer(pointer.encode_trailer()) == pointer
    assert (len(pointer.encode()), len(pointer.encode_trailer())) == (POINTER_SIZE, TRAILER_SIZE)


@given(pointers, st.data())
def test_a_changed_pointer_is_refused(pointer: SegmentPointer, data: st.DataObject) -> None:
    """remote.segments.P1: one bit is enough."""
    for encoded, decode in ((pointer.encode(), decode_pointer),
                            (pointer.encode_trailer(), decode_trailer)):
        at = data.draw(st.integers(0, 8 * len(encoded) - 1))
        changed = (int.from_bytes(encoded) ^ 1 << at).to_bytes(len(encoded))
        with pytest.raises(MalformedBytes):
            decode(changed)


@pytest.mark.parametrize("pointer", [
    SegmentPointer(1, FOOTER_SIZE_MAX + 1, 0), SegmentPointer(0, 1, 0), SegmentPointer(-1, 1, 0),
    SegmentPointer(1 << 41, 1, 0), SegmentPointer(1, 0, 0)])
def test_a_pointer_out_of_bounds_is_refused(pointer: SegmentPointer) -> None:
    """remote.segments.P1: before anything is fetched by it."""
    with pytest.raises(MalformedBytes):
        decode_pointer(pointer.encode())


@given(st.uuids(), st.integers(0, (1 << 31) - 1), st.integers(0, 1 << 62), st.uuids())
def test_keys(topic_id: UUID, partition: int, offset: int, segment_id: UUID) -> None:
    """A key names its segment, and every store takes it."""
    name = SegmentName(topic_id, partition, offset, segment_id)
    check_key(name.key)
    assert find_name(name.key) == name
    assert name.key.startswith(partition_prefix(topic_id, partition))


@pytest.mark.parametrize("key", [
    "", "a", f"{NAME.key}x", f"x/{NAME.key}", NAME.key.upper(), NAME.key.replace("/2/", "/02/"),
    NAME.key.replace("/2/", "/9999999999/"), NAME.key.replace("100-", "-")])
def test_other_keys(key: str) -> None:
    """They are not ours."""
    assert find_name(key) is None

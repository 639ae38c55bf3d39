"""The hot path's functions: the compiled and the plain ones are held to the same results.

Where nothing is compiled, `fast` is the plain module, and these tests hold for it alone.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.model.errors import MalformedBytes, QuipuError
from quipu.wire import _fast_pure, fast
from quipu.wire.produce_codec import ProducedPart, encode_produce_response
from quipu.wire.record_batch import Record, check_batch, encode_batch, parse_header
from quipu.wire.stored_batch import Fault, check_stored, pack_prefix

Outcome = tuple[str, Any]

versions = st.integers(3, 13)
records = st.none() | st.binary(max_size=40)
names = st.text(max_size=12)


def outcome(function: Callable[..., Any], *args: Any, **options: Any) -> Outcome:
    """What a call gives, in a form that two calls can be compared by."""
    try:
        return "gives", function(*args, **options)
    except QuipuError as error:
        return "raises", (type(error), error.code, str(error))


# --- Produce requests -------------------------------------------------------------------------


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def sized(data: bytes | None, *, compact: bool, width: int) -> bytes:
    if compact:
        return uvarint(0) if data is None else uvarint(len(data) + 1) + data
    size = -1 if data is None else len(data)
    return size.to_bytes(width, "big", signed=True) + (data or b"")


def produce_request(
    version: int,
    topics: list[tuple[str | bytes, list[tuple[int, bytes | None]]]],
    transactional_id: str | None = None,
    tags: bytes = b"\0",
) -> bytes:
    """A Produce request body, written from the layout and not with the code under test."""
    compact = version >= 9
    end = tags if compact else b""

    def text(value: str | None) -> bytes:
        return sized(None if value is None else value.encode(), compact=compact, width=2)

    def count(value: int) -> bytes:
        return uvarint(value + 1) if compact else value.to_bytes(4, "big")

    out = text(transactional_id) + (1).to_bytes(2, "big") + (30_000).to_bytes(4, "big")
    out += count(len(topics))
    for topic, partitions in topics:
        out += topic if isinstance(topic, bytes) else text(topic)
        out += count(len(partitions))
        for partition, data in partitions:
            out += partition.to_bytes(4, "big", signed=True)
            out += sized(data, compact=compact, width=4) + end
        out += end
    return out + end


@st.composite
def produce_requests(draw: st.DrawFn) -> tuple[int, bytes, list[Any]]:
    """A version, a request and the parts that it must be read as."""
    version = draw(versions)
    topic = st.binary(min_size=16, max_size=16) if version == 13 else names
    partitions = st.lists(st.tuples(st.integers(-1, 2**31 - 1), records), max_size=4)
    topics = draw(st.lists(st.tuples(topic, partitions), max_size=4))
    tags = draw(st.sampled_from([b"\0", b"\x01\x07\x03abc", b"\x02\x00\x00\x81\x01\x02xy"]))
    body = produce_request(version, topics, draw(st.none() | names), tags)
    want = [(name, index, data) for name, parts in topics for index, data in parts]
    return version, body, want


@given(case=produce_requests(), head=st.binary(max_size=20))
@settings(max_examples=150)
def test_a_produce_request_is_read_as_it_was_written(
    case: tuple[int, bytes, list[Any]], head: bytes
) -> None:
    """K2: topics, partitions and the place of their records, in every version from 3 to 13."""
    version, body, want = case
    frame = memoryview(head + body)
    _, acks, timeout_ms, parts = fast.parse_produce(frame, len(head), version)

    assert (acks, timeout_ms) == (1, 30_000)
    assert [
        (topic, partition, None if start < 0 else bytes(frame[start:end]))
        for topic, partition, start, end in parts
    ] == want
    assert outcome(_fast_pure.parse_produce, frame, len(head), version) == outcome(
        fast.parse_produce, frame, len(head), version
    )


@given(case=produce_requests(), data=st.data())
@settings(max_examples=400)
def test_a_damaged_produce_request_is_read_alike_or_refused_alike(
    case: tuple[int, bytes, list[Any]], data: st.DataObject
) -> None:
    """K8: cut, grown or with bytes changed, both twins agree, error message included."""
    version, body, _ = case
    damaged = bytearray(body)
    for _ in range(data.draw(st.integers(1, 3))):
        index = data.draw(st.integers(0, len(damaged) - 1))
        damaged[index] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
    del damaged[data.draw(st.integers(0, len(damaged))) :]
    damaged += data.draw(st.sampled_from([b"", b"", b"\0", b"\xff" * 6]))
    other = data.draw(st.sampled_from([version, version, 3, 9, 13]))
    frame = memoryview(damaged)

    assert outcome(fast.parse_produce, frame, 0, other) == outcome(
        _fast_pure.parse_produce, frame, 0, other
    )


@pytest.mark.parametrize("parse", [fast.parse_produce, _fast_pure.parse_produce])
def test_a_produce_request_cannot_unfold_without_bound(parse: Callable[..., Any]) -> None:
    """K8: a partition takes six bytes on the wire and far more in memory, so they are limited."""
    most = [(index, b"") for index in range(fast.PRODUCE_PARTITIONS_MAX)]
    _, _, _, parts = parse(memoryview(produce_request(9, [("t", most)])), 0, 9)
    assert len(parts) == fast.PRODUCE_PARTITIONS_MAX

    with pytest.raises(MalformedBytes, match=f"more than {fast.PRODUCE_PARTITIONS_MAX} partitions"):
        parse(memoryview(produce_request(9, [("t", [*most, (1, b"")])])), 0, 9)


@pytest.mark.parametrize("parse", [fast.parse_produce, _fast_pure.parse_produce])
@pytest.mark.parametrize("version", [3, 9, 12])
def test_more_parts_than_wanted_are_not_looked_at(parse: Callable[..., Any], version: int) -> None:
    """K8: with a small `parts_max`, decoding stops early; invalid bytes after it are found only
    when all parts are decoded.
    """
    body = produce_request(version, [("t", [(index, b"ab") for index in range(9)])])
    assert len(parse(memoryview(body), 0, version, 9)[3]) == 9
    assert parse(memoryview(body), 0, version, 8) == (None, 1, 30_000, [])
    assert parse(memoryview(body + b"rubbish"), 0, version, 8) == (None, 1, 30_000, [])
    with pytest.raises(MalformedBytes):
        parse(memoryview(body + b"rubbish"), 0, version)


@pytest.mark.parametrize("parse", [fast.parse_produce, _fast_pure.parse_produce])
@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_a_topic_name_that_is_not_text_is_refused(parse: Callable[..., Any], version: int) -> None:
    """K8: bytes that are not UTF-8 are the client's fault, and no crash of ours."""
    body = produce_request(version, [("ab", [(0, b"x")])]).replace(b"ab", b"\xff\xfe")
    with pytest.raises(MalformedBytes, match="not UTF-8"):
        parse(memoryview(body), 0, version)


@given(case=produce_requests(), client_id=st.none() | st.text(max_size=9), data=st.data())
@settings(max_examples=200)
def test_a_header_is_skipped_on_request(
    case: tuple[int, bytes, list[Any]], client_id: str | None, data: st.DataObject
) -> None:
    """K2, K8: with position -1 the body follows the header, which may be damaged, too."""
    version, body, _ = case
    name = sized(None if client_id is None else client_id.encode(), compact=False, width=2)
    head = bytes(8) + name + (data.draw(st.sampled_from([b"\0", b"\x01\x05\x02ab"]))
                              if version >= 9 else b"")
    found = fast.parse_produce(memoryview(head + body), -1, version)
    assert found == fast.parse_produce(memoryview(head + body), len(head), version)

    damaged = bytearray(head + body)
    damaged[data.draw(st.integers(8, len(head)))] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(0, len(damaged))) :]
    view = memoryview(damaged)
    assert outcome(fast.parse_produce, view, -1, version) == outcome(
        _fast_pure.parse_produce, view, -1, version)


@given(
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    version=versions,
    topic=st.text(max_size=3) | st.text("ab", min_size=120, max_size=140),
    numbers=st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 3),
    message=st.none() | st.text(max_size=5),
)
@settings(max_examples=150)
def test_both_twins_answer_alike(
    correlation_id: int, version: int, topic: str, numbers: tuple[int, int, int],
    message: str | None,
) -> None:
    """K2: the same bytes for names of any length, for ids, and with error messages."""
    part = ProducedPart(7, -1 if message else 0, *numbers, message)
    wanted: str | bytes = b"0123456789abcdef" if version == 13 else topic
    assert fast.encode_one_part(correlation_id, version, wanted, part) == (
        encode_produce_response(correlation_id, version, [(wanted, [part])]))


# --- batches ----------------------------------------------------------------------------------


def batch_of(count: int, *, value: bytes = b"v", **options: int) -> bytearray:
    return encode_batch([Record(None, value, timestamp=7 + n) for n in range(count)], **options)


batches = st.builds(
    batch_of,
    count=st.integers(1, 5),
    value=st.sampled_from([b"", b"v" * 10, b"v" * 300, b"v" * 2_000]),
    compression=st.integers(0, 4),
    producer_id=st.sampled_from([-1, 0, 2**40]),
    producer_epoch=st.sampled_from([-1, 0, 3]),
    base_sequence=st.sampled_from([-1, 0, 2**31 - 1]),
)


@given(batch=batches, data=st.data())
@settings(max_examples=400)
def test_both_twins_check_a_batch_alike(batch: bytearray, data: st.DataObject) -> None:
    """T1, K8: every header field, whole or damaged, gives the same header or the same error."""
    if data.draw(st.booleans()):
        position = data.draw(st.integers(0, min(len(batch), 64) - 1))
        batch[position] = data.draw(st.integers(0, 255))
        if data.draw(st.booleans()):  # a wrong field under a right checksum
            batch[17:21] = right_crc(batch)
    size_max = data.draw(st.sampled_from([1 << 20, 100]))
    del batch[data.draw(st.sampled_from([len(batch), len(batch), len(batch) - 1, 60, 0])) :]
    view = memoryview(batch)

    assert outcome(fast.check_batch, view, size_max=size_max) == outcome(
        check_batch, view, size_max=size_max
    )


def right_crc(batch: bytearray) -> bytes:
    return crc32c(memoryview(batch)[21:]).to_bytes(4, "big")


def test_every_bit_of_a_header_is_judged_alike() -> None:
    """T1, K8: each of the 488 bits flipped, with the checksum as it was and with a right one."""
    good = batch_of(3, producer_id=9, producer_epoch=1, base_sequence=5)
    for bit in range(61 * 8):
        for repaired in (False, True):
            batch = bytearray(good)
            batch[bit // 8] ^= 1 << bit % 8
            if repaired:
                batch[17:21] = right_crc(batch)
            view = memoryview(batch)
            assert outcome(fast.check_batch, view, size_max=1000) == outcome(
                check_batch, view, size_max=1000
            ), bit


@given(
    batch=batches,
    batch_type=st.integers(1, 255),
    offsets=st.tuples(*[st.integers(0, 2**63 - 1)] * 2),
    epoch=st.integers(-1, 2**31 - 1),
)
@settings(max_examples=100)
def test_both_twins_stamp_a_batch_alike(
    batch: bytearray, batch_type: int, offsets: tuple[int, int], epoch: int
) -> None:
    """T1, T8: the same prefix, the same bytes, and a stored batch that passes its own check."""
    twin = bytearray(batch)
    header = parse_header(memoryview(batch))
    options = {"batch_type": batch_type, "log_offset": offsets[0],
               "base_offset": offsets[1], "leader_epoch": epoch}
    prefix = fast.stamp(memoryview(batch), header, **options)

    assert prefix == _fast_pure.stamp(memoryview(twin), header, **options)
    assert batch == twin
    found = check_stored(memoryview(prefix + batch))
    assert not isinstance(found, Fault)
    assert (found.batch_type, found.log_offset, found.base_offset) == (batch_type, *offsets)


def test_a_batch_without_a_type_is_never_stamped() -> None:
    """T2: type 0 means that a writer forgot it: a bug, so an assertion."""
    batch = batch_of(1)
    for stamp in (fast.stamp, _fast_pure.stamp):
        with pytest.raises(AssertionError):
            stamp(memoryview(batch), parse_header(memoryview(batch)), batch_type=0,
                  log_offset=0, base_offset=0, leader_epoch=0)


# --- walking a segment ------------------------------------------------------------------------


def segment_of(plan: list[tuple[int, int, int]]) -> bytes:
    """Stored batches, one per (type, records, value size)."""
    out = b""
    log_offset = offset = 0
    for batch_type, count, size in plan:
        batch = batch_of(count, value=b"v" * size, base_offset=offset)
        out += pack_prefix(batch, batch_type=batch_type, log_offset=log_offset) + batch
        log_offset += count
        offset += count if batch_type == 1 else 0
    return out


plans = st.lists(
    st.tuples(st.sampled_from([1, 1, 1, 2, 99]), st.integers(1, 4), st.sampled_from([0, 9, 3000])),
    max_size=8,
)


def same_slices(segment: bytes, position: int, **options: Any) -> Outcome:
    kind, found = outcome(fast.slices, memoryview(segment), position, **options)
    assert (kind, found) == outcome(_fast_pure.slices, memoryview(segment), position, **options)
    return kind, found


@given(plan=plans, offset=st.integers(0, 20), data=st.data())
@settings(max_examples=300)
def test_slices_are_the_visible_batches_that_were_asked_for(
    plan: list[tuple[int, int, int]], offset: int, data: st.DataObject
) -> None:
    """T5, K2: data batches from the offset on, whole, within the limit, and no other type."""
    segment = segment_of(plan)
    end_offset = data.draw(st.integers(0, 25))
    limit = data.draw(st.sampled_from([0, 200, 5_000, 1 << 20]))
    min_one = data.draw(st.booleans())
    kind, found = same_slices(
        segment, 0, offset=offset, end_offset=end_offset, limit=limit, min_one=min_one
    )
    assert kind == "gives"
    buffers, size, position = found

    want = []
    start = 0
    for batch_type, count, value_size in plan:
        if batch_type != 1:
            continue
        batch = bytes(batch_of(count, value=b"v" * value_size, base_offset=start))
        start += count
        if start <= offset:
            continue
        fits = sum(map(len, want)) + len(batch) <= limit or (min_one and not want)
        if start - count >= end_offset or not fits:
            break
        want.append(batch)
    assert b"".join(bytes(buffer) for buffer in buffers) == b"".join(want)
    assert size == sum(map(len, want))
    rest = same_slices(
        segment, position, offset=offset, end_offset=1 << 40, limit=1 << 40, min_one=True
    )
    assert len(buffers) <= len(want) <= len(plan)
    assert size + rest[1][1] == same_slices(
        segment, 0, offset=offset, end_offset=1 << 40, limit=1 << 40, min_one=True
    )[1][1]


@given(plan=plans, data=st.data())
@settings(max_examples=300)
def test_broken_segments_are_walked_or_refused_alike(
    plan: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    """T12: lengths and offsets of any value never lead outside of the mapping."""
    segment = bytearray(segment_of([(1, 1, 9), *plan]))
    for _ in range(3):
        position = data.draw(st.integers(0, min(120, len(segment) - 1)))
        segment[position] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    del segment[data.draw(st.integers(0, len(segment))) :]
    same_slices(
        bytes(segment), data.draw(st.sampled_from([0, 0, 1, 200])),
        offset=data.draw(st.integers(0, 5)), end_offset=data.draw(st.integers(0, 2**63 - 1)),
        limit=10_000, min_one=True,
    )


def test_large_batches_are_not_copied_and_small_ones_are_joined() -> None:
    """K2: a slice of the mapping costs no copy; a hundred tiny ones would cost more than one."""
    everything = {"offset": 0, "end_offset": 99, "limit": 1 << 20, "min_one": True}
    large = memoryview(segment_of([(1, 1, 9_000)] * 3))
    small = memoryview(segment_of([(1, 1, 9)] * 3))
    for slices in (fast.slices, _fast_pure.slices):
        buffers, _, position = slices(large, 0, **everything)
        assert [buffer.obj for buffer in buffers] == [large.obj] * 3
        assert position == len(large)
        buffers, _, _ = slices(small, 0, **everything)
        assert len(buffers) == 1


# --- the choice -------------------------------------------------------------------------------


def test_the_plain_functions_serve_when_asked_for() -> None:
    """K2: QUIPU_PURE=1 turns the compiled module off, so that its worth can be measured."""
    ask = "from quipu.wire import fast; print(fast.COMPILED, fast.parse_produce.__module__)"
    pure = subprocess.run(
        [sys.executable, "-c", ask], env={**os.environ, "QUIPU_PURE": "1"},
        capture_output=True, text=True, check=True,
    )
    assert pure.stdout.split() == ["False", "quipu.wire._fast_pure"]

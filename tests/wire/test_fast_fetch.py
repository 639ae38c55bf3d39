"""Fetch on the hot path: the compiled and the plain functions are held to the same results.

Where nothing is compiled, `fast` is the plain module, and these tests hold for it alone.
"""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.model.errors import MalformedBytes
from quipu.wire import _fast_pure, fast
from quipu.wire.fetch_codec import FetchedPart, encode_fetch_response
from quipu.wire.frame import encode_request
from quipu.wire.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from quipu.wire.produce_codec import body_position

names = st.text(max_size=12)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
ids = st.builds(UUID, int=st.integers(0, 2**128 - 1))


@st.composite
def fetch_requests(draw: st.DrawFn) -> tuple[int, FetchRequest]:
    """A version and a request with every field that the version has; at times with tagged ones."""
    version = draw(st.integers(4, 18))
    tagged = draw(st.booleans())

    def since(first: int, values: st.SearchStrategy[Any], default: Any) -> Any:
        return draw(values) if version >= first else default

    def topic() -> dict[str, Any]:
        return {"topic_id": draw(ids)} if version >= 13 else {"topic": draw(names)}

    def part() -> FetchPartition:
        return FetchPartition(
            partition=draw(int32s), fetch_offset=draw(int64s), partition_max_bytes=draw(int32s),
            current_leader_epoch=since(9, int32s, -1), last_fetched_epoch=since(12, int32s, -1),
            log_start_offset=since(5, int64s, -1),
            **({"high_watermark": draw(int64s)} if tagged and version >= 18 else {}))

    def some(make: Callable[[], Any], count_max: int = 3) -> list[Any]:
        return [make() for _ in range(draw(st.integers(0, count_max)))]

    request = FetchRequest(
        max_wait=draw(int32s), min_bytes=draw(int32s), max_bytes=draw(int32s),
        isolation_level=draw(st.integers(-128, 127)), session_id=since(7, int32s, 0),
        session_epoch=since(7, int32s, -1), rack_id=since(11, names, ""),
        topics=some(lambda: FetchTopic(**topic(), partitions=some(part))),
        forgotten_topics_data=some(
            lambda: ForgottenTopic(**topic(), partitions=some(lambda: draw(int32s))),
        ) if version >= 7 else [])
    if tagged and version >= 12:
        request.cluster_id = draw(names)
    if tagged and version >= 15:
        request.replica_state = ReplicaState(replica_id=draw(int32s))
    return version, request


def fetch_frame(version: int, request: FetchRequest, client_id: str | None) -> bytearray:
    frame = encode_request(request, version, correlation_id=1, client_id=client_id)
    return bytearray(frame)[4:]


def outcome(parse: Callable[..., Any], frame: memoryview, version: int) -> Any:
    """What a call gives or how it fails, in a form that two calls can be compared by."""
    try:
        return parse(frame, -1, version)
    except MalformedBytes as error:
        return str(error)


@given(case=fetch_requests(), client_id=st.none() | names)
@settings(max_examples=300)
def test_a_fetch_request_is_read_by_its_definition(
    case: tuple[int, FetchRequest], client_id: str | None
) -> None:
    """K2, K12: what the definition reads, in every version from 4 to 18, by both twins."""
    version, request = case
    frame = memoryview(fetch_frame(version, request, client_id))
    position = body_position(frame, flexible=version >= 12)
    wanted = FetchRequest.decode(frame[position:], version)

    def name(topic: FetchTopic | ForgottenTopic) -> str | bytes:
        return topic.topic_id.bytes if version >= 13 else topic.topic

    for parse in (fast.parse_fetch, _fast_pure.parse_fetch):
        call = parse(frame, -1, version)
        assert call == parse(frame, position, version)
        assert call[:6] == (
            wanted.max_wait, wanted.min_bytes, wanted.max_bytes, wanted.isolation_level,
            wanted.session_id, wanted.session_epoch)
        assert call.rack_id == wanted.rack_id
        assert call.targets == [
            (name(topic), part.partition, part.fetch_offset, part.partition_max_bytes,
             part.current_leader_epoch, part.last_fetched_epoch)
            for topic in wanted.topics for part in topic.partitions]
        assert call.forgotten == [
            (name(topic), index)
            for topic in wanted.forgotten_topics_data for index in topic.partitions]


@given(case=fetch_requests(), data=st.data())
@settings(max_examples=500)
def test_a_damaged_fetch_request_is_read_alike_or_refused_alike(
    case: tuple[int, FetchRequest], data: st.DataObject
) -> None:
    """K8: cut, grown or with bytes changed, both twins agree, error message included."""
    version, request = case
    damaged = fetch_frame(version, request, "client")
    for _ in range(data.draw(st.integers(0, 3))):
        index = data.draw(st.integers(8, len(damaged) - 1))
        damaged[index] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
    if data.draw(st.booleans()):
        del damaged[data.draw(st.integers(8, len(damaged))) :]
    damaged += data.draw(st.sampled_from([b"", b"", b"\0", b"\xff" * 6]))
    other = data.draw(st.sampled_from([version, version, 4, 7, 12, 13, 18]))
    frame = memoryview(damaged)

    assert outcome(fast.parse_fetch, frame, other) == outcome(
        _fast_pure.parse_fetch, frame, other)


@pytest.mark.parametrize("parse", [fast.parse_fetch, _fast_pure.parse_fetch])
def test_a_fetch_request_cannot_unfold_without_bound(parse: Callable[..., Any]) -> None:
    """K8: one that is too long is refused before anything is made of it."""
    forgotten = [ForgottenTopic(topic="t", partitions=[0] * (fast.FETCH_SIZE_MAX // 4))]
    frame = fetch_frame(12, FetchRequest(forgotten_topics_data=forgotten), None)
    with pytest.raises(MalformedBytes, match="a fetch request of"):
        parse(memoryview(frame), -1, 12)


@given(
    correlation_id=int32s,
    version=st.integers(4, 18),
    topic=st.text(max_size=3) | st.text("ab", min_size=120, max_size=140),
    numbers=st.tuples(int32s, *[int64s] * 3, st.sampled_from([-1, 3])),
    records=st.lists(st.sampled_from([b"x", b"y" * 200, b"z" * 70_000]), max_size=3),
)
@settings(max_examples=200)
def test_both_twins_answer_a_fetch_of_one_partition_alike(
    correlation_id: int, version: int, topic: str, numbers: tuple[int, int, int, int, int],
    records: list[bytes],
) -> None:
    """K2: the same bytes for names of any length, for ids, with records and with none."""
    session_id, *offsets, diverging = numbers
    committed_only = session_id % 2 == 0
    part = FetchedPart(
        7, 1 if diverging > 0 else 0, *offsets, [memoryview(data) for data in records],
        sum(map(len, records)), 5, diverging, diverging)
    wanted: str | bytes = b"0123456789abcdef" if version >= 13 else topic
    found = fast.encode_one_fetched(
        correlation_id, version, wanted, part, session_id=session_id,
        committed_only=committed_only)
    assert b"".join(found) == b"".join(encode_fetch_response(
        correlation_id, version, session_id=session_id, committed_only=committed_only,
        topics=[(wanted, [part])]))

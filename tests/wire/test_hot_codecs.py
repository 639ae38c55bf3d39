"""The hot path's own codecs against the definitions of the messages."""

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.wire.fetch_codec import FetchedPart, encode_fetch_response
from quipu.wire.frame import encode_request
from quipu.wire.messages.k00_produce import ProduceRequest, ProduceResponse
from quipu.wire.messages.k01_fetch import FetchResponse
from quipu.wire.produce_codec import (
    ProducedPart,
    body_position,
    encode_one_part,
    encode_produce_response,
)

TOPIC_ID = UUID(int=0x1234_5678_9ABC)

produced = st.builds(
    ProducedPart,
    partition=st.integers(0, 2**31 - 1),
    error_code=st.integers(-1, 100),
    base_offset=st.integers(-1, 2**63 - 1),
    log_append_time=st.integers(-1, 2**63 - 1),
    log_start_offset=st.integers(-1, 2**63 - 1),
    error_message=st.none() | st.text(max_size=200),
    record_errors=st.just(()) | st.lists(
        st.tuples(st.integers(0, 2**31 - 1), st.text(max_size=20)), max_size=3).map(tuple),
)


def response_body(frame: bytes, version: int, *, flexible_from: int) -> bytes:
    """The body of a whole frame, whose length must be right."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == 77
    if version < flexible_from:
        return frame[8:]
    assert frame[8] == 0
    return frame[9:]


@pytest.mark.parametrize("version", range(3, 14))
@settings(max_examples=25, deadline=None)
@given(parts=st.lists(produced, max_size=300))
def test_a_produce_answer_reads_by_its_definition(version: int, parts: list[ProducedPart]) -> None:
    """K2, K12: the hand-written response is the defined one, in every version."""
    topic: str | bytes = TOPIC_ID.bytes if version >= 13 else "träume"
    frame = encode_produce_response(77, version, [(topic, parts), (topic, [])])
    body = response_body(frame, version, flexible_from=9)
    response = ProduceResponse.decode(body, version)
    assert response.encode(version) == body
    first, second = response.responses
    assert second.partition_responses == []
    assert (first.topic_id.bytes if version >= 13 else first.name) == topic
    for want, got in zip(parts, first.partition_responses, strict=True):
        assert (got.index, got.error_code, got.base_offset) == want[:3]
        assert got.log_append_time == want.log_append_time
        if version >= 5:
            assert got.log_start_offset == want.log_start_offset
        if version >= 8:
            assert got.error_message == want.error_message
            assert want.record_errors == tuple(
                (each.batch_index, each.batch_index_error_message) for each in got.record_errors)


@pytest.mark.parametrize("version", range(3, 14))
@settings(max_examples=25, deadline=None)
@given(part=produced)
def test_the_answer_for_one_partition_is_the_general_one(version: int, part: ProducedPart) -> None:
    """K2: the short way makes the same bytes."""
    topic: str | bytes = TOPIC_ID.bytes if version >= 13 else "träume"
    assert encode_one_part(77, version, topic, part) == encode_produce_response(
        77, version, [(topic, [part])])


@st.composite
def fetched(draw: st.DrawFn) -> FetchedPart:
    records = [memoryview(data) for data in draw(st.lists(st.binary(min_size=1), max_size=3))]
    return FetchedPart(
        partition=draw(st.integers(0, 2**31 - 1)),
        error_code=draw(st.sampled_from([0, 1, 6])),
        high_watermark=draw(st.integers(-1, 2**63 - 1)),
        last_stable_offset=draw(st.integers(-1, 2**63 - 1)),
        log_start_offset=draw(st.integers(-1, 2**63 - 1)),
        records=records,
        size=sum(map(len, records)),
        diverging_epoch=draw(st.sampled_from([-1, 3])),
        diverging_end_offset=draw(st.sampled_from([-1, 17])),
    )


@pytest.mark.parametrize("version", range(4, 19))
@settings(max_examples=25, deadline=None)
@given(parts=st.lists(fetched(), max_size=150), committed_only=st.booleans())
def test_a_fetch_answer_reads_by_its_definition(
    version: int, parts: list[FetchedPart], committed_only: bool
) -> None:
    """K2, K12: the response around slices of the log is the defined one, in every version."""
    topic: str | bytes = TOPIC_ID.bytes if version >= 13 else "orders"
    buffers = encode_fetch_response(
        77, version, session_id=5, committed_only=committed_only, topics=[(topic, parts)])
    body = response_body(b"".join(buffers), version, flexible_from=12)
    response = FetchResponse.decode(memoryview(body), version)
    assert response.encode(version) == body
    assert response.session_id == (5 if version >= 7 else 0)
    (answer,) = response.responses
    for want, got in zip(parts, answer.partitions, strict=True):
        assert (got.partition_index, got.error_code, got.high_watermark) == want[:3]
        assert got.aborted_transactions == ([] if committed_only else None)
        assert bytes(got.records or b"") == b"".join(want.records)
        if version >= 12:
            assert got.diverging_epoch.epoch == want.diverging_epoch
            assert got.diverging_epoch.end_offset == want.diverging_end_offset


@pytest.mark.parametrize("version", [3, 8, 9, 13])
@pytest.mark.parametrize("client_id", [None, "", "client-7"])
def test_the_body_of_a_request_is_found_behind_its_header(
    version: int, client_id: str | None
) -> None:
    """K2: client ids may be missing, and flexible headers end in tagged fields."""
    request = ProduceRequest(acks=-1)
    frame = memoryview(encode_request(request, version, correlation_id=1, client_id=client_id))[4:]
    position = body_position(frame, flexible=version >= 9)
    assert frame[position:] == request.encode(version)

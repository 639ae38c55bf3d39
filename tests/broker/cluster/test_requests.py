"""What nodes ask of the controller, as bytes: whatever comes, it is read or refused."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.broker.cluster.requests import (
    PAIRS,
    MadeTopics,
    MakeTopics,
    Pair,
    decode_answer,
    decode_call,
    encode_answer,
    encode_call,
    made_topic,
    new_topic,
    topic_answer,
    wanted_topic,
)
from quipu.controller.state import ClusterState
from quipu.controller.topics import NewTopic, TopicAnswer
from quipu.model.errors import Code, MalformedBytes, QuipuError
from quipu.model.ids import RaftIndex
from tests.wire.message_maker import messages

every_pair = pytest.mark.parametrize(
    "pair", PAIRS.values(), ids=lambda pair: pair.request.__name__)


@every_pair
def test_requests_and_answers_come_back_as_they_were(pair: Pair) -> None:
    """T6: by value, with the index from which on an answer's effect is seen."""
    version = pair.request.VERSIONS[-1]
    for request in messages(pair.request, version, 5):
        assert decode_call(encode_call(request)) == (request, version)
        for answer in messages(pair.answer, version, 2):
            data = encode_answer(RaftIndex(7), answer, version)
            assert decode_answer(data, request) == (7, answer)


@every_pair
def test_bytes_that_are_cut_short_are_refused(pair: Pair) -> None:
    """T12: another node's bytes are foreign bytes."""
    (request,) = messages(pair.request, 0, 1)
    (answer,) = messages(pair.answer, 0, 1)
    call, reply = encode_call(request), encode_answer(RaftIndex(7), answer, 0)
    for end in range(len(call)):
        with pytest.raises(MalformedBytes):
            decode_call(call[:end])
    for end in range(len(reply)):
        with pytest.raises(MalformedBytes):
            decode_answer(reply[:end], request)


@given(st.binary(max_size=200))
@settings(max_examples=300)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """T12: with a typed error, never another."""
    for head in (b"", *(key.to_bytes(2, "big") + b"\0\0" for key in PAIRS)):
        with suppress(QuipuError):
            decode_call(head + data)


def test_a_request_of_a_newer_program_is_named() -> None:
    """T11: the node that asks learns that its controller is older."""
    for data in (b"\0\x63\0\0", b"\0\x01\0\x09"):
        with pytest.raises(QuipuError, match="older version") as error:
            decode_call(data)
        assert error.value.code is Code.UNSUPPORTED_VERSION


def test_topics_travel_whole() -> None:
    """K5: everything that a client may say of a topic reaches the controller."""
    wanted = NewTopic("t", 3, 2, [(0, [1, 2]), (1, [2, 1])], [("flush.ms", "7"), ("x", None)])
    sent = MakeTopics.decode(MakeTopics(topics=[wanted_topic(wanted)]).encode(0), 0)
    answer = TopicAnswer("t", code=Code.INVALID_CONFIG, message="no setting x")
    given_back = MadeTopics.decode(MadeTopics(topics=[made_topic(answer)]).encode(0), 0)

    assert new_topic(sent.topics[0]) == wanted
    assert topic_answer(given_back.topics[0], ClusterState()) == answer

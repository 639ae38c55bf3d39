"""What nodes ask of the controller, as bytes: whatever comes, it is read or refused."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.broker.cluster.requests import (
    CONTROLLER_APIS,
    ControllerApi,
    CreateInternalTopicsRequest,
    CreateInternalTopicsResponse,
    InternalTopic,
    InternalTopicConfig,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from quipu.model.errors import Code, MalformedBytes, QuipuError
from quipu.model.ids import RaftIndex
from tests.wire.message_maker import messages

every_api = pytest.mark.parametrize(
    "api", CONTROLLER_APIS.values(), ids=lambda api: api.request.__name__)


@every_api
def test_requests_and_responses_decode_as_they_were(api: ControllerApi) -> None:
    """T6: by value, with the index from which on a response's effect is visible."""
    version = api.request.VERSIONS[-1]
    for request in messages(api.request, version, 5):
        assert decode_request(encode_request(request)) == (request, version)
        for response in messages(api.response, version, 2):
            data = encode_response(RaftIndex(7), response, version)
            assert decode_response(data, request) == (response, 7)


@every_api
def test_bytes_that_are_cut_short_are_refused(api: ControllerApi) -> None:
    """T12: another node's bytes are foreign bytes."""
    (request,) = messages(api.request, 0, 1)
    (response,) = messages(api.response, 0, 1)
    call, reply = encode_request(request), encode_response(RaftIndex(7), response, 0)
    for end in range(len(call)):
        with pytest.raises(MalformedBytes):
            decode_request(call[:end])
    for end in range(len(reply)):
        with pytest.raises(MalformedBytes):
            decode_response(reply[:end], request)


@given(st.binary(max_size=200))
@settings(max_examples=300)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """T12: with a typed error, never another."""
    for head in (b"", *(key.to_bytes(2, "big") + b"\0\0" for key in CONTROLLER_APIS)):
        with suppress(QuipuError):
            decode_request(head + data)


def test_a_request_of_a_newer_program_is_named() -> None:
    """T11: the node that asks learns that its controller is older."""
    for data in (b"\0\x63\0\0", b"\0\x01\0\x09"):
        with pytest.raises(QuipuError, match="older version") as error:
            decode_request(data)
        assert error.value.code is Code.UNSUPPORTED_VERSION


def test_nodes_of_the_version_before_ask_for_internal_topics_in_the_same_bytes() -> None:
    """T7, broker.cluster.W1: a cluster is upgraded one node at a time; bytes of that version's
    MakeTopics.
    """
    wanted = CreateInternalTopicsRequest(is_internal=True, topics=[InternalTopic(
        name="__consumer_offsets", partition_count=4,
        configs=[InternalTopicConfig(name="cleanup.policy", value="compact")])])
    before = (b"\0\5\0\0\2\x13__consumer_offsets\0\0\0\4\xff\xff\1\2\x0fcleanup.policy"
              b"\x08compact\0\0\1\0\0")
    assert encode_request(wanted) == before
    assert decode_request(before) == (wanted, 0)
    assert encode_response(RaftIndex(7), CreateInternalTopicsResponse(), 0) == (
        b"\0\0\0\0\0\0\0\7\1\0")
    client_s = b"\0\5\0\0\2\2t\xff\xff\xff\xff\xff\xff\1\1\0\0\0\0"  # is_internal: false
    assert decode_request(client_s) == (
        CreateInternalTopicsRequest(topics=[InternalTopic(name="t")]), 0)

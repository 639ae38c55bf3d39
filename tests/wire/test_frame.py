"""Headers of requests and responses, in every version, against kio."""

import io
from typing import Any

import pytest
from kio.schema.request_header.v1.header import RequestHeader as KioHeader1
from kio.schema.request_header.v2.header import RequestHeader as KioHeader2
from kio.schema.response_header.v0.header import ResponseHeader as KioResponseHeader0
from kio.schema.response_header.v1.header import ResponseHeader as KioResponseHeader1
from kio.serial import entity_reader, entity_writer

from quipu.model.errors import Code, MalformedBytes, RequestError
from quipu.wire.frame import (
    RequestHeader,
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from quipu.wire.messages import REQUESTS, RESPONSES
from quipu.wire.messages.k12_heartbeat import HeartbeatRequest
from tests.wire.message_maker import APIS, messages
from tests.wire.message_oracles import kio_class

REQUEST_VERSIONS = [(m.KEY, v) for m, v in APIS if m is REQUESTS[m.KEY]]
every_version = pytest.mark.parametrize(("api_key", "version"), REQUEST_VERSIONS)


def kio_bytes(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def body(frame: bytes) -> memoryview:
    """A frame without its size, which has to be right."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return memoryview(frame)[4:]


@every_version
@pytest.mark.parametrize("client_id", [None, "", "grüße"])
def test_a_request_is_framed_as_kio_does(
    api_key: int, version: int, client_id: str | None
) -> None:
    """K2, K12: the version of the header is the one that Kafka chose for each API and version."""
    (request,) = messages(REQUESTS[api_key], version, 1)
    frame = body(encode_request(request, version, correlation_id=-7, client_id=client_id))
    kind = kio_class(REQUESTS[api_key], version).__header_schema__
    assert kind in (KioHeader1, KioHeader2)
    theirs = kind(request_api_key=api_key, request_api_version=version,
                  correlation_id=-7, client_id=client_id)
    header = RequestHeader(api_key, version, -7, client_id)

    assert bytes(frame) == kio_bytes(theirs) + request.encode(version)
    assert decode_request_header(frame) == (header, len(kio_bytes(theirs)))
    assert decode_request(frame) == (header, request)


@every_version
def test_a_response_is_framed_as_kio_does(api_key: int, version: int) -> None:
    """K2, K12: ApiVersions keeps the oldest header, whatever the version."""
    (response,) = messages(RESPONSES[api_key], version, 1)
    frame = body(encode_response(41, response, version))
    kind = kio_class(RESPONSES[api_key], version).__header_schema__
    assert kind in (KioResponseHeader0, KioResponseHeader1)

    assert bytes(frame) == kio_bytes(kind(correlation_id=41)) + response.encode(version)
    assert decode_response(frame, api_key, version) == (41, response)
    assert entity_reader(kind)(bytes(frame), 0)[0] == kind(correlation_id=41)


def test_a_header_of_an_unknown_api_or_version_can_be_read() -> None:
    """K12: the client must get a response, or its connection is closed with its name in the log."""
    start = (999).to_bytes(2, "big") + bytes(2) + (5).to_bytes(4, "big") + b"\0\1x"
    newer = (18).to_bytes(2, "big") + (99).to_bytes(2, "big") + bytes(4) + b"\0\1x" + b"\0"

    assert decode_request_header(memoryview(start)) == (RequestHeader(999, 0, 5, "x"), 11)
    assert decode_request_header(memoryview(newer)) == (RequestHeader(18, 99, 0, "x"), 12)
    with pytest.raises(RequestError) as refused:
        decode_request(memoryview(start))
    assert refused.value.code == Code.UNSUPPORTED_VERSION


def test_tags_in_a_header_are_passed_over() -> None:
    """K12: a newer client may have something to add."""
    plain = body(encode_request(HeartbeatRequest(), 4, correlation_id=1, client_id="x"))
    tagged = memoryview(bytes(plain[:11]) + b"\1\7\3abc" + bytes(plain[12:]))

    assert decode_request(tagged) == decode_request(plain)


@pytest.mark.parametrize("version", [0, 4])
def test_a_request_cut_anywhere_is_malformed(version: int) -> None:
    """K8: in the header as in the body."""
    request = HeartbeatRequest(group_id="g", member_id="m")
    frame = body(encode_request(request, version, correlation_id=1, client_id="client"))
    for size in range(len(frame)):
        with pytest.raises(MalformedBytes):
            decode_request(frame[:size])


HEAD = bytes(8)
CASES = [
    ("a client id longer than the frame", HEAD + b"\0\5abcd"),
    ("a client id of length -2", HEAD + b"\xff\xfe"),
    ("a client id that is not UTF-8", HEAD + b"\0\1\xff"),
]


@pytest.mark.parametrize("frame", [case[1] for case in CASES], ids=[case[0] for case in CASES])
def test_a_bad_client_id_is_malformed(frame: bytes) -> None:
    """K8: each fault has its own message."""
    with pytest.raises(MalformedBytes, match="client id"):
        decode_request_header(memoryview(frame))


def test_a_response_cut_in_its_header_is_malformed() -> None:
    """K8: tools and tests decode responses, which are not trusted either."""
    frame = body(encode_response(1, RESPONSES[12](), 4))
    for size in range(len(frame)):
        with pytest.raises(MalformedBytes):
            decode_response(frame[:size], 12, 4)

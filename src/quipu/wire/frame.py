"""Frames: a request or response with its header, as it goes over a connection.

    request   size i32 | key i16 | version i16 | correlation_id i32 | client_id string | body
    response  size i32 | correlation_id i32 | body

The size does not include itself.  In flexible versions a tag section ends the header, but the
client id keeps its old form, so that a broker can read the header of an unknown version.
The header of an ApiVersions response never has tags: a client must be able to read it before it
knows which versions the broker supports.

Functions that decode take a frame without its size.  Both directions are here, for the broker and
for clients.
"""

import struct
from typing import Final, NamedTuple

from quipu.model.errors import Code, MalformedBytes, RequestError
from quipu.wire.fields import VERSION_END
from quipu.wire.messages import REQUESTS, RESPONSES
from quipu.wire.primitives import skip_header_tags, too_long
from quipu.wire.schema import Request, Response

API_VERSIONS_KEY: Final = 18
BUFFERS_MAX: Final = 16  # of one response; more are joined into one
_REQUEST_START: Final = struct.Struct(">hhih")  # up to and including the length of the client id
_RESPONSE_START: Final = struct.Struct(">ii")
_FLEXIBLE_SINCE: Final = {key: request.FLEXIBLE_SINCE for key, request in REQUESTS.items()}


class RequestHeader(NamedTuple):
    """The header of every request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def encode_request(
    request: Request, version: int, *, correlation_id: int, client_id: str | None = None
) -> bytes:
    """A whole frame, with its size."""
    client = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(client)
    start = _REQUEST_START.pack(request.KEY, version, correlation_id, length)
    tags = b"\0" if request.is_flexible(version) else b""
    frame = b"".join((start, client, tags, request.encode(version)))
    return len(frame).to_bytes(4, "big") + frame


def decode_request_header(frame: memoryview) -> tuple[RequestHeader, int]:
    """The header, and the position of the body.

    Also works for unknown API keys and versions: the broker responds to them with an error.
    """
    if len(frame) < _REQUEST_START.size:
        raise too_long("request header", _REQUEST_START.size, 0, len(frame))
    api_key, api_version, correlation_id, length = _REQUEST_START.unpack_from(frame)
    position = _REQUEST_START.size
    client_id = None
    if length >= 0:
        if length > len(frame) - position:
            raise too_long("client id", length, position, len(frame))
        try:
            client_id = str(frame[position : position + length], "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedBytes("client id is not UTF-8") from error
        position += length
    elif length != -1:
        raise MalformedBytes(f"client id has length {length}")
    if api_version >= _FLEXIBLE_SINCE.get(api_key, VERSION_END):
        position = _skip_tags(frame, position)
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def decode_request(frame: memoryview) -> tuple[RequestHeader, Request]:
    header, position = decode_request_header(frame)
    request = REQUESTS.get(header.api_key)
    if request is None or header.api_version not in request.VERSIONS:
        raise RequestError(
            f"API key {header.api_key} version {header.api_version} is not defined here",
            code=Code.UNSUPPORTED_VERSION,
        )
    return header, request.decode(frame[position:], header.api_version)


def encode_response(correlation_id: int, response: Response, version: int) -> bytes:
    """A whole frame, with its size."""
    body = response.encode(version)
    if _has_tags(response, version):
        return b"".join((_RESPONSE_START.pack(len(body) + 5, correlation_id), b"\0", body))
    return _RESPONSE_START.pack(len(body) + 4, correlation_id) + body


def encode_response_body(
    correlation_id: int, response: type[Response], version: int, chunks: list[bytes]
) -> list[bytes]:
    """A whole frame, as a list of buffers, for a body that is already encoded."""
    if len(chunks) > BUFFERS_MAX:
        chunks = [b"".join(chunks)]
    tags = b"\0" if _has_tags(response, version) else b""
    size = sum(map(len, chunks)) + 4 + len(tags)
    return [_RESPONSE_START.pack(size, correlation_id) + tags, *chunks]


def decode_response(
    frame: memoryview, api_key: int, version: int, *, whole: bool = True
) -> tuple[int, Response]:
    """The correlation id, and the response to a request of `api_key` and `version`.

    Unless `whole`, unknown bytes may follow: some other brokers send them.
    """
    if len(frame) < 4:
        raise too_long("response header", 4, 0, len(frame))
    correlation_id = int.from_bytes(frame[:4], "big", signed=True)
    response = RESPONSES[api_key]
    position = _skip_tags(frame, 4) if _has_tags(response, version) else 4
    if whole:
        return correlation_id, response.decode(frame[position:], version)
    return correlation_id, response.decode_prefix(frame[position:], version)[0]


def _has_tags(response: Response | type[Response], version: int) -> bool:
    return response.is_flexible(version) and response.KEY != API_VERSIONS_KEY


def _skip_tags(frame: memoryview, position: int) -> int:
    """The position after the header's tagged fields; Kafka defines none, so they are ignored."""
    try:
        return skip_header_tags(frame, position)
    except IndexError as error:
        raise MalformedBytes("the header's tag section is cut short") from error

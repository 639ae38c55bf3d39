"""One connection to one broker: framed requests and responses, in order.

    connection = BrokerConnection(address, settings)  # open, encrypted, negotiated, authenticated
    response = connection.ask(MetadataRequest(topics=[]), MetadataResponse)
    connection.send(FetchRequest(...)); ...; response = connection.receive()

Several requests may be outstanding; a broker responds in the order in which they were sent.

Invariants
    client.N1  a request goes out in the newest version that both sides know, or raises `NotServed`
    client.N2  no memory is taken for a response that claims more than `size_max`
    client.N3  after any failure the connection is closed, and every later use raises an error
"""

import socket
import ssl
import struct
import time
from collections import deque
from typing import Final, NamedTuple, TypeVar, cast

from quipu.client import sasl, tls
from quipu.client.errors import (
    ConnectionFailed,
    NotAuthenticated,
    NotKafka,
    NotServed,
    ResponseTooLate,
    code_name,
)
from quipu.client.settings import ClientSettings
from quipu.model.errors import Code, QuipuError
from quipu.model.settings_types import Address
from quipu.wire.frame import decode_response, encode_request
from quipu.wire.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from quipu.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from quipu.wire.messages.k36_sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from quipu.wire.schema import Request, Response

RESPONSE_SIZE_SPARE: Final = 128 << 20  # above fetch.max.bytes: a single batch may exceed it
UNDER_WAY_MAX: Final = 64
_API_VERSIONS: Final = 3
_SIZE: Final = struct.Struct(">i")
_ERROR_CODE: Final = struct.Struct(">h")
_ERROR_POSITION: Final = 4  # of an ApiVersions response: after the correlation id

R = TypeVar("R", bound=Response)


class _OutstandingRequest(NamedTuple):
    """A request whose response has not come yet."""

    correlation_id: int
    api_key: int
    version: int
    seconds: float  # how long `receive` waits for the response


class BrokerConnection:
    """A connection to a broker, open once constructed.  It may be used by one thread only."""

    def __init__(
        self, address: Address, settings: ClientSettings, *, deadline: float | None = None
    ) -> None:
        self.address = address
        self._settings = settings
        self._size_max = settings.fetch_max_bytes + RESPONSE_SIZE_SPARE
        self._correlation_id = 0
        self._under_way: deque[_OutstandingRequest] = deque()
        self._versions: dict[int, tuple[int, int]] = {}
        self._socket: socket.socket | None = None
        try:
            self._socket = self._connect(deadline)
            self._negotiate(deadline)
            if settings.uses_sasl:
                self._authenticate()
        except BaseException:
            self.close()
            raise

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    @property
    def is_quiet(self) -> bool:
        """Open, and no response is outstanding."""
        return self._socket is not None and not self._under_way

    def close(self) -> None:
        """Close the connection; outstanding responses are lost."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._under_way.clear()

    def version(self, request: type[Request], *, highest: int | None = None) -> int:
        """The version in which a request is sent (client.N1); no newer than `highest`."""
        served = self._versions.get(request.KEY)
        last = request.VERSIONS[-1] if highest is None else min(highest, request.VERSIONS[-1])
        if served is not None:
            chosen = min(served[1], last)
            if chosen >= served[0] and chosen in request.VERSIONS:
                return chosen
        theirs = "none" if served is None else f"{served[0]} to {served[1]}"
        raise NotServed(
            f"{self.address} serves {request.__name__.removesuffix('Request')} in versions "
            f"{theirs}, this client knows {request.VERSIONS[0]} to {last}")

    def ask(self, request: Request, response_type: type[R], *, highest: int | None = None) -> R:
        """Send a request and wait for its response, which is of `response_type`."""
        assert not self._under_way, "responses come in order: receive the outstanding ones first"
        self.send(request, highest=highest)
        response = self.receive()
        assert isinstance(response, response_type), (request, response)
        return response

    def send(
        self, request: Request, *, highest: int | None = None, seconds: float | None = None
    ) -> int:
        """Send a request and return its version; `receive` waits `seconds` for its response."""
        version = self.version(type(request), highest=highest)
        self._send(request, version, seconds)
        return version

    def receive(self) -> Response:
        """The response to the oldest outstanding request."""
        waiting = self._under_way.popleft()
        frame = self._receive_frame(waiting.seconds)
        try:
            correlation_id, response = decode_response(
                frame, waiting.api_key, waiting.version, whole=False)
        except QuipuError as error:
            raise self._failed(f"its response cannot be read: {error}", NotKafka) from None
        if correlation_id != waiting.correlation_id:
            raise self._failed("its response is to another request", NotKafka)
        return response

    def _connect(self, deadline: float | None) -> socket.socket:
        settings = self._settings
        seconds = settings.socket_connection_setup_timeout_ms / 1000
        if deadline is not None:
            seconds = max(min(seconds, deadline - time.monotonic()), 0.001)
        try:
            plain = socket.create_connection(self.address, seconds)
        except OSError as error:
            raise self._failed(error.strerror or str(error)) from None
        except (UnicodeError, OverflowError, ValueError) as error:  # advertised by a broker
            raise self._failed(f"this is no address: {error}") from None
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if settings.receive_buffer_bytes >= 0:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)
        if settings.send_buffer_bytes >= 0:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.send_buffer_bytes)
        if not settings.uses_tls:
            return plain
        try:
            return tls.context(settings).wrap_socket(plain, server_hostname=self.address.host)
        except ssl.SSLCertVerificationError as error:
            plain.close()
            raise NotAuthenticated(
                f"{self.address}: its certificate is not trusted: {error.verify_message}"
            ) from None
        except OSError as error:
            plain.close()
            raise self._failed(f"TLS: {error.strerror or error}") from None
        except BaseException:
            plain.close()
            raise

    def _negotiate(self, deadline: float | None) -> None:
        """Request the versions that the broker serves; one without v3 responds in v0."""
        version = _API_VERSIONS
        seconds = self._settings.request_timeout_ms / 1000
        while True:
            if deadline is not None:
                seconds = max(min(seconds, deadline - time.monotonic()), 0.001)
            self._send(ApiVersionsRequest(
                client_software_name="quipu", client_software_version="1"), version, seconds)
            waiting = self._under_way.popleft()
            frame = self._receive_frame(waiting.seconds)
            if len(frame) < _ERROR_POSITION + _ERROR_CODE.size:
                raise self._failed("it does not respond as a Kafka broker", NotKafka)
            (code,) = _ERROR_CODE.unpack_from(frame, _ERROR_POSITION)
            if code == Code.UNSUPPORTED_VERSION and version > 0:
                version = 0
                continue
            try:
                _, response = decode_response(frame, ApiVersionsRequest.KEY, version)
            except QuipuError as error:
                raise self._failed(
                    f"it does not respond as a Kafka broker: {error}", NotKafka) from None
            if code:
                raise self._failed(f"it responds to ApiVersions with {code_name(code)}")
            served = cast("ApiVersionsResponse", response).api_keys
            self._versions = {each.api_key: (each.min_version, each.max_version)
                              for each in served}
            return

    def _authenticate(self) -> None:
        mechanism = self._settings.sasl_mechanism
        shake = self.ask(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse)
        if shake.error_code:
            raise NotAuthenticated(
                f"{self.address} does not accept sasl.mechanism={mechanism}; "
                f"it accepts {', '.join(shake.mechanisms[:20]) or 'none'}")

        def exchange(message: bytes) -> bytes:
            response = self.ask(
                SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse)
            if response.error_code:
                raise NotAuthenticated(
                    f"{self.address} refuses {self._settings.sasl_username}: "
                    f"{(response.error_message or code_name(response.error_code))[:300]}")
            return response.auth_bytes

        sasl.authenticate(sasl.conversation(self._settings), exchange)

    def _send(self, request: Request, version: int, seconds: float | None) -> None:
        assert len(self._under_way) < UNDER_WAY_MAX, "too many outstanding requests"
        if seconds is None:
            seconds = self._settings.request_timeout_ms / 1000
        self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        frame = encode_request(
            request, version, correlation_id=self._correlation_id,
            client_id=self._settings.client_id)
        open_socket = self._open_socket()
        try:
            open_socket.settimeout(seconds)
            open_socket.sendall(frame)
        except TimeoutError:
            raise self._failed("it does not read the request", ResponseTooLate) from None
        except OSError as error:
            raise self._failed(error.strerror or str(error)) from None
        self._under_way.append(
            _OutstandingRequest(self._correlation_id, request.KEY, version, seconds))

    def _receive_frame(self, seconds: float) -> memoryview:
        deadline = time.monotonic() + seconds
        (size,) = _SIZE.unpack(self._receive(_SIZE.size, deadline))
        if not 4 <= size <= self._size_max:
            raise self._failed(  # client.N2
                f"a response of {size} bytes; at most {self._size_max} are accepted", NotKafka)
        return self._receive(size, deadline)

    def _receive(self, size: int, deadline: float) -> memoryview:
        open_socket = self._open_socket()
        data = memoryview(bytearray(size))
        received = 0
        try:
            while received < size:
                open_socket.settimeout(max(deadline - time.monotonic(), 0.001))
                count = open_socket.recv_into(data[received:])
                if not count:
                    raise self._failed("it closed the connection")
                received += count
        except TimeoutError:
            raise self._failed("no response in time", ResponseTooLate) from None
        except OSError as error:
            raise self._failed(error.strerror or str(error)) from None
        except BaseException:
            self.close()  # part of a response was read: the rest could not be framed
            raise
        return data

    def _open_socket(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionFailed(f"{self.address}: the connection is closed")
        return self._socket

    def _failed(
        self, why: str, kind: type[ConnectionFailed] = ConnectionFailed
    ) -> ConnectionFailed:
        """Close the connection (client.N3); returns the error to raise."""
        self.close()
        failed = kind(f"{self.address}: {why}")
        failed.at, failed.why = self.address, why
        return failed

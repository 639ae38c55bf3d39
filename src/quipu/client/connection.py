"""One connection to one broker: framed requests and answers, in order.

    connection = Connection(address, settings)       # connects, encrypts, negotiates, proves
    answer = connection.ask(MetadataRequest(topics=[]))
    connection.send(FetchRequest(...)); ...; answer = connection.receive()

Several requests may be under way; a broker answers them in the order in which they were sent.

Invariants
    N1  a request goes out in the newest version that both sides know, or raises `NotServed`
    N2  no memory is taken for an answer that claims more than `size_max`
    N3  after any failure the connection is closed, and says so at every later use
"""

import socket
import ssl
import struct
import time
from collections import deque
from typing import Final, NamedTuple, TypeVar, cast

from quipu.client import sasl, tls
from quipu.client.errors import (
    AnswerTooLate,
    ConnectionFailed,
    NotAuthenticated,
    NotKafka,
    NotServed,
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

ANSWER_SIZE_SPARE: Final = 128 << 20  # above fetch.max.bytes: one batch may be larger than asked
UNDER_WAY_MAX: Final = 64
_API_VERSIONS: Final = 3
_SIZE: Final = struct.Struct(">i")
_ERROR_CODE: Final = struct.Struct(">h")
_ERROR_POSITION: Final = 4  # of an ApiVersions answer: after the correlation id

R = TypeVar("R", bound=Response)


class _UnderWay(NamedTuple):
    """A request that was sent and not answered."""

    correlation_id: int
    api_key: int
    version: int
    seconds: float  # for its answer, from when somebody waits for it


class Connection:
    """See above.  Not for more than one thread."""

    def __init__(
        self, address: Address, settings: ClientSettings, *, deadline: float | None = None
    ) -> None:
        self.address = address
        self._settings = settings
        self._size_max = settings.fetch_max_bytes + ANSWER_SIZE_SPARE
        self._correlation_id = 0
        self._under_way: deque[_UnderWay] = deque()
        self._versions: dict[int, tuple[int, int]] = {}
        self._socket: socket.socket | None = None
        try:
            self._socket = self._connect(deadline)
            self._negotiate()
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
        """Open, and nothing under way."""
        return self._socket is not None and not self._under_way

    def close(self) -> None:
        """Drop the connection; what was asked is not answered."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._under_way.clear()

    def version(self, request: type[Request], *, highest: int | None = None) -> int:
        """The version in which a request goes out (N1); no newer than `highest`."""
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

    def ask(self, request: Request, answer: type[R], *, highest: int | None = None) -> R:
        """Send a request and wait for its answer, of type `answer`."""
        assert not self._under_way, "answers come in order: receive those first"
        self.send(request, highest=highest)
        response = self.receive()
        assert isinstance(response, answer), (request, response)
        return response

    def send(
        self, request: Request, *, highest: int | None = None, seconds: float | None = None
    ) -> int:
        """Send a request, and tell its version; `receive` waits `seconds` for its answer."""
        version = self.version(type(request), highest=highest)
        self._send(request, version, seconds)
        return version

    def receive(self) -> Response:
        """The answer to the oldest request that is under way."""
        waiting = self._under_way.popleft()
        frame = self._receive_frame(waiting.seconds)
        try:
            correlation_id, response = decode_response(
                frame, waiting.api_key, waiting.version, whole=False)
        except QuipuError as error:
            raise self._failed(f"its answer cannot be read: {error}", NotKafka) from None
        if correlation_id != waiting.correlation_id:
            raise self._failed("it answers something that was not asked", NotKafka)
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
        except (UnicodeError, OverflowError, ValueError) as error:  # a broker told it to us
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

    def _negotiate(self) -> None:
        """Which requests are served; a broker that knows no v3 answers in v0 which it does."""
        version = _API_VERSIONS
        while True:
            self._send(ApiVersionsRequest(
                client_software_name="quipu", client_software_version="1"), version, None)
            waiting = self._under_way.popleft()
            frame = self._receive_frame(waiting.seconds)
            if len(frame) < _ERROR_POSITION + _ERROR_CODE.size:
                raise self._failed("it does not answer as a Kafka broker", NotKafka)
            (code,) = _ERROR_CODE.unpack_from(frame, _ERROR_POSITION)
            if code == Code.UNSUPPORTED_VERSION and version > 0:
                version = 0
                continue
            try:
                _, response = decode_response(frame, ApiVersionsRequest.KEY, version)
            except QuipuError as error:
                raise self._failed(
                    f"it does not answer as a Kafka broker: {error}", NotKafka) from None
            if code:
                raise self._failed(f"it answers {code_name(code)} to ApiVersions")
            served = cast("ApiVersionsResponse", response).api_keys
            self._versions = {each.api_key: (each.min_version, each.max_version)
                              for each in served}
            return

    def _authenticate(self) -> None:
        mechanism = self._settings.sasl_mechanism
        shake = self.ask(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse)
        if shake.error_code:
            raise NotAuthenticated(
                f"{self.address} does not take sasl.mechanism={mechanism}; "
                f"it takes {', '.join(shake.mechanisms[:20]) or 'none'}")

        def exchange(message: bytes) -> bytes:
            answer = self.ask(SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse)
            if answer.error_code:
                raise NotAuthenticated(
                    f"{self.address} refuses {self._settings.sasl_username}: "
                    f"{(answer.error_message or code_name(answer.error_code))[:300]}")
            return answer.auth_bytes

        sasl.talk(sasl.conversation(self._settings), exchange)

    def _send(self, request: Request, version: int, seconds: float | None) -> None:
        assert len(self._under_way) < UNDER_WAY_MAX, "too many requests under way"
        if seconds is None:
            seconds = self._settings.request_timeout_ms / 1000
        self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        frame = encode_request(
            request, version, correlation_id=self._correlation_id,
            client_id=self._settings.client_id)
        there = self._there()
        try:
            there.settimeout(seconds)
            there.sendall(frame)
        except TimeoutError:
            raise self._failed("it takes no request", AnswerTooLate) from None
        except OSError as error:
            raise self._failed(error.strerror or str(error)) from None
        self._under_way.append(_UnderWay(self._correlation_id, request.KEY, version, seconds))

    def _receive_frame(self, seconds: float) -> memoryview:
        deadline = time.monotonic() + seconds
        (size,) = _SIZE.unpack(self._receive(_SIZE.size, deadline))
        if not 4 <= size <= self._size_max:
            raise self._failed(
                f"an answer of {size} bytes; at most {self._size_max} are taken", NotKafka)
        return self._receive(size, deadline)

    def _receive(self, size: int, deadline: float) -> memoryview:
        there = self._there()
        data = memoryview(bytearray(size))
        received = 0
        try:
            while received < size:
                there.settimeout(max(deadline - time.monotonic(), 0.001))
                count = there.recv_into(data[received:])
                if not count:
                    raise self._failed("it closed the connection")
                received += count
        except TimeoutError:
            raise self._failed("no answer in time", AnswerTooLate) from None
        except OSError as error:
            raise self._failed(error.strerror or str(error)) from None
        except BaseException:
            self.close()  # half an answer was read: nothing that follows would make sense
            raise
        return data

    def _there(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionFailed(f"{self.address}: the connection is closed")
        return self._socket

    def _failed(
        self, why: str, kind: type[ConnectionFailed] = ConnectionFailed
    ) -> ConnectionFailed:
        """Close (N3), and tell why."""
        self.close()
        return kind(f"{self.address}: {why}")

"""Connections to one broker, with many requests on their way at a time."""

import contextlib
import socket
import struct
import time
from typing import NamedTuple

from quipu.model.errors import MalformedBytes
from quipu.wire.frame import decode_response, encode_request
from quipu.wire.schema import Request, Response

SECONDS_MAX = 10.0  # for one response
CLOSE_SECONDS = 2.0  # after a request without a response, for the broker to close
CLIENT_ID = "differential"
_SIZE = struct.Struct(">i")


class NoResponse(NamedTuple):
    """What became of a request that was not responded to: why."""

    why: str


CLOSED = NoResponse("the connection is closed")
SILENT = NoResponse("no response")
UNREAD = NoResponse("not reached: the connection was closed before")
NOTHING = NoResponse("none is due")  # acks=0

Outcome = Response | NoResponse


class Sent(NamedTuple):
    """A request as one broker gets it."""

    request: Request
    version: int

    @property
    def wants_response(self) -> bool:
        return not (self.request.KEY == 0 and getattr(self.request, "acks", 1) == 0)


class Connection:
    """One connection; it is opened again after the broker closed it."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._socket: socket.socket | None = None
        self._data = bytearray()
        self._correlation_id = 0

    def send(self, requests: list[Sent]) -> None:
        """Send requests; `receive` gets their responses."""
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=SECONDS_MAX)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._data.clear()
        frames = []
        for sent in requests:
            self._correlation_id += 1
            frames.append(encode_request(
                sent.request, sent.version, correlation_id=self._correlation_id,
                client_id=CLIENT_ID))
        with contextlib.suppress(ConnectionError):  # `receive` finds out
            self._socket.sendall(b"".join(frames))

    def receive(self, requests: list[Sent]) -> list[Outcome]:
        """The outcomes of the requests that were sent last, in their order."""
        outcomes: list[Outcome] = []
        for sent in requests:
            if not sent.wants_response:
                outcomes.append(NOTHING)
                continue
            try:
                frame = self._frame()
                outcomes.append(_decoded(frame, sent))
            except ConnectionError:
                self.close()
                outcomes.append(CLOSED)
            except TimeoutError:
                self.close()
                outcomes.append(SILENT)
            if self._socket is None:
                break
        if self._socket is not None and requests and not requests[-1].wants_response:
            self._note_close(outcomes)
        return outcomes + [UNREAD] * (len(requests) - len(outcomes))

    def close(self) -> None:
        """Close; the next `send` connects again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _note_close(self, outcomes: list[Outcome]) -> None:
        """After requests without responses: see whether the broker closes within a moment."""
        assert self._socket is not None
        self._socket.settimeout(CLOSE_SECONDS)
        try:
            data = self._socket.recv(1)
            if data == b"":
                raise ConnectionError("closed")
            self._data += data
        except TimeoutError:
            self._socket.settimeout(SECONDS_MAX)
        except ConnectionError:
            self.close()
            outcomes[-1] = CLOSED

    def _frame(self) -> bytes:
        while True:
            if len(self._data) >= 4:
                (size,) = _SIZE.unpack_from(self._data)
                if len(self._data) >= 4 + size:
                    frame = bytes(self._data[4 : 4 + size])
                    del self._data[: 4 + size]
                    return frame
            assert self._socket is not None
            part = self._socket.recv(1 << 20)
            if not part:
                raise ConnectionError("closed")
            self._data += part


def _decoded(frame: bytes, sent: Sent) -> Outcome:
    try:
        _, response = decode_response(memoryview(frame), sent.request.KEY, sent.version)
    except MalformedBytes as error:
        return NoResponse(f"a response that cannot be decoded: {error}")
    return response


class Exchange:
    """Both brokers: the same requests to each, at the same time."""

    def __init__(self, kafka: tuple[str, int], quipu: tuple[str, int]) -> None:
        self._addresses = kafka, quipu
        self._connections: dict[tuple[int, int], Connection] = {}
        self.seconds = [0.0, 0.0]  # spent waiting, by side

    def connection(self, side: int, number: int) -> Connection:
        found = self._connections.get((side, number))
        if found is None:
            found = self._connections[side, number] = Connection(self._addresses[side])
        return found

    def ask(
        self, number: int, kafka: list[Sent], quipu: list[Sent]
    ) -> list[tuple[Outcome, Outcome]]:
        """Send lists of requests over the connections `number`; the outcomes, pairwise."""
        self.begin(number, kafka, quipu)
        return self.end(number, kafka, quipu)

    def begin(self, number: int, kafka: list[Sent], quipu: list[Sent]) -> None:
        self.connection(0, number).send(kafka)
        self.connection(1, number).send(quipu)

    def end(
        self, number: int, kafka: list[Sent], quipu: list[Sent]
    ) -> list[tuple[Outcome, Outcome]]:
        found = []
        for side, sent in enumerate((kafka, quipu)):
            begun = time.monotonic()
            found.append(self.connection(side, number).receive(sent))
            self.seconds[side] += time.monotonic() - begun
        return list(zip(*found, strict=True))

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

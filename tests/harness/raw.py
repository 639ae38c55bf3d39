"""A connection to a node without a client library: frames in and out, or any bytes at all."""

import contextlib
import socket
import struct
from types import TracebackType
from typing import Self

from quipu.wire.frame import decode_response, encode_request
from quipu.wire.schema import Request, Response

TIMEOUT_SECONDS = 10.0


class RawConnection:
    """One socket; responses come in order, so that one request at a time needs no bookkeeping."""

    def __init__(
        self, host: str, port: int, *, timeout: float = TIMEOUT_SECONDS, source: str = ""
    ) -> None:
        """`source` is the address to come from, where there are several."""
        self.socket = socket.create_connection((host, port), timeout, (source, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def ask(self, request: Request, version: int) -> Response:
        """Send a request and wait for its response."""
        self._correlation_id += 1
        self.send(encode_request(request, version, correlation_id=self._correlation_id))
        correlation_id, response = decode_response(
            memoryview(self.receive_frame()), request.KEY, version)
        assert correlation_id == self._correlation_id
        return response

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.socket.sendall(data)

    def receive_frame(self) -> bytes:
        """One frame, without its length."""
        (size,) = struct.unpack(">i", self._receive(4))
        return self._receive(size)

    def is_closed_by_peer(self) -> bool:
        """Wait until the peer closes; False if it sends something instead, or nothing at all."""
        try:
            return self.socket.recv(1) == b""
        except TimeoutError:
            return False
        except ConnectionError:
            return True

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            self.close()

    def _receive(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self.socket.recv(min(size - len(parts), 1 << 20))
            if not part:
                raise ConnectionError(f"closed after {len(parts)} of {size} bytes")
            parts += part
        return bytes(parts)

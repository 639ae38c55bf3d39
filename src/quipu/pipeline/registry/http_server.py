"""An HTTP server with limits on connections and on the time of a request.

A thread serves each connection, one request after the other.  A connection has REQUEST_SECONDS from
its last response to send a request and receive the response, however slowly its bytes come.  When
there are more than CONNECTIONS_MAX, the one whose last response is the longest ago is closed: so
idle and slow connections cannot keep a new one from being served.
"""

import contextlib
import socket
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any, Final

CONNECTIONS_MAX: Final = 100
REQUEST_SECONDS: Final = 30.0


class BoundedHttpServer(ThreadingHTTPServer):
    """The server; its handler calls `note_response` after every response."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], *,
        connections_max: int = CONNECTIONS_MAX, request_seconds: float = REQUEST_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max, self._seconds, self._clock = connections_max, request_seconds, clock
        self._waiting: dict[Any, float] = {}  # when each connection began to wait, oldest first
        self._guard = Lock()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 as there
        with self._guard:
            self._waiting[request] = self._clock()
            if len(self._waiting) > self._max:
                self._hang_up(next(iter(self._waiting)))
        super().process_request(request, client_address)

    def note_response(self, request: socket.socket) -> None:
        """Restart the time of a connection that got its response."""
        with self._guard:
            if self._waiting.pop(request, None) is not None:
                self._waiting[request] = self._clock()

    def service_actions(self) -> None:
        """Close connections whose time is over; the accepting loop calls this repeatedly."""
        with self._guard:
            late = self._clock() - self._seconds
            for request in [each for each, since in self._waiting.items() if since < late]:
                self._hang_up(request)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 as in http.server
        with self._guard:
            self._waiting.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 as there
        """Ignore errors of connections that the peer has closed."""

    def _hang_up(self, request: socket.socket) -> None:
        """Shut a connection down; its thread then reads the end, and closes it."""
        self._waiting.pop(request, None)
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

"""An HTTP server that idle, slow and many connections cannot keep from answering.

A thread serves each connection, one request after the other.  A connection has a time to send a
request and take its answer, counted from the answer before: who sends a byte now and then gets no
more.  When there are too many, the one that has waited longest without a request is hung up on:
whoever asks at once is answered, however many wait for nothing.
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


class Listening(ThreadingHTTPServer):
    """See above.  A handler calls `answered` after every answer."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], *,
        connections_max: int = CONNECTIONS_MAX, request_seconds: float = REQUEST_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max, self._seconds, self._clock = connections_max, request_seconds, clock
        self._waiting: dict[Any, float] = {}  # since when, the longest first
        self._guard = Lock()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 as there
        with self._guard:
            self._waiting[request] = self._clock()
            if len(self._waiting) > self._max:
                self._hang_up(next(iter(self._waiting)))
        super().process_request(request, client_address)

    def answered(self, request: socket.socket) -> None:
        """A connection has its answer: its time begins anew."""
        with self._guard:
            if self._waiting.pop(request, None) is not None:
                self._waiting[request] = self._clock()

    def service_actions(self) -> None:
        """Called by the loop that accepts, again and again."""
        with self._guard:
            late = self._clock() - self._seconds
            for request in [each for each, since in self._waiting.items() if since < late]:
                self._hang_up(request)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 as in http.server
        with self._guard:
            self._waiting.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 as there
        """Peers that go away in the middle are no news."""

    def _hang_up(self, request: socket.socket) -> None:
        """Its thread reads an end, and closes it."""
        self._waiting.pop(request, None)
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

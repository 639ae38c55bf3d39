"""The HTTP port of a node: `/metrics`, `/placement`, `/health/live`, `/health/ready`.

It opens before the logs are recovered, so that a probe gets "not ready" instead of a refused
connection, and it must be cheap: so it is a few GET routes directly on asyncio.  A web framework
and its server would add a quarter of a second of imports to every start and 8 MiB to every idle
node.

Invariants
    broker.observing.O1  a request has a head of at most HEAD_SIZE_MAX bytes, received within
                         HEAD_SECONDS_MAX, and no body; its response is received within
                         RESPONSE_SECONDS_MAX; a connection has one request
    broker.observing.O2  at most `connections_max` connections wait for a request, and at most
                         SCRAPES_MAX receive a response; a new one replaces the oldest, so that many
                         slow clients cannot keep out a probe, which sends its request at once
    broker.observing.O3  a short response, as to a probe, needs no resource that a slow client can
                         hold
    broker.observing.O4  a long response is made in pieces, and other tasks run in between; requests
                         that come soon after get the same response, so that many scrapers use a
                         tenth of the time or less
    broker.observing.O5  at most QUERIES_MAX responses that depend on a query are made at a time, so
                         that many queries are not more work than a few; one more gets 503
"""

import asyncio
import errno
import json
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Final, NamedTuple, cast
from urllib.parse import parse_qs

from quipu.broker.observing import metrics
from quipu.broker.observing.health import Health
from quipu.broker.observing.stats import Stats
from quipu.model.partition_log import PartitionLog
from quipu.runtime.log_limits import LimitedLog
from quipu.runtime.net.listener import ProtocolListener
from quipu.runtime.net.server import CannotListen
from quipu.runtime.spawn import spawn

HEAD_SIZE_MAX: Final = 8 * 1024
HEAD_SECONDS_MAX: Final = 5.0
RESPONSE_SECONDS_MAX: Final = 10.0
CONNECTIONS_MAX: Final = 256
ACCEPT_SHARE: Final = 4  # of `connections_max`, accepted in one turn of the loop
SCRAPES_MAX: Final = 32
QUERIES_MAX: Final = 4
PAGE_AGE_RATIO: Final = 10  # a page is reused for 10 times the time that it took to make
PAGE_SECONDS_MAX: Final = 1.0
SWEEP_SECONDS: Final = 0.25
WARNINGS_MAX: Final = 20
LIMIT: Final = "metrics.max.connections"

_HEAD_END: Final = b"\r\n\r\n"
JSON: Final = "application/json"
_log = logging.getLogger(__name__)


class HttpResponse(NamedTuple):
    """The response of a route; a body that is not a list is long, and made in pieces."""

    status: HTTPStatus
    content_type: str
    body: Iterable[str]


Route = Callable[[], HttpResponse]
Query = Mapping[str, Sequence[str]]  # the parameters of a URL, by name
QueryRoute = Callable[[Query], HttpResponse]


class _Page(NamedTuple):
    """A whole response as bytes: the head, and the body in pieces."""

    head: bytes
    body: tuple[bytes, ...]


class HttpServer:
    """Serves GET and HEAD of a few routes on the running loop."""

    def __init__(
        self, routes: dict[str, Route], *, connections_max: int = CONNECTIONS_MAX,
        stats: Stats | None = None, queried: Mapping[str, QueryRoute] | None = None,
    ) -> None:
        self.limited = LimitedLog(_log)
        self.address = ("", 0)  # once it listens
        self.asking: dict[_Client, None] = {}  # their request has not come; the oldest first
        self.receiving: dict[_Client, None] = {}  # receive their response; the oldest first
        self._routes = routes
        self._queried = queried or {}  # routes whose response depends on the query
        self._connections_max = connections_max
        self._stats = stats if stats is not None else Stats()
        self._pages: dict[str, asyncio.Task[_Page]] = {}
        self._listener = ProtocolListener(
            lambda: _Client(self), accept_max=max(1, connections_max // ACCEPT_SHARE))
        self._sweeper: asyncio.TimerHandle | None = None

    async def start(self, host: str, port: int, *, or_any: bool = False) -> tuple[str, int]:
        """Listen, and return the address taken; port 0 takes a free one.

        With `or_any`, any free port is used if `port` is taken.
        """
        try:
            address = await self._listener.start(host, port)
        except OSError as error:
            if not or_any or error.errno != errno.EADDRINUSE:
                why = os.strerror(error.errno) if error.errno else str(error)
                raise CannotListen(
                    f"cannot serve metrics on {host}:{port}: {why}; "
                    "choose another address with --set metrics.listener=HOST:PORT"
                ) from None
            _log.warning("port %d of metrics.listener is in use; using a free one", port)
            address = await self._listener.start(host, 0)
        self._sweep()
        self.address = address
        return address

    async def close(self) -> None:
        """Stop listening; responses under way are cut off."""
        self._listener.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for client in [*self.asking, *self.receiving]:
            client.abort()

    # -- for clients

    def make_room(self) -> None:
        """Close the oldest of too many connections (broker.observing.O2)."""
        for crowd, count_max in (
                (self.asking, self._connections_max), (self.receiving, SCRAPES_MAX)):
            if len(crowd) > count_max:
                self._stats.refusals[LIMIT] += 1
                next(iter(crowd)).abort()

    def _sweep(self) -> None:
        """Close connections that take too long (broker.observing.O1)."""
        now = asyncio.get_running_loop().time()
        for crowd, seconds_max in (
                (self.asking, HEAD_SECONDS_MAX), (self.receiving, RESPONSE_SECONDS_MAX)):
            for client in [each for each in crowd if now - each.since > seconds_max]:
                client.abort()
        self.limited.report()
        self._sweeper = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep)

    def respond(self, head: bytes) -> tuple["_Page | asyncio.Task[_Page]", bool]:
        """The response to a request, or the task that makes it; and whether to send its body."""
        words = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return problem(HTTPStatus.BAD_REQUEST, "not an HTTP/1 request"), True
        method, target, _ = words
        if method not in ("GET", "HEAD"):
            return problem(HTTPStatus.METHOD_NOT_ALLOWED, "use GET or HEAD"), True
        return self._find(target), method == "GET"

    def _find(self, target: str) -> "_Page | asyncio.Task[_Page]":
        path, _, query = target.partition("?")
        route, queried = self._routes.get(path), self._queried.get(path)
        if queried is not None:
            path = target  # a page of its own for each query
            route = partial(queried, parse_qs(query))
        if route is None:
            paths = ", ".join(sorted([*self._routes, *self._queried]))
            return problem(HTTPStatus.NOT_FOUND, f"there are {paths}")
        page = self._pages.get(path)
        if page is not None:
            return page
        if queried is not None and len(self._pages.keys() - self._routes.keys()) >= QUERIES_MAX:
            # broker.observing.O5
            return problem(HTTPStatus.SERVICE_UNAVAILABLE, "too many queries; try again")
        try:
            response = route()
        except Exception:  # noqa: BLE001 a bug in a route must not look like success
            return self._bug()
        if isinstance(response.body, list):
            # broker.observing.O3: made and sent at once.
            return _page(response, [text.encode() for text in response.body])
        page = self._pages[path] = spawn(self._make(path, response), f"page {path}")
        return page

    async def _make(self, path: str, response: HttpResponse) -> _Page:
        loop = asyncio.get_running_loop()
        started = loop.time()
        page = await self._rendered(response)
        age_max = min(PAGE_AGE_RATIO * (loop.time() - started), PAGE_SECONDS_MAX)
        if path in self._routes:
            loop.call_later(age_max, self._pages.pop, path, None)
        else:
            self._pages.pop(path, None)  # few ask the same query
        return page

    async def _rendered(self, response: HttpResponse) -> _Page:
        pieces: list[bytes] = []
        try:
            for text in response.body:
                pieces.append(text.encode())
                await asyncio.sleep(0)  # broker.observing.O4
        except Exception:  # noqa: BLE001 as above
            return self._bug()
        return _page(response, pieces)

    def _bug(self) -> _Page:
        self.limited.exception("bug", "an HTTP response could not be made")
        return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "a bug; the log has the details")


class _Client(asyncio.Protocol):
    """One connection: one request and its response."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._data = bytearray()
        self._with_body = True
        self._out: deque[bytes] | None = None  # what has not been given to the transport
        self._is_paused = False
        self.since = self._loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are of no such class
        self._server.asking[self] = None
        self._server.make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._forget()

    def abort(self) -> None:
        """Close at once: it is too slow, or a newer connection replaces it."""
        self._forget()
        self._transport.abort()

    def _forget(self) -> None:
        self._server.asking.pop(self, None)
        self._server.receiving.pop(self, None)

    # -- the request

    def data_received(self, data: bytes) -> None:
        if self not in self._server.asking:
            return  # one request without a body: the rest is ignored
        self._data += data
        end = self._data.find(_HEAD_END)
        if not -1 < end <= HEAD_SIZE_MAX:
            if len(self._data) > HEAD_SIZE_MAX:
                self._respond(problem(
                    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                    f"a request head has at most {HEAD_SIZE_MAX} bytes"))
            return
        page, self._with_body = self._server.respond(bytes(self._data[:end]))
        self._data.clear()
        if isinstance(page, _Page):
            self._respond(page)
            return
        self._begin_response()
        page.add_done_callback(self._made)

    def eof_received(self) -> bool:
        return self not in self._server.asking  # a client may close its side and still read

    # -- the response

    def _begin_response(self) -> None:
        """Note that the request has come; the time limit of the response begins."""
        self._server.asking.pop(self, None)
        self.since = self._loop.time()
        self._server.receiving[self] = None
        self._server.make_room()

    def _made(self, page: "asyncio.Task[_Page]") -> None:
        if not page.cancelled():
            self._respond(page.result())

    def _respond(self, page: _Page) -> None:
        if self._transport.is_closing():
            return
        self._begin_response()
        self._out = deque((page.head, *page.body) if self._with_body else (page.head,))
        self._send()

    def _send(self) -> None:
        """Write as much as the transport accepts; close it after everything is sent."""
        assert self._out is not None
        while self._out and not self._is_paused:
            self._transport.write(self._out.popleft())
        if not self._out:
            self._transport.close()

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        if self._out:
            self._send()


def routes(health: Health, sources: metrics.Sources) -> dict[str, Route]:
    """The routes of a node's HTTP port, but for those of placements (placement_pages.py)."""
    return {
        "/metrics": lambda: HttpResponse(
            HTTPStatus.OK, metrics.CONTENT_TYPE, metrics.exposition(sources)),
        "/health/live": lambda: json_response(
            HTTPStatus.OK, {"status": "live", "phase": health.phase}),
        "/health/ready": lambda: ready(health, sources.partitions()),
    }  # fmt: skip


def ready(health: Health, partitions: Sequence[PartitionLog]) -> HttpResponse:
    """200 if a client would be served now, else 503; the reasons in either case."""
    failed = [view for view in partitions if view.failure is not None]
    warnings = [f"{view.topic_partition}: {view.failure}" for view in failed[:WARNINGS_MAX]]
    if len(failed) > WARNINGS_MAX:
        warnings.append(f"and {len(failed) - WARNINGS_MAX} more partitions are offline")
    status, reasons, is_ready = health.status, health.reasons, health.ready
    if is_ready and failed and len(failed) == len(partitions):
        status, reasons, is_ready = "failed", ["every partition is offline"], False
    code = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
    return json_response(
        code, {"status": status, "reasons": reasons, "warnings": health.warnings + warnings}
    )


def json_response(status: HTTPStatus, value: Mapping[str, object]) -> HttpResponse:
    """A short response."""
    return HttpResponse(status, JSON, [json.dumps(value) + "\n"])


def problem(status: HTTPStatus, why: str) -> _Page:
    """An error response to a request."""
    response = json_response(status, {"error": why})
    return _page(response, [text.encode() for text in response.body])


def _page(response: HttpResponse, pieces: Sequence[bytes]) -> _Page:
    head = (
        f"HTTP/1.1 {response.status.value} {response.status.phrase}\r\n"
        f"Content-Type: {response.content_type}\r\nContent-Length: {sum(map(len, pieces))}\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return _Page(head.encode(), tuple(pieces))

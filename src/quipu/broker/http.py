"""The HTTP port of a node: `/metrics`, `/health/live`, `/health/ready`.

It opens before the logs are recovered, so that a probe gets a truthful "not yet" instead of a
refused connection, and it must cost a node nothing: hence three GET routes straight on asyncio.
A web framework and its server would add a quarter of a second of imports to every start and 8 MiB
to every idle node, for three pages without parameters.

Every request is bounded: one per connection, a head of at most `HEAD_SIZE_MAX` bytes within
`HEAD_SECONDS_MAX`, no body, an answer taken within `ANSWER_SECONDS_MAX`, and at most
`CONNECTIONS_MAX` at a time.  A body is rendered piece by piece, and the loop turns in between.
"""

import asyncio
import errno
import json
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from typing import Final, NamedTuple

from quipu.broker import metrics
from quipu.broker.health import Health
from quipu.runtime.net import CannotListen

HEAD_SIZE_MAX: Final = 8 * 1024
HEAD_SECONDS_MAX: Final = 5.0
ANSWER_SECONDS_MAX: Final = 10.0
CONNECTIONS_MAX: Final = 32
WARNINGS_MAX: Final = 20

_JSON: Final = "application/json"
_log = logging.getLogger(__name__)


class Answer(NamedTuple):
    """What a route answers; the body comes in pieces so that a long one blocks nobody."""

    status: HTTPStatus
    content_type: str
    body: Iterable[str]


Route = Callable[[], Answer]


class HttpServer:
    """Serves GET and HEAD of a few routes on the running loop."""

    def __init__(self, routes: dict[str, Route]) -> None:
        self._routes = routes
        self._server: asyncio.Server | None = None
        self._open_count = 0

    async def start(self, host: str, port: int, *, or_any: bool = False) -> tuple[str, int]:
        """Listen, and return the address taken; port 0 takes a free one.

        With `or_any` a port that is taken is no failure: any free one will do.
        """
        try:
            self._server = await self._listen(host, port)
        except OSError as error:
            if not or_any or error.errno != errno.EADDRINUSE:
                why = os.strerror(error.errno) if error.errno else str(error)
                raise CannotListen(
                    f"cannot serve metrics on {host}:{port}: {why}; "
                    "choose another address with --set metrics.listener=HOST:PORT"
                ) from None
            _log.warning("port %d of metrics.listener is taken; taking a free one", port)
            self._server = await self._listen(host, 0)
        address: tuple[str, int] = self._server.sockets[0].getsockname()[:2]
        return address

    async def _listen(self, host: str, port: int) -> asyncio.Server:
        return await asyncio.start_server(self._serve, host, port, limit=HEAD_SIZE_MAX)

    async def close(self) -> None:
        """Stop listening; answers under way have their own time limits."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open_count += 1
        try:
            answer, with_body = await self._answer(reader)
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                await _write(writer, answer, with_body=with_body)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            writer.transport.abort()  # gone or too slow: nothing to tell, and nobody to tell it to
        finally:
            self._open_count -= 1
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[Answer, bool]:
        """The answer to one request, and whether its body is wanted."""
        if self._open_count > CONNECTIONS_MAX:
            return _problem(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections; retry"), True
        try:
            async with asyncio.timeout(HEAD_SECONDS_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            return _problem(status, f"a request head has at most {HEAD_SIZE_MAX} bytes"), True
        words = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _problem(HTTPStatus.BAD_REQUEST, "not an HTTP/1 request"), True
        method, target, _ = words
        if method not in ("GET", "HEAD"):
            return _problem(HTTPStatus.METHOD_NOT_ALLOWED, "use GET or HEAD"), True
        return self._find(target.partition("?")[0]), method == "GET"

    def _find(self, path: str) -> Answer:
        route = self._routes.get(path)
        if route is None:
            paths = ", ".join(sorted(self._routes))
            return _problem(HTTPStatus.NOT_FOUND, f"there are {paths}")
        return route()


def routes(health: Health, sources: metrics.Sources) -> dict[str, Route]:
    """All that a node answers over HTTP."""
    return {
        "/metrics": lambda: Answer(
            HTTPStatus.OK, metrics.CONTENT_TYPE, metrics.exposition(sources)),
        "/health/live": lambda: _json(HTTPStatus.OK, {"status": "live", "phase": health.phase}),
        "/health/ready": lambda: ready(health, sources.partitions()),
    }  # fmt: skip


def ready(health: Health, partitions: Sequence[metrics.PartitionView]) -> Answer:
    """200 if a client would be served now, else 503; the reasons in either case."""
    failed = [view for view in partitions if view.failed is not None]
    warnings = [f"{view.topic_partition}: {view.failed}" for view in failed[:WARNINGS_MAX]]
    if len(failed) > WARNINGS_MAX:
        warnings.append(f"and {len(failed) - WARNINGS_MAX} more partitions are offline")
    status, reasons, is_ready = health.status, health.reasons, health.ready
    if is_ready and failed and len(failed) == len(partitions):
        status, reasons, is_ready = "failed", ["every partition is offline"], False
    code = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
    return _json(
        code, {"status": status, "reasons": reasons, "warnings": health.warnings + warnings}
    )


def _json(status: HTTPStatus, value: dict[str, object]) -> Answer:
    return Answer(status, _JSON, [json.dumps(value) + "\n"])


def _problem(status: HTTPStatus, why: str) -> Answer:
    return _json(status, {"error": why})


async def _write(writer: asyncio.StreamWriter, answer: Answer, *, with_body: bool) -> None:
    pieces: list[bytes] = []
    try:
        for text in answer.body:
            pieces.append(text.encode())
            await asyncio.sleep(0)  # let produce and fetch have their turn
    except Exception:  # noqa: BLE001 a bug in a route must not look like success
        _log.exception("an HTTP answer could not be made")
        answer = _problem(HTTPStatus.INTERNAL_SERVER_ERROR, "a bug; the log has the details")
        pieces = [text.encode() for text in answer.body]
    size = sum(map(len, pieces))
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
        f"Content-Type: {answer.content_type}\r\nContent-Length: {size}\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode())
    for piece in pieces if with_body else ():
        writer.write(piece)
        await writer.drain()
    await writer.drain()

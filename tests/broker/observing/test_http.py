"""The HTTP port: truthful health, and nothing a client sends can hurt it."""

import asyncio
import contextlib
import json
import socket
from collections.abc import Awaitable, Callable, Iterator
from http import HTTPStatus

import pytest

from quipu.broker.observing import http
from quipu.broker.observing.health import Health, LifePhase
from quipu.broker.observing.http import HttpResponse, HttpServer
from quipu.broker.observing.stats import Stats
from quipu.model.errors import CorruptLog
from quipu.model.ids import TopicPartition
from quipu.runtime.net.server import CannotListen
from tests.broker.observing.test_metrics import FakePartition, make_sources


class Reply:
    """The parts of an HTTP response."""

    def __init__(self, data: bytes) -> None:
        head, _, self.body = data.partition(b"\r\n\r\n")
        self.status_line, *lines = head.decode().split("\r\n")
        self.status = int(self.status_line.split(" ")[1])
        self.headers = dict(line.lower().split(": ", 1) for line in lines)

    def json(self) -> dict[str, object]:
        value = json.loads(self.body)
        assert isinstance(value, dict)
        return value


Ask = Callable[[bytes], Awaitable[Reply]]


def talk(server: HttpServer, conversation: Callable[[Ask], Awaitable[None]]) -> None:
    """Run `conversation` against `server` on a free port."""

    async def run() -> None:
        host, port = await server.start("127.0.0.1", 0)

        async def ask(request: bytes) -> Reply:
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(request)
            data = await asyncio.wait_for(reader.read(), 20)
            writer.close()
            return Reply(data)

        try:
            await conversation(ask)
        finally:
            await server.close()

    asyncio.run(run())


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def node_server(health: Health) -> HttpServer:
    return HttpServer(http.routes(health, make_sources(ready=lambda: health.ready)))


def test_readiness_follows_the_life_of_a_node() -> None:
    """K9: ready only while it serves; not while it starts, stops, or its disk has failed."""
    health = Health()

    async def conversation(ask: Ask) -> None:
        async def status() -> tuple[int, object]:
            reply = await ask(get("/health/ready"))
            return reply.status, reply.json()["status"]

        assert await status() == (503, "starting")
        health.enter(LifePhase.SERVING)
        assert await status() == (200, "ready")

        health.fail("disk", "No space left on device")
        reply = await ask(get("/health/ready"))
        assert (reply.status, reply.json()["status"]) == (503, "failed")
        assert reply.json()["reasons"] == ["disk: No space left on device"]

        health.mend("disk")
        health.warn("orders-0", "corrupt at offset 17")
        reply = await ask(get("/health/ready"))
        assert (reply.status, reply.json()["warnings"]) == (200, ["orders-0: corrupt at offset 17"])

        health.enter(LifePhase.STOPPING)
        assert await status() == (503, "stopping")
        assert (await ask(get("/health/live"))).status == 200

    talk(node_server(health), conversation)


def test_an_offline_partition_is_a_warning_and_the_rest_is_served() -> None:
    """K9, T12: a corrupt log is a warning of the health page, and does not stop the others."""
    health = Health()
    health.enter(LifePhase.SERVING)
    partitions = [
        FakePartition(TopicPartition("orders", index), failure=CorruptLog("bad batch at 17"))
        for index in range(http.WARNINGS_MAX + 2)
    ]
    partitions.insert(0, FakePartition(TopicPartition("sound", 0)))
    server = HttpServer(http.routes(health, make_sources(partitions=lambda: partitions)))

    async def conversation(ask: Ask) -> None:
        reply = await ask(get("/health/ready"))
        assert reply.status == 200
        warnings = reply.json()["warnings"]
        assert isinstance(warnings, list)
        assert warnings[0] == "orders-0: bad batch at 17"
        assert warnings[-1] == "and 2 more partitions are offline"

        partitions.pop(0)
        reply = await ask(get("/health/ready"))
        assert (reply.status, reply.json()["reasons"]) == (503, ["every partition is offline"])

    talk(server, conversation)


def test_a_life_does_not_go_backwards() -> None:
    """K9: a stopped node cannot become ready again by mistake."""
    health = Health()
    health.enter(LifePhase.STOPPING)

    with pytest.raises(AssertionError):
        health.enter(LifePhase.SERVING)


def test_metrics_have_the_content_type_that_scrapers_expect() -> None:
    """K9: Prometheus refuses a scrape without a known content type."""

    async def conversation(ask: Ask) -> None:
        reply = await ask(get("/metrics?name=x"))
        assert reply.status == 200
        assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert int(reply.headers["content-length"]) == len(reply.body)
        assert b"quipu_ready 0\n" in reply.body

        head = await ask(b"HEAD /metrics HTTP/1.1\r\n\r\n")
        assert (head.status, head.body) == (200, b"")

    talk(node_server(Health()), conversation)


BAD_REQUESTS = [
    ("an unknown path names the known ones", get("/nothing"), 404, "/health/ready"),
    ("only reading is possible", b"POST /metrics HTTP/1.1\r\n\r\n", 405, "GET"),
    ("not HTTP at all", b"\x00\x00\x00\x10 hello\r\n\r\n", 400, "HTTP"),
    ("another version of HTTP", b"PRI * HTTP/2.0\r\n\r\n", 400, "HTTP"),
    ("a head without end", b"GET / HTTP/1.1\r\nA: " + b"x" * 100_000, 431, "8192"),
]


@pytest.mark.parametrize("case", BAD_REQUESTS, ids=lambda case: case[0])
def test_bad_requests_get_one_clear_answer(case: tuple[str, bytes, int, str]) -> None:
    """K8: the response to a malformed or oversized request says what is wrong."""
    _, request, status, word = case

    async def conversation(ask: Ask) -> None:
        reply = await ask(request)
        assert reply.status == status
        assert word in str(reply.json()["error"])
        assert (await ask(get("/health/live"))).status == 200

    talk(node_server(Health()), conversation)


def test_a_connection_that_says_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """K8: a slow-loris connection holds its place for a limited time."""
    # Shows broker.observing.O1.
    monkeypatch.setattr(http, "HEAD_SECONDS_MAX", 0.1)

    async def run() -> None:
        server = node_server(Health())
        reader, writer = await asyncio.open_connection(*await server.start("127.0.0.1", 0))
        writer.write(b"GET /hea")
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()
        await server.close()

    asyncio.run(run())


def test_a_crowd_of_slow_clients_makes_room_for_a_probe() -> None:
    """K8: the oldest connection without a request is closed; the probe gets its response."""
    # Shows broker.observing.O2, broker.observing.O3.

    async def run() -> None:
        stats = Stats()
        server = HttpServer(
            http.routes(Health(), make_sources()), connections_max=4, stats=stats)
        address = await server.start("127.0.0.1", 0)
        slow = [await asyncio.open_connection(*address) for _ in range(20)]
        for _, writer in slow:
            writer.write(b"GET /hea")
        for _ in range(10):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(get("/health/live"))
            assert b" 200 " in await asyncio.wait_for(reader.read(), 10)
            writer.close()
        assert stats.refusals[http.LIMIT] >= 16
        assert len(server.asking) <= 4
        for _, writer in slow:
            writer.close()
        await server.close()

    asyncio.run(run())


def test_a_crowd_that_connects_at_once_costs_a_probe_no_second_attempt() -> None:
    """K8: the kernel keeps them all until the loop turns; one more attempt would take a second."""

    async def run() -> None:
        server = node_server(Health())
        address = await server.start("127.0.0.1", 0)
        crowd = [socket.socket() for _ in range(300)]
        for peer in crowd:
            peer.setblocking(False)
            peer.connect_ex(address)  # all of them before the server has a turn
        probe = socket.create_connection(address, timeout=0.5)
        probe.sendall(get("/health/live"))
        probe.setblocking(False)
        for peer in crowd[::2]:
            peer.close()
        reader, writer = await asyncio.open_connection(sock=probe)
        assert b" 200 " in await asyncio.wait_for(reader.read(), 10)
        writer.close()
        for peer in crowd:
            peer.close()
        await server.close()

    asyncio.run(run())


def test_scrapers_that_take_nothing_keep_nobody_from_scraping() -> None:
    """K8: the page is made once for all of them, and each holds a piece of it, not the whole."""
    made = 0

    def page() -> HttpResponse:
        nonlocal made
        made += 1
        return HttpResponse(HTTPStatus.OK, "text/plain", ("x" * 40_000 for _ in range(200)))

    async def run() -> None:
        server = HttpServer({"/metrics": page, "/ok": lambda: HttpResponse(
            HTTPStatus.OK, "a/b", ["y"])})
        address = await server.start("127.0.0.1", 0)
        slow = []
        for _ in range(http.SCRAPES_MAX * 2):
            sock = socket.create_connection(address)
            sock.sendall(get("/metrics"))
            slow.append(sock)
            await asyncio.sleep(0)
        reader, writer = await asyncio.open_connection(*address)
        writer.write(get("/metrics"))
        assert len(await asyncio.wait_for(reader.read(), 20)) > 8_000_000
        writer.close()
        reader, writer = await asyncio.open_connection(*address)
        writer.write(get("/ok"))
        assert (await asyncio.wait_for(reader.read(), 10)).endswith(b"y")
        writer.close()
        assert len(server.receiving) <= http.SCRAPES_MAX
        for sock in slow:
            sock.close()
        await server.close()

    asyncio.run(run())
    assert made <= 5


def test_a_bug_in_a_route_is_an_error_and_not_half_an_answer() -> None:
    """K9: a scrape that failed must not look like one that worked."""

    def broken() -> Iterator[str]:
        yield "quipu_ready 1\n"
        raise ZeroDivisionError

    async def conversation(ask: Ask) -> None:
        reply = await ask(get("/metrics"))
        assert reply.status == 500
        assert b"quipu_ready" not in reply.body

    talk(
        HttpServer({"/metrics": lambda: HttpResponse(HTTPStatus.OK, "text/plain", broken())}),
        conversation,
    )


def test_the_loop_turns_while_a_long_answer_is_made() -> None:
    """K9: other work gets its turn between the pieces of a scrape."""
    # Shows broker.observing.O4.
    turns = 0

    async def run() -> None:
        nonlocal turns
        server = HttpServer({"/": lambda: HttpResponse(
            HTTPStatus.OK, "text/plain", iter(["x"] * 100))})
        reader, writer = await asyncio.open_connection(*await server.start("127.0.0.1", 0))
        writer.write(get("/"))
        reading = asyncio.ensure_future(reader.read())
        while not reading.done():
            turns += 1
            await asyncio.sleep(0)
        assert (await reading).endswith(b"x" * 100)
        writer.close()
        await server.close()

    asyncio.run(run())
    assert turns >= 100


def test_few_queries_are_carried_out_at_a_time() -> None:
    """D28, K8: more are refused for now; equal ones share a response; nothing is kept."""
    # Shows broker.observing.O5.
    asked: list[http.Query] = []
    is_over = False

    def slow() -> Iterator[str]:
        while not is_over:
            yield ""
        yield "done"

    def route(query: http.Query) -> HttpResponse:
        asked.append(query)
        return HttpResponse(HTTPStatus.OK, "text/plain", slow())

    async def run() -> None:
        nonlocal is_over
        server = HttpServer({}, queried={"/q": route})
        pages = [server.respond(get(f"/q?n={number}"))[0] for number in range(http.QUERIES_MAX)]
        assert server.respond(get("/q?n=0"))[0] is pages[0]
        refused, _ = server.respond(get("/q?n=99"))
        assert not isinstance(refused, asyncio.Task)
        assert b" 503 " in refused.head
        is_over = True
        for page in pages:
            assert isinstance(page, asyncio.Task)
            assert b"".join((await page).body) == b"done"
        again, _ = server.respond(get("/q?n=1&n=2&x=a%20b"))
        assert isinstance(again, asyncio.Task)
        await again
        assert asked[0] == {"n": ["0"]}
        assert asked[-1] == {"n": ["1", "2"], "x": ["a b"]}

    asyncio.run(run())
    assert len(asked) == http.QUERIES_MAX + 1


def test_a_port_that_is_taken_is_told_or_replaced() -> None:
    """K9: an address that was asked for must be had; a default one may be any other."""

    async def run() -> None:
        first, second = node_server(Health()), node_server(Health())
        host, port = await first.start("127.0.0.1", 0)
        with pytest.raises(CannotListen, match=r"metrics.listener=HOST:PORT"):
            await second.start(host, port)
        assert (await second.start(host, port, or_any=True))[1] not in (0, port)
        await first.close()
        await second.close()

    asyncio.run(run())

"""A wire between a client and an S3 server that fails as wires and servers do.

    with StoreProxy(server.port) as proxy:
        proxy.fault = WireFault.LOSE_RESPONSE      of every request from now on
        proxy.method, proxy.count = b"PUT", 1      or only of the next PUT

Clients send no second request before the first response, so what comes from the server after a
request is its response.
"""

import asyncio
import contextlib
from dataclasses import dataclass
from enum import Enum

from tests.harness.server_thread import ServerThread

END_OF_HEADERS = b"\r\n\r\n"
EVERY = 1 << 30
METHODS = (b"GET /", b"PUT /", b"POST /", b"HEAD /", b"DELETE /")


class WireFault(Enum):
    """What happens to a request or its response."""

    NONE = "none"
    REFUSE = "refuse"  # the connection is closed before the request is forwarded
    STALL = "stall"  # the request is not forwarded, and the connection stays open
    LOSE_RESPONSE = "lose response"  # the request is carried out, and the connection closed
    HOLD_RESPONSE = "hold response"  # the request is carried out, and no response comes
    CUT_BODY = "cut body"  # the connection is closed within the response's body
    FLIP_BIT = "flip bit"  # of the response's body


class StoreProxy(ServerThread):
    """Listens on `port`, in a thread with a loop of its own."""

    def __init__(self, target: int) -> None:
        super().__init__("store proxy")
        self.port = 0
        self.fault = WireFault.NONE
        self.method = b""  # of the requests that fail: all that begin with it
        self.count = EVERY  # of requests that still fail
        self.delay_seconds = 0.0  # of every response
        self.response_size = 0  # bytes that came from the server
        self.requests: list[bytes] = []  # their first lines
        self._target = target

    def break_next(self, fault: WireFault, method: bytes = b"", count: int = EVERY) -> None:
        """Let the next `count` requests of `method` fail."""
        self.method, self.count, self.fault = method, count, fault

    def heal(self) -> None:
        self.fault = WireFault.NONE

    # -- in the thread

    async def listen(self) -> list[asyncio.Server]:
        server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return [server]

    def _strikes(self, request: bytes, *faults: WireFault) -> bool:
        """Does one of `faults` happen to this request?"""
        if self.fault not in faults or not request.startswith(self.method) or self.count <= 0:
            return False
        self.count -= 1
        return True

    async def _accepted(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        back: asyncio.StreamWriter | None = None
        pipes: list[asyncio.Task[None]] = []
        with contextlib.suppress(OSError, asyncio.CancelledError):
            upstream, back = await asyncio.open_connection("127.0.0.1", self._target)
            exchange = _Exchange()
            pipes = [asyncio.ensure_future(self._requests(exchange, reader, back)),
                     asyncio.ensure_future(self._responses(exchange, upstream, writer))]
            await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
        for pipe in pipes:
            pipe.cancel()
        for each in (writer, back):
            if each is not None:
                each.transport.abort()

    async def _requests(
        self, exchange: "_Exchange", reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if data.startswith(METHODS):
                    exchange.request, exchange.is_new = data[: data.find(b"\r\n")], True
                    self.requests.append(exchange.request)
                    if self._strikes(exchange.request, WireFault.REFUSE):
                        return
                    if self._strikes(exchange.request, WireFault.STALL):
                        await asyncio.sleep(3600)
                writer.write(data)
                await writer.drain()

    async def _responses(
        self, exchange: "_Exchange", reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        flips = False
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                self.response_size += len(data)
                body = 0
                if exchange.is_new:
                    exchange.is_new = False
                    await asyncio.sleep(self.delay_seconds)
                    if self._strikes(exchange.request, WireFault.LOSE_RESPONSE):
                        return
                    if self._strikes(exchange.request, WireFault.HOLD_RESPONSE):
                        await asyncio.sleep(3600)
                    body = data.find(END_OF_HEADERS) + len(END_OF_HEADERS)
                    if self._strikes(exchange.request, WireFault.CUT_BODY):
                        writer.write(data[: body + (len(data) - body) // 2])
                        await writer.drain()
                        return
                    flips = self._strikes(exchange.request, WireFault.FLIP_BIT)
                if flips and len(data) > body:
                    at = body + (len(data) - body) // 2
                    data = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
                    flips = False
                writer.write(data)
                await writer.drain()


@dataclass
class _Exchange:
    """The request of a connection that was sent last, and whether its response has begun."""

    request: bytes = b""
    is_new: bool = False

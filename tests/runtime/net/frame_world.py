"""A server of framed connections, and clients of it, over the transport of the test."""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

from quipu.runtime.net.connection import Connection
from quipu.runtime.net.limits import NetLimits
from quipu.runtime.net.server import FrameServer
from quipu.runtime.net.transport import PlainTransport, Wrap
from tests.runtime.net.scrambled import ScrambledClient, ScrambledTransport


class TransportUnderTest(NamedTuple):
    """What a server makes of its sockets, and the sockets of clients that understand it."""

    wrap: Wrap
    client: Callable[[], socket.socket]


TRANSPORTS = {
    "plain": TransportUnderTest(PlainTransport, socket.socket),
    "scrambled": TransportUnderTest(ScrambledTransport, ScrambledClient),
}
TRANSPORT = TRANSPORTS["plain"]  # set by conftest.py


class Echo:
    """Sends every frame back, and records what happened."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.frames: list[bytes] = []
        self.lost = False
        self.drained_count = 0

    def frame_received(self, frame: memoryview) -> None:
        data = bytes(frame)
        self.frames.append(data)
        self.connection.send([struct.pack(">i", len(data)), data])

    def drained(self) -> None:
        self.drained_count += 1

    def connection_lost(self) -> None:
        self.lost = True


class World:
    """A server on a free port, with the handlers of all its connections."""

    def __init__(self, limits: NetLimits | None = None) -> None:
        self.handlers: list[Echo] = []
        self.make = Echo
        self._writers: list[asyncio.StreamWriter] = []
        self.server = FrameServer(accept=self._accept, limits=limits or NetLimits())
        self.address = self.server.bind("127.0.0.1", 0, wrap=TRANSPORT.wrap)
        self.server.serve()

    def _accept(self, connection: Connection) -> Echo:
        handler = self.make(connection)
        self.handlers.append(handler)
        return handler

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        sock = self.socket()
        sock.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=sock)
        self._writers.append(writer)
        return reader, writer

    def socket(self, source: str = "127.0.0.1") -> socket.socket:
        """A client's end, which blocks."""
        sock = TRANSPORT.client()
        sock.bind((source, 0))
        sock.connect(self.address)
        return sock

    async def close(self) -> None:
        await self.server.close(grace_seconds=0.1)
        for writer in self._writers:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


def run(story: Callable[[World], Awaitable[None]], limits: NetLimits | None = None) -> None:
    async def main() -> None:
        world = World(limits)
        try:
            await asyncio.wait_for(story(world), timeout=20)
        finally:
            await world.close()

    asyncio.run(main())


def frame(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("did not happen in time")

"""Clients' connections in a simulated network: the twin of `runtime.net.FrameServer`, and a client.

    SimFrameServer   what a node listens with
    SimConnection    the node's end; requests come in frames, answers leave as bytes
    ClientLink       the client's end: real request frames out, answer frames in

A frame handed to a handler is overwritten as soon as the handler returns: whoever kept it reads
rubbish, as with the real one (N1 of runtime/connection.py).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from quipu.model.errors import Kind, QuipuError
from quipu.runtime.connection import Buffer
from quipu.runtime.frame_handler import FrameHandler
from quipu.runtime.net import CannotListen
from quipu.runtime.net_limits import BY_NODE, NetLimits, NetStats
from quipu.runtime.network import Accept
from quipu.sim.loop import Life

if TYPE_CHECKING:
    from quipu.sim.net import Door, SimNet

POISON: Final = 0xA5
CONNECT_SECONDS_MAX: Final = 2.0


class Disconnected(QuipuError):
    """The connection is gone, and with it what was under way."""

    kind = Kind.RETRY


def lend(data: bytes, take: Callable[[memoryview], None]) -> None:
    """Let `take` have a writable copy of `data` until it returns, and spoil it then."""
    lent = bytearray(data)
    try:
        take(memoryview(lent))
    finally:
        lent[:] = bytes([POISON]) * len(lent)


class SimConnection:
    """The node's end of a client's connection."""

    def __init__(self, server: "SimFrameServer", client: "ClientLink") -> None:
        self.peer_host, self.peer_port = client.host, client.port
        self.closed = False
        self._server = server
        self._client = client
        self._handler: FrameHandler
        self._frames: deque[bytes] = deque()  # that wait for the end of a pause
        self._out: list[Buffer] = []
        self._paused = False
        self._flushing = False

    @property
    def backlog(self) -> int:
        return len(self._out)

    def start(self, handler: FrameHandler) -> None:
        self._handler = handler

    def send(self, buffers: list[Buffer]) -> None:
        """Answer; the bytes are taken at the end of this turn of the loop."""
        if self.closed:
            return
        self._out.extend(buffers)
        if not self._flushing:
            self._flushing = True
            self._server.soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        data = b"".join(self._out)
        self._out.clear()
        if data and not self.closed:
            self._server.carry(self._client, data)
            if self._paused:
                self._handler.drained()

    def received(self, frame: bytes) -> None:
        """One request has arrived."""
        if not self.closed:
            self._frames.append(frame)
            self._hand_over()

    def _hand_over(self) -> None:
        while self._frames and not self._paused and not self.closed:
            lend(self._frames.popleft(), self._handler.frame_received)

    def pause(self, *, read_rest: bool = False) -> None:
        del read_rest  # what the client sent before it closed is dropped: it asked for no answer
        self._paused = True

    def keep(self, frame: memoryview) -> memoryview:
        return memoryview(bytearray(frame))

    def resume(self) -> None:
        if self._paused and not self.closed:
            self._paused = False
            self._server.soon(self._hand_over)

    def close(self, *, after_sending: bool = False, why: str = BY_NODE) -> None:
        """Close, at once or after what was sent has left."""
        if self.closed:
            return
        self._server.stats.closed[why] += 1
        if after_sending and self._out:
            self._flush()
        self.closed = True
        self._server.forget(self)
        self._server.carry(self._client, None)
        self._handler.connection_lost()


class SimFrameServer:
    """What a node listens with for clients."""

    def __init__(self, door: "Door", accept: Accept, limits: NetLimits) -> None:
        self.stats = NetStats()
        self.door = door
        self._accept = accept
        self._limits = limits
        self._address: tuple[str, int] | None = None
        self._serves = False
        self._connections: dict[SimConnection, None] = {}  # in the order in which they came

    def bind(self, host: str, port: int) -> tuple[str, int]:
        assert host == self.door.host, (host, self.door.host)
        net = self.door.net
        port = port or net.free_port()
        taken = net.clients_at.get((host, port))
        if taken is not None and taken.door.process.life is not Life.DEAD:
            raise CannotListen(f"{host}:{port} is taken")
        self._address = host, port
        net.clients_at[host, port] = self
        return host, port

    def serve(self) -> None:
        self._serves = True

    def accept(self, client: "ClientLink") -> SimConnection | None:
        """A client has called; None if nobody answers yet or there are too many."""
        if not self._serves or len(self._connections) >= self._limits.connections_max:
            return None
        connection = SimConnection(self, client)
        self._connections[connection] = None
        connection.start(self._accept(connection))
        return connection

    def soon(self, callback: Callable[[], None]) -> None:
        self.door.net.loop.call_soon(callback)

    def carry(self, client: "ClientLink", data: bytes | None) -> None:
        """Bring bytes to a client, or the news that the connection is closed."""
        link = self.door.net.link(self.door.host, client.host)
        link.stream(len(data or b""), lambda: client.received(data), None)

    def forget(self, connection: SimConnection) -> None:
        self._connections.pop(connection, None)

    def stop_accepting(self) -> None:
        self._serves = False
        if self._address is not None:
            self.door.net.clients_at.pop(self._address, None)
            self._address = None

    async def close(self, *, grace_seconds: float = 5.0) -> None:
        """Close every connection after what it was sent."""
        del grace_seconds
        self.stop_accepting()
        for connection in list(self._connections):
            connection.close(after_sending=True)

    def died(self) -> None:
        """The process is gone: its connections are reset."""
        for connection in list(self._connections):
            connection.closed = True
            self.carry(connection._client, None)  # noqa: SLF001 of one piece with its server
        self._connections.clear()


class ClientLink:
    """A client's end of a connection: sends request frames and gets answer frames."""

    def __init__(self, net: "SimNet", host: str) -> None:
        self.host = host
        self.port = net.free_port()
        self.is_open = False
        self._net = net
        self._server: SimFrameServer | None = None
        self._connection: SimConnection | None = None
        self._data = bytearray()
        self._answers: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None

    async def connect(self, host: str, port: int) -> None:
        """Connect within CONNECT_SECONDS_MAX, or raise `Disconnected`."""
        net = self._net
        self._server = server = net.clients_at.get((host, port))
        if server is None or not net.is_open(self.host, host):
            await asyncio.sleep(CONNECT_SECONDS_MAX / 4)
            raise Disconnected(f"nobody listens at {host}:{port}")
        self._waiter = asyncio.get_running_loop().create_future()
        net.link(self.host, host).stream(0, self._call, server.door.process.context)
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                await self._waiter
        except TimeoutError:
            self.close()
            raise Disconnected(f"{host}:{port} does not answer") from None
        finally:
            self._waiter = None
        if not self.is_open:
            raise Disconnected(f"{host}:{port} closed the connection")

    def _call(self) -> None:
        """At the server: take the call."""
        assert self._server is not None
        self._connection = self._server.accept(self)
        self._server.carry(self, b"" if self._connection is not None else None)

    def send(self, frame: bytes) -> None:
        """Send one request, with its length in front."""
        if not self.is_open:
            raise Disconnected("the connection is closed")
        server, connection = self._server, self._connection
        assert server is not None
        assert connection is not None
        self._net.link(self.host, server.door.host).stream(
            len(frame), lambda: connection.received(frame[4:]), server.door.process.context)

    def received(self, data: bytes | None) -> None:
        """From the server: bytes, or None when it closed."""
        if data is None:
            self.is_open = False
        elif self._waiter is not None and not self.is_open:
            self.is_open = True
        elif not self.is_open:
            return  # closed here
        else:
            self._data += data
            while len(self._data) >= 4:
                end = 4 + int.from_bytes(self._data[:4], "big")
                if len(self._data) < end:
                    break
                self._answers.append(bytes(self._data[4:end]))
                del self._data[:end]
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def answer(self) -> bytes:
        """The next answer, without its length."""
        while not self._answers:
            if not self.is_open:
                raise Disconnected("closed before the answer came")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._answers.popleft()

    def close(self) -> None:
        """Leave; the server hears of it."""
        self.is_open = False
        connection, server = self._connection, self._server
        if connection is not None and server is not None and not connection.closed:
            self._net.link(self.host, server.door.host).stream(
                0, connection.close, server.door.process.context)

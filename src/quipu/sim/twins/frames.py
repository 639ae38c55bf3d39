"""Connections of clients in a simulated network: simulates `runtime.net.FrameServer`.

    SimFrameServer   the server of a node
    SimConnection    the node's end: receives request frames, sends responses as bytes ...
    SimTransport     ... through this
    ClientLink       the client's end: sends real request frames, receives response frames

A frame passed to a handler is overwritten as soon as the handler returns, as with a real connection
(runtime.N1 of runtime/net/connection.py): code that keeps it reads wrong bytes.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from quipu.model.errors import ErrorKind, QuipuError
from quipu.runtime.net.connection import Buffer
from quipu.runtime.net.frame_handler import FrameHandler
from quipu.runtime.net.limits import BY_NODE, NetLimits, NetStats
from quipu.runtime.net.network import Accept
from quipu.runtime.net.server import CannotListen
from quipu.runtime.net.transport import PLAINTEXT
from quipu.sim.loop import Life

if TYPE_CHECKING:
    from quipu.sim.twins.net import Door, SimNet

POISON: Final = 0xA5
CONNECT_SECONDS_MAX: Final = 2.0


class SimDisconnected(QuipuError):
    """The connection is closed; requests without a response may have been carried out."""

    kind = ErrorKind.RETRY


def lend(data: bytes, take: Callable[[memoryview], None]) -> None:
    """Call `take` with a writable copy of `data`, and overwrite the copy afterwards."""
    lent = bytearray(data)
    try:
        take(memoryview(lent))
    finally:
        lent[:] = bytes([POISON]) * len(lent)


class SimTransport:
    """Sends a connection's bytes over the network: simulates `runtime.net.transport`."""

    security_protocol: Final = PLAINTEXT
    peer_name: Final = None

    def __init__(self, server: "SimFrameServer", client: "ClientLink") -> None:
        self._server = server
        self._client = client

    def send(self, data: bytes) -> None:
        """Send all of `data`: the simulated network buffers it."""
        self._server.carry(self._client, data)

    def close(self) -> None:
        self._server.carry(self._client, None)


class SimConnection:
    """The node's end of a client's connection."""

    def __init__(self, server: "SimFrameServer", client: "ClientLink", listener: str) -> None:
        self.peer_host, self.peer_port = client.host, client.port
        self.listener = listener
        self.closed = False
        self._server = server
        self._transport = SimTransport(server, client)
        self._handler: FrameHandler
        self._frames: deque[bytes] = deque()  # that wait for the end of a pause
        self._out: list[Buffer] = []
        self._paused = False
        self._flushing = False

    @property
    def peer_name(self) -> str | None:
        return self._transport.peer_name

    @property
    def backlog(self) -> int:
        return len(self._out)

    def start(self, handler: FrameHandler) -> None:
        self._handler = handler

    def send(self, buffers: list[Buffer]) -> None:
        """Send a response; the buffers are read at the end of this turn of the loop."""
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
            self._transport.send(data)
            if self._paused:
                self._handler.drained()

    def received(self, frame: bytes) -> None:
        """Handle one request frame."""
        if not self.closed:
            self._frames.append(frame)
            self._hand_over()

    def _hand_over(self) -> None:
        while self._frames and not self._paused and not self.closed:
            lend(self._frames.popleft(), self._handler.frame_received)

    def pause(self, *, read_rest: bool = False) -> None:
        del read_rest  # requests that came before the client closed are dropped
        self._paused = True

    def keep(self, frame: memoryview) -> memoryview:
        return memoryview(bytearray(frame))

    def resume(self) -> None:
        if self._paused and not self.closed:
            self._paused = False
            self._server.soon(self._hand_over)

    def reset(self) -> None:
        """Close after the process has ended: only the client notices."""
        self.closed = True
        self._transport.close()

    def close(self, *, after_sending: bool = False, why: str = BY_NODE) -> None:
        """Close, at once or after sending."""
        if self.closed:
            return
        self._server.stats.closed[why] += 1
        if after_sending and self._out:
            self._flush()
        self.closed = True
        self._server.forget(self)
        self._transport.close()
        self._handler.connection_lost()


class SimFrameServer:
    """The server of a node for clients."""

    def __init__(self, door: "Door", accept: Accept, limits: NetLimits) -> None:
        self.stats = NetStats()
        self.door = door
        self._accept = accept
        self._limits = limits
        self._listeners: dict[tuple[str, int], str] = {}  # names by address
        self._serves = False
        self._connections: dict[SimConnection, None] = {}  # in the order in which they came

    def bind(self, host: str, port: int, *, listener: str = "") -> tuple[str, int]:
        assert host == self.door.host, (host, self.door.host)
        net = self.door.net
        port = port or net.free_port()
        taken = net.clients_at.get((host, port))
        if taken is not None and taken.door.process.life is not Life.DEAD:
            raise CannotListen(f"{host}:{port} is taken")
        self._listeners[host, port] = listener
        net.clients_at[host, port] = self
        return host, port

    def serve(self) -> None:
        self._serves = True

    def accept(self, client: "ClientLink", address: tuple[str, int]) -> SimConnection | None:
        """Accept a client's connection; None if the server does not serve or has too many."""
        if not self._serves or len(self._connections) >= self._limits.connections_max:
            return None
        connection = SimConnection(self, client, self._listeners[address])
        self._connections[connection] = None
        connection.start(self._accept(connection))
        return connection

    def soon(self, callback: Callable[[], None]) -> None:
        self.door.net.loop.call_soon(callback)

    def carry(self, client: "ClientLink", data: bytes | None) -> None:
        """Send bytes to a client; None means that the connection is closed."""
        link = self.door.net.link(self.door.host, client.host)
        link.stream(len(data or b""), lambda: client.received(data), None)

    def forget(self, connection: SimConnection) -> None:
        self._connections.pop(connection, None)

    def stop_accepting(self) -> None:
        self._serves = False
        while self._listeners:
            self.door.net.clients_at.pop(self._listeners.popitem()[0], None)

    async def close(self, *, grace_seconds: float = 5.0) -> None:
        """Close every connection after sending its buffers."""
        del grace_seconds
        self.stop_accepting()
        for connection in list(self._connections):
            connection.close(after_sending=True)

    def died(self) -> None:
        """Reset all connections: the process has ended."""
        for connection in list(self._connections):
            connection.reset()
        self._connections.clear()


class ClientLink:
    """A client's end of a connection: sends request frames and receives response frames."""

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
        """Connect within CONNECT_SECONDS_MAX, or raise `SimDisconnected`."""
        net = self._net
        self._server = server = net.clients_at.get((host, port))
        if server is None or not net.is_open(self.host, host):
            await asyncio.sleep(CONNECT_SECONDS_MAX / 4)
            raise SimDisconnected(f"no server listens at {host}:{port}")
        self._waiter = asyncio.get_running_loop().create_future()
        net.link(self.host, host).stream(
            0, lambda: self._call(server, (host, port)), server.door.process.context)
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                await self._waiter
        except TimeoutError:
            self.close()
            raise SimDisconnected(f"{host}:{port} does not respond") from None
        finally:
            self._waiter = None
        if not self.is_open:
            raise SimDisconnected(f"{host}:{port} closed the connection")

    def _call(self, server: SimFrameServer, address: tuple[str, int]) -> None:
        """Accept the connection, at the server."""
        self._connection = server.accept(self, address)
        server.carry(self, b"" if self._connection is not None else None)

    def send(self, frame: bytes) -> None:
        """Send one request, with its length in front."""
        if not self.is_open:
            raise SimDisconnected("the connection is closed")
        server, connection = self._server, self._connection
        assert server is not None
        assert connection is not None
        self._net.link(self.host, server.door.host).stream(
            len(frame), lambda: connection.received(frame[4:]), server.door.process.context)

    def received(self, data: bytes | None) -> None:
        """Handle bytes from the server, or None when it closed."""
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
        """The next response, without its length."""
        while not self._answers:
            if not self.is_open:
                raise SimDisconnected("closed before the response came")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._answers.popleft()

    def close(self) -> None:
        """Close the connection; the server is notified."""
        self.is_open = False
        connection, server = self._connection, self._server
        if connection is not None and server is not None and not connection.closed:
            self._net.link(self.host, server.door.host).stream(
                0, connection.close, server.door.process.context)

"""A server of framed connections: listens, accepts, connects, and holds what connections share.

They share one receive buffer, and one limit of memory for frames that have arrived only in part
(invariant runtime.N3 of connection.py).
"""

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from quipu.model.errors import ErrorKind, QuipuError
from quipu.runtime.disks.descriptors import connections_end
from quipu.runtime.log_limits import LimitedLog
from quipu.runtime.net.admission import Admission
from quipu.runtime.net.connection import RECEIVE_SIZE, SWEEP_SECONDS, Connection
from quipu.runtime.net.frame_handler import FrameHandler
from quipu.runtime.net.hangups import HangUps
from quipu.runtime.net.limits import OUT_OF_DESCRIPTORS, NetLimits, NetStats
from quipu.runtime.net.transport import PlainTransport, Wrap

_log = logging.getLogger(__name__)

ACCEPT_MAX: Final = 64  # connections accepted in one turn of the loop


class CannotListen(QuipuError):
    """This node cannot listen on an address."""


class CannotDial(QuipuError):
    """No connection to an address could be made."""

    kind = ErrorKind.RETRY


@dataclass(slots=True, eq=False)
class FrameServer:
    """Listens, accepts, connects, and holds what all connections share."""

    accept: Callable[[Connection], FrameHandler]  # makes the handler of a new connection
    limits: NetLimits = field(default_factory=NetLimits)
    stats: NetStats = field(default_factory=NetStats)
    loop: asyncio.AbstractEventLoop = field(init=False)
    buffer: bytearray = field(init=False)
    view: memoryview = field(init=False)
    limited: LimitedLog = field(init=False)  # for events that peers can cause
    hang_ups: HangUps = field(init=False)
    _admission: Admission = field(init=False)
    _to_flush: list[Connection] = field(init=False, default_factory=list)
    _connections: set[Connection] = field(init=False, default_factory=set)
    _admitted: set[Connection] = field(init=False, default_factory=set)  # accepted, not dialled
    _listening: dict[socket.socket, tuple[str, Wrap]] = field(init=False, default_factory=dict)
    _sweeper: asyncio.TimerHandle | None = field(init=False, default=None)
    _descriptors_end: int = field(init=False, default_factory=connections_end)

    def __post_init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.buffer = bytearray(RECEIVE_SIZE)
        self.view = memoryview(self.buffer)
        self.limited = LimitedLog(_log, self.loop.time)
        self.hang_ups = HangUps(self.loop)
        self._admission = Admission(self.limits)

    def bind(
        self, host: str, port: int, *, listener: str = "", wrap: Wrap = PlainTransport,
        option: str = "--listen",
    ) -> tuple[str, int]:
        """Listen on an address, on a free port if `port` is 0; connections wait until `serve`.

        May be called for several addresses; connections have the name of their `listener`, and the
        transport that `wrap` makes of their socket.
        """
        try:
            sock = _bound_socket(host, port)
        except OSError as error:
            raise CannotListen(
                f"cannot listen on {host}:{port}: {error.strerror or error}; "
                f"stop the process that uses the address, or choose another with {option}"
            ) from error
        sock.setblocking(False)  # noqa: FBT003 the standard library's own signature
        self._listening[sock] = listener, wrap
        name = sock.getsockname()
        return name[0], name[1]

    def serve(self) -> None:
        """Start to accept."""
        assert self._listening, "bind first"
        for listening in self._listening:
            self.loop.add_reader(listening.fileno(), self._on_acceptable, listening)

    async def dial(
        self, host: str, port: int, *, seconds_max: float, wrap: Wrap = PlainTransport
    ) -> Connection:
        """Connect to a peer; the caller calls `start` of the connection with a handler."""
        try:
            async with asyncio.timeout(seconds_max):
                sock, peer = await self._connect(host, port)
        except TimeoutError:
            raise CannotDial(f"no connection within {seconds_max:g} s") from None
        except OSError as error:
            raise CannotDial(_reason(error)) from None
        return self._adopt(sock, peer, "", wrap)

    async def _connect(self, host: str, port: int) -> tuple[socket.socket, tuple[str, int]]:
        """Try the addresses that the name resolves to, one after the other."""
        problem: OSError | None = None
        for family, kind, protocol, _, address in await _addresses(self.loop, host, port):
            sock = socket.socket(family, kind, protocol)
            sock.setblocking(False)  # noqa: FBT003 the standard library's own signature
            try:
                await self.loop.sock_connect(sock, address)
            except OSError as error:
                sock.close()
                problem = error
            except BaseException:
                sock.close()
                raise
            else:
                return sock, (str(address[0]), int(address[1]))
        raise problem or OSError(f"{host} has no address")

    def _on_acceptable(self, listening: socket.socket) -> None:
        for _ in range(ACCEPT_MAX):
            try:
                sock, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._stop_accepting_for_a_while(listening, error)
                return
            self._accepted(sock, peer, *self._listening[listening])

    def _accepted(
        self, sock: socket.socket, peer: tuple[str, int], listener: str, wrap: Wrap
    ) -> None:
        refused, delay_seconds = OUT_OF_DESCRIPTORS, 0.0
        if sock.fileno() < self._descriptors_end:
            refused, delay_seconds = self._admission.admit(
                peer[0], len(self._connections), self.loop.time())
        if refused:
            self.stats.refused[refused] += 1
            sock.close()
            self.limited.warning(
                "connection refused", "refused connection of %s: limited by %s; %d are open",
                peer[0], refused, len(self._connections))
            return
        sock.setblocking(False)  # noqa: FBT003 the standard library's own signature
        self.stats.accepted += 1
        connection = self._adopt(sock, (peer[0], peer[1]), listener, wrap)
        self._admitted.add(connection)
        if delay_seconds:
            self.stats.delayed += 1
            connection.hold()
            self.loop.call_later(delay_seconds, self._start, connection)
        else:
            self._start(connection)

    def _start(self, connection: Connection) -> None:
        if not connection.closed:
            connection.start(self.accept(connection))

    def _adopt(
        self, sock: socket.socket, peer: tuple[str, int], listener: str, wrap: Wrap
    ) -> Connection:
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(self, wrap(sock), peer, listener)
        self._connections.add(connection)
        self.stats.connections = len(self._connections)
        if self._sweeper is None:
            self._sweeper = self.loop.call_later(SWEEP_SECONDS, self._sweep)
        return connection

    def _stop_accepting_for_a_while(self, listening: socket.socket, error: OSError) -> None:
        _log.error("cannot accept connections for a second: %s", error.strerror)
        self.loop.remove_reader(listening.fileno())
        self.loop.call_later(1.0, self._accept_again, listening)

    def _accept_again(self, listening: socket.socket) -> None:
        if listening in self._listening:
            self.loop.add_reader(listening.fileno(), self._on_acceptable, listening)

    def flush_soon(self, connection: Connection) -> None:
        """Let `connection` send its buffers at the end of this turn of the loop (runtime.N4)."""
        if not self._to_flush:
            self.loop.call_soon(self._flush)
        self._to_flush.append(connection)

    def _flush(self) -> None:
        connections, self._to_flush = self._to_flush, []
        for connection in connections:
            connection.flush()

    # -- memory for partial frames (runtime.N3)

    def take(self, size: int) -> bool:
        """Reserve `size` bytes, closing the slowest connections if needed; False if impossible."""
        while self.stats.partial_size + size > self.limits.partial_size_max:
            slowest = self._slowest()
            if slowest is None:
                return False
            slowest.evict()
        self.stats.partial_size += size
        return True

    def give_back(self, size: int) -> None:
        """Return what `take` reserved."""
        self.stats.partial_size -= size
        assert self.stats.partial_size >= 0

    def crowded(self) -> bool:
        """Whether memory is short, so that unused buffers should be freed."""
        return self.stats.partial_size > self.limits.partial_size_max // 2

    def _slowest(self) -> Connection | None:
        now = self.loop.time()
        slowest: Connection | None = None
        rate_min = float("inf")
        for connection in self._connections:
            rate = connection.partial_rate(now)
            if rate is not None and rate < rate_min:
                slowest, rate_min = connection, rate
        return slowest

    # -- the end

    def forget(self, connection: Connection) -> None:
        """Remove a connection that has closed."""
        self._connections.discard(connection)
        if connection in self._admitted:
            self._admitted.remove(connection)
            self._admission.leave(connection.peer_host, self.loop.time())
        self.stats.connections = len(self._connections)

    def _sweep(self) -> None:
        now = self.loop.time()
        for connection in list(self._connections):
            connection.sweep(now)
        self.limited.report()
        self._sweeper = self.loop.call_later(SWEEP_SECONDS, self._sweep)

    def stop_accepting(self) -> None:
        """Close the listening sockets; open connections stay."""
        while self._listening:
            listening, _ = self._listening.popitem()
            self.loop.remove_reader(listening.fileno())
            listening.close()

    async def close(self, *, grace_seconds: float = 5.0) -> None:
        """Close every connection once its buffers are sent, or after `grace_seconds`."""
        self.stop_accepting()
        for connection in list(self._connections):
            connection.close(after_sending=True)
        deadline = self.loop.time() + grace_seconds
        while self._connections and self.loop.time() < deadline:  # noqa: ASYNC110 bounded, rare
            await asyncio.sleep(0.01)
        for connection in list(self._connections):
            connection.close()
        self.hang_ups.close()
        if self._sweeper is not None:
            self._sweeper.cancel()


async def _addresses(
    loop: asyncio.AbstractEventLoop, host: str, port: int
) -> list[tuple[int, int, int, str, tuple[Any, ...]]]:
    """The addresses of `host`; an IP address needs no lookup, and so no thread."""
    try:
        return list(socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))
    except OSError:
        return list(await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))


def _reason(error: OSError) -> str:
    """The operating system's message: the event loop's only says that connecting failed."""
    if isinstance(error, socket.gaierror) or not error.errno:
        return error.strerror or str(error)
    return os.strerror(error.errno)


def _bound_socket(host: str, port: int) -> socket.socket:
    infos = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = infos[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(4096)
    except OSError:
        listener.close()
        raise
    return listener

"""A server of framed connections: listens, accepts, dials, and keeps what all connections share.

What they share is one receive buffer, and the budget of memory for frames that have arrived only
in part (invariant N3 of connection.py).
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

from quipu.model.errors import Kind, QuipuError
from quipu.runtime.admission import Admission
from quipu.runtime.connection import RECEIVE_SIZE, SWEEP_SECONDS, Connection
from quipu.runtime.descriptors import connections_end
from quipu.runtime.frame_handler import FrameHandler
from quipu.runtime.hangups import HangUps
from quipu.runtime.log_limits import LimitedLog
from quipu.runtime.net_limits import OUT_OF_DESCRIPTORS, NetLimits, NetStats

_log = logging.getLogger(__name__)

ACCEPT_MAX: Final = 64  # connections accepted in one turn of the loop


class CannotListen(QuipuError):
    """The address cannot be listened on."""


class CannotDial(QuipuError):
    """Nobody answers at an address."""

    kind = Kind.RETRY


@dataclass(slots=True, eq=False)
class FrameServer:
    """Listens, accepts, dials, and keeps what all connections share."""

    accept: Callable[[Connection], FrameHandler]  # makes the handler of a new connection
    limits: NetLimits = field(default_factory=NetLimits)
    stats: NetStats = field(default_factory=NetStats)
    loop: asyncio.AbstractEventLoop = field(init=False)
    buffer: bytearray = field(init=False)
    view: memoryview = field(init=False)
    limited: LimitedLog = field(init=False)  # for what peers bring about
    hang_ups: HangUps = field(init=False)
    _admission: Admission = field(init=False)
    _to_flush: list[Connection] = field(init=False, default_factory=list)
    _connections: set[Connection] = field(init=False, default_factory=set)
    _admitted: set[Connection] = field(init=False, default_factory=set)  # accepted, not dialled
    _listener: socket.socket | None = field(init=False, default=None)
    _sweeper: asyncio.TimerHandle | None = field(init=False, default=None)
    _descriptors_end: int = field(init=False, default_factory=connections_end)

    def __post_init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.buffer = bytearray(RECEIVE_SIZE)
        self.view = memoryview(self.buffer)
        self.limited = LimitedLog(_log, self.loop.time)
        self.hang_ups = HangUps(self.loop)
        self._admission = Admission(self.limits)

    def bind(self, host: str, port: int, *, option: str = "--listen") -> tuple[str, int]:
        """Take the address, and a free port if `port` is 0; peers wait until `serve`."""
        try:
            self._listener = _bound_socket(host, port)
        except OSError as error:
            raise CannotListen(
                f"cannot listen on {host}:{port}: {error.strerror or error}; "
                f"stop what uses the address, or choose another with {option}"
            ) from error
        self._listener.setblocking(False)  # noqa: FBT003 the standard library's own signature
        name = self._listener.getsockname()
        return name[0], name[1]

    def serve(self) -> None:
        """Start to accept."""
        assert self._listener is not None, "bind first"
        self.loop.add_reader(self._listener.fileno(), self._on_acceptable)

    async def dial(self, host: str, port: int, *, seconds_max: float) -> Connection:
        """Connect to a peer; the caller gives the connection its handler with `start`."""
        try:
            async with asyncio.timeout(seconds_max):
                sock, peer = await self._connect(host, port)
        except TimeoutError:
            raise CannotDial(f"no answer within {seconds_max:g} s") from None
        except OSError as error:
            raise CannotDial(_reason(error)) from None
        return self._adopt(sock, peer)

    async def _connect(self, host: str, port: int) -> tuple[socket.socket, tuple[str, int]]:
        """Try what the name stands for, one address after the other."""
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

    def _on_acceptable(self) -> None:
        assert self._listener is not None
        for _ in range(ACCEPT_MAX):
            try:
                sock, peer = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._stop_accepting_for_a_while(error)
                return
            self._accepted(sock, peer)

    def _accepted(self, sock: socket.socket, peer: tuple[str, int]) -> None:
        refused, delay_seconds = OUT_OF_DESCRIPTORS, 0.0
        if sock.fileno() < self._descriptors_end:
            refused, delay_seconds = self._admission.admit(
                peer[0], len(self._connections), self.loop.time())
        if refused:
            self.stats.refused[refused] += 1
            sock.close()
            self.limited.warning(
                "connection refused", "refused connection of %s: as many as %s allows; %d are open",
                peer[0], refused, len(self._connections))
            return
        sock.setblocking(False)  # noqa: FBT003 the standard library's own signature
        self.stats.accepted += 1
        connection = self._adopt(sock, (peer[0], peer[1]))
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

    def _adopt(self, sock: socket.socket, peer: tuple[str, int]) -> Connection:
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(self, sock, peer)
        self._connections.add(connection)
        self.stats.connections = len(self._connections)
        if self._sweeper is None:
            self._sweeper = self.loop.call_later(SWEEP_SECONDS, self._sweep)
        return connection

    def _stop_accepting_for_a_while(self, error: OSError) -> None:
        assert self._listener is not None
        _log.error("cannot accept connections for a second: %s", error.strerror)
        self.loop.remove_reader(self._listener.fileno())
        self.loop.call_later(1.0, self._accept_again)

    def _accept_again(self) -> None:
        if self._listener is not None:
            self.loop.add_reader(self._listener.fileno(), self._on_acceptable)

    def flush_soon(self, connection: Connection) -> None:
        """Have `connection` send what it was given, at the end of this turn of the loop (N4)."""
        if not self._to_flush:
            self.loop.call_soon(self._flush)
        self._to_flush.append(connection)

    def _flush(self) -> None:
        connections, self._to_flush = self._to_flush, []
        for connection in connections:
            connection.flush()

    # -- memory for partial frames (N3)

    def take(self, size: int) -> bool:
        """Reserve `size` bytes, closing the slowest frames if need be; False without room."""
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
        """Should unused buffers be given back rather than kept?"""
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
        """A connection has closed."""
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
        """Close the listening socket; connections live on."""
        if self._listener is not None:
            self.loop.remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = None

    async def close(self, *, grace_seconds: float = 5.0) -> None:
        """Close every connection once what it was sent has left, or the grace is over."""
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
    """What `host` stands for; a number is not looked up, and so takes no thread."""
    try:
        return list(socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))
    except OSError:
        return list(await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))


def _reason(error: OSError) -> str:
    """The system's own words: those of a loop only say that it failed."""
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

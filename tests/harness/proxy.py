"""A network between nodes that can be cut: a proxy on loopback in front of every node.

Nodes get the proxy's address instead of each other's.  The first frame on a connection identifies
the node that dials, so each direction between two nodes can be cut: bytes then wait in the kernel,
as they would while packets are lost, and are delivered after the cut.  Connections made during a
cut are accepted and carry nothing.
"""

import asyncio
import contextlib
import struct
from collections.abc import Iterable

from tests.harness.server_thread import ServerThread

HELLO_SIZE = 21  # length, step, magic, version, node id
NODE_ID_AT = 17


class PeerProxy(ServerThread):
    """One listening port per node; runs in a thread with a loop of its own."""

    def __init__(self, targets: dict[int, int]) -> None:
        super().__init__("proxy")
        self.ports: dict[int, int] = {}  # by node id: where others are to connect to
        self._targets = targets  # by node id: where it really listens
        self._cut: set[tuple[int, int]] = set()  # (from, to)
        self._changed = asyncio.Event()

    # -- for the test

    def cut(self, source: int, target: int) -> None:
        """Nothing that `source` sends reaches `target`; the other direction is not touched."""
        self._change({*self._cut, (source, target)})

    def part(self, some: Iterable[int]) -> None:
        """Cut `some` off from all others, both ways."""
        some = set(some)
        self._change(self._cut | {
            pair for inside in some for outside in set(self._targets) - some
            for pair in ((inside, outside), (outside, inside))})

    def heal(self) -> None:
        """Every way is open."""
        self._change(set())

    # -- in the thread

    def _change(self, cut: set[tuple[int, int]]) -> None:
        def change() -> None:
            self._cut = cut
            self._changed.set()
            self._changed = asyncio.Event()

        self.loop.call_soon_threadsafe(change)

    async def listen(self) -> list[asyncio.Server]:
        servers = []
        for target in self._targets:
            server = await asyncio.start_server(
                lambda reader, writer, target=target: self._accepted(target, reader, writer),
                "127.0.0.1", 0)
            servers.append(server)
            self.ports[target] = server.sockets[0].getsockname()[1]
        return servers

    async def _accepted(
        self, target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        there: asyncio.StreamWriter | None = None
        pipes: list[asyncio.Task[None]] = []
        try:
            hello = await reader.readexactly(HELLO_SIZE)
            (source,) = struct.unpack_from(">i", hello, NODE_ID_AT)
            await self._open(source, target)
            back, there = await asyncio.open_connection("127.0.0.1", self._targets[target])
            there.write(hello)
            pipes = [asyncio.ensure_future(self._pipe(source, target, reader, there)),
                     asyncio.ensure_future(self._pipe(target, source, back, writer))]
            await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # one of the two is gone, or the test is over
        finally:
            for pipe in pipes:
                pipe.cancel()
            for each in (writer, there):
                if each is not None:
                    each.transport.abort()

    async def _pipe(
        self, source: int, target: int, reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            while data := await reader.read(1 << 16):
                await self._open(source, target)
                writer.write(data)
                await writer.drain()

    async def _open(self, source: int, target: int) -> None:
        """Wait until the way is open."""
        while (source, target) in self._cut:
            await self._changed.wait()

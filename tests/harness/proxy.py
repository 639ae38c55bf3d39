"""A network between nodes that can be cut: a proxy on loopback in front of every node.

Nodes are told the proxy's address instead of each other's.  The first frame on a connection says
who dials, so every pair has a way of its own, and each direction of it can be cut: bytes then wait
in the kernel, as they would while packets are lost, and go on when the way is mended.  Connections
made during a cut are accepted and carry nothing.
"""

import asyncio
import contextlib
import struct
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Self

HELLO_SIZE = 21  # length, step, magic, version, node id
NODE_ID_AT = 17


class PeerProxy:
    """One listening port per node; runs in a thread with a loop of its own."""

    def __init__(self, targets: dict[int, int]) -> None:
        self.ports: dict[int, int] = {}  # by node id: where others are to connect to
        self._targets = targets  # by node id: where it really listens
        self._cut: set[tuple[int, int]] = set()  # (from, to)
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._changed = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

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

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    # -- in the thread

    def _change(self, cut: set[tuple[int, int]]) -> None:
        def change() -> None:
            self._cut = cut
            self._changed.set()
            self._changed = asyncio.Event()

        self._loop.call_soon_threadsafe(change)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._listen())
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.1)  # for transports to close

    async def _listen(self) -> None:
        for target in self._targets:
            server = await asyncio.start_server(
                lambda reader, writer, target=target: self._accepted(target, reader, writer),
                "127.0.0.1", 0)
            self._servers.append(server)
            self.ports[target] = server.sockets[0].getsockname()[1]

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

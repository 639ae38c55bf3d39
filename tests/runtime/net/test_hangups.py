"""Peers that go while their frames are held back."""

import asyncio
import socket
import struct
from pathlib import Path

from tests.runtime.net.frame_world import Echo, World, frame, run, until

LINGER_NONE = struct.pack("ii", 1, 0)  # closing resets the connection


class Holding(Echo):
    """Holds everything back after the first frame, as a request that waits does."""

    read_rest = False

    def frame_received(self, data: memoryview) -> None:
        self.frames.append(bytes(data))
        if len(self.frames) == 1:
            self.connection.pause(read_rest=self.read_rest)


class HoldingBriefly(Holding):
    read_rest = True


async def waiting(world: World, kind: type[Holding], rest: bytes) -> tuple[socket.socket, Holding]:
    """A peer whose first frame waits, and which sent `rest` after it."""
    world.make = kind
    count = len(world.handlers)
    peer = world.socket()
    peer.sendall(frame(b"first"))
    await until(lambda: len(world.handlers) > count and bool(world.handlers[-1].frames))
    if rest:
        peer.sendall(rest)
        await asyncio.sleep(0.05)  # the server sees that there is more
    handler = world.handlers[-1]
    assert isinstance(handler, Holding)
    return peer, handler


async def gone(handler: Holding) -> None:
    await asyncio.wait_for(until(lambda: handler.lost), 5)


def test_a_peer_that_closes_while_it_waits_is_gone_at_once() -> None:
    """K8: runtime.N5; with and without bytes behind which the end of the stream lies."""

    async def story(world: World) -> None:
        for rest in (b"", b"x", frame(b"second") * 10, frame(b"y" * 50_000)):
            peer, handler = await waiting(world, Holding, b"")
            peer.setblocking(False)
            if rest:
                peer.send(rest)
            peer.close()
            await gone(handler)
            assert handler.frames == [b"first"]
        assert world.server.stats.connections == 0
        assert world.server.stats.closed == {"hung_up": 4}

    run(story)


def test_a_peer_that_resets_while_it_waits_is_gone_at_once() -> None:
    """K8: also where what it sent before would have been read."""

    async def story(world: World) -> None:
        for kind in (Holding, HoldingBriefly):
            peer, handler = await waiting(world, kind, frame(b"second"))
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NONE)
            peer.close()
            await gone(handler)

    run(story)


def test_what_was_sent_before_a_short_wait_is_read_first() -> None:
    """K8: a producer with acks=0 may send and disconnect while its Metadata request is handled."""

    async def story(world: World) -> None:
        peer, handler = await waiting(world, HoldingBriefly, frame(b"second"))
        peer.close()
        await asyncio.sleep(0.1)
        assert not handler.lost
        handler.connection.resume()
        await until(lambda: handler.lost)
        assert handler.frames == [b"first", b"second"]

    run(story)


def test_a_peer_with_nothing_left_is_gone_at_once_even_in_a_short_wait() -> None:
    async def story(world: World) -> None:
        peer, handler = await waiting(world, HoldingBriefly, b"")
        peer.close()
        await gone(handler)

    run(story)


def test_a_pause_that_ends_is_followed_by_reading() -> None:
    """K8: watching for a hang-up gets in nobody's way; the same socket is read again, twice."""

    async def story(world: World) -> None:
        peer, handler = await waiting(world, Holding, frame(b"second"))
        handler.connection.resume()
        await until(lambda: handler.frames == [b"first", b"second"])
        handler.connection.pause()
        peer.sendall(frame(b"third"))
        await asyncio.sleep(0.05)
        handler.connection.resume()
        await until(lambda: len(handler.frames) == 3)
        peer.close()
        await until(lambda: handler.lost)
        assert world.server.stats.closed == {"peer_closed": 1}

    run(story)


def test_hundreds_that_wait_and_go_leave_nothing() -> None:
    """K8: descriptors and connections are free again."""

    async def story(world: World) -> None:
        before = len(list(Path("/proc/self/fd").iterdir()))
        world.make = Holding
        peers = [world.socket() for _ in range(200)]
        for peer in peers:
            peer.sendall(frame(b"first") + frame(b"second"))
        await until(lambda: sum(len(each.frames) for each in world.handlers) == 200)
        for peer in peers:
            peer.close()
        await asyncio.wait_for(until(lambda: world.server.stats.connections == 0), 5)
        assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1  # the watch itself

    run(story)

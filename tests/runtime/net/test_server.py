"""Framed connections: whole frames in, bytes out in order, memory within its budget."""

import asyncio
import gc
import struct
import weakref
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.runtime.net import connection as connections
from quipu.runtime.net.connection import RECEIVE_SIZE
from quipu.runtime.net.limits import NetLimits
from quipu.runtime.net.server import CannotListen, FrameServer
from tests.runtime.net.frame_world import Echo, World, frame, run, until


def pieces(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    position = 0
    for size in [*sizes, len(data)]:
        yield data[position : position + size]
        position += size


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 3, 100, 5000, 300_000]), min_size=1, max_size=6),
    cuts=st.lists(st.integers(1, 100_000), max_size=8),
)
def test_frames_arrive_whole_however_they_are_cut(sizes: list[int], cuts: list[int]) -> None:
    """K8: the network may cut a stream anywhere; handlers see whole frames, in order."""
    frames = [bytes([index]) * size for index, size in enumerate(sizes)]

    async def story(world: World) -> None:
        reader, writer = await world.connect()
        for piece in pieces(b"".join(map(frame, frames)), cuts):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        answer = await reader.readexactly(sum(4 + size for size in sizes))
        assert answer == b"".join(map(frame, frames))
        assert world.handlers[0].frames == frames
        assert world.server.stats.partial_size <= 400_000
        writer.close()
        await until(lambda: world.handlers[0].lost)
        assert world.server.stats.partial_size == 0

    run(story)


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 1001], ids=str)
def test_a_length_that_cannot_be_closes_the_connection_and_no_other(size: int) -> None:
    """K8: a hostile length costs its sender the connection, and nobody else anything."""

    async def story(world: World) -> None:
        reader, writer = await world.connect()
        other_reader, other_writer = await world.connect()
        writer.write(struct.pack(">i", size))
        assert await reader.read() == b""
        other_writer.write(frame(b"still here"))
        assert await other_reader.readexactly(14) == frame(b"still here")
        assert world.server.stats.malformed == 1

    run(story, NetLimits(frame_size_max=1000))


def test_a_claimed_length_takes_no_memory() -> None:
    """K8: runtime.N2; a hundred connections claim 100 MB each and send a few bytes: nothing is
    reserved.
    """

    async def story(world: World) -> None:
        for _ in range(100):
            _, writer = await world.connect()
            writer.write(struct.pack(">i", 100_000_000) + b"abc")
        await until(lambda: world.server.stats.partial_size > 0 and len(world.handlers) == 100)
        await asyncio.sleep(0.05)
        assert world.server.stats.partial_size <= 100 * 64 * 1024

    run(story)


def test_when_memory_is_used_up_the_slowest_frame_goes() -> None:
    """K8: runtime.N3; partial frames stay within their budget, and those that arrive quickly get
    through.
    """
    limits = NetLimits(frame_size_max=2_000_000, partial_size_max=1_000_000)

    async def story(world: World) -> None:
        idle = [await world.connect() for _ in range(15)]
        for _, writer in idle:
            writer.write(struct.pack(">i", 900_000) + b"x")
        await until(lambda: world.server.stats.partial_size > 900_000)
        await asyncio.sleep(1.1)
        reader, writer = await world.connect()
        writer.write(frame(b"y" * 500_000))
        assert len(await reader.readexactly(500_004)) == 500_004
        assert world.server.stats.evicted >= 7
        assert world.server.stats.partial_size <= 1_000_000

    run(story, limits)


def test_frames_held_back_by_a_pause_come_in_order_after_it() -> None:
    """K8: back pressure holds frames back and loses none."""

    async def story(world: World) -> None:
        reader, writer = await world.connect()
        writer.write(frame(b"first"))
        await reader.readexactly(9)
        handler = world.handlers[0]
        handler.connection.pause()
        rest = [str(index).encode() for index in range(5000)]
        writer.write(b"".join(map(frame, rest)))
        await asyncio.sleep(0.05)
        assert handler.frames == [b"first"]
        handler.connection.resume()
        await until(lambda: len(handler.frames) == 5001)
        assert handler.frames[1:] == rest

    run(story)


def test_pausing_inside_a_read_keeps_the_frames_behind() -> None:
    """K8: a handler that pauses while frames lie in the receive buffer gets them later."""

    async def story(world: World) -> None:
        reader, writer = await world.connect()
        writer.write(frame(b"hello"))
        await reader.readexactly(9)
        handler = world.handlers[0]
        received = handler.frame_received

        def pause_each(data: memoryview) -> None:
            received(data)
            handler.connection.pause()
            asyncio.get_running_loop().call_later(0.001, handler.connection.resume)

        handler.frame_received = pause_each  # type: ignore[method-assign]
        writer.write(b"".join(frame(bytes([index])) for index in range(50)))
        assert len(await reader.readexactly(50 * 5)) == 250
        assert handler.frames[1:] == [bytes([index]) for index in range(50)]

    run(story)


@pytest.mark.parametrize("size", [10, RECEIVE_SIZE + 100_000], ids=["small", "large"])
def test_what_is_kept_of_a_frame_stays_until_the_end_of_a_pause(size: int) -> None:
    """K8: runtime.N1; other connections use the receive buffer meanwhile."""

    async def story(world: World) -> None:
        kept: list[memoryview] = []

        class Keeping(Echo):
            def frame_received(self, data: memoryview) -> None:
                self.connection.pause()
                kept.append(self.connection.keep(data))

        world.make = Keeping
        _, writer = await world.connect()
        wanted = bytes(range(256)) * (size // 256 + 1)
        writer.write(frame(wanted[:size]) + frame(b"behind it"))
        await until(lambda: bool(kept))
        world.make = Echo
        reader, other = await world.connect()
        other.write(frame(b"!" * RECEIVE_SIZE * 2))
        assert len(await reader.readexactly(4 + RECEIVE_SIZE * 2)) == 4 + RECEIVE_SIZE * 2
        assert kept[0] == wanted[:size]
        assert len(kept) == 1
        world.handlers[0].connection.resume()
        await until(lambda: len(kept) == 2)
        assert kept[1] == b"behind it"

    run(story)


def test_a_closed_connection_lets_go_of_its_handler() -> None:
    """K8: runtime.N6; no collection of garbage is needed for what the handler held."""

    async def story(world: World) -> None:
        reader, writer = await world.connect()
        writer.write(frame(b"hello"))
        await reader.readexactly(9)
        handler = world.handlers.pop()
        freed = weakref.ref(handler)
        connection = handler.connection
        gc.disable()
        try:
            connection.close()
            del handler
            assert freed() is None
        finally:
            gc.enable()
        assert connection.closed

    run(story)


def test_a_peer_that_takes_nothing_blocks_only_itself() -> None:
    """K8: responses to a slow consumer wait in bounded buffers while others are served."""

    async def story(world: World) -> None:
        slow = world.socket()
        slow.sendall(frame(b"hello"))
        await until(lambda: len(world.handlers) == 1 and len(world.handlers[0].frames) == 1)
        big = memoryview(bytes(50_000_000))
        world.handlers[0].connection.send([big])
        reader, writer = await world.connect()
        for _ in range(10):
            writer.write(frame(b"quick"))
            assert await reader.readexactly(9) == frame(b"quick")
        assert world.handlers[0].connection.backlog == 1
        received = 0
        slow.setblocking(False)
        while received < 9 + 50_000_000:
            try:
                received += len(slow.recv(1 << 20))
            except BlockingIOError:
                await asyncio.sleep(0.001)
        await until(lambda: world.handlers[0].drained_count == 1)
        slow.close()

    run(story)


def test_connections_over_the_limit_are_refused() -> None:
    """K8: max.connections bounds what connections cost."""

    async def story(world: World) -> None:
        kept = [await world.connect() for _ in range(3)]
        await until(lambda: len(world.handlers) == 3)
        reader, _ = await world.connect()
        assert await reader.read() == b""
        assert world.server.stats.refused == {"max.connections": 1}
        kept[0][1].write(frame(b"x"))
        assert await kept[0][0].readexactly(5) == frame(b"x")

    run(story, NetLimits(connections_max=3))


def test_an_idle_connection_is_closed() -> None:
    """K8: connections.max.idle.ms."""

    async def story(world: World) -> None:
        reader, _ = await world.connect()
        assert await asyncio.wait_for(reader.read(), timeout=5) == b""
        assert world.server.stats.timed_out == 1

    run(story, NetLimits(idle_seconds_max=0.2))


def test_a_frame_that_this_side_does_not_read_is_not_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """K8: a peer that sends requests before it has its responses is not closed as too slow."""
    monkeypatch.setattr(connections, "FRAME_GRACE_SECONDS", 0.0)
    monkeypatch.setattr(connections, "FRAME_RATE_MIN", 1_000_000_000)

    async def story(world: World) -> None:
        reader, writer = await world.connect()
        await until(lambda: len(world.handlers) == 1)
        connection = world.handlers[0].connection
        writer.write(frame(b"x" * 100_000)[:50_000])
        await until(lambda: connection._partial is not None)
        connection.pause()
        for seconds in (0.5, 5.0, 50.0):
            connection.sweep(world.server.loop.time() + seconds)
        connection.resume()
        writer.write(frame(b"x" * 100_000)[50_000:])
        assert len(await reader.readexactly(100_004)) == 100_004
        writer.write(frame(b"x" * 100_000)[:50_000])
        await until(lambda: connection._partial is not None)
        connection.sweep(world.server.loop.time() + 5.0)
        assert connection.closed, "this time it is the peer that is slow"

    run(story)


def test_closing_sends_what_was_given_first() -> None:
    """K10: a stop truncates no response."""

    async def story(world: World) -> None:
        reader, writer = await world.connect()
        writer.write(frame(b"hello"))
        await reader.readexactly(9)
        connection = world.handlers[0].connection
        connection.send([bytes(5_000_000)])
        connection.close(after_sending=True)
        assert len(await reader.read()) == 5_000_000

    run(story)


def test_an_address_in_use_is_said_clearly() -> None:
    """K9: the message says what to do."""

    async def story(world: World) -> None:
        with pytest.raises(CannotListen, match="choose another with --listen"):
            FrameServer(accept=Echo).bind(*world.address)

    run(story)


def test_many_frames_in_one_read_are_answered_together() -> None:
    """K2: pipelined small requests need far fewer writes than responses."""

    async def story(world: World) -> None:
        reader, writer = await world.connect()
        count = RECEIVE_SIZE // 8
        writer.write(frame(b"abcd") * count)
        assert len(await reader.readexactly(8 * count)) == 8 * count

    run(story)


def test_what_was_lent_leaves_as_it_was() -> None:
    """V9: runtime.N4; in order, whole, and unharmed by what becomes of the lender's buffer
    afterwards.
    """

    async def story(world: World) -> None:
        reader, writer = await world.connect()
        await until(lambda: bool(world.handlers))
        connection = world.handlers[0].connection
        expected = b""
        for number in range(40):  # far more than the socket takes at once
            own = bytes([number]) * 1000
            lent = bytearray([100 + number]) * 300_000
            connection.send([own])
            connection.send_lent([b"head", memoryview(lent)])
            expected += own + b"head" + bytes(lent)
            lent[:] = b"!" * len(lent)
        assert connection.backlog > 0
        assert await reader.readexactly(len(expected)) == expected
        assert connection.sent_size == len(expected)
        writer.close()
        await until(lambda: world.handlers[0].lost)
        connection.send_lent([b"nobody hears it"])
        assert connection.backlog == 0

    run(story)

"""Calls between nodes: replies, errors, and calls that end without either."""

import asyncio

import pytest

from quipu.model.errors import Code, ErrorKind, RequestError
from quipu.model.ids import NodeId
from quipu.runtime.net.connection import Buffer
from quipu.runtime.peers import calls as peer_calls
from quipu.runtime.peers.peer_net import PeerError, PeerUnavailable
from tests.runtime.peers.peer_cluster import ONE, THREE, TWO, Cluster, run, upper


def test_a_call_is_answered() -> None:
    """V5: call and reply, to another node and to the own one."""

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.pair()
        for peers in (one, two):
            peers.serve(7, upper)
        assert await one.call(TWO, 7, b"ask", timeout_seconds=5) == b"\x01ASK"
        assert await one.call(ONE, 7, b"me", timeout_seconds=5) == b"\x01ME"
        answers = await asyncio.gather(
            *(two.call(ONE, 7, str(index).encode(), timeout_seconds=5) for index in range(300)))
        assert answers == [b"\x02" + str(index).encode() for index in range(300)]

    run(story)


def test_an_error_of_the_other_side_keeps_its_code_and_words() -> None:
    """V5: the caller gets the error that the handler raised; a bug is reported as one."""

    async def refuse(sender: NodeId, body: bytes) -> bytes:
        if body == b"bug":
            raise ZeroDivisionError("oh")
        raise RequestError("go away", code=Code.NOT_CONTROLLER, kind=ErrorKind.REFRESH)

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.pair()
        two.serve(1, refuse)
        with pytest.raises(PeerError, match="go away") as caught:
            await one.call(TWO, 1, b"", timeout_seconds=5)
        assert (caught.value.number, caught.value.kind) == (Code.NOT_CONTROLLER, ErrorKind.REFRESH)
        with pytest.raises(PeerError, match="ZeroDivisionError: oh") as caught:
            await one.call(TWO, 1, b"bug", timeout_seconds=5)
        assert caught.value.kind is ErrorKind.BUG
        with pytest.raises(PeerError, match="kind 9 are unknown") as caught:
            await one.call(TWO, 9, b"", timeout_seconds=5)
        assert caught.value.number == Code.UNSUPPORTED_VERSION

    run(story)


def test_a_call_without_a_time_of_its_own_waits_for_peer_request_timeout_ms() -> None:
    """V5: an operator decides how long a node waits for another."""

    async def never(sender: NodeId, body: bytes) -> bytes:
        await asyncio.sleep(60)
        return b""

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.pair("peer.request.timeout.ms=150")
        two.serve(1, never)
        with pytest.raises(PeerUnavailable, match=r"did not reply within 0\.15 s"):
            await one.call(TWO, 1, b"")

    run(story)


def test_a_call_ends_without_an_answer() -> None:
    """V5: runtime.R1; in time, when the connection is lost, when the node stops, and at once
    without one.
    """

    async def never(sender: NodeId, body: bytes) -> bytes:
        await asyncio.sleep(60)
        return b""

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.pair()
        two.serve(1, never)
        with pytest.raises(PeerUnavailable, match=r"did not reply within 0\.05 s"):
            await one.call(TWO, 1, b"", timeout_seconds=0.05)
        with pytest.raises(PeerUnavailable, match="cannot be reached"):
            await one.call(THREE, 1, b"", timeout_seconds=5)
        waits = asyncio.ensure_future(one.call(TWO, 1, b"", timeout_seconds=20))
        await asyncio.sleep(0.01)
        await two.stop()
        with pytest.raises(PeerUnavailable, match="was lost"):
            await waits
        waits = asyncio.ensure_future(one.call(ONE, 5, b"", timeout_seconds=20))
        one._calls._handlers[5] = never
        await asyncio.sleep(0.01)
        await one.stop()
        with pytest.raises(PeerUnavailable, match="stopping"):
            await waits

    run(story)


def test_an_answer_that_nobody_waits_for_is_ignored() -> None:
    """V5: runtime.R3; it came too late, from another node than was asked, or twice."""

    async def story(cluster: Cluster) -> None:
        sent: list[list[Buffer]] = []

        def send(to: NodeId, kind: int, buffers: list[Buffer]) -> bool:
            sent.append(buffers)
            return True

        calls = peer_calls.Calls(send, lambda _: 1)
        call = asyncio.get_running_loop().create_task(
            calls.call(TWO, 1, b"", timeout_seconds=5))
        await asyncio.sleep(0)
        reply = memoryview(bytes(sent[0][0])[:8] + bytes(3) + b"late")
        calls.on_reply(THREE, reply)
        assert not call.done()
        calls.on_reply(TWO, reply)
        calls.on_reply(TWO, reply)
        assert await call == b"late"
        calls.on_reply(TWO, reply)

    run(story)


def test_calls_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """V5: runtime.R2; neither side keeps more calls than it can count."""
    monkeypatch.setattr(peer_calls, "SERVED_MAX", 2)
    monkeypatch.setattr(peer_calls, "WAITING_MAX", 3)

    async def slow(sender: NodeId, body: bytes) -> bytes:
        await asyncio.sleep(0.1)
        return b"done"

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.pair()
        two.serve(1, slow)
        ends = await asyncio.gather(
            *(one.call(TWO, 1, b"", timeout_seconds=5) for _ in range(4)), return_exceptions=True)
        assert ends[:2] == [b"done", b"done"]
        assert isinstance(ends[2], PeerError)
        assert isinstance(ends[3], PeerUnavailable)
        assert await one.call(TWO, 1, b"", timeout_seconds=5) == b"done"

    run(story)

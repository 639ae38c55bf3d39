"""Calls between nodes: answers, errors, and ends without either."""

import asyncio

import pytest

from quipu.model.errors import Code, Kind, RequestError
from quipu.model.ids import NodeId
from quipu.runtime import peer_calls
from quipu.runtime.peer_net import PeerError, PeerUnavailable
from tests.runtime.peer_cluster import ONE, THREE, TWO, Cluster, run, upper


def test_a_call_is_answered() -> None:
    """V5: request and answer, to another node and to oneself."""

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
    """V5: what the handler raised is what the caller gets; a bug is told as one."""

    async def refuse(sender: NodeId, body: bytes) -> bytes:
        if body == b"bug":
            raise ZeroDivisionError("oh")
        raise RequestError("go away", code=Code.NOT_CONTROLLER, kind=Kind.REFRESH)

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.pair()
        two.serve(1, refuse)
        with pytest.raises(PeerError, match="go away") as caught:
            await one.call(TWO, 1, b"", timeout_seconds=5)
        assert (caught.value.code, caught.value.kind) == (Code.NOT_CONTROLLER, Kind.REFRESH)
        with pytest.raises(PeerError, match="ZeroDivisionError: oh") as caught:
            await one.call(TWO, 1, b"bug", timeout_seconds=5)
        assert caught.value.kind is Kind.BUG
        with pytest.raises(PeerError, match="kind 9 are not answered") as caught:
            await one.call(TWO, 9, b"", timeout_seconds=5)
        assert caught.value.code == Code.UNSUPPORTED_VERSION

    run(story)


def test_a_call_ends_without_an_answer() -> None:
    """V5: in time, when the connection is lost, when the node stops, and at once without one."""

    async def never(sender: NodeId, body: bytes) -> bytes:
        await asyncio.sleep(60)
        return b""

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.pair()
        two.serve(1, never)
        with pytest.raises(PeerUnavailable, match=r"did not answer within 0\.05 s"):
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


def test_calls_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """V5: neither side keeps more calls than it can count."""
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

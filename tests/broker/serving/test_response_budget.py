"""The memory of responses: of one, and of all together; and responses that fail."""

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from quipu.broker import handlers
from quipu.broker.observing.stats import Stats
from quipu.broker.serving.request_queue import LARGE_MAX, LARGE_SIZE, RequestQueue
from quipu.broker.serving.response_budget import (
    ClientGone,
    NoRoomForResponse,
    ResponseBudget,
    ResponseBudgets,
    ResponseTooLarge,
)
from quipu.broker.serving.server import ClientSession
from quipu.model.listeners import DEFAULT
from quipu.runtime.turns import TURN_SECONDS, Turns
from quipu.wire.frame import encode_request
from quipu.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
)
from quipu.wire.messages.k15_describe_groups import DescribeGroupsResponse
from tests.harness.here import NodeHere
from tests.looped import looped


class Room:
    """Memory for responses of 100 bytes each and 250 in all, and the time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.closed: list[str] = []
        self.budgets = ResponseBudgets(
            Turns(lambda: self.now), lambda: self.now, Stats(), size_max=100, total_max=250)

    def budget(self, name: str = "", **options: Any) -> ResponseBudget:
        return ResponseBudget(self.budgets, DescribeGroupsResponse, 5,
                      close=lambda: self.closed.append(name), **options)


def test_a_response_is_bounded() -> None:
    """K8: broker.serving.A1; it is refused with what to do, and gives back what it held."""
    room = Room()
    budget = room.budget()
    budget.spend(100)
    with pytest.raises(ResponseTooLarge, match=r"max.response.bytes.*ask for less"):
        budget.spend(1)
    budget.release()
    assert (room.budgets.total, room.budgets.stats.responses_refused) == (0, 1)


def test_all_responses_are_bounded_and_the_slowest_is_closed_first() -> None:
    """K8: broker.serving.A2; the connection that has been receiving for longest is closed; none
    whose response has just begun.
    """
    room = Room()
    for name in ("first", "second"):
        taken = room.budget(name)
        taken.spend(90)
        taken.leaving(90)
        room.now += 0.7
    newest = room.budget("newest")
    newest.spend(70)
    assert room.closed == []

    newest.spend(20)
    assert room.closed == ["first"]
    assert room.budgets.total == 180

    another = room.budget("another")
    with pytest.raises(NoRoomForResponse, match=r"queued.max.response.bytes"):
        another.spend(80)
    assert room.closed == ["first"], "the second is not slow yet"
    another.release()
    room.now += 1
    room.budget("later").spend(80)
    assert room.closed == ["first", "second"]
    assert room.budgets.stats.responses_dropped == 2


def test_what_has_left_is_given_back_once() -> None:
    """K8: also if the connection was closed meanwhile."""
    room = Room()
    budget = room.budget("a")
    budget.spend(50)
    budget.leaving(60)
    assert room.budgets.total == 60
    budget.release()
    budget.release()
    budget.give_up()
    assert room.budgets.total == 0


@looped
async def test_nothing_is_done_for_who_is_gone() -> None:
    """K8: broker.serving.A3; a handler ends at its next pause."""
    gone = False
    budget = Room().budget(is_closed=lambda: gone)
    await budget.pause()
    gone = True
    with pytest.raises(ClientGone):
        await budget.pause()


@looped
async def test_few_large_requests_are_worked_on_at_a_time() -> None:
    """K8: the others wait as bytes, which are bounded; those of members never wait for it."""
    queue = RequestQueue(Turns(lambda: 0.0), waiting_size_max=20 * LARGE_SIZE)
    size = LARGE_SIZE + 1
    begun, end = 0, asyncio.Event()

    async def request(*, is_member: bool = False) -> None:
        nonlocal begun
        async with queue.turn(size, is_large=not is_member):
            begun += 1
            await end.wait()

    tasks = [asyncio.create_task(request()) for _ in range(LARGE_MAX + 3)]
    for _ in range(50):
        await asyncio.sleep(0)
    assert begun == LARGE_MAX
    assert queue.has_room(LARGE_SIZE)
    assert not queue.has_room(20 * LARGE_SIZE)
    member = asyncio.create_task(request(is_member=True))
    for _ in range(50):
        await asyncio.sleep(0)
    assert begun == LARGE_MAX + 1
    end.set()
    await asyncio.gather(*tasks, member)
    assert (begun, queue.waiting_size) == (LARGE_MAX + 4, 0)


@looped
async def test_a_place_is_given_back_by_who_is_cancelled_while_it_waits() -> None:
    """K8: clients that come and go take no places from others."""
    queue = RequestQueue(Turns(lambda: 0.0), waiting_size_max=1 << 20)
    begun = 0

    async def request() -> None:
        nonlocal begun
        async with queue.turn(100, is_large=True, may_wait=False):
            begun += 1

    for _ in range(5):
        tasks = [asyncio.create_task(request()) for _ in range(3 * LARGE_MAX)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert queue.waiting_size == 0
    begun = 0
    await asyncio.wait_for(asyncio.gather(*(request() for _ in range(3 * LARGE_MAX))), 20)
    assert begun == 3 * LARGE_MAX


@pytest.mark.parametrize("version", [1, 9])
@looped
async def test_a_response_that_cannot_be_made_closes_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """K8: a mistake of our own ends one connection; nobody waits for ever, others are served."""
    async def broken(*_: object) -> MetadataResponse:
        return MetadataResponse(cluster_id="x" * 40_000, topics=[
            MetadataResponseTopic(name=None)])  # there is no such thing in these versions

    async with NodeHere(tmp_path) as node, node.connect() as peer, node.connect() as other:
        handlers.load(MetadataRequest.KEY)
        monkeypatch.setattr(handlers, "load", lambda _: broken)
        peer.send(MetadataRequest(), version)
        assert await peer.closed()
        monkeypatch.undo()
        assert (await other.ask(MetadataRequest(), version)).topics == []


@looped
async def test_requests_that_come_together_begin_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K8: broker.serving.Q6; handlers that wait for something do their work in turns, too, before
    they do.
    """
    count, turn, begun = 60, 0, list[int]()

    async def slow(*_: object) -> MetadataResponse:
        until = time.monotonic() + TURN_SECONDS
        while time.monotonic() < until:
            pass
        begun.append(turn)
        return MetadataResponse()

    async with NodeHere(tmp_path) as node, AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(node.connect()) for _ in range(count)]
        monkeypatch.setattr(handlers, "load", lambda _: slow)
        for peer in peers:
            peer.send(MetadataRequest(), 12)
        while len(begun) < count:
            await asyncio.sleep(0)
            turn += 1
        for peer in peers:
            await peer.answer()
    together = max(Counter(begun).values())
    assert together <= 3, f"{together} took a turn's time each in one turn of the loop"


class SlowPeer:
    """A connection whose peer takes nothing of what it is sent."""

    peer_host, peer_port = "10.0.0.1", 1
    listener = DEFAULT.name
    peer_name = None

    def __init__(self) -> None:
        self.closed = self.is_paused = False
        self.unsent = 0

    @property
    def backlog(self) -> int:
        return int(self.unsent > 0)

    def send(self, buffers: list[Any]) -> None:
        self.unsent += sum(map(len, buffers))

    def pause(self, *, read_rest: bool = False) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def close(self, *, after_sending: bool = False, why: str = "") -> None:
        self.closed, self.unsent = True, 0


@looped
async def test_small_responses_that_are_not_received_are_counted(tmp_path: Path) -> None:
    """K8: many connections that receive nothing hold what all responses may, and no more."""
    limit = 1 << 20
    async with NodeHere(tmp_path, queued_max_response_bytes=str(limit)) as node:
        await node.create("t", partitions=250)
        broker = node.node.broker
        ask = encode_request(MetadataRequest(topics=None), 12, correlation_id=1)[4:]
        # A second passes between two of them.
        broker.response_budgets._monotonic = lambda: float(len(peers))
        peers: list[SlowPeer] = []
        for _ in range(300):
            peer = SlowPeer()
            session = ClientSession(broker, peer)
            peers.append(peer)
            for _ in range(20):
                if not peer.is_paused:
                    session.frame_received(memoryview(bytearray(ask)))
                await asyncio.sleep(0)
        assert min(peer.unsent for peer in peers if not peer.closed) > 4096
        assert sum(peer.unsent for peer in peers) < 2 * limit
        assert broker.stats.responses_dropped > 100

"""What a connection held is freed when it closes, without the help of the garbage collector.

The collector leaves out what has lived for long (runtime/garbage.py).  So a client that connects,
asks for much and goes, again and again, would fill the node with what only the collector frees.
"""

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from quipu.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from quipu.wire.messages.k03_metadata import MetadataRequest
from quipu.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from quipu.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from quipu.wire.schema import Request
from tests.harness.here import NodeHere, batch_of, produce
from tests.looped import looped

TOPIC = "t"
COUNT = 20
TURNS = 40  # of the loop, for the node to see that a peer is gone


def _fetch(wait_ms: int, session_epoch: int) -> FetchRequest:
    return FetchRequest(
        max_wait=wait_ms, min_bytes=1, max_bytes=1000, session_epoch=session_epoch,
        topics=[FetchTopic(topic=TOPIC, partitions=[FetchPartition(partition=0)])])


def _join() -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g", session_timeout=10_000, rebalance_timeout=10_000, protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"x" * 1000)])


ANSWERED: dict[str, Callable[[], tuple[Request, int]]] = {
    "metadata": lambda: (MetadataRequest(), 12),
    "produce": lambda: (produce(TOPIC, batch_of(b"x")), 9),
    "fetch, waited": lambda: (_fetch(1, 0), 11),
    "fetch, too old": lambda: (_fetch(1, 7), 11),  # a session that is not known
}
WAITING: dict[str, Callable[[], tuple[Request, int]]] = {
    "fetch": lambda: (_fetch(60_000, 0), 11),
    "fetch without a session": lambda: (_fetch(60_000, -1), 11),
    "join": lambda: (_join(), 3),
}


@contextmanager
def only_counted() -> Iterator[list[str]]:
    """What is made and dropped meanwhile and only the collector frees, by type."""
    gc.collect()
    gc.disable()
    found: list[str] = []
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found += [type(thing).__name__ for thing in gc.garbage
                  if type(thing).__module__.startswith("quipu.")]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize("name", ["nothing", *ANSWERED])
@looped
async def test_connections_that_were_answered(tmp_path: Path, name: str) -> None:
    """K8: a connection, its requests and its responses."""
    async with NodeHere(tmp_path) as node:
        await node.create(TOPIC)
        with only_counted() as found:
            for _ in range(COUNT):
                async with node.connect() as peer:
                    if name in ANSWERED:
                        await peer.ask(*ANSWERED[name]())
            await _turns()
        assert found == []


@pytest.mark.parametrize("name", WAITING)
@looped
async def test_connections_that_go_while_they_wait(tmp_path: Path, name: str) -> None:
    """K8: what waited for a client goes with it, with all that it held."""
    async with NodeHere(tmp_path, group_initial_rebalance_delay_ms="10000") as node:
        await node.create(TOPIC)
        async with node.connect() as peer:
            await peer.ask(FindCoordinatorRequest(key="g"), 3)
        with only_counted() as found:
            for _ in range(COUNT):
                async with node.connect() as peer:
                    peer.send(*WAITING[name]())
                    await _turns()
            await _turns()
        assert found == []


async def _turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0.001)

"""How many Python calls a request costs on a single node: what its rate is bound by.

Counted with `sys.setprofile` in the loop's thread, calls of this project's functions only, for
requests that come one after the other from a thread of its own.  A call that is not made for about
every request is background work, and not counted.
"""

import asyncio
import socket
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import quipu
from quipu.wire.frame import encode_request
from tests.broker.serving.test_fetch import fetch
from tests.harness.here import NodeHere, batch_of, produce
from tests.looped import looped

SOURCE = str(Path(quipu.__file__).parent)
WARM_UP = 20
COUNT = 200

PRODUCE_CALLS_MAX = 30
FETCH_CALLS_MAX = 54  # of one batch, by a consumer that does not wait


def converse(address: tuple[str, int], frames: list[bytes]) -> None:
    """Send each frame after the response to the one before."""
    with socket.create_connection(address) as connection, connection.makefile("rb") as responses:
        for frame in frames:
            connection.sendall(frame)
            responses.read(int.from_bytes(responses.read(4), "big"))


async def calls_per_request(node: NodeHere, frames: list[bytes]) -> int:
    """The calls that every request makes."""
    calls: Counter[str] = Counter()

    def profile(frame: FrameType, event: str, arg: object) -> None:
        del arg
        if event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            calls[f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}"] += 1

    address = str(node.address.host), int(node.address.port)
    await asyncio.to_thread(converse, address, frames[:WARM_UP])
    sys.setprofile(profile)
    try:
        await asyncio.to_thread(converse, address, frames[WARM_UP:])
    finally:
        sys.setprofile(None)
    return sum(round(count / (len(frames) - WARM_UP)) for count in calls.values())


@looped
async def test_a_produce_takes_few_python_calls(tmp_path: Path) -> None:
    """K2: one batch, one partition, acks=all, on a node without others."""
    async with NodeHere(tmp_path) as node:
        await node.create("t")
        frames = [
            encode_request(produce("t", batch_of(b"x" * 100), acks=-1), 9, correlation_id=number,
                           client_id="c")
            for number in range(WARM_UP + COUNT)]
        assert await calls_per_request(node, frames) <= PRODUCE_CALLS_MAX


@looped
async def test_a_fetch_takes_few_python_calls(tmp_path: Path) -> None:
    """K2: one batch of many, in the middle of a log that is read for the first time."""
    async with NodeHere(tmp_path) as node:
        await node.create("t")
        async with node.connect() as peer:
            for _ in range(WARM_UP + COUNT):
                await peer.ask(produce("t", batch_of(b"x" * 100)), 9)
        frames = [
            encode_request(fetch(number, part_bytes=200), 11, correlation_id=number, client_id="c")
            for number in range(WARM_UP + COUNT)]
        assert await calls_per_request(node, frames) <= FETCH_CALLS_MAX

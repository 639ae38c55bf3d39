"""Chains as pipelines: batches follow each other down the chain, and no node waits for one."""

import asyncio
from pathlib import Path
from typing import NamedTuple

import pytest

from quipu.chain.codec import decode_all
from quipu.chain.messages import Ack, Replicate
from quipu.model.ids import NodeId
from tests.broker.replication.rig import ANode, Rig
from tests.looped import looped


class Passed(NamedTuple):
    """A message that has arrived."""

    sender: int
    receiver: int
    kind: str  # "batches" or "ack"
    log_offset: int  # of the first batch, or up to which all later nodes have the log


class Wire:
    """Everything that arrives in a rig, in order."""

    def __init__(self, rig: Rig) -> None:
        self.passed: list[Passed] = []
        self._told: dict[tuple[int, int], int] = {}
        rig.net.lossy = self._look

    def _look(self, sender: NodeId, receiver: NodeId, body: bytes) -> bool:
        for _, _, message in decode_all(memoryview(body)[1:]):
            if isinstance(message, Replicate) and message.entries:
                self.passed.append(Passed(sender, receiver, "batches", message.prev_end))
            elif isinstance(message, Ack) and message.acked.log > self._told.get(
                    (sender, receiver), 0):
                self._told[sender, receiver] = message.acked.log
                self.passed.append(Passed(sender, receiver, "ack", message.acked.log))
        return False  # nothing is lost

    def index(self, sender: int, receiver: int, kind: str, log_offset: int) -> int:
        return self.passed.index(Passed(sender, receiver, kind, log_offset))


async def chain_of(rig: Rig, count: int) -> list[ANode]:
    nodes = rig.nodes(count)
    rig.configure(serving=range(1, count + 1))
    await rig.leads(nodes[0])
    await rig.settled()
    await rig.pass_time(3)
    return nodes


@looped
async def test_every_link_carries_a_batch_at_the_same_time(tmp_path: Path) -> None:
    """V9: batch n + 1 is sent before batch n is acknowledged, by the head and by those after it."""
    rig = Rig(tmp_path)
    a, *_ = await chain_of(rig, 4)
    wire = Wire(rig)
    rig.net.delay_turns = 8
    first = a.log_end
    futures = []
    for number in range(12):  # each in a turn of its own
        futures.append(a.append(b"%d" % number))
        await rig.turns(2)
    await asyncio.wait_for(asyncio.gather(*futures), 5)
    for number in range(6):
        mine = first + number
        assert wire.index(1, 2, "batches", mine) < wire.index(2, 3, "batches", mine) < (
            wire.index(3, 4, "batches", mine)) < wire.index(4, 3, "ack", mine + 1)
        for sender in (1, 2, 3):  # the next one is sent before the ack of this one
            assert wire.index(sender, sender + 1, "batches", mine + 1) < (
                wire.index(sender + 1, sender, "ack", mine + 1))
        # ... and has left the head before this one has reached the tail
        assert wire.index(1, 2, "batches", mine + 1) < wire.index(3, 4, "batches", mine)
    rig.check_identical()


@pytest.mark.parametrize("count", [2, 3, 5])
@looped
async def test_each_node_adds_one_message_down_and_one_up(tmp_path: Path, count: int) -> None:
    """V9: nothing else is waited for on the way to the tail and back."""
    rig = Rig(tmp_path)
    a, *_ = await chain_of(rig, count)
    wire = Wire(rig)
    first = a.log_end
    assert await a.produce(b"x") == 0
    down = [Passed(node, node + 1, "batches", first) for node in range(1, count)]
    up = [Passed(node + 1, node, "ack", first + 1) for node in reversed(range(1, count))]
    assert wire.passed == down + up

"""Quorums of real drivers whose nodes are killed at any moment: nothing committed is lost."""

import asyncio

import pytest

from quipu.broker.quorum import NotController
from quipu.runtime.rng import SeededRng
from tests.broker.quorum.quorums import Node, Switch, leader_of, leader_who_knows, stop
from tests.looped import timeless


@pytest.mark.parametrize("seed", range(6))
@timeless
async def test_kills_at_any_moment_lose_nothing_that_was_answered(seed: int) -> None:
    """T7, T12: real drivers on disks that keep any part of what was not synced."""
    chance = SeededRng(seed)
    switch = Switch()
    nodes = [Node(node_id, [1, 2, 3], switch) for node_id in (1, 2, 3)]
    for node in nodes:
        node.disk.is_deferred = True
        await node.start()
    flusher = asyncio.ensure_future(_flush_some(nodes, chance))
    committed: list[bytes] = []
    for life in range(4):
        writer = asyncio.ensure_future(_write_until_done(nodes, committed, life))
        await asyncio.sleep(0.1 + chance.random() / 4)
        victims = nodes if life == 2 else [nodes[int(chance.random() * 3)]]
        for node in victims:
            await node.kill(seed=int(chance.random() * 1000))
        for node in victims:
            await node.start()
        await leader_of(nodes)
        writer.cancel()
    leader = await leader_who_knows(nodes)
    found = leader.machine.state
    assert [command for command in found if command in set(committed)] == committed
    assert len(found) == len(set(found))
    for node in nodes:
        await node.quorum.wait_applied(leader.quorum.last_applied, 20)
        assert node.machine.state == found
    await stop(nodes)
    flusher.cancel()


async def _flush_some(nodes: list[Node], chance: SeededRng) -> None:
    while True:
        await asyncio.sleep(0.001)
        for node in nodes:
            if chance.random() < 0.5:
                node.disk.run_pending()


async def _write_until_done(nodes: list[Node], committed: list[bytes], life: int) -> None:
    number = 0
    while True:
        number += 1
        leader = next((node for node in nodes if node.quorum.is_leader), None)
        if leader is None:
            await asyncio.sleep(0.005)
            continue
        command = b"%d.%d" % (life, number)
        try:
            async with asyncio.timeout(1):
                await leader.quorum.propose([command])
        except (NotController, TimeoutError):
            await asyncio.sleep(0.005)
            continue
        committed.append(command)

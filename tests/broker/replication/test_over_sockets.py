"""Chains over real connections: entries leave as views of mapped files, and arrive whole."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

from quipu.broker.listening import peer_config
from quipu.model.ids import NodeId
from quipu.model.settings_sources import broker_settings, from_assignments
from quipu.runtime.peers.peer_net import Identity
from quipu.runtime.peers.peers import TcpPeers
from quipu.runtime.rng import SeededRng
from quipu.storage.config import LogConfig
from tests.broker.replication.rig import ANode, Rig
from tests.looped import looped


@asynccontextmanager
async def connected(path: Path, count: int) -> AsyncIterator[tuple[Rig, list[ANode]]]:
    """A chain of `count` nodes on loopback sockets."""
    settings = broker_settings(from_assignments(["peer.listener=127.0.0.1:0"]))
    rig = Rig(path, config=LogConfig(segment_bytes=1 << 20), window_size=1 << 20)
    all_peers = []
    for number in range(1, count + 1):
        identity = Identity(NodeId(number), f"a-{number}", UUID(int=number), "cluster")
        peers = TcpPeers(identity, peer_config(settings), SeededRng(number))
        await peers.start()
        rig.peers[NodeId(number)] = peers
        all_peers.append(peers)
    nodes = rig.nodes(count)
    for one in all_peers:
        for other in all_peers:
            if one is not other and other.address is not None:
                one.know(other.identity.node_id, *other.address)
    rig.configure(serving=range(1, count + 1))
    try:
        yield rig, nodes
    finally:
        for node in nodes:
            await node.replication.stop()
        for peers in all_peers:
            await peers.stop()
        for node in nodes:
            node.directory.close()


async def tick_until(rig: Rig, done: "asyncio.Future[object]") -> None:
    while not done.done():
        await asyncio.sleep(0.005)
        await rig.pass_time()


@looped
async def test_a_chain_over_sockets_ends_identical(tmp_path: Path) -> None:
    """V9, V22: small and large batches, more than a window and several segments of them."""
    async with connected(tmp_path, 3) as (rig, nodes):
        while not nodes[0].partition.is_leader:
            await asyncio.sleep(0.01)
            await rig.pass_time()
        small = [nodes[0].append(b"%d" % number) for number in range(300)]
        large = [nodes[0].append(bytes([number]) * 400_000) for number in range(12)]
        await tick_until(rig, asyncio.ensure_future(asyncio.gather(*small, *large)))
        assert [future.result() for future in small + large] == list(range(312))
        while len({node.partition.high_watermark for node in nodes}) > 1:
            await asyncio.sleep(0.005)
            await rig.pass_time()
        rig.check_identical()
        assert len(nodes[2].files()) > 4
        values = nodes[2].values()
        assert values[:2] == [b"0", b"1"]
        assert values[-1] == bytes([11]) * 400_000


@looped
async def test_a_link_that_breaks_loses_nothing(tmp_path: Path) -> None:
    """V10, V13: what was on its way is sent again over the next connection."""
    async with connected(tmp_path, 2) as (rig, nodes):
        while not nodes[0].partition.is_leader:
            await asyncio.sleep(0.01)
            await rig.pass_time()
        futures = []
        for number in range(40):
            futures.append(nodes[0].append(bytes([number]) * 50_000))
            if number % 13 == 12:
                peers = rig.peers[NodeId(1)]
                peers.forget(NodeId(2))
                address = rig.peers[NodeId(2)].address
                assert address is not None
                peers.know(NodeId(2), *address)
            await asyncio.sleep(0)
        await tick_until(rig, asyncio.ensure_future(asyncio.gather(*futures)))
        assert [future.result() for future in futures] == list(range(40))
        rig.check_identical()

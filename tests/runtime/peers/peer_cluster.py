"""Nodes in this loop that talk over real loopback sockets, and what they heard."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

from quipu.broker.listening import peer_config
from quipu.model.ids import NodeId
from quipu.model.settings_sources import broker_settings, from_assignments
from quipu.runtime.peers.peer_net import Identity, PeerKind
from quipu.runtime.peers.peers import TcpPeers
from quipu.runtime.rng import SystemRng

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
CHAIN, RAFT = PeerKind.CHAIN, PeerKind.RAFT


class Listener:
    """Records its notifications."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []

    def up(self, node_id: NodeId) -> None:
        self.told.append(("up", node_id))

    def down(self, node_id: NodeId) -> None:
        self.told.append(("down", node_id))

    def drained(self, node_id: NodeId) -> None:
        self.told.append(("drained", node_id))


class Cluster:
    """Nodes in this loop, each with a listener and the messages that it got."""

    def __init__(self) -> None:
        self.started: list[TcpPeers] = []
        self.got: dict[TcpPeers, list[tuple[int, bytes]]] = {}
        self.heard: dict[TcpPeers, Listener] = {}

    async def node(
        self, node_id: int, *pairs: str, cluster_id: str = "", port: int = 0
    ) -> TcpPeers:
        settings = broker_settings(from_assignments([
            f"peer.listener=127.0.0.1:{port}", "broker.session.timeout.ms=800",
            "broker.heartbeat.interval.ms=100", *pairs]))
        identity = Identity(NodeId(node_id), f"a-{node_id}", SystemRng().uuid(), cluster_id)
        peers = TcpPeers(identity, peer_config(settings), SystemRng())
        messages = self.got[peers] = []
        peers.on(CHAIN, lambda sender, body: messages.append((sender, bytes(body))))
        self.heard[peers] = Listener()
        peers.watch(self.heard[peers])
        await peers.start()
        self.started.append(peers)
        return peers

    async def pair(self, *pairs: str) -> tuple[TcpPeers, TcpPeers]:
        one, two = await self.node(1, *pairs), await self.node(2, *pairs)
        introduce(one, two)
        await until(lambda: one.is_up(TWO) and two.is_up(ONE))
        return one, two


def introduce(one: TcpPeers, two: TcpPeers) -> None:
    assert two.address is not None
    one.know(two.identity.node_id, *two.address)


def fall_silent(peers: TcpPeers) -> None:
    """As if the machine had lost its power: nothing is read, nothing said, nothing closed."""
    for link in peers._links:
        link.connection._stop_reading()
    peers._server.stop_accepting()
    peers._book.stop()
    assert peers._ticker is not None
    peers._ticker.cancel()


def run(story: Callable[[Cluster], Awaitable[None]]) -> None:
    async def main() -> None:
        cluster = Cluster()
        try:
            async with asyncio.timeout(20):
                await story(cluster)
        finally:
            for peers in cluster.started:
                await peers.stop()

    asyncio.run(main())


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("did not happen in time")


async def upper(sender: NodeId, body: bytes) -> bytes:
    return bytes([sender]) + body.upper()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port

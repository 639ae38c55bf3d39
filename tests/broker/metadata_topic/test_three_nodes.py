"""The metadata topic on a chain of three nodes: any node reads and writes, whoever leads."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from quipu.broker.metadata_topic.codec import (
    Call,
    MetadataRequest,
    decode_response,
    encode_request,
)
from quipu.broker.metadata_topic.topic_backend import CALL_KIND, TopicBackend
from quipu.broker.quorum.contract import NotController
from quipu.launch.ports import free_ports
from quipu.model.ids import NodeId
from quipu.remote.metadata.errors import InvalidStorageRequest, KeyExists, OutcomeUnknown
from quipu.remote.metadata.storage.backend import CreateKey, UpdateKey
from quipu.runtime.peers.peer_net import PeerError
from tests.harness.here import NodeHere
from tests.looped import looped

COUNT = 3
SECONDS_MAX = 60.0


class MetadataNode:
    """A node, and the backend on it."""

    def __init__(self, node: NodeHere) -> None:
        self.node = node.node
        broker, net, replication = (
            node.node.broker, node.node._peers, node.node._replication)
        assert net is not None
        assert replication is not None
        self.net = net
        self.node_id = broker.node_id
        self.registered = True
        self.backend = TopicBackend(
            broker, net, partition_count=3, timeout_seconds=30.0,
            is_registered=lambda sender: self.registered and sender in broker.cluster.state.brokers)
        replication.watch(self.backend)


@asynccontextmanager
async def three(path: Path) -> AsyncIterator[list[MetadataNode]]:
    ports = free_ports(COUNT)
    voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(ports, 1))
    async with AsyncExitStack() as stack:
        here = [NodeHere(path / str(number), node_name=f"a-{number - 1}",
                         peer_listener=f"127.0.0.1:{port}", controller_quorum_voters=voters)
                for number, port in enumerate(ports, 1)]
        await asyncio.gather(*(stack.enter_async_context(node) for node in here))
        await make_chain(here)
        nodes = [MetadataNode(node) for node in here]
        for node in nodes:
            stack.push_async_callback(node.backend.close)
        yield nodes


async def make_chain(here: list[NodeHere]) -> None:
    """Make a chain of all nodes, on the one that is the controller."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            for node in here:
                with suppress(NotController):
                    await node.node.broker.cluster.controller.create_chain(
                        "a", [f"a-{number}" for number in range(COUNT)])
                    return
            await asyncio.sleep(0.05)


async def leader_of(nodes: list[MetadataNode], key: str) -> MetadataNode:
    """The node that leads the partition of `key`."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            leader = await nodes[0].backend.shards.leader_of(key)
            for node in nodes:
                if node.node_id == leader:
                    return node
            await asyncio.sleep(0.05)


@looped
async def test_every_node_sees_what_any_node_wrote(tmp_path: Path) -> None:
    """R1, R7: strongly consistent, also when the leader stops (broker.metadata_topic.S2)."""
    async with three(tmp_path) as nodes:
        for number, node in enumerate(nodes):
            await node.backend.create(f"t/1/{number}", b"%d" % number)
            for other in nodes:
                assert await other.backend.get(f"t/1/{number}") == b"%d" % number
        with pytest.raises(KeyExists):
            await nodes[1].backend.create("t/1/0", b"again")
        leader = await leader_of(nodes, "t/1")
        rest = [node for node in nodes if node is not leader]
        await leader.backend.close()
        await leader.node.stop()
        for number, node in enumerate(rest):
            await at_last(node.backend, f"t/1/{number}", b"new")
            assert [value for _, value in await rest[0].backend.get_like("t/1")].count(
                b"new") == number + 1


async def at_last(backend: TopicBackend, key: str, value: bytes) -> None:
    """Write; after an unknown outcome read first, as a manager does."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            try:
                return await backend.execute([UpdateKey(key, value)])
            except OutcomeUnknown:
                if await backend.get(key) == value:
                    return None


@looped
async def test_strangers_and_nonsense_are_refused(tmp_path: Path) -> None:
    """K8: broker.metadata_topic.B2: requests of nodes that are not registered, and bad bytes."""
    async with three(tmp_path) as nodes:
        await nodes[0].backend.create("t/1/a", b"1")
        leader = await leader_of(nodes, "t/1")
        other = next(node for node in nodes if node is not leader)

        async def ask(body: bytes) -> bytes:
            return await other.net.call(NodeId(leader.node_id), CALL_KIND, body)

        with pytest.raises(InvalidStorageRequest):
            decode_response(await ask(b"\xff"))
        with pytest.raises(InvalidStorageRequest, match="can only change one"):
            decode_response(await ask(encode_request(MetadataRequest(
                Call.EXECUTE, [CreateKey("t/1/x", b""), CreateKey("t/2/x", b"")]))))
        with pytest.raises(InvalidStorageRequest):
            decode_response(await ask(encode_request(MetadataRequest(Call.GET_MANY))))
        leader.registered = False
        with pytest.raises(PeerError, match="not registered"):
            await ask(encode_request(MetadataRequest(Call.GET_MANY, keys=["t/1/a"])))
        leader.registered = True
        assert await other.backend.get("t/1/a") == b"1"

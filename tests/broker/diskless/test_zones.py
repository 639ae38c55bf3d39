"""Clients that say where they are, and the nodes that they then read from and write to."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from quipu.broker.handlers.k01_fetch import TARGETS_MAX
from quipu.broker.serving.topic_views import TopicViews
from quipu.controller.records import encode_record
from quipu.launch.ports import free_ports
from quipu.model.errors import Code
from quipu.model.ids import NodeId
from quipu.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from quipu.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.diskless.parts import create, diskless_node, put, until
from tests.broker.serving.zones import fence, move, moved, register
from tests.harness.here import NodeHere, Peer
from tests.harness.postgres import PostgresServer
from tests.looped import looped

HERE, THERE = NodeId(1), NodeId(2)
COUNT = 50
OUT_OF_RANGE = 10_000


@asynccontextmanager
async def in_rack_a(path: Path, **overrides: str) -> AsyncIterator[tuple[NodeHere, Peer]]:
    """A node in rack a that leads t-0, which has a replica on another, in rack b."""
    async with diskless_node(path, broker_rack="a", **overrides) as node, node.connect() as peer:
        await create(node)
        register(node.node.broker.cluster.state, THERE, "b")
        move(node.node.broker.cluster.state, "t", 0, [HERE, THERE])
        assert (await put(peer, "t", b"x")).error_code == 0
        yield node, peer


async def fetch(peer: Peer, rack: str, *, version: int = 12) -> tuple[int, int, bool]:
    """Fetch t-0 from `rack`: the error, the node to read from instead, whether there are bytes."""
    request = FetchRequest(
        max_wait=5000, min_bytes=1, rack_id=rack, topics=[FetchTopic(topic="t", partitions=[
            FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)])])
    (part,) = (await peer.ask(request, version)).responses[0].partitions
    return part.error_code, part.preferred_read_replica, bool(part.records)


async def replicas(peer: Peer, client_id: str | None, version: int = 12) -> tuple[int, list[int]]:
    """The leader and the replicas of t-0 that a client with this id is shown."""
    peer.client_id = client_id
    response = await peer.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), version)
    (part,) = response.topics[0].partitions
    assert part.isr_nodes == part.replica_nodes
    return part.leader_id, part.replica_nodes


@looped
async def test_a_node_shows_each_client_the_replica_in_its_zone(tmp_path: Path) -> None:
    """D22, D23: over the wire, on one connection; also to clients with absurd ids."""
    async with in_rack_a(tmp_path) as (_, peer):
        for version in MetadataRequest.VERSIONS:
            assert await replicas(peer, "app", version) == (HERE, [HERE, THERE])
            assert await replicas(peer, None, version) == (HERE, [HERE, THERE])
            assert await replicas(peer, "app|diskless_az=a-0", version) == (HERE, [HERE])
            assert await replicas(peer, "diskless_az=b", version) == (THERE, [THERE])
            assert await replicas(peer, "diskless_az=c", version) == (HERE, [HERE, THERE])
        for absurd in ("-" * 30_000, "b" + "-" * 30_000, "diskless_az=" * 2500):
            shown = await replicas(peer, f"diskless_az={absurd}")
            assert shown == (
                (THERE, [THERE]) if absurd.startswith("b") else (HERE, [HERE, THERE]))


@looped
async def test_the_listener_of_a_connection_says_its_zone(tmp_path: Path) -> None:
    """D22: unless the client does."""
    async with in_rack_a(
            tmp_path, diskless_client_az_listener_map="PLAINTEXT:b,OTHER:a") as (_, peer):
        assert await replicas(peer, "app") == (THERE, [THERE])
        assert await replicas(peer, "diskless_az=a") == (HERE, [HERE])


@looped
async def test_a_consumer_is_sent_to_its_rack_once(tmp_path: Path) -> None:
    """D22, broker.serving.Z4: to a live replica there; if it comes back, it is served."""
    async with in_rack_a(tmp_path) as (node, peer):
        assert await fetch(peer, "b") == (0, THERE, False)
        for _ in range(3):
            assert await fetch(peer, "b") == (0, -1, True)
        async with node.connect() as other:
            assert await fetch(other, "b") == (0, THERE, False)


CASES = [
    ("it is in the node's own rack", "a", 12),
    ("it is where no replica is", "c", 12),
    ("brokers without a rack are elsewhere", "unknown", 12),
    ("it does not say", "", 12),
    ("its version has no rack", "", 10),
]


@pytest.mark.parametrize(("rack", "version"), [case[1:] for case in CASES],
                         ids=[case[0] for case in CASES])
@looped
async def test_others_are_served_where_they_ask(tmp_path: Path, rack: str, version: int) -> None:
    """D22: whoever cannot read nearer."""
    async with in_rack_a(tmp_path) as (_, peer):
        assert await fetch(peer, rack, version=version) == (0, -1, True)


@looped
async def test_nobody_is_sent_on_within_a_rack(tmp_path: Path) -> None:
    """D22, broker.serving.Z4: also if the leader is another node of the same rack."""
    async with in_rack_a(tmp_path) as (node, peer):
        register(node.node.broker.cluster.state, 3, "a")
        move(node.node.broker.cluster.state, "t", 0, [3, HERE])
        assert await fetch(peer, "a") == (0, -1, True)


@looped
async def test_nobody_is_sent_to_a_broker_that_is_down(tmp_path: Path) -> None:
    """D22, D25: nor to one that is no replica, or cannot be reached by the client's listener."""
    async with in_rack_a(tmp_path) as (node, peer):
        state = node.node.broker.cluster.state
        fence(state, THERE)
        assert await fetch(peer, "b") == (0, -1, True)
        register(state, THERE, "b", listeners=("OUTSIDE",))
        assert await fetch(peer, "b") == (0, -1, True)
        register(state, THERE, "b")
        move(state, "t", 0, [HERE])
        assert await fetch(peer, "b") == (0, -1, True)
        move(state, "t", 0, [HERE, THERE])
        assert await fetch(peer, "b") == (0, THERE, False)


@looped
async def test_a_session_ends_its_wait_to_send_a_consumer_on(tmp_path: Path) -> None:
    """D22: at once, in a session too; and there too if it comes back, it is served."""
    async with in_rack_a(tmp_path) as (_, peer):
        request = FetchRequest(
            max_wait=60_000, min_bytes=1 << 20, rack_id="b", session_epoch=0,
            topics=[FetchTopic(topic="t", partitions=[
                FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)])])
        response = await peer.ask(request, 12)
        assert response.session_id != 0
        assert response.responses[0].partitions[0].preferred_read_replica == THERE
        again = await peer.ask(FetchRequest(
            max_wait=0, rack_id="b", session_id=response.session_id, session_epoch=1), 12)
        assert again.responses[0].partitions[0].preferred_read_replica == -1
        assert again.responses[0].partitions[0].records


@looped
async def test_a_fetch_of_many_partitions_is_sent_on_too(tmp_path: Path) -> None:
    """D22: those of them that are diskless and have a replica in the consumer's rack."""
    async with in_rack_a(tmp_path) as (_, peer):
        request = FetchRequest(
            max_wait=0, min_bytes=1, rack_id="b", topics=[FetchTopic(topic="t", partitions=[
                FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
                for index in range(TARGETS_MAX + 1)])])
        first, *others = (await peer.ask(request, 12)).responses[0].partitions
        assert (first.error_code, first.preferred_read_replica) == (0, THERE)
        assert {each.error_code for each in others} == {Code.UNKNOWN_TOPIC_OR_PARTITION}


# -- two nodes, and stock clients


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        yield server
    finally:
        server.stop()


@asynccontextmanager
async def in_racks_a_and_b(path: Path, postgres: PostgresServer) -> AsyncIterator[list[NodeHere]]:
    """Two nodes, and a diskless topic t with a replica on either; the first leads."""
    ports = free_ports(2)
    voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(ports, 1))
    nodes = [diskless_node(
        path / rack, broker_rack=rack, node_name=f"a-{number}",
        peer_listener=f"127.0.0.1:{ports[number]}", controller_quorum_voters=voters,
        diskless_storage_url=(path / "objects").as_uri(), diskless_control_plane_url=postgres.url)
        for number, rack in enumerate("ab")]
    async with AsyncExitStack() as stack:
        await asyncio.gather(*(stack.enter_async_context(node) for node in nodes))
        clusters = [node.node.broker.cluster for node in nodes]
        await until(lambda: all(len(each.state.up()) == 2 for each in clusters) and any(
            each.is_controller for each in clusters))
        controller = next(node for node in nodes if node.node.broker.cluster.is_controller)
        await create(controller)
        cluster = controller.node.broker.cluster
        await cluster._quorum.propose([
            encode_record(moved(cluster.state, "t", 0, [HERE, THERE]))])
        await until(lambda: all(
            each.state.topics["t"].partitions[0].replicas == (HERE, THERE) for each in clusters))
        yield nodes


def bootstrap(node: NodeHere) -> str:
    return f"127.0.0.1:{node.address.port}"


def write(bootstrap_servers: str, client_id: str) -> None:
    """Produce with a stock client."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "client.id": client_id})
    for number in range(COUNT):
        producer.produce("t", b"%d" % number, partition=0)
    assert producer.flush(60) == 0


def consume(bootstrap_servers: str, offset: int = 0, **settings: str) -> list[bytes | None]:
    """Read all records with a stock client, which begins at `offset`, or again at the start."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "g",
                         "enable.auto.commit": False, "auto.offset.reset": "earliest", **settings})
    consumer.assign([TopicPartition("t", 0, offset)])
    found: list[bytes | None] = []
    while len(found) < COUNT:
        some = consumer.consume(COUNT, 60)
        assert some, f"{len(found)} of {COUNT}"
        assert [each.error() for each in some] == [None] * len(some)
        found += [each.value() for each in some]
    consumer.close()
    return found


@looped
async def test_stock_clients_use_the_node_in_their_zone(
    tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D22, D23, D24: a producer by its client id, a consumer by its rack, another by both.

    They pass over the tagged field of Metadata that they do not know, for they ask for a version
    that has it.
    """
    versions: set[int] = set()
    show = TopicViews.show

    async def noted(views: TopicViews, broker: Any, topic: Any, context: Any, zone: Any) -> Any:
        versions.add(context.api_version)
        return await show(views, broker, topic, context, zone)

    monkeypatch.setattr(TopicViews, "show", noted)
    async with in_racks_a_and_b(tmp_path, postgres) as (here, there):
        wanted = [b"%d" % number for number in range(COUNT)]
        async with here.connect() as peer:
            shown = await peer.ask(
                MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
            assert shown.topics[0].is_diskless
            assert shown.topics[0].partitions[0].leader_id == HERE
        await asyncio.to_thread(write, bootstrap(here), "p,diskless_az=b")
        assert [node.node.stats.produced_records for node in (here, there)] == [0, COUNT]
        by_rack = await asyncio.to_thread(consume, bootstrap(here), **{"client.rack": "b"})
        assert by_rack == wanted
        assert here.node.stats.fetched_bytes == 0
        assert there.node.stats.fetched_bytes > 0
        fetched = there.node.stats.fetched_bytes
        by_both = await asyncio.to_thread(
            consume, bootstrap(here), **{"client.rack": "b", "client.id": "c diskless_az=b-0"})
        assert by_both == wanted
        assert here.node.stats.fetched_bytes == 0
        assert there.node.stats.fetched_bytes > fetched
        from_a = await asyncio.to_thread(consume, bootstrap(there), **{"client.rack": "a"})
        assert from_a == wanted
        assert here.node.stats.fetched_bytes > 0
        by_rack = await asyncio.to_thread(
            consume, bootstrap(here), OUT_OF_RANGE, **{"client.rack": "b"})
        assert by_rack == wanted  # broker.serving.Z4: refused in b, and then not sent there again
        assert min(versions) >= 12

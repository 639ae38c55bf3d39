"""Responses with addresses give those of the listener that the request came by."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from quipu.broker.handlers import (
    k03_metadata,
    k60_describe_cluster,
    k75_describe_topic_partitions,
    k10000_describe_chains,
)
from quipu.broker.observing.stats import Stats
from quipu.broker.serving.context import Broker, Context
from quipu.broker.serving.response_budget import ResponseBudget
from quipu.broker.serving.routing import PartitionLeader, endpoints
from quipu.broker.serving.server import ClientSession
from quipu.controller.members import BrokerState
from quipu.controller.topic_requests import NewTopic
from quipu.model.errors import Code
from quipu.model.ids import NO_NODE, Epoch, NodeId
from quipu.model.listeners import DEFAULT, ClientListener, ListenerEndpoint, SecurityProtocol
from quipu.runtime.clock import ManualClock
from quipu.wire.messages import RESPONSES
from quipu.wire.messages.k03_metadata import MetadataRequest
from quipu.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from quipu.wire.messages.k60_describe_cluster import DescribeClusterRequest
from quipu.wire.messages.k75_describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from quipu.wire.messages.k10000_describe_chains import DescribeChainsRequest
from quipu.wire.schema import Request
from tests.broker.clusters import ABroker, a_broker
from tests.harness.here import NodeHere, Peer
from tests.looped import looped

ONE, TWO = NodeId(1), NodeId(2)
OUTSIDE = ClientListener("OUTSIDE", SecurityProtocol.PLAINTEXT)
HANDLERS: dict[type[Request], Any] = {
    MetadataRequest: k03_metadata, DescribeClusterRequest: k60_describe_cluster,
    DescribeTopicPartitionsRequest: k75_describe_topic_partitions,
    DescribeChainsRequest: k10000_describe_chains}


async def two_nodes(*, outside: NodeId) -> ABroker:
    """A broker that leads topic t, and another; only `outside` has a listener OUTSIDE."""
    broker = await a_broker(NewTopic("t"))
    known = broker.cluster.state.brokers
    known[TWO] = BrokerState(node_id=TWO, host="kafka.test", port=9093, rack=None)
    there = known[outside]
    known[outside] = replace(there, listeners=(
        ListenerEndpoint(DEFAULT.name, there.host, there.port),
        ListenerEndpoint("OUTSIDE", "out.test", 9000 + outside)))
    return broker


async def ask(broker: ABroker, request: Request, version: int, listener: ClientListener) -> Any:
    budget = ResponseBudget(broker.response_budgets, RESPONSES[request.KEY], version)
    context = Context(version, 7, "test", "::1", budget, listener)
    given = HANDLERS[type(request)].handle(cast("Broker", broker), request, context)
    response = await given if asyncio.iscoroutine(given) else given
    return type(response).decode(response.encode(version), version)


@looped
async def test_metadata_shows_brokers_that_have_the_listener() -> None:
    """The others are left out."""
    broker = await two_nodes(outside=ONE)
    for listener, wanted in (
            (DEFAULT, [(1, "kafka.test", 9092), (2, "kafka.test", 9093)]),
            (OUTSIDE, [(1, "out.test", 9001)])):
        response = await ask(broker, MetadataRequest(topics=None), 12, listener)
        assert [(each.node_id, each.host, each.port) for each in response.brokers] == wanted
        assert response.topics[0].partitions[0].leader_id == ONE
        assert response.controller_id == ONE
        described = await ask(broker, DescribeClusterRequest(), 1, listener)
        assert [(each.broker_id, each.host, each.port) for each in described.brokers] == wanted
        assert described.controller_id == ONE


@pytest.mark.parametrize(("version", "code"), [
    (5, Code.LEADER_NOT_AVAILABLE), (6, Code.LISTENER_NOT_FOUND), (12, Code.LISTENER_NOT_FOUND)])
@looped
async def test_a_leader_without_the_listener_is_not_told(version: int, code: Code) -> None:
    """Clients of the other listener get it all the same, in either order."""
    broker = await two_nodes(outside=TWO)
    for _ in range(2):
        response = await ask(broker, MetadataRequest(topics=None), version, OUTSIDE)
        partition = response.topics[0].partitions[0]
        assert (partition.error_code, partition.leader_id) == (code, NO_NODE)
        assert partition.replica_nodes == [ONE]
        assert [each.node_id for each in response.brokers] == [TWO]
        response = await ask(broker, MetadataRequest(topics=None), version, DEFAULT)
        partition = response.topics[0].partitions[0]
        assert (partition.error_code, partition.leader_id) == (Code.NONE, ONE)


@looped
async def test_descriptions_of_partitions_hide_such_a_leader_too() -> None:
    """DescribeTopicPartitions has had the error from its first version on."""
    broker = await two_nodes(outside=TWO)
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name="t")], response_partition_limit=10)
    response = await ask(broker, request, 0, OUTSIDE)
    partition = response.topics[0].partitions[0]
    assert (partition.error_code, partition.leader_id) == (Code.LISTENER_NOT_FOUND, NO_NODE)


@looped
async def test_members_of_chains_have_the_addresses_of_the_listener() -> None:
    """A node without that listener has no address."""
    for outside, address in ((ONE, ("out.test", 9001)), (TWO, ("", 0))):
        broker = await two_nodes(outside=outside)
        response = await ask(broker, DescribeChainsRequest(), 0, OUTSIDE)
        ((member,),) = [chain.members for chain in response.chains]
        assert (member.host, member.port) == address
        response = await ask(broker, DescribeChainsRequest(), 0, DEFAULT)
        assert response.chains[0].members[0].port == 9092


@looped
async def test_a_controller_without_the_listener_is_not_told() -> None:
    """Any node passes on to the controller what is for it."""
    broker = await two_nodes(outside=TWO)
    broker.cluster.state.brokers[ONE] = replace(
        broker.cluster.state.brokers[ONE], listeners=(ListenerEndpoint("INSIDE", "in.test", 1),))
    assert broker.cluster.controller_id == ONE
    there: Any = ABroker(cluster=broker.cluster)
    request = MetadataRequest(topics=[])
    assert (await ask(there, request, 12, OUTSIDE)).controller_id == there.node_id


@looped
async def test_who_leads_is_named_by_the_listener_of_the_request() -> None:
    """As in responses to Produce and Fetch; nodes without the listener are left out."""
    broker = cast("Broker", await two_nodes(outside=TWO))
    leaders = [PartitionLeader(node, Epoch(1)) for node in (ONE, TWO, NodeId(9))]
    assert [(each.node_id, each.host, each.port) for each in endpoints(
        broker, leaders, OUTSIDE)] == [(TWO, "out.test", 9002)]
    assert [(each.node_id, each.port) for each in endpoints(broker, leaders, DEFAULT)] == [
        (ONE, 9092), (TWO, 9093)]


@pytest.mark.parametrize(("name", "principal"), [
    (None, "User:ANONYMOUS"), ("CN=alice", "User:CN=alice")])
def test_a_request_is_attributed_to_whom_its_connection_proved(
    name: str | None, principal: str
) -> None:
    """And to nobody in particular where a listener asks for no proof."""
    connection: Any = SimpleNamespace(listener="OUTSIDE", peer_name=name)
    broker: Any = SimpleNamespace(
        listeners={"OUTSIDE": OUTSIDE}, clock=ManualClock(), stats=Stats())
    session = ClientSession(broker, connection)
    assert (str(session.principal), session.listener) == (principal, OUTSIDE)


@asynccontextmanager
async def connected(address: ListenerEndpoint) -> AsyncIterator[Peer]:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        yield Peer(reader, writer)
    finally:
        writer.close()


@looped
async def test_a_coordinator_is_found_by_the_listener_that_it_has(tmp_path: Path) -> None:
    """COORDINATOR_NOT_AVAILABLE if it has none of that name."""
    async with NodeHere(
            tmp_path, listeners="127.0.0.1:0,OUTSIDE://127.0.0.1:0",
            **{"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT"}) as node:
        known = node.node.broker.cluster.state.brokers
        (node_id, broker), = known.items()
        assert [each.listener for each in broker.listeners] == ["PLAINTEXT", "OUTSIDE"]
        assert (broker.host, broker.port) == broker.listeners[0][1:] == node.address
        async with connected(broker.listeners[1]) as outside, node.connect() as inside:
            request = FindCoordinatorRequest(key="g", coordinator_keys=["g"])
            for peer, endpoint in ((inside, broker.listeners[0]), (outside, broker.listeners[1])):
                for version in (0, 4):
                    response = await peer.ask(request, version)
                    found = response.coordinators[0] if version >= 4 else response
                    assert (found.error_code, found.node_id) == (Code.NONE, node_id)
                    assert (found.host, found.port) == endpoint[1:]
            known[node_id] = replace(broker, listeners=broker.listeners[:1])
            response = await outside.ask(request, 4)
            assert response.coordinators[0].error_code == Code.COORDINATOR_NOT_AVAILABLE

"""Requests that only the controller can answer, asked of nodes that are not."""

from collections.abc import Iterator
from typing import Any, cast

import pytest

from quipu.broker import envelopes
from quipu.broker.cluster.listing import LISTED_SECONDS
from quipu.broker.cluster.requests import Envelope, EnvelopeAnswer
from quipu.broker.context import Broker, Context
from quipu.broker.handlers import k03_metadata, k60_describe_cluster
from quipu.model.errors import Code, QuipuError
from quipu.model.ids import NodeId
from quipu.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from quipu.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from quipu.wire.messages.k20_delete_topics import DeleteTopicsRequest
from quipu.wire.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from quipu.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from quipu.wire.messages.k46_list_partition_reassignments import ListPartitionReassignmentsRequest
from quipu.wire.messages.k60_describe_cluster import DescribeClusterRequest
from quipu.wire.messages.k64_unregister_broker import UnregisterBrokerRequest
from quipu.wire.messages.k10001_create_chain import CreateChainRequest
from quipu.wire.messages.k10002_extend_chain import ExtendChainRequest
from quipu.wire.schema import Request
from tests.broker.cluster.rig import Rig


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig(names=("a-0", "b-0", "b-1"))
    rig.boot()
    yield rig
    rig.world.end()


def ask(rig: Rig, node_id: int, request: Request) -> Any:
    """What a client of the newest version gets from a node."""
    version = request.VERSIONS[-1]
    broker = cast("Broker", rig.program(node_id).broker)
    asked = envelopes.Asked(request, request.encode(version), Context(version, 1, "c", "::1"))
    return rig.ask(node_id, lambda _cluster: envelopes.carry(broker, asked))


def create(*names: str, timeout: int = 5000) -> CreateTopicsRequest:
    return CreateTopicsRequest(timeout=timeout, topics=[
        CreatableTopic(name=name, num_partitions=1, replication_factor=-1) for name in names])


def test_any_node_passes_requests_on(rig: Rig) -> None:
    """K5, V6: chains, topics and settings, all made on a node that is not the controller."""
    other = rig.others[0]
    chain = ask(rig, other, CreateChainRequest(name="a"))
    created = ask(rig, other, create("t"))
    altered = ask(rig, other, IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(
        resource_type=2, resource_name="t",
        configs=[AlterableConfig(name="retention.ms", config_operation=0, value="7")])]))

    state = rig.cluster(other).state
    assert [member.name for member in chain.chain.members] == ["a-0"]
    assert [(each.name, each.error_code) for each in created.topics] == [("t", Code.NONE)]
    assert created.topics[0].topic_id == state.topics["t"].topic_id
    assert [each.error_code for each in altered.responses] == [Code.NONE]
    assert dict(state.topics["t"].configs) == {"retention.ms": "7"}


def test_errors_come_back_as_they_were(rig: Rig) -> None:
    """K5: of single topics, and of the whole request."""
    other = rig.others[0]
    (topic,) = ask(rig, other, create("t")).topics
    with pytest.raises(QuipuError) as error:
        ask(rig, other, UnregisterBrokerRequest(broker_id=9))

    assert topic.error_code == Code.INVALID_REPLICATION_FACTOR
    assert "quipu chain create" in topic.error_message
    assert error.value.code is Code.BROKER_ID_NOT_REGISTERED
    assert str(error.value) == "node 9 is not registered"


@pytest.mark.parametrize("request_", [
    create("t", timeout=1000), DeleteTopicsRequest(topic_names=["t"], timeout=1000)])
def test_without_a_controller_every_part_is_told(rig: Rig, request_: Request) -> None:
    """K5: a client is answered in the time that it gave, and can try again."""
    other = rig.others[0]
    rig.cut_off(other)
    began = rig.world.loop.now
    answer = ask(rig, other, request_)

    results = answer.topics if isinstance(request_, CreateTopicsRequest) else answer.responses
    assert {each.error_code for each in results} <= {Code.REQUEST_TIMED_OUT}
    assert rig.world.loop.now - began < 2


def test_only_what_is_the_controller_s_is_answered_for_others(rig: Rig) -> None:
    """K12: a node cannot be made to do something else, whatever another one sends."""
    for key, version in ((3, 12), (19, 99), (9999, 0)):
        with pytest.raises(QuipuError, match="not answered for other nodes") as error:
            rig.ask(rig.others[0], lambda cluster, key=key, version=version: cluster.ask(
                Envelope(api_key=key, api_version=version), EnvelopeAnswer))
        assert error.value.code is Code.UNSUPPORTED_VERSION
    with pytest.raises(QuipuError):
        rig.ask(rig.others[0], lambda cluster: cluster.ask(
            Envelope(api_key=19, api_version=7, body=b"\x7f" * 9), EnvelopeAnswer))


def test_clients_are_told_who_is_up_and_who_leads(rig: Rig) -> None:
    """K5, V21: fenced brokers are hidden, after a while; what one led alone has no leader until it is back."""
    ask(rig, 1, CreateChainRequest(name="a"))
    ask(rig, 1, create("t"))
    rig.kill(1)
    rig.until(lambda: rig.cluster(2).state.brokers[NodeId(1)].fenced, "fenced")
    rig.run_for(LISTED_SECONDS + 1)
    broker = cast("Broker", rig.program(2).broker)
    context = Context(13, 1, "c", "::1")

    metadata = rig.ask(2, lambda _: k03_metadata.handle(
        broker, MetadataRequest(topics=None), context))
    described = k60_describe_cluster.handle(
        broker, DescribeClusterRequest(include_fenced_brokers=True), context)

    assert sorted((each.node_id, each.rack) for each in metadata.brokers) == [
        (2, "rack-2"), (3, "rack-3")]
    assert metadata.controller_id == described.controller_id in (2, 3)
    assert sorted((each.broker_id, each.is_fenced) for each in described.brokers) == [
        (1, True), (2, False), (3, False)]
    (partition,) = metadata.topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (Code.LEADER_NOT_AVAILABLE, -1)
    assert (partition.isr_nodes, partition.offline_replicas) == ([1], [1])


def test_metadata_does_not_wait_for_a_controller(rig: Rig) -> None:
    """K5: a topic that cannot be created now is asked for again; the rest of the answer is good."""
    rig.cut_off(1)
    broker = cast("Broker", rig.program(1).broker)
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    began = rig.world.loop.now

    answer = rig.ask(1, lambda _: k03_metadata.handle(broker, request, Context(9, 1, "c", "::1")))

    assert [topic.error_code for topic in answer.topics] == [Code.LEADER_NOT_AVAILABLE]
    assert len(answer.brokers) == 3
    assert rig.world.loop.now - began < 4


def test_a_partition_moves_from_one_chain_to_another(rig: Rig) -> None:
    """K6: it is copied, served by both, then by the new one alone; and is listed meanwhile."""
    other = rig.others[0]
    ask(rig, other, CreateChainRequest(name="a"))
    ask(rig, other, create("t"))
    ask(rig, other, CreateChainRequest(name="b"))
    for node_id in rig.machines:
        rig.program(node_id).chains.is_quick = False
    move = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=[
        ReassignablePartition(partition_index=0, replicas=[3, 2])])])

    (answer,) = ask(rig, other, move).responses
    (listed,) = ask(rig, other, ListPartitionReassignmentsRequest()).topics

    assert answer.partitions[0].error_code == Code.NONE
    assert (listed.partitions[0].adding_replicas, listed.partitions[0].removing_replicas) == (
        [2, 3], [1])
    for node_id in rig.machines:
        chains, topics = rig.program(node_id).chains, rig.cluster(node_id).state.topics
        rig.until(lambda topics=topics: topics["t"].partitions[0].moving_to == "b", "moving")
        chains.is_quick = True
        chains.sync(topics["t"])
    rig.until(lambda: rig.cluster(1).state.topics["t"].partitions[0].replicas == (2, 3), "moved")
    rig.until(lambda: rig.leader_of("t", seen_by=other) == 2, "led by the new chain")


def test_a_node_joins_a_chain_and_another_is_forgotten(rig: Rig) -> None:
    """V7, K6: the new one syncs, then serves; who is in no chain and down can be unregistered."""
    ask(rig, 1, CreateChainRequest(name="b", node_names=["b-0"]))
    ask(rig, 1, create("t"))
    extended = ask(rig, 1, ExtendChainRequest(name="b", node_name="b-1"))
    assert [(each.name, each.state) for each in extended.chain.members] == [("b-0", 0), ("b-1", 1)]
    rig.until(lambda: rig.serving("b", seen_by=2) == [2, 3], "serving")
    rig.kill(1)
    rig.until(lambda: rig.cluster(3).state.brokers[NodeId(1)].fenced, "fenced")

    assert ask(rig, 3, UnregisterBrokerRequest(broker_id=1)).error_code == Code.NONE

    assert NodeId(1) not in rig.cluster(3).state.brokers
    assert NodeId(1) in rig.peers(3).known()  # it is a voter, whatever else it is

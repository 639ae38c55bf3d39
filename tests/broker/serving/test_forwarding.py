"""Requests that only the controller can carry out, sent to other nodes."""

from collections.abc import Iterator
from typing import Any, cast

import pytest

from quipu.broker import handlers
from quipu.broker.cluster.requests import (
    CreateInternalTopicsRequest,
    CreateInternalTopicsResponse,
    EnvelopeRequest,
    EnvelopeResponse,
    InternalTopic,
)
from quipu.broker.error_codes import code_of
from quipu.broker.handlers import k03_metadata, k60_describe_cluster
from quipu.broker.serving import forwarding
from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code, QuipuError
from quipu.model.ids import NodeId
from quipu.model.listeners import DEFAULT, ClientListener, SecurityProtocol
from quipu.model.principals import ANONYMOUS, Principal
from quipu.model.topics import CONSUMER_OFFSETS
from quipu.wire.messages import RESPONSES
from quipu.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from quipu.wire.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from quipu.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
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
    asked = forwarding.ClientRequest(
        request, request.encode(version), Context(version, 1, "c", "::1"))
    response = rig.ask(node_id, lambda _cluster: forwarding.forward(broker, asked))
    if isinstance(response, forwarding.ForwardedResponse):
        return RESPONSES[request.KEY].decode(response.body, version)
    return response


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


def test_everything_that_a_client_says_of_a_topic_reaches_the_controller(rig: Rig) -> None:
    """K5: assignments and settings, from any node."""
    ask(rig, 1, CreateChainRequest(name="b"))
    for node_id in rig.machines:
        name = f"t{node_id}"
        request = CreateTopicsRequest(timeout=5000, topics=[CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=index, broker_ids=[3, 2])
                         for index in (1, 0)],
            configs=[CreatableTopicConfig(name="flush.ms", value="7")])])
        (created,) = ask(rig, node_id, request).topics
        topic = rig.cluster(node_id).state.topics[name]
        assert (created.error_code, created.num_partitions) == (Code.NONE, 2)
        assert [partition.replicas for partition in topic.partitions] == [(3, 2)] * 2
        assert topic.configs == {"flush.ms": "7"}


def test_a_node_of_the_version_before_has_topics_created(rig: Rig) -> None:
    """K5, T7: with the message that it has for it; it looks for what is there then."""
    other = rig.others[0]
    ask(rig, other, CreateChainRequest(name="a"))
    rig.ask(other, lambda cluster: cluster.ask_controller(
        CreateInternalTopicsRequest(topics=[InternalTopic(name="t"), InternalTopic(name="/")]),
        CreateInternalTopicsResponse))
    assert list(rig.cluster(other).state.topics) == ["t"]


def test_the_cluster_s_own_topics_are_guarded_through_any_node(rig: Rig) -> None:
    """K5, K8: a request that is passed on is refused as one that is not."""
    other = rig.others[0]
    ask(rig, other, CreateChainRequest(name="a"))
    rig.ask(other, lambda cluster: cluster.ensure_internal_topic(CONSUMER_OFFSETS, 2))
    altered = ask(rig, other, IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(
        resource_type=2, resource_name=CONSUMER_OFFSETS,
        configs=[AlterableConfig(name="retention.ms", config_operation=0, value="7")])]))
    deleted = ask(rig, other, DeleteTopicsRequest(
        topics=[DeleteTopicState(name=CONSUMER_OFFSETS)], timeout=5000))
    created = ask(rig, other, create("__transaction_state"))

    codes = [altered.responses[0].error_code, deleted.responses[0].error_code,
             created.topics[0].error_code]
    assert codes == [Code.INVALID_TOPIC_EXCEPTION] * 3
    assert "retention.ms" not in rig.cluster(other).state.topics[CONSUMER_OFFSETS].configs


def test_errors_come_back_as_they_were(rig: Rig) -> None:
    """K5: of single topics, and of the whole request."""
    other = rig.others[0]
    (topic,) = ask(rig, other, create("t")).topics
    with pytest.raises(QuipuError) as error:
        ask(rig, other, UnregisterBrokerRequest(broker_id=9))

    assert topic.error_code == Code.INVALID_REPLICATION_FACTOR
    assert "quipu chain create" in topic.error_message
    assert code_of(error.value) is Code.BROKER_ID_NOT_REGISTERED
    assert str(error.value) == "node 9 is not registered"


@pytest.mark.parametrize("request_", [
    create("t", timeout=1000), DeleteTopicsRequest(topic_names=["t"], timeout=1000)])
def test_without_a_controller_every_part_is_told(rig: Rig, request_: Request) -> None:
    """K5: a client gets a response within its timeout, and can try again."""
    other = rig.others[0]
    rig.cut_off(other)
    began = rig.world.loop.now
    response = ask(rig, other, request_)

    results = response.topics if isinstance(request_, CreateTopicsRequest) else response.responses
    assert {each.error_code for each in results} <= {Code.REQUEST_TIMED_OUT}
    assert rig.world.loop.now - began < 2


def test_only_requests_to_the_controller_can_be_forwarded(rig: Rig) -> None:
    """K12: a node cannot be made to do something else, whatever another one sends."""
    for key, version in ((3, 12), (19, 99), (9999, 0)):
        with pytest.raises(QuipuError, match="cannot be forwarded to this node") as error:
            rig.ask(rig.others[0], lambda cluster, key=key, version=version: cluster.ask_controller(
                EnvelopeRequest(api_key=key, api_version=version), EnvelopeResponse))
        assert code_of(error.value) is Code.UNSUPPORTED_VERSION
    with pytest.raises(QuipuError):
        rig.ask(rig.others[0], lambda cluster: cluster.ask_controller(
            EnvelopeRequest(api_key=19, api_version=7, body=b"\x7f" * 9), EnvelopeResponse))


def test_clients_are_told_who_is_up_and_who_leads(rig: Rig) -> None:
    """K5, V21: fenced brokers are hidden; what one led alone has no leader until it is back."""
    ask(rig, 1, CreateChainRequest(name="a"))
    ask(rig, 1, create("t"))
    rig.kill(1)
    rig.until(lambda: rig.cluster(2).state.brokers[NodeId(1)].fenced, "fenced")
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
    """K5: a topic that cannot be created now is requested again; the other topics are shown."""
    rig.cut_off(1)
    broker = cast("Broker", rig.program(1).broker)
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    began = rig.world.loop.now

    response = rig.ask(1, lambda _: k03_metadata.handle(broker, request, Context(9, 1, "c", "::1")))

    assert [topic.error_code for topic in response.topics] == [Code.LEADER_NOT_AVAILABLE]
    assert len(response.brokers) == 3
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
        ReassignablePartition(partition_index=0, replicas=[2, 3])])])

    (response,) = ask(rig, other, move).responses
    (listed,) = ask(rig, other, ListPartitionReassignmentsRequest()).topics

    assert response.partitions[0].error_code == Code.NONE
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


ALICE = Principal("User", "alice")
OUTSIDE = ClientListener("OUTSIDE", SecurityProtocol.SASL_SSL)


def test_the_controller_knows_who_asked_and_by_which_listener(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listener and the principal are those of the client, not those of the node between."""
    seen: list[Context] = []
    load = handlers.load

    def watched(key: int) -> Any:
        def handle(broker: Broker, request: Request, context: Context) -> Any:
            seen.append(context)
            return load(key)(broker, request, context)

        return handle

    monkeypatch.setattr(handlers, "load", watched)
    request = create("t")
    version = request.VERSIONS[-1]
    other = rig.others[0]
    broker = cast("Broker", rig.program(other).broker)
    context = Context(version, 1, "c", "::1", None, OUTSIDE, ALICE)
    asked = forwarding.ClientRequest(request, request.encode(version), context)
    rig.ask(other, lambda _cluster: forwarding.forward(broker, asked))
    assert [(each.listener, each.principal, each.client_id, each.client_host) for each in seen] == [
        (OUTSIDE, ALICE, "c", "::1")]


@pytest.mark.parametrize(("fields", "listener", "principal"), [
    ({}, DEFAULT, ANONYMOUS),
    ({"listener": "OUTSIDE", "security_protocol": "SASL_SSL"}, OUTSIDE, ANONYMOUS),
    ({"principal_type": "User", "principal_name": "alice"}, DEFAULT, ALICE),
])
def test_a_node_of_an_earlier_version_sends_no_listener_and_principal(
    fields: dict[str, str], listener: ClientListener, principal: Principal
) -> None:
    """Then it is the listener that every node had, and nobody in particular."""
    sent = EnvelopeRequest(api_key=19, api_version=7, **fields)
    envelope = EnvelopeRequest.decode(memoryview(sent.encode(0)), 0)
    assert forwarding._listener_of(envelope) == listener
    assert forwarding._principal_of(envelope) == principal


def test_a_security_protocol_of_a_later_version_is_refused() -> None:
    """Rather than taken for another one."""
    with pytest.raises(QuipuError, match="'ROT13' is not known here") as error:
        forwarding._listener_of(EnvelopeRequest(listener="X", security_protocol="ROT13"))
    assert code_of(error.value) is Code.UNSUPPORTED_VERSION

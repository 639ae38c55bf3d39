"""Who may ask the controller for what."""

from typing import Any
from uuid import UUID

import pytest

from quipu.broker.cluster.controller_server import ControllerServer
from quipu.broker.cluster.requests import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    CreateInternalTopicsRequest,
    CreateInternalTopicsResponse,
    EnvelopeRequest,
    EnvelopeResponse,
    InternalTopic,
    encode_request,
)
from quipu.controller import brokers
from quipu.controller.brokers import BROKERS_MAX, Registration
from quipu.controller.state import ClusterState
from quipu.model.errors import Code, RequestError
from quipu.model.ids import NodeId, RaftIndex
from quipu.wire.schema import Message
from tests.broker.cluster.rig import Rig
from tests.controller.states import state_with
from tests.looped import looped

MEMBER, OTHER, STRANGER = NodeId(1), NodeId(2), NodeId(66)
LIFE = UUID(int=5)
ANSWERS: list[tuple[type[Message], Message]] = [
    (BrokerRegistrationRequest, BrokerRegistrationResponse()),
    (BrokerHeartbeatRequest, BrokerHeartbeatResponse()),
    (ControlledShutdownRequest, ControlledShutdownResponse()),
    (AllocateProducerIdsRequest, AllocateProducerIdsResponse()),
    (CreateInternalTopicsRequest, CreateInternalTopicsResponse()),
    (EnvelopeRequest, EnvelopeResponse())]


class Leads:
    """A quorum that this node leads."""

    leader = MEMBER
    is_leader = True
    last_applied = RaftIndex(3)


def requests(node_id: int) -> list[Message]:
    return [
        BrokerRegistrationRequest(node_id=node_id, name="a-0", incarnation=LIFE),
        BrokerHeartbeatRequest(node_id=node_id, incarnation=LIFE),
        ControlledShutdownRequest(node_id=node_id, incarnation=LIFE),
        AllocateProducerIdsRequest(node_id=node_id),
        CreateInternalTopicsRequest(), EnvelopeRequest()]


def a_server() -> tuple[ControllerServer, list[Message]]:
    quorum: Any = Leads()
    made = ControllerServer(quorum, is_registered=lambda node_id: node_id in (MEMBER, OTHER))
    asked: list[Message] = []

    def answering(response: Message) -> Any:
        async def handle(sender: NodeId, request: Message) -> Message:
            del sender
            asked.append(request)
            return response

        return handle

    for request, response in ANSWERS:
        made.on(request, answering(response))
    return made, asked


@pytest.mark.parametrize("number", range(6))
@looped
async def test_a_registered_node_speaks_for_itself(number: int) -> None:
    """V7: all that nodes ask of the controller."""
    server, asked = a_server()
    await server._serve(MEMBER, encode_request(requests(MEMBER)[number]))
    assert len(asked) == 1


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("sender", [OTHER, STRANGER])
@looped
async def test_no_node_speaks_for_another(sender: NodeId, number: int) -> None:
    """K8, V15, broker.cluster.K1: neither its heartbeat nor its leave, nor its registration."""
    server, asked = a_server()
    with pytest.raises(RequestError, match="cannot send a request for node 1") as error:
        await server._serve(sender, encode_request(requests(MEMBER)[number]))
    assert error.value.code is Code.INVALID_REQUEST
    assert asked == []


@pytest.mark.parametrize("number", range(6))
@looped
async def test_one_that_is_not_registered_may_only_register(number: int) -> None:
    """K8, broker.cluster.K2: not even ask for a topic, or pass on what a client asks."""
    server, asked = a_server()
    call = encode_request(requests(STRANGER)[number])
    if number == 0:
        await server._serve(STRANGER, call)
        assert len(asked) == 1
        return
    with pytest.raises(RequestError, match="it may only register") as error:
        await server._serve(STRANGER, call)
    assert error.value.code is Code.BROKER_ID_NOT_REGISTERED
    assert asked == []


@pytest.mark.parametrize("name", [".", "..", "", "a/b", "t", "__cluster", "x" * 300, "\0"])
def test_only_the_clusters_own_topics_are_made_without_being_asked_twice(name: str) -> None:
    """K8: a node that asks for a topic of the cluster's own cannot mean any other."""
    rig = Rig()
    rig.boot()
    rig.chain()
    request = CreateInternalTopicsRequest(
        topics=[InternalTopic(name=name, partition_count=1)], is_internal=True)
    with pytest.raises(RequestError, match="not one of the cluster's own topics"):
        rig.ask(rig.controller, lambda cluster: cluster.ask_controller(
            request, CreateInternalTopicsResponse))
    twice = [InternalTopic(name="__consumer_offsets", partition_count=1)] * 2
    rig.ask(rig.controller, lambda cluster: cluster.ask_controller(
        CreateInternalTopicsRequest(topics=twice, is_internal=True), CreateInternalTopicsResponse))
    assert set(rig.cluster(rig.controller).state.topics) == {"__consumer_offsets"}


def a_registration(**wanted: Any) -> Registration:
    return Registration(**{"node_id": NodeId(9), "name": "b-0", "incarnation": LIFE, "host": "h",
                           "port": 1, **wanted})


@pytest.mark.parametrize("wanted", [
    {"name": "B-0"}, {"name": "b"}, {"name": "b-0\n"}, {"name": "b 1-0"}, {"name": "b-" + "9" * 99},
    {"host": "h\nLOG LINE"}, {"peer_host": "\0"}, {"rack": "\x1b[2J"}, {"port": 70_000},
    {"node_id": NodeId(-1)}, {"incarnation": UUID(int=0)}], ids=str)
def test_a_registration_that_cannot_be_is_refused(wanted: dict[str, Any]) -> None:
    """K8: every client gets what a node registers with."""
    with pytest.raises(RequestError):
        brokers.register(ClusterState(), a_registration(**wanted), quiet=False)
    brokers.register(ClusterState(), a_registration(), quiet=False)


def test_nodes_are_not_registered_without_end() -> None:
    """K8: a node that knows the secret and invents numbers fills no node's memory."""
    state = state_with(a=3)
    one = next(iter(state.brokers.values()))
    for number in range(len(state.brokers) + 1, BROKERS_MAX + 1):
        state.brokers[NodeId(number + 100)] = one
    with pytest.raises(RequestError, match="unregister") as error:
        brokers.register(state, a_registration(), quiet=False)
    assert error.value.code is Code.POLICY_VIOLATION

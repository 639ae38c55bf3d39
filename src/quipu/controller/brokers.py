"""Brokers: registered, fenced while they cannot serve, unregistered.

A broker registers each time it starts, with the incarnation of its process, and gets a broker epoch
that each of its requests carries from then on.  It is fenced until it has caught up with the
metadata, whenever its heartbeats are missing, and from the moment that it says it is stopping.

Each decision includes the changes of chains that follow from it (chains.records_for), so that a
node that fails is replaced in one step.

Not here: which brokers sent heartbeats, and when (broker/cluster/liveness.py).
"""

import dataclasses
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple
from uuid import UUID

from quipu.controller import chains, diskless
from quipu.controller.conversions import broker_record
from quipu.controller.decision import Decision, Numbers
from quipu.controller.members import NO_CHAIN, BrokerProcess, BrokerState
from quipu.controller.racks import is_rack_given_up, rack_of
from quipu.controller.records import (
    METADATA_LEVEL,
    BrokerFencingChanged,
    BrokerUnregistered,
    Record,
)
from quipu.controller.state import ClusterState
from quipu.model.chains import member_key
from quipu.model.errors import Code, RequestError
from quipu.model.ids import ZERO_UUID, NodeId
from quipu.model.listeners import LISTENERS_MAX, ListenerEndpoint, is_listener_name
from quipu.model.settings_types import LINE_SIZE_MAX, PORT_MAX, is_member_name

BROKERS_MAX: Final = 1000

NONE_COLD: Final[AbstractSet[str]] = frozenset()


class Registration(NamedTuple):
    """What a broker reports of itself when it starts."""

    node_id: NodeId
    name: str
    incarnation: UUID
    host: str
    port: int
    rack: str | None = None
    peer_host: str = ""
    peer_port: int = 0
    lease_ms: int = 0
    directory_id: UUID = ZERO_UUID
    listeners: tuple[ListenerEndpoint, ...] = ()
    metadata_level: int = METADATA_LEVEL


def register(
    state: ClusterState, wanted: Registration, *, quiet: bool, now_ms: int = 0
) -> Decision[BrokerState]:
    """Register a broker that has started; it is fenced at first.

    `quiet`: no heartbeats come from the process that is registered under this node id now.
    `now_ms` is the controller's clock, here and below; 0 if the time does not matter (racks.py).
    """
    _check_registration(state, wanted)
    numbers = Numbers(state)
    found = state.brokers.get(wanted.node_id)
    if found is not None and found.incarnation == wanted.incarnation:  # a repeat
        broker = _broker(wanted, found.epoch)
        broker = dataclasses.replace(
            broker, fenced=found.fenced, stopping=found.stopping, fenced_at_ms=found.fenced_at_ms,
            given_up=found.given_up)
    else:
        _check_other_process(found, wanted, quiet=quiet)
        broker = _broker(wanted, numbers.version())
        was_down = found is not None and found.fenced and rack_of(found) == rack_of(broker)
        broker = dataclasses.replace(
            broker, fenced_at_ms=found.fenced_at_ms if found and was_down else now_ms,
            given_up=(was_down and found is not None and found.given_up)
            or is_rack_given_up(state.brokers.values(), rack_of(broker)))
        assert broker.fenced, broker
        assert found is None or broker.epoch > found.epoch, (found, broker)  # controller.S6
    if broker == found:
        return Decision([], [broker])
    up = _without(state.up(), [wanted.node_id] if broker.fenced else [])
    return Decision([broker_record(broker), *chains.records_for(state, up, numbers)], [broker])


def register_alone(state: ClusterState, wanted: Registration) -> Decision[BrokerState]:
    """Register a broker that is a cluster of its own: no other node could unfence it."""
    numbers = Numbers(state)
    broker = dataclasses.replace(_broker(wanted, numbers.version()), fenced=False, lease_ms=0)
    assert not broker.stopping, broker
    assert broker.epoch >= state.next_version, broker  # controller.S6
    up = {**state.up(), broker.node_id: broker.process}
    return Decision([broker_record(broker), *chains.records_for(state, up, numbers)], [broker])


def current(state: ClusterState, node_id: NodeId, epoch: int) -> BrokerState:
    """The broker with this broker epoch; raises if it must register (again)."""
    broker = state.brokers.get(node_id)
    if broker is None:
        raise RequestError(f"node {node_id} is not registered", code=Code.BROKER_ID_NOT_REGISTERED)
    if broker.epoch != epoch:
        raise RequestError(
            f"node {node_id} is registered under epoch {broker.epoch}, not {epoch}: another "
            "process has taken its place", code=Code.STALE_BROKER_EPOCH)
    assert broker.node_id == node_id, broker
    assert broker.epoch < state.next_version, broker  # controller.S6
    return broker


def fence(
    state: ClusterState, nodes: Iterable[NodeId], cold_wait_over: AbstractSet[str] = NONE_COLD,
    *, now_ms: int = 0,
) -> Decision[None]:
    """Fence brokers: they lead nothing, and chains go on without them."""
    lost = sorted(node_id for node_id in nodes if not state.brokers[node_id].fenced)
    records: list[Record] = [
        BrokerFencingChanged(node_id=node_id, fenced=True, fenced_at_ms=now_ms) for node_id in lost]
    up = _without(state.up(), lost)
    assert len(records) == len(lost), (lost, records)
    assert len(up) == len(state.up()) - len(lost), (lost, up)
    return Decision([*records, *chains.records_for(state, up, Numbers(state), cold_wait_over)], [])


def unfence(
    state: ClusterState,
    node_id: NodeId,
    epoch: int,
    cold_wait_over: AbstractSet[str] = NONE_COLD,
) -> Decision[BrokerState]:
    """Unfence a broker that is ready; one that is stopping stays fenced."""
    broker = current(state, node_id, epoch)
    if not broker.fenced or broker.stopping:
        return Decision([], [broker])
    up = state.up()
    assert node_id not in up, broker
    broker = dataclasses.replace(broker, fenced=False, fenced_at_ms=0, given_up=False)
    up[node_id] = broker.process
    assert not broker.stopping, broker
    return Decision([BrokerFencingChanged(node_id=node_id),
                     *chains.records_for(state, up, Numbers(state), cold_wait_over)], [broker])


def upgrade(state: ClusterState, node_id: NodeId, epoch: int, level: int) -> Decision[BrokerState]:
    """Note which records a broker can read: an older controller has registered it without that."""
    broker = current(state, node_id, epoch)
    if broker.metadata_level >= level:
        return Decision([], [broker])
    broker = dataclasses.replace(broker, metadata_level=level)
    return Decision([broker_record(broker)], [broker])


def step_back(
    state: ClusterState,
    node_id: NodeId,
    epoch: int,
    cold_wait_over: AbstractSet[str] = NONE_COLD,
    *,
    now_ms: int = 0,
) -> Decision[BrokerState]:
    """Fence a broker whose disk has failed, at its own request, until it is restarted.

    Only if another process serves in each of its chains: where it is the only one that serves, it
    goes on with all that it still can do.  Chains of one node, which no other could serve, do not
    count if there are others.
    """
    broker = current(state, node_id, epoch)
    chains_here = state.chain_index.with_node(node_id)
    served = [chain for chain in chains_here if node_id in chain.replica_set.serving]
    shared = [chain for chain in chains_here if len(chain.members) > 1]
    if shared and all(
            any(member.node_id != node_id and state.is_live(member) for member in chain.serving)
            for chain in shared):
        decision = fence(state, [node_id], cold_wait_over, now_ms=now_ms)
        assert broker.fenced or decision.records, broker
        return Decision(decision.records, [dataclasses.replace(broker, fenced=True)])
    if served or not chains_here:
        return unfence(state, node_id, epoch, cold_wait_over)
    return Decision([], [broker])


def stop(
    state: ClusterState, node_id: NodeId, epoch: int, *, now_ms: int = 0
) -> Decision[BrokerState]:
    """Controlled shutdown: the broker leaves its chain, and may stop when this is applied.

    If it is the last one that serves, no other could: its chain stays as it is (model.H2).
    """
    broker = current(state, node_id, epoch)
    if broker.stopping:
        return Decision([], [broker])
    up = _without(state.up(), [node_id])
    assert node_id not in up, broker
    assert broker.node_id == node_id, broker
    stopped = dataclasses.replace(
        broker, fenced=True, stopping=True, fenced_at_ms=broker.fenced_at_ms or now_ms)
    return Decision([BrokerFencingChanged(
        node_id=node_id, fenced=True, stopping=True, fenced_at_ms=stopped.fenced_at_ms,
        given_up=stopped.given_up),
        *chains.records_for(state, up, Numbers(state))], [stopped])


def unregister(state: ClusterState, node_id: NodeId) -> Decision[None]:
    """Remove a broker that will not come back, and is a member of no chain."""
    broker = state.brokers.get(node_id)
    if broker is None:
        raise RequestError(f"node {node_id} is not registered", code=Code.BROKER_ID_NOT_REGISTERED)
    if (chain := state.chain_of(node_id)) is not None:
        raise RequestError(
            f"node {node_id} is a member of chain {chain.name}: a node that starts as "
            f"{broker.name} takes its place there, and `quipu chain remove {chain.name} "
            f"{broker.name}` takes it out", code=Code.INVALID_REQUEST)
    if held := state.chain_index.with_node(node_id):
        topic = next((topic.name for chain in held for topic in state.topics_on(chain.name)), "")
        raise RequestError(
            f"node {node_id} has partitions of topic {topic}: move them to other nodes first",
            code=Code.INVALID_REQUEST)
    if not broker.fenced:
        raise RequestError(f"node {node_id} is up: stop it first", code=Code.INVALID_REQUEST)
    if chains.legacy_partitions(state, node_id):
        raise RequestError(f"node {node_id} has topics that are on no chain",
                           code=Code.INVALID_REQUEST)
    assert broker.fenced, broker
    assert broker.node_id == node_id, broker
    return Decision([*diskless.moved_off(state, node_id, Numbers(state)),
                     BrokerUnregistered(node_id=node_id)], [None])


def _broker(wanted: Registration, epoch: int) -> BrokerState:
    return BrokerState(
        node_id=wanted.node_id, name=wanted.name, incarnation=wanted.incarnation, epoch=epoch,
        host=wanted.host, port=wanted.port, rack=wanted.rack, peer_host=wanted.peer_host,
        peer_port=wanted.peer_port, lease_ms=wanted.lease_ms,
        directory_id=wanted.directory_id, listeners=wanted.listeners, fenced=True,
        metadata_level=wanted.metadata_level)


def _without(
    up: Mapping[NodeId, BrokerProcess], nodes: Iterable[NodeId]
) -> dict[NodeId, BrokerProcess]:
    """The processes of `up` that are not of `nodes`."""
    gone = set(nodes)
    return {node_id: process for node_id, process in up.items() if node_id not in gone}


def _check_registration(state: ClusterState, wanted: Registration) -> None:
    """Raise if no process of this node may register itself like this."""
    texts = (wanted.host, wanted.peer_host, wanted.rack or "",
             *(endpoint.host for endpoint in wanted.listeners))
    ports = (wanted.port, wanted.peer_port, *(endpoint.port for endpoint in wanted.listeners))
    if (wanted.node_id < 0 or wanted.incarnation == ZERO_UUID
            or max(map(len, texts)) > LINE_SIZE_MAX or wanted.lease_ms < 0
            or not all(0 <= port <= PORT_MAX for port in ports)
            or not _are_listeners(wanted.listeners)):
        raise RequestError(f"node {wanted.node_id}: a registration that cannot be",
                           code=Code.INVALID_REQUEST)
    if not all(map(str.isprintable, texts)):
        raise RequestError(f"node {wanted.node_id}: a host or a rack that cannot be printed",
                           code=Code.INVALID_REQUEST)
    if wanted.node_id not in state.brokers and len(state.brokers) >= BROKERS_MAX:
        raise RequestError(f"the cluster has {BROKERS_MAX} nodes, and takes no more: unregister "
                           "those that will not come back", code=Code.POLICY_VIOLATION)
    if not is_member_name(wanted.name) or member_key(wanted.name)[0] == NO_CHAIN:
        raise RequestError(f"node.name {wanted.name[:80]!r} must be CHAIN-N, such as a-0",
                           code=Code.INVALID_REQUEST)
    other = state.find_broker(wanted.name)
    if other is not None and other.node_id != wanted.node_id:
        raise RequestError(
            f"node.name {wanted.name} is taken by node {other.node_id}, not {wanted.node_id}: "
            "give one of them another name, or unregister the other",
            code=Code.DUPLICATE_BROKER_REGISTRATION)
    found = state.brokers.get(wanted.node_id)
    chain = state.chain_of(wanted.node_id)
    if found is not None and chain is not None and found.name != wanted.name:
        raise RequestError(
            f"node {wanted.node_id} is {found.name} of chain {chain.name}: start it under that "
            f"name, or {wanted.name} with another node.id",
            code=Code.DUPLICATE_BROKER_REGISTRATION)


def _are_listeners(endpoints: tuple[ListenerEndpoint, ...]) -> bool:
    names = {endpoint.listener for endpoint in endpoints}
    return len(names) == len(endpoints) <= LISTENERS_MAX and all(map(is_listener_name, names))


def _check_other_process(found: BrokerState | None, wanted: Registration, *, quiet: bool) -> None:
    if found is None or found.fenced or quiet or found.incarnation == ZERO_UUID:
        return
    raise RequestError(
        f"node {wanted.node_id} is up already, as {found.name} at {found.host}:{found.port}: stop "
        "it, or start this one with another node.id; if it has failed, this one is taken as soon "
        "as that is noticed", code=Code.DUPLICATE_BROKER_REGISTRATION)

"""Chains, and nodes of chains, that are taken out for good, with their partitions moved elsewhere.

    a chain      its partitions move to other chains; when none is left, the chain is removed, and
                 its nodes are in no chain
    one node     each partition on it gets another node in its place, or goes on with fewer; when
                 none is left, the chain goes on without the node

Who asks again is told how far it is, and whatever is due by then is done: partitions that were
created meanwhile move too, and moves that were called off begin again.  So the request is repeated
until it is done, and nothing is lost if that ends in between.

A decision begins MOVES_MAX moves at most; what moves is not counted again.

Invariant
    controller.W1  a chain, or a node of one, goes only when no partition is on it or moves to it

Not here: the moves themselves (reassignment.py), the removal of a broker that is in no chain
(brokers.unregister), voters (broker/quorum).
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from quipu.controller import chains, reassignment
from quipu.controller.conversions import chain_record
from quipu.controller.decision import Decision, Numbers
from quipu.controller.derived_chains import unready_brokers
from quipu.controller.members import BrokerState, Chain
from quipu.controller.placement import ChainPlacement
from quipu.controller.reassignment import Reassignment
from quipu.controller.reconcile import in_order
from quipu.controller.records import ChainRemoved, Record
from quipu.controller.state import ClusterState
from quipu.controller.topic_state import Topic
from quipu.model.chains import MemberState, member_key
from quipu.model.errors import Code, RequestError
from quipu.model.ids import NodeId

MOVES_MAX: Final = 200  # that one decision begins

Order = tuple[NodeId, ...]


class Removal(NamedTuple):
    """A request to take out a chain, or one node of it."""

    chain: str
    node: str = ""  # the name of a node; empty: the whole chain
    replace_by: str = ""  # the name of the node that takes the place of `node`
    drain: bool = False  # of a whole chain: its partitions may be moved to other chains
    shorten: bool = False  # partitions may have fewer replicas afterwards


class RemovalProgress(NamedTuple):
    """How far a removal is."""

    is_done: bool
    partitions_left: int = 0  # that are still there
    partitions_moving: int = 0  # of those: that are on their way
    trouble: str | None = None  # why some do not move


class _Held(NamedTuple):
    """A partition that is to leave, and the nodes that it is on, or moves to."""

    topic: Topic
    partition: int
    order: Order
    is_rotated: bool  # its nodes are not a whole chain in its own order


def remove(state: ClusterState, wanted: Removal) -> Decision[RemovalProgress]:
    """The next steps of a removal; to be asked again until it is done."""
    if not wanted.node:
        return _remove_chain(state, wanted)
    broker = _node(state, wanted)
    if state.chain_of(broker.node_id) is None and not state.chain_index.with_node(broker.node_id):
        return Decision([], [RemovalProgress(is_done=True)])
    replacement = _replacement(state, wanted, broker)
    held = list(_held(state, {broker.node_id}))
    if held and replacement is None and not wanted.shorten:
        raise RequestError(
            f"{len(held)} partitions are on {wanted.node}, such as {_name(held[0])}: name the node "
            "that takes its place, or let them go on with fewer replicas",
            code=Code.INVALID_REQUEST)
    if not held:
        return _finished(state, *_without_node(state, broker))
    leaving = [each for each in held if broker.node_id in each.order]
    return _moved(state, held, [
        (each, _order_without(each, broker, replacement, shorten=wanted.shorten))
        for each in leaving[:MOVES_MAX]])


# -- a whole chain


def _remove_chain(state: ClusterState, wanted: Removal) -> Decision[RemovalProgress]:
    chain = chains.operators_chain(state, wanted.chain)
    nodes = set(chain.nodes)
    held = list(_held(state, nodes))
    if not held:
        unused = [each for each in state.chain_index.derived() if nodes & set(each.nodes)]
        return _finished(state, *(ChainRemoved(name=each.name) for each in (*unused, chain)))
    if not wanted.drain:
        raise RequestError(
            f"chain {chain.name} has {len(held)} partitions of "
            f"{len({each.topic.topic_id for each in held})} topics, such as {_name(held[0])}: move "
            "them to other chains, which draining does", code=Code.INVALID_REQUEST)
    others = [each for each in state.chain_index.operators() if each is not chain]
    if not others:
        raise RequestError(f"there is no chain but {chain.name} to move partitions to",
                           code=Code.INVALID_REQUEST)
    leaving = [each for each in held if nodes & set(each.order)]
    homes = _Homes(state, others)
    return _moved(state, held, [
        (each, homes.order_of(each, shorten=wanted.shorten)) for each in leaving[:MOVES_MAX]])


class _Homes:
    """The chains that topics are moved to: each topic to one, those with the fewest first."""

    def __init__(self, state: ClusterState, others: Sequence[Chain]) -> None:
        self._state = state
        self._others = sorted(others, key=lambda chain: chain.name)
        self._counts = {chain.name: state.topic_count(chain.name) for chain in others}
        self._chosen: dict[str, Chain] = {}

    def order_of(self, held: _Held, *, shorten: bool) -> Order:
        """Where a partition moves: to as many nodes as it has, if there are so many."""
        length = len(held.order)
        chain = self._chosen.get(held.topic.name) or self._choose(held.topic, length)
        order = self._state.chain_index.preferred(chain.name)
        if len(order) < length and not shorten:
            raise RequestError(
                f"{_name(held)} has {length} replicas, and no other chain has so many nodes: let "
                "partitions go on with fewer replicas", code=Code.INVALID_REQUEST)
        first = held.partition % len(order) if held.is_rotated or len(order) > length else 0
        return (*order[first:], *order[:first])[:length]

    def _choose(self, topic: Topic, length: int) -> Chain:
        enough = [chain for chain in self._others if len(chain.nodes) >= length]
        shortest = min((len(chain.nodes) for chain in enough), default=0)
        longest = max(len(chain.nodes) for chain in self._others)
        able = [chain for chain in self._others if len(chain.nodes) == (shortest or longest)]
        there = [chain for chain in able if chain.name in topic.chains]  # as after an earlier step
        chosen = min(there or able, key=lambda chain: self._counts[chain.name])
        self._counts[chosen.name] += not there
        self._chosen[topic.name] = chosen
        return chosen


# -- one node


def _node(state: ClusterState, wanted: Removal) -> BrokerState:
    broker = state.find_broker(wanted.node)
    if broker is None:
        raise RequestError(f"no node called {wanted.node[:80]!r} is registered",
                           code=Code.BROKER_ID_NOT_REGISTERED)
    chain = state.chain_of(broker.node_id)
    name = member_key(broker.name)[0] if chain is None else chain.name
    if name != wanted.chain:
        raise RequestError(f"node {broker.name} is not in chain {wanted.chain[:80]}, but in {name}",
                           code=Code.INVALID_REQUEST)
    if chains.legacy_partitions(state, broker.node_id):
        raise RequestError(f"node {broker.name} has topics from before there were chains",
                           code=Code.INVALID_REQUEST)
    return broker


def _replacement(state: ClusterState, wanted: Removal, broker: BrokerState) -> NodeId | None:
    if not wanted.replace_by:
        return None
    other = state.find_broker(wanted.replace_by)
    if other is None:
        raise RequestError(f"no node called {wanted.replace_by[:80]!r} is registered",
                           code=Code.BROKER_ID_NOT_REGISTERED)
    if other.node_id == broker.node_id:
        raise RequestError(
            f"{broker.name} cannot replace itself: a node that starts under its name with an "
            "empty directory takes its place without this", code=Code.INVALID_REQUEST)
    if other.fenced:
        raise RequestError(f"{other.name} is not up", code=Code.BROKER_NOT_AVAILABLE)
    return other.node_id


def _order_without(
    held: _Held, broker: BrokerState, replacement: NodeId | None, *, shorten: bool
) -> Order:
    if replacement is not None and replacement not in held.order:
        return tuple(replacement if node_id == broker.node_id else node_id
                     for node_id in held.order)
    order = tuple(node_id for node_id in held.order if node_id != broker.node_id)
    if not order:
        raise RequestError(f"{_name(held)} is on {broker.name} alone: name the node that takes its "
                           "place", code=Code.INVALID_REQUEST)
    if not shorten:
        raise RequestError(
            f"{_name(held)} is on node {replacement} already: name another node, or let such "
            "partitions go on with fewer replicas", code=Code.INVALID_REQUEST)
    return order


def _without_node(state: ClusterState, broker: BrokerState) -> Iterator[Record]:
    """The chains without a node that no partition is on; a chain of that node alone goes."""
    for chain in state.chain_index.with_node(broker.node_id):
        order = state.chain_index.preferred(chain.name)
        rest = sorted((member for member in chain.members if member.node_id != broker.node_id),
                      key=lambda member: order.index(member.node_id))
        if chain.is_derived or not rest:
            yield ChainRemoved(name=chain.name)
            continue
        up, numbers = state.up(), Numbers(state)
        first = next((member for member in rest if member.node_id in up), rest[0])
        members = in_order(  # it has no records: all that are up serve
            member.under(up[member.node_id])._replace(state=MemberState.SERVING)
            if member.node_id in up else member._replace(
                state=MemberState.SERVING if member is first else MemberState.OFFLINE)
            for member in rest)
        yield chain_record(dataclasses.replace(
            chain, epoch=numbers.epoch(), version=numbers.version(), members=members))


# -- both


def _held(state: ClusterState, nodes: set[NodeId]) -> Iterator[_Held]:
    """Partitions with a replica on some of `nodes`, or moving there."""
    names = {chain.name for node_id in nodes for chain in state.chain_index.with_node(node_id)}
    topics = {topic.topic_id: topic for name in sorted(names) for topic in state.topics_on(name)}
    for topic in topics.values():
        for index, partition in enumerate(topic.partitions):
            placement = partition.placement
            if isinstance(placement, ChainPlacement) and nodes & set(partition.replicas):
                name = placement.moving_to or placement.chain
                yield _Held(topic, index, state.chain_index.preferred(name),
                            is_rotated=state.chains[name].is_derived)


def _moved(
    state: ClusterState, held: Sequence[_Held], moves: Sequence[tuple[_Held, Order]]
) -> Decision[RemovalProgress]:
    """Begin moves; `held` are all partitions that have to leave."""
    decision = reassignment.alter(state, [
        Reassignment(each.topic.name, each.partition, order) for each, order in moves])
    refused = [result for result in decision.results if result.code]
    trouble = (f"{refused[0].topic}-{refused[0].partition}: {refused[0].message}"
               if refused else None)
    begun = {_name(each) for each, _ in moves} - {
        f"{result.topic}-{result.partition}" for result in refused}
    moving = sum(_is_moving(each) or _name(each) in begun for each in held)
    return Decision(decision.records, [RemovalProgress(
        is_done=False, partitions_left=len(held), partitions_moving=moving, trouble=trouble)])


def _is_moving(held: _Held) -> bool:
    return held.topic.partitions[held.partition].moving_to is not None


def _finished(state: ClusterState, *records: Record) -> Decision[RemovalProgress]:
    if behind := unready_brokers(state):  # controller.R4
        raise RequestError(
            f"{', '.join(behind)} run a version that cannot remove chains: upgrade them first",
            code=Code.POLICY_VIOLATION)
    return Decision(list(records), [RemovalProgress(is_done=True)])  # controller.W1


def _name(held: _Held) -> str:
    return f"{held.topic.name}-{held.partition}"

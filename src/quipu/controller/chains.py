"""Chains: created, extended, and reconciled with the brokers that are up.

A member changes its state when

    serving -> offline     its process is not up, or is another one, and another member serves
    offline -> syncing     a process of it is up again
    syncing -> serving     it has caught up (`promote`)
    serving -> serving     under another process: only when the process of no member has lived on,
                           and only with the data directory of the process before

Invariants, beside model.H1 to model.H3
    controller.C1  a member that becomes serving without syncing served in the chain's last epoch,
                   and has the data directory that it had then: so it has every record that was
                   acknowledged.  The exception is `elect` UNCLEAN, whose name says so
    controller.C2  while the process of some serving member lives on, no member that was restarted
                   serves without syncing: what it had not flushed may be lost
    controller.C3  `reconcile` comes to rest: on the state that its records give, it decides nothing

What cannot be done raises a `RequestError`; a change that is not needed has no records.

All of this holds for operators' chains and for derived ones, except that operators create and
extend only their own: derived ones come and go with the partitions on them (derived_chains.py).

Not here: which brokers are up (brokers.py), when a cold chain has waited long enough
(broker/cluster), elections that clients request (elections.py), partitions that move between chains
(reassignment.py) or have a failed replica (failed_replicas.py), the members of one chain
(reconcile.py).
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple, assert_never
from uuid import UUID

from quipu.controller import derived_chains, failed_replicas
from quipu.controller.conversions import chain_record
from quipu.controller.decision import Decision, Numbers
from quipu.controller.members import NO_CHAIN, BrokerProcess, BrokerState, Chain, ChainMember
from quipu.controller.placement import ChainPlacement, DisklessPlacement, LegacyPlacement
from quipu.controller.reconcile import idle, in_order, promoted, reconciled, with_members
from quipu.controller.records import PartitionsMoved, PlacementKind, Record
from quipu.controller.state import ClusterState
from quipu.model.chains import MemberState, member_key
from quipu.model.errors import Code, RequestError
from quipu.model.ids import Epoch, NodeId


class MemberView(NamedTuple):
    """A member of a chain, as DescribeChains shows it."""

    broker: BrokerState
    state: MemberState
    is_live: bool  # the process that is this member is up


class OrderView(NamedTuple):
    """Partitions that have the same replicas in the same order, as DescribeChains shows them."""

    chain: Chain  # a derived one, or the operator's itself
    preferred: tuple[NodeId, ...]  # its nodes in the order that is preferred
    members: list[MemberView]
    partition_count: int


class ChainView(NamedTuple):
    """A chain of an operator, as DescribeChains shows it."""

    chain: Chain
    members: list[MemberView]
    topic_count: int
    partition_count: int  # in all orders
    orders: list[OrderView]  # its own first, then those of derived chains that belong to it


def describe(state: ClusterState, names: Sequence[str] | None = None) -> list[ChainView]:
    """Operators' chains by name: all of them, or those of `names` that exist."""
    found = {chain.name: chain for chain in state.chain_index.operators()}
    return [view(state, found[name])
            for name in sorted(found if names is None else found.keys() & set(names))]


def view(state: ClusterState, chain: Chain) -> ChainView:
    """One chain of an operator, which need not be in the state yet."""
    assert set(chain.nodes) <= state.brokers.keys(), chain  # controller.S7
    is_known = chain.name in state.chains
    orders = [_order_view(state, each) for each in (
        state.chain_index.family(chain.name) if is_known else [chain])]
    return ChainView(
        chain=chain, members=_member_views(state, chain), orders=orders,
        topic_count=state.topic_count(chain.name) if is_known else 0,
        partition_count=sum(order.partition_count for order in orders))


def _order_view(state: ClusterState, chain: Chain) -> OrderView:
    preferred = (state.chain_index.preferred(chain.name) if chain.name in state.chains
                 else chain.nodes)
    return OrderView(chain, preferred, _member_views(state, chain),
                     sum(1 for _ in state.partitions_on(chain.name)))


def _member_views(state: ClusterState, chain: Chain) -> list[MemberView]:
    return [MemberView(state.brokers[member.node_id], member.state, state.is_live(member))
            for member in chain.members]


# -- requested by operators


def create(state: ClusterState, name: str, node_names: Sequence[str] = ()) -> Decision[Chain]:
    """Create a chain of the nodes named, or of all called `<name>-<number>`, in that order."""
    if (there := state.chains.get(name)) is not None:
        if node_names and sorted(node_names) == sorted(
                state.brokers[node_id].name for node_id in there.nodes):
            return Decision([], [there])  # as after a request whose response was lost
        raise RequestError(f"chain {name} exists already", code=Code.DUPLICATE_RESOURCE)
    brokers = _members_to_be(state, name, node_names)
    holders = {broker.node_id for broker in brokers if legacy_partitions(state, broker.node_id)}
    if len(holders) > 1:
        raise RequestError(
            f"nodes {sorted(holders)} each have topics from before there were chains: make a "
            "chain for each of them first", code=Code.INVALID_REQUEST)
    first = [broker for broker in brokers if not holders or broker.node_id in holders]
    rest = [broker for broker in brokers if broker not in first]
    numbers = Numbers(state)
    chain = Chain(name=name, epoch=numbers.epoch(), version=numbers.version(), members=(
        *(_member(broker, MemberState.SERVING) for broker in first),
        *(_member(broker, MemberState.SYNCING) for broker in rest)))
    assert len(chain.members) == len(brokers), (chain, brokers)
    assert all(map(state.is_live, chain.members)), chain
    assert not any(state.chain_of(node_id) for node_id in chain.nodes), chain  # controller.S7
    return Decision([chain_record(chain), *_adopt(state, chain, numbers)], [chain])


def bootstrap_alone(state: ClusterState, node_id: NodeId, name: str) -> Decision[Chain]:
    """Create the chain of a node that is a cluster of its own, unless it is in a chain already.

    Topics from before there were chains are moved to it.
    """
    found = state.chain_of(node_id)
    if found is not None:
        assert found.find(node_id) is not None, found
        return Decision([], [found])
    if name in state.chains:
        raise RequestError(
            f"chain {name} exists, and node {node_id} is not in it: quipu chain extend",
            code=Code.INVALID_REQUEST)
    numbers = Numbers(state)
    chain = Chain(name=name, epoch=numbers.epoch(), version=numbers.version(),
                  members=(_member(state.brokers[node_id], MemberState.SERVING),))
    assert chain.head.node_id == node_id, chain
    return Decision([chain_record(chain), *_adopt(state, chain, numbers)], [chain])


def extend(state: ClusterState, name: str, node_name: str) -> Decision[Chain]:
    """Add a node at the end of a chain; it serves when it has caught up (V7).

    It is added to the derived chains that have all nodes of the chain, too; others stay.
    """
    chain = operators_chain(state, name)
    broker = _free_broker(state, name, node_name)
    if legacy_partitions(state, broker.node_id):
        raise RequestError(
            f"node {node_name} has topics from before there were chains, which would be lost: "
            "make a chain of it first", code=Code.INVALID_REQUEST)
    numbers = Numbers(state)
    whole = [each for each in state.chain_index.family(name)
             if {*each.nodes} == {*chain.nodes} and each.find(broker.node_id) is None]
    joined = [_extended(state, each, broker, numbers) for each in whole]
    assert joined[0].name == name, (chain, joined)
    return Decision([*map(chain_record, joined),
                     *failed_replicas.records_for(state, state.up(), numbers, joined)], joined[:1])


def _extended(
    state: ClusterState, chain: Chain, broker: BrokerState, numbers: Numbers
) -> Chain:
    """`chain` with one more member, which syncs if it is up."""
    joined = dataclasses.replace(
        chain, version=numbers.version(),
        order=(*chain.order, broker.node_id) if chain.is_derived else (),
        members=in_order([*chain.members, idle(_member(broker, MemberState.OFFLINE),
                                               state.up())]))
    assert joined.version > chain.version, (chain, joined)  # controller.S6
    assert joined.serving == chain.serving, (chain, joined)  # model.H3: the epoch is the same
    assert {*joined.nodes} == {*chain.nodes, broker.node_id}, (chain, joined)
    return joined


def promote(state: ClusterState, name: str, node_id: NodeId, mark: int) -> Decision[Chain]:
    """Make a member that has caught up the tail of its chain, under a new epoch (V7).

    `mark` is the `chain_mark` of the state in which the head saw that the member has every record
    of every partition of the chain: if anything has changed since, the head must look again.  Only
    the first syncing member can be promoted: those behind it have, at best, what it has.

    From that moment on the head must have waited for the member's acknowledgements as if it served;
    else records may be acknowledged that it does not have, and it may be the last one to live.
    """
    chain = _chain(state, name)
    member = chain.find(node_id)
    if mark != state.chain_mark(name):
        raise RequestError(
            f"chain {name} was at {mark} when node {node_id} had caught up, and is at "
            f"{state.chain_mark(name)} now", code=Code.INVALID_UPDATE_VERSION)
    syncing = chain.within(MemberState.SYNCING)
    if member is None or member not in syncing[:1] or not all(
            map(state.is_live, (*chain.serving, member))):
        raise RequestError(f"node {node_id} is not the next to serve in chain {name}",
                           code=Code.INELIGIBLE_REPLICA)
    numbers = Numbers(state)
    changed = promoted(chain, member, numbers)
    assert changed.name == name, (name, changed)
    assert set(changed.nodes) == set(chain.nodes), (chain, changed)
    return Decision([chain_record(changed),
                     *failed_replicas.records_for(state, state.up(), numbers, [changed])],
                    [changed])


# -- kept up to date


def reconcile(
    state: ClusterState, cold_wait_over: AbstractSet[str] = frozenset()
) -> Decision[None]:
    """Bring every chain in line with the brokers that are up; remove derived ones without use.

    `cold_wait_over`: chains that have waited long enough for their other serving members to come
    back (see `cold`).
    """
    return Decision(list(records_for(state, state.up(), Numbers(state), cold_wait_over)), [])


def cold(state: ClusterState) -> frozenset[str]:
    """Chains whose serving processes have all ended, and of whose members only some are back."""
    up = state.up()
    return frozenset((
        *(chain.name for chain in state.chains.values()
          if reconciled(chain, up, waited=True) != reconciled(chain, up, waited=False)),
        *failed_replicas.cold(state, up)))


def records_for(
    state: ClusterState,
    up: Mapping[NodeId, BrokerProcess],
    numbers: Numbers,
    cold_wait_over: AbstractSet[str] = frozenset(),
) -> Iterable[Record]:
    """The changes of chains, and of detached partitions, if `up` are the processes that are up."""
    changed = []
    for name in sorted(state.chains):
        chain = state.chains[name]
        if chain.is_derived and not state.chain_index.topics_on(name):
            continue  # it is removed
        members = reconciled(chain, up, waited=name in cold_wait_over)
        if members != chain.members:
            changed.append(with_members(chain, members, numbers))
    yield from map(chain_record, changed)
    yield from failed_replicas.records_for(state, up, numbers, changed, cold_wait_over)
    yield from derived_chains.unused(state)


# -- which brokers may be members


def _chain(state: ClusterState, name: str) -> Chain:
    chain = state.chains.get(name)
    if chain is None:
        raise _no_chain(state, name)
    return chain


def operators_chain(state: ClusterState, name: str) -> Chain:
    """The chain of this name that an operator has made; raises if there is none."""
    chain = _chain(state, name)
    if chain.is_derived:
        raise _no_chain(state, name)
    return chain


def _no_chain(state: ClusterState, name: str) -> RequestError:
    there = sorted(chain.name for chain in state.chain_index.operators())
    return RequestError(f"there is no chain {name[:80]}; there are {there or 'none'}",
                        code=Code.RESOURCE_NOT_FOUND)


def _members_to_be(
    state: ClusterState, name: str, node_names: Sequence[str]
) -> list[BrokerState]:
    if not node_names:
        node_names = [broker.name for broker in state.brokers.values()
                      if member_key(broker.name)[0] == name != NO_CHAIN]
        if not node_names:
            raise RequestError(
                f"no node called {name[:80]}-0, {name[:80]}-1 and so on is registered",
                code=Code.INVALID_REQUEST)
    if len(set(node_names)) != len(node_names):
        raise RequestError("a node can be in a chain once", code=Code.INVALID_REQUEST)
    brokers = [_free_broker(state, name, node_name) for node_name in node_names]
    if down := [broker.name for broker in brokers if broker.fenced]:
        raise RequestError(
            f"{', '.join(sorted(down))}: all nodes of a new chain must be up",
            code=Code.BROKER_NOT_AVAILABLE)
    assert brokers, name
    assert len(brokers) == len(node_names), (node_names, brokers)
    return sorted(brokers, key=lambda broker: member_key(broker.name))


def _free_broker(state: ClusterState, name: str, node_name: str) -> BrokerState:
    """The broker `node_name`; raises unless its name is one of chain `name` and it is in none."""
    broker = state.find_broker(node_name) if node_name else None
    if broker is None:
        raise RequestError(f"no node called {node_name[:80]!r} is registered",
                           code=Code.BROKER_ID_NOT_REGISTERED)
    if member_key(node_name)[0] != name:
        raise RequestError(
            f"node {node_name} cannot be in chain {name[:80]}: its nodes are called "
            f"{name[:80]}-0, {name[:80]}-1 and so on", code=Code.INVALID_REQUEST)
    if (chain := state.chain_of(broker.node_id)) is not None:
        raise RequestError(f"node {node_name} is in chain {chain.name} already",
                           code=Code.INVALID_REQUEST)
    return broker


def _member(broker: BrokerState, state: MemberState) -> ChainMember:
    """The broker's process that is registered now, as a member in `state`."""
    return ChainMember(broker.node_id, state, *broker.process)


# -- topics from before there were chains


def legacy_partitions(state: ClusterState, node_id: NodeId) -> dict[UUID, list[int]]:
    """Partitions from before there were chains that `node_id` is a replica of, by topic."""
    found: dict[UUID, list[int]] = {}
    for topic in state.topics.values():
        for index, partition in enumerate(topic.partitions):
            placement = partition.placement
            match placement:
                case LegacyPlacement():
                    if node_id in placement.replicas:
                        found.setdefault(topic.topic_id, []).append(index)
                case ChainPlacement() | DisklessPlacement():
                    pass
                case _:
                    assert_never(placement)
    return found


def _adopt(state: ClusterState, chain: Chain, numbers: Numbers) -> Iterable[Record]:
    """Move the legacy topics of the node that serves in a new chain to that chain."""
    assert chain.name not in state.chains, chain
    assert chain.head.state is MemberState.SERVING, chain
    legacy = legacy_partitions(state, chain.head.node_id)
    version = numbers.version() if legacy else 0
    for topic_id, partitions in legacy.items():
        assert partitions, topic_id
        yield PartitionsMoved(topic_id=topic_id, partitions=partitions, chain=chain.name,
                              epoch=Epoch(0), version=version, kind=PlacementKind.CHAIN)

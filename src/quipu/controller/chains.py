"""Chains: made, extended, brought up to date with who is up, and put in order.

    serving -> offline     it is not up, or its process is another one, and some other serves
    offline -> syncing     it is up again
    syncing -> serving     it has caught up (`promote`)
    serving -> serving     under another process: only when no member's process has lived on, and
                           only with the data directory of the process before

Invariants, beside H1 to H3 of model/chains
    C1  who becomes serving without syncing served in the chain's last epoch, and has the data
        directory that it had then: so it has every record that was acknowledged.  `elect` UNCLEAN
        is the exception, and says what it is
    C2  while some serving member's process lives on, none that was restarted serves without
        syncing: what it had not flushed may be lost
    C3  `review` comes to rest: on the state that its records give, it decides nothing

A single question that cannot be answered raises a `RequestError`; a change that is not needed has
no records.

Not here: who is up (brokers), when a cold chain has waited long enough (broker/cluster), elections
as clients ask for them (elections), partitions on their way between chains (reassignment) or with a
replica that has failed (detached), the members of one chain (reviewing).
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple
from uuid import UUID

from quipu.controller import detached
from quipu.controller.decision import Decision, Numbers
from quipu.controller.members import (
    NO_CHAIN,
    BrokerState,
    Chain,
    ChainMember,
    Process,
    chain_record,
)
from quipu.controller.records import PartitionsMoved, Record
from quipu.controller.reviewing import idle, in_order, promoted, reviewed, with_members
from quipu.controller.state import ClusterState
from quipu.model.chains import MemberState, member_key
from quipu.model.errors import Code, RequestError
from quipu.model.ids import Epoch, NodeId


class MemberView(NamedTuple):
    """A member as people see it."""

    broker: BrokerState
    state: MemberState
    is_live: bool  # the process that has this part is up


class ChainView(NamedTuple):
    """A chain as people see it."""

    chain: Chain
    members: list[MemberView]
    topic_count: int
    partition_count: int


def describe(state: ClusterState, names: Sequence[str] | None = None) -> list[ChainView]:
    """Chains by name: all of them, or those of `names` that exist."""
    wanted = sorted(state.chains if names is None else state.chains.keys() & set(names))
    return [view(state, state.chains[name]) for name in wanted]


def view(state: ClusterState, chain: Chain) -> ChainView:
    """One chain, which need not be in the state yet."""
    return ChainView(
        chain=chain,
        members=[MemberView(state.brokers[member.node_id], member.state, state.is_live(member))
                 for member in chain.members],
        topic_count=state.topic_count(chain.name),
        partition_count=sum(1 for _ in state.partitions_on(chain.name)))


# -- made by people


def create(state: ClusterState, name: str, node_names: Sequence[str] = ()) -> Decision[Chain]:
    """A chain of the nodes named, or of all that are called `<name>-<number>`; in their order."""
    if name in state.chains:
        raise RequestError(f"chain {name} exists already", code=Code.DUPLICATE_RESOURCE)
    brokers = _members_to_be(state, name, node_names)
    holders = {broker.node_id for broker in brokers if _chainless(state, broker.node_id)}
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
    return Decision([chain_record(chain), *_adopt(state, chain, numbers)], [chain])


def bootstrap_alone(state: ClusterState, node_id: NodeId, name: str) -> Decision[Chain]:
    """The chain of a node that is a cluster of its own; nothing if it is in a chain already.

    Topics from before there were chains join it.
    """
    found = state.chain_of(node_id)
    if found is not None:
        return Decision([], [found])
    if name in state.chains:
        raise RequestError(
            f"chain {name} exists, and node {node_id} is not in it: quipu chain extend",
            code=Code.INVALID_REQUEST)
    numbers = Numbers(state)
    chain = Chain(name=name, epoch=numbers.epoch(), version=numbers.version(),
                  members=(_member(state.brokers[node_id], MemberState.SERVING),))
    return Decision([chain_record(chain), *_adopt(state, chain, numbers)], [chain])


def extend(state: ClusterState, name: str, node_name: str) -> Decision[Chain]:
    """One more node for a chain, at its end; it serves when it has caught up (V7)."""
    chain = _chain(state, name)
    broker = _free_broker(state, name, node_name)
    if _chainless(state, broker.node_id):
        raise RequestError(
            f"node {node_name} has topics from before there were chains, which would be lost: "
            "make a chain of it first", code=Code.INVALID_REQUEST)
    numbers = Numbers(state)
    joined = Chain(
        name=name, epoch=chain.epoch, version=numbers.version(),
        members=in_order([*chain.members, idle(_member(broker, MemberState.OFFLINE),
                                               state.up())]))
    return Decision([chain_record(joined),
                     *detached.follow(state, state.up(), numbers, [joined])], [joined])


def promote(state: ClusterState, name: str, node_id: NodeId, mark: int) -> Decision[Chain]:
    """A member that has caught up serves from now on, as the tail, under a new epoch (V7).

    `mark` is the `chain_mark` of the state in which it was seen to have every record of every
    partition of the chain: if anything has changed since, look again.  Only the first that syncs
    can be promoted: those behind it have caught up with it, at best.

    Whoever reports must have waited, since it saw, for the member's acknowledgements as if it
    served; else records may be acknowledged that it has not got, and it may be the last to live.
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
    return Decision([chain_record(changed),
                     *detached.follow(state, state.up(), numbers, [changed])], [changed])


# -- kept up to date


def review(
    state: ClusterState, cold_wait_over: AbstractSet[str] = frozenset()
) -> Decision[None]:
    """Every chain as it should be, given who is up.  `cold_wait_over`: chains that have waited
    long enough for the rest of their serving members (see `cold`).
    """
    return Decision(list(follow(state, state.up(), Numbers(state), cold_wait_over)), [])


def cold(state: ClusterState) -> frozenset[str]:
    """Chains of which no serving process has lived on, and some but not all have come back."""
    up = state.up()
    return frozenset((
        *(chain.name for chain in state.chains.values()
          if reviewed(chain, up, waited=True) != reviewed(chain, up, waited=False)),
        *detached.cold(state, up)))


def follow(
    state: ClusterState,
    up: Mapping[NodeId, Process],
    numbers: Numbers,
    cold_wait_over: AbstractSet[str] = frozenset(),
) -> Iterable[Record]:
    """What changes in chains, and in partitions that are detached, if `up` are the processes that
    are up.
    """
    changed = []
    for name in sorted(state.chains):
        chain = state.chains[name]
        members = reviewed(chain, up, waited=name in cold_wait_over)
        if members != chain.members:
            changed.append(with_members(chain, members, numbers))
    yield from map(chain_record, changed)
    yield from detached.follow(state, up, numbers, changed, cold_wait_over)


# -- who may be a member


def _chain(state: ClusterState, name: str) -> Chain:
    chain = state.chains.get(name)
    if chain is None:
        raise RequestError(
            f"there is no chain {name[:80]}; there are {sorted(state.chains) or 'none'}",
            code=Code.RESOURCE_NOT_FOUND)
    return chain


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
    return sorted(brokers, key=lambda broker: member_key(broker.name))


def _free_broker(state: ClusterState, name: str, node_name: str) -> BrokerState:
    """The broker `node_name`, which is called after chain `name` and is in none."""
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
    return ChainMember(broker.node_id, state, *broker.process)


# -- topics from before there were chains


def _chainless(state: ClusterState, node_id: NodeId) -> dict[UUID, list[int]]:
    """Partitions on no chain that `node_id` has, by topic."""
    found: dict[UUID, list[int]] = {}
    for topic in state.topics.values():
        for index, partition in enumerate(topic.partitions):
            if partition.chain == NO_CHAIN and node_id in partition.replicas:
                found.setdefault(topic.topic_id, []).append(index)
    return found


def _adopt(state: ClusterState, chain: Chain, numbers: Numbers) -> Iterable[Record]:
    """Topics of the node that serves are on its chain from now on."""
    chainless = _chainless(state, chain.head.node_id)
    version = numbers.version() if chainless else 0
    for topic_id, partitions in chainless.items():
        yield PartitionsMoved(topic_id=topic_id, partitions=partitions, chain=chain.name,
                              epoch=Epoch(0), version=version)

"""Elections that clients request: the preferred head, or, with loss of records, any member.

An election is one of a chain: it changes the leader of all of its partitions, whichever of them was
named.  A partition that is detached from its chain (failed_replicas.py), and a diskless one, has an
election of its own.

    PREFERRED   the first node of the chain's preferred order (by number, or as a derived chain
                has it) becomes its head again, if it serves; the first replica of a diskless
                partition its leader, if it is up
    UNCLEAN     no serving member is up: the first member that is up serves alone from now on.
                Records that it does not have are lost, though they were acknowledged; so a
                member that came back with another data directory is the last choice

Not here: changes of a chain that no client requests (chains.reconcile).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, assert_never

from quipu.controller import diskless, failed_replicas
from quipu.controller.conversions import chain_record
from quipu.controller.decision import Decision, Numbers
from quipu.controller.derived_chains import words
from quipu.controller.members import BrokerProcess, Chain, ChainMember
from quipu.controller.placement import ChainPlacement, DisklessPlacement, LegacyPlacement
from quipu.controller.reconcile import reconciled, returned, with_members
from quipu.controller.records import Record
from quipu.controller.state import ClusterState, Key
from quipu.model.chains import MemberState
from quipu.model.errors import Code, RequestError
from quipu.model.ids import NodeId, TopicPartition


class ElectionType(IntEnum):
    """Kafka's numbers."""

    PREFERRED = 0
    UNCLEAN = 1


class ElectionResult(NamedTuple):
    """The outcome of one partition's election."""

    topic: str
    partition: int
    code: Code = Code.NONE
    message: str | None = None


def elect(
    state: ClusterState, kind: ElectionType, wanted: Sequence[TopicPartition] | None
) -> Decision[ElectionResult]:
    """Elect leaders of the partitions `wanted`; or of all, with results for those that need it."""
    partitions = wanted
    if partitions is None:
        partitions = [TopicPartition(topic.name, index) for topic in state.topics.values()
                 for index in range(len(topic.partitions))]
    numbers = Numbers(state)
    moves = diskless.DisklessMoves(numbers)
    outcomes: dict[str, ElectionResult] = {}
    elected: dict[str, Chain] = {}
    records: list[Record] = []
    results: list[ElectionResult] = []
    for name, partition in partitions:
        found = _find(state, name, partition)
        if isinstance(found, DisklessPlacement):
            found = _elect_diskless(state, kind, TopicPartition(name, partition), found, moves)
        if isinstance(found, ElectionResult):
            if wanted is not None or found.code is not Code.ELECTION_NOT_NEEDED:
                results.append(found)
            continue
        if found.chain.name not in outcomes:
            outcome, members = _elect(found, kind)
            outcomes[found.chain.name] = outcome
            if members and found.partition is not None:
                records += failed_replicas.elect(state, found.partition, members, numbers)
            elif members:
                elected[found.chain.name] = with_members(found.chain, members, numbers)
        outcome = outcomes[found.chain.name]
        if wanted is not None or outcome.code is not Code.ELECTION_NOT_NEEDED:
            results.append(ElectionResult(name, partition, outcome.code, outcome.message))
    if elected and not records:  # else a review brings detached partitions up to date
        records += failed_replicas.records_for(state, state.up(), numbers, elected.values())
    assert wanted is None or len(results) == len(wanted), (wanted, results)
    assert elected.keys() <= state.chains.keys(), elected
    return Decision([*map(chain_record, elected.values()), *records, *moves.records], results)


class _Electorate(NamedTuple):
    """The members of one election, and the processes that are up for it."""

    chain: Chain
    up: Mapping[NodeId, BrokerProcess]
    preferred: tuple[NodeId, ...]  # the order of the members that is preferred
    named: str  # the chain, for people
    partition: Key | None = None  # the detached partition that it is for; None: for a chain

    def is_live(self, member: ChainMember) -> bool:
        return self.up.get(member.node_id) == member.process


def _find(
    state: ClusterState, name: str, partition: int
) -> _Electorate | DisklessPlacement | ElectionResult:
    topic = state.topics.get(name)
    if topic is None or not 0 <= partition < len(topic.partitions):
        return ElectionResult(name, partition, Code.UNKNOWN_TOPIC_OR_PARTITION,
                              f"there is no partition {partition} of a topic {name[:80]!r}")
    placement = topic.partitions[partition].placement
    match placement:
        case LegacyPlacement():
            return ElectionResult(
                name, partition, Code.ELECTION_NOT_NEEDED, "it is on no chain yet")
        case DisklessPlacement():
            return placement
        case ChainPlacement():
            chain = state.chains[placement.chain]
            preferred, named = state.chain_index.preferred(chain.name), words(state, chain)
            if placement.own_chain is None:
                return _Electorate(chain, state.up(), preferred, named)
            return _Electorate(
                failed_replicas.own_chain(placement, chain),
                failed_replicas.up_for(placement, state.up()), preferred,
                f"{name}-{partition}", (topic.topic_id, partition))
        case _:
            assert_never(placement)


def _elect_diskless(
    state: ClusterState, kind: ElectionType, named: TopicPartition, placement: DisklessPlacement,
    moves: diskless.DisklessMoves,
) -> ElectionResult:
    """Elect the leader of a diskless partition; none of its elections loses records."""
    if kind is ElectionType.UNCLEAN:
        return ElectionResult(*named, Code.ELECTION_NOT_NEEDED,
                              "all replicas of a diskless partition are in sync")
    try:
        leader = diskless.preferred(state, placement)
    except RequestError as error:
        return ElectionResult(*named, error.code, str(error))
    moves.add(state.topics[named.topic], named.partition, placement.replicas, leader)
    return ElectionResult(*named)


def _elect(
    among: _Electorate, kind: ElectionType
) -> tuple[ElectionResult, tuple[ChainMember, ...]]:
    """Elect in one chain, or one detached partition; no members: nothing changes."""
    try:
        members = _preferred(among) if kind is ElectionType.PREFERRED else _unclean(among)
    except RequestError as error:
        return ElectionResult("", 0, error.code, str(error)), ()
    assert {member.node_id for member in members} == set(among.chain.nodes), (among, members)
    assert members[0].state is MemberState.SERVING, (among, members)  # model.H2
    assert among.is_live(members[0]), (among, members)
    return ElectionResult("", 0), members


def _preferred(among: _Electorate) -> tuple[ChainMember, ...]:
    def key(member: ChainMember) -> int:
        return among.preferred.index(member.node_id)

    chain = among.chain
    first = min(chain.members, key=key)
    if first.state is not MemberState.SERVING or not among.is_live(first):
        raise RequestError(
            f"node {first.node_id}, the first of {among.named}, does not serve",
            code=Code.PREFERRED_LEADER_NOT_AVAILABLE)
    if first == chain.head:
        raise RequestError(f"node {first.node_id} is the head of {among.named} already",
                           code=Code.ELECTION_NOT_NEEDED)
    members = (*sorted(chain.serving, key=key), *chain.members[len(chain.serving):])
    assert members[0] == first, (chain, members)
    assert set(members) == set(chain.members), (chain, members)  # only their order changes
    return members


def _unclean(among: _Electorate) -> tuple[ChainMember, ...]:
    chain, up = among.chain, among.up
    if any(map(among.is_live, chain.serving)):
        raise RequestError(f"{among.named} has a member that serves",
                           code=Code.ELECTION_NOT_NEEDED)
    if returned(chain, up):  # nothing is lost with those
        return reconciled(chain, up, waited=True)
    back = [member for member in chain.members if member.node_id in up]
    back.sort(key=lambda member: not member.has_directory_of(up[member.node_id]))
    if not back:
        raise RequestError(f"no member of {among.named} is up",
                           code=Code.ELIGIBLE_LEADERS_NOT_AVAILABLE)
    first = back[0]
    alone = ChainMember(first.node_id, MemberState.SERVING, *up[first.node_id])
    rest = [member._replace(state=MemberState.OFFLINE) for member in chain.members
            if member is not first]
    members = reconciled(
        dataclasses.replace(chain, members=(alone, *rest)), up, waited=True)
    assert members[0] == alone, (chain, members)
    assert members[1:2] == () or members[1].state is not MemberState.SERVING, (chain, members)
    return members

"""Elections that clients ask for: the preferred head, or, with loss of records, any member.

An election is one of a chain: it moves all of its partitions, whichever of them was named, but for
those that are detached from it (detached.py); of such a one it is an election of its own.

    PREFERRED   the chain's first node by number is to be its head again, if it serves
    UNCLEAN     no serving member is up: the first member that is serves alone from now on.
                Records that it has not got are lost, though they were acknowledged; so one
                that came back with another data directory is the last choice

Not here: what a chain does by itself (chains.review).
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from quipu.controller import detached
from quipu.controller.decision import Decision, Numbers
from quipu.controller.members import NO_CHAIN, Chain, ChainMember, Process, chain_record
from quipu.controller.records import Record
from quipu.controller.reviewing import returned, reviewed, with_members
from quipu.controller.state import ClusterState, Key
from quipu.model.chains import MemberState, member_key
from quipu.model.errors import Code, RequestError
from quipu.model.ids import NodeId, TopicPartition


class ElectionType(IntEnum):
    """Kafka's numbers."""

    PREFERRED = 0
    UNCLEAN = 1


class ElectAnswer(NamedTuple):
    """What became of one partition's election."""

    topic: str
    partition: int
    code: Code = Code.NONE
    message: str | None = None


def elect(
    state: ClusterState, kind: ElectionType, wanted: Sequence[TopicPartition] | None
) -> Decision[ElectAnswer]:
    """Elections for the partitions `wanted`, or for all; of those, only the needed are told."""
    asked = wanted
    if asked is None:
        asked = [TopicPartition(topic.name, index) for topic in state.topics.values()
                 for index in range(len(topic.partitions))]
    numbers = Numbers(state)
    outcomes: dict[str, ElectAnswer] = {}
    elected: dict[str, Chain] = {}
    records: list[Record] = []
    answers: list[ElectAnswer] = []
    for name, partition in asked:
        found = _find(state, name, partition)
        if isinstance(found, ElectAnswer):
            answers.append(found)
            continue
        if found.chain.name not in outcomes:
            outcome, members = _elect(state, found, kind)
            outcomes[found.chain.name] = outcome
            if members and found.partition is not None:
                records += detached.elect(state, found.partition, members, numbers)
            elif members:
                elected[found.chain.name] = with_members(found.chain, members, numbers)
        outcome = outcomes[found.chain.name]
        if wanted is not None or outcome.code is not Code.ELECTION_NOT_NEEDED:
            answers.append(ElectAnswer(name, partition, outcome.code, outcome.message))
    if elected and not records:  # else a review brings detached partitions up to date
        records += detached.follow(state, state.up(), numbers, elected.values())
    return Decision([*map(chain_record, elected.values()), *records], answers)


class _Electorate(NamedTuple):
    """The members among whom is elected, and the processes that are up for that."""

    chain: Chain
    up: Mapping[NodeId, Process]
    partition: Key | None = None  # the one that it is about, if it is a detached one

    def is_live(self, member: ChainMember) -> bool:
        return self.up.get(member.node_id) == member.process


def _find(state: ClusterState, name: str, partition: int) -> _Electorate | ElectAnswer:
    topic = state.topics.get(name)
    if topic is None or not 0 <= partition < len(topic.partitions):
        return ElectAnswer(name, partition, Code.UNKNOWN_TOPIC_OR_PARTITION,
                           f"there is no partition {partition} of a topic {name[:80]!r}")
    place = topic.partitions[partition].place
    if place.chain == NO_CHAIN:
        return ElectAnswer(name, partition, Code.ELECTION_NOT_NEEDED, "it is on no chain yet")
    chain = state.chains[place.chain]
    if place.own is None:
        return _Electorate(chain, state.up())
    return _Electorate(detached.own_chain(place, chain), detached.up_for(place, state.up()),
                       (topic.topic_id, partition))


def _elect(
    state: ClusterState, among: _Electorate, kind: ElectionType
) -> tuple[ElectAnswer, tuple[ChainMember, ...]]:
    """Elect in one chain, or one detached partition; no members: it stays as it is."""
    try:
        members = _preferred(state, among) if kind is ElectionType.PREFERRED else _unclean(among)
    except RequestError as error:
        return ElectAnswer("", 0, error.code, str(error)), ()
    return ElectAnswer("", 0), members


def _preferred(state: ClusterState, among: _Electorate) -> tuple[ChainMember, ...]:
    def key(member: ChainMember) -> tuple[str, int]:
        return member_key(state.brokers[member.node_id].name)

    chain = among.chain
    first = min(chain.members, key=key)
    if first.state is not MemberState.SERVING or not among.is_live(first):
        raise RequestError(
            f"node {first.node_id}, the first of chain {chain.name}, does not serve",
            code=Code.PREFERRED_LEADER_NOT_AVAILABLE)
    if first == chain.head:
        raise RequestError(f"node {first.node_id} is the head of chain {chain.name} already",
                           code=Code.ELECTION_NOT_NEEDED)
    return (*sorted(chain.serving, key=key), *chain.members[len(chain.serving):])


def _unclean(among: _Electorate) -> tuple[ChainMember, ...]:
    chain, up = among.chain, among.up
    if any(map(among.is_live, chain.serving)):
        raise RequestError(f"chain {chain.name} has a member that serves",
                           code=Code.ELECTION_NOT_NEEDED)
    if returned(chain, up):  # nothing is lost with those
        return reviewed(chain, up, waited=True)
    back = [member for member in chain.members if member.node_id in up]
    back.sort(key=lambda member: not member.has_directory_of(up[member.node_id]))
    if not back:
        raise RequestError(f"no member of chain {chain.name} is up",
                           code=Code.ELIGIBLE_LEADERS_NOT_AVAILABLE)
    first = back[0]
    alone = ChainMember(first.node_id, MemberState.SERVING, *up[first.node_id])
    rest = [member._replace(state=MemberState.OFFLINE) for member in chain.members
            if member is not first]
    return reviewed(
        Chain(name=chain.name, epoch=chain.epoch, version=chain.version, members=(alone, *rest)),
        up, waited=True)

"""Elections that clients ask for: the preferred head, or, with loss of records, any member.

An election is one of a chain: it moves all of its partitions, whichever of them was named.

    PREFERRED   the chain's first node by number is to be its head again, if it serves
    UNCLEAN     no serving member is up: the first member that is serves alone from now on.
                Records that it has not got are lost, though they were acknowledged

Not here: what a chain does by itself (chains.review).
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from quipu.controller import chains
from quipu.controller.decision import Decision, Numbers
from quipu.controller.members import NO_CHAIN, Chain, ChainMember, chain_record
from quipu.controller.records import Record
from quipu.controller.state import ClusterState
from quipu.model.chains import MemberState, member_key
from quipu.model.errors import Code, RequestError
from quipu.model.ids import TopicPartition


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
    numbers = Numbers(state)
    outcomes: dict[str, ElectAnswer] = {}
    records: list[Record] = []
    answers: list[ElectAnswer] = []
    asked = wanted
    if asked is None:
        used = {partition.chain for topic in state.topics.values()
                for partition in topic.partitions}
        outcomes = {chain.name: _elect(state, chain, kind, numbers, records)
                    for chain in state.chains.values() if chain.name in used}
        asked = [TopicPartition(topic.name, index) for topic in state.topics.values()
                 for index, partition in enumerate(topic.partitions)
                 if partition.chain in outcomes
                 and outcomes[partition.chain].code is not Code.ELECTION_NOT_NEEDED]
    for name, partition in asked:
        found = _chain_of(state, name, partition)
        if isinstance(found, ElectAnswer):
            answers.append(found)
            continue
        if found.name not in outcomes:
            outcomes[found.name] = _elect(state, found, kind, numbers, records)
        outcome = outcomes[found.name]
        if wanted is not None or outcome.code is not Code.ELECTION_NOT_NEEDED:
            answers.append(ElectAnswer(name, partition, outcome.code, outcome.message))
    return Decision(records, answers)


def _chain_of(state: ClusterState, name: str, partition: int) -> Chain | ElectAnswer:
    topic = state.topics.get(name)
    if topic is None or not 0 <= partition < len(topic.partitions):
        return ElectAnswer(name, partition, Code.UNKNOWN_TOPIC_OR_PARTITION,
                           f"there is no partition {partition} of a topic {name[:80]!r}")
    chain = topic.partitions[partition].chain
    if chain == NO_CHAIN:
        return ElectAnswer(name, partition, Code.ELECTION_NOT_NEEDED, "it is on no chain yet")
    return state.chains[chain]


def _elect(
    state: ClusterState,
    chain: Chain,
    kind: ElectionType,
    numbers: Numbers,
    records: list[Record],
) -> ElectAnswer:
    """Elect in one chain; what was decided goes to `records`."""
    choose = _preferred if kind is ElectionType.PREFERRED else _unclean
    try:
        members = choose(state, chain)
    except RequestError as error:
        return ElectAnswer("", 0, error.code, str(error))
    records.append(chain_record(chains.with_members(chain, members, numbers)))
    return ElectAnswer("", 0)


def _preferred(state: ClusterState, chain: Chain) -> tuple[ChainMember, ...]:
    def key(member: ChainMember) -> tuple[str, int]:
        return member_key(state.brokers[member.node_id].name)

    first = min(chain.members, key=key)
    if first.state is not MemberState.SERVING or not state.is_live(first):
        raise RequestError(
            f"node {first.node_id}, the first of chain {chain.name}, does not serve",
            code=Code.PREFERRED_LEADER_NOT_AVAILABLE)
    if first == chain.head:
        raise RequestError(f"node {first.node_id} is the head of chain {chain.name} already",
                           code=Code.ELECTION_NOT_NEEDED)
    return (*sorted(chain.serving, key=key), *chain.members[len(chain.serving):])


def _unclean(state: ClusterState, chain: Chain) -> tuple[ChainMember, ...]:
    up = state.up()
    if any(state.is_live(member) for member in chain.serving):
        raise RequestError(f"chain {chain.name} has a member that serves",
                           code=Code.ELECTION_NOT_NEEDED)
    if any(member.node_id in up for member in chain.serving):  # nothing is lost with those
        return chains.reviewed(chain, up, waited=True)
    first = next((member for member in chain.members if member.node_id in up), None)
    if first is None:
        raise RequestError(f"no member of chain {chain.name} is up",
                           code=Code.ELIGIBLE_LEADERS_NOT_AVAILABLE)
    alone = ChainMember(first.node_id, MemberState.SERVING, up[first.node_id])
    rest = [member._replace(state=MemberState.OFFLINE) for member in chain.members
            if member is not first]
    return chains.reviewed(
        Chain(name=chain.name, epoch=chain.epoch, version=chain.version, members=(alone, *rest)),
        up, waited=True)


def is_unclean(state: ClusterState, kind: ElectionType, chain: Chain) -> bool:
    """Whether an election would lose records: to be said aloud before it is made."""
    up = state.up()
    return kind is ElectionType.UNCLEAN and not any(
        member.node_id in up for member in chain.serving)

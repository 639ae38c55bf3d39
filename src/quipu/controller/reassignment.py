"""Partitions that move from one chain to another (KIP-455).

    settled on A  --alter-->  copying to B  --advance-->  joined  --advance-->  settled on B
                                   |                         |
                                   +--------- cancel --------+-->  settled on A

While a partition is copied, A serves it as before and B's nodes sync.  When they have caught up,
both serve it under a new epoch; when everyone has begun to, A is let go under another.  So whoever
is left has served in the epoch before, and has every record that was acknowledged.

A classic topic can only be on a chain: the target must be exactly the nodes of one.

Not here: who sends what to whom (chain), who has caught up (broker/replication).
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from quipu.controller.decision import Decision, Numbers
from quipu.controller.members import NO_CHAIN, Chain, PartitionState, Place, Topic
from quipu.controller.records import PartitionsMoved, Record
from quipu.controller.state import ClusterState
from quipu.controller.topics import chains_in_words
from quipu.model.errors import Code, QuipuError, RequestError
from quipu.model.ids import Epoch, NodeId, TopicPartition


class Reassignment(NamedTuple):
    """A partition that shall be elsewhere; without replicas, stay where it is."""

    topic: str
    partition: int
    replicas: Sequence[int] | None


class ReassignAnswer(NamedTuple):
    """What became of one reassignment."""

    topic: str
    partition: int
    code: Code = Code.NONE
    message: str | None = None


class Ongoing(NamedTuple):
    """A partition on its way."""

    topic: str
    partition: int
    replicas: tuple[NodeId, ...]
    adding: tuple[NodeId, ...]
    removing: tuple[NodeId, ...]


class CaughtUp(NamedTuple):
    """A partition all of whose replicas on the path have every record.

    Seen when its replica set had `version`.  While it is copied: every node that syncs has caught
    up.  When it is joined: the new epoch's configuration is committed, so all serve in it.
    """

    topic_id: UUID
    partition: int
    version: int


def alter(
    state: ClusterState, wanted: Sequence[Reassignment], *, factor_may_change: bool = True
) -> Decision[ReassignAnswer]:
    """Begin moves, and call them off."""
    named = Counter((each.topic, each.partition) for each in wanted)
    moves = _Moves(state)
    answers = []
    for each in wanted:
        try:
            if named[each.topic, each.partition] > 1:
                raise RequestError("a partition may be named once in a request",
                                   code=Code.INVALID_REQUEST)
            topic = _topic(state, each)
            _plan(state, topic, each, moves, factor_may_change=factor_may_change)
        except QuipuError as error:
            answers.append(ReassignAnswer(each.topic, each.partition, error.code, str(error)))
        else:
            answers.append(ReassignAnswer(each.topic, each.partition))
    return Decision(moves.records, answers)


def ongoing(
    state: ClusterState, wanted: Sequence[TopicPartition] | None = None
) -> list[Ongoing]:
    """The partitions that are moving, out of those `wanted` if some are."""
    if wanted is None:
        wanted = [TopicPartition(topic.name, index) for topic in state.topics.values()
                  for index, partition in enumerate(topic.partitions)
                  if partition.place.moving_to is not None]
    found = []
    for name, index in wanted:
        topic = state.topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            continue
        partition = topic.partitions[index]
        if partition.moving_to is not None:
            found.append(Ongoing(
                name, index, partition.replicas,
                adding=state.chains[partition.moving_to].nodes,
                removing=state.chains[partition.chain].nodes))
    return found


def advance(state: ClusterState, reports: Sequence[CaughtUp]) -> Decision[None]:
    """The next step of moves whose replicas have caught up; what is out of date is left out."""
    moves = _Moves(state)
    for report in dict.fromkeys(reports):
        topic = state.topics_by_id.get(report.topic_id)
        if topic is None or not 0 <= report.partition < len(topic.partitions):
            continue
        partition = topic.partitions[report.partition]
        place = partition.place
        if place.moving_to is None or partition.partition_epoch != report.version:
            continue
        if not all(map(state.is_live, state.chains[place.moving_to].serving)):
            continue
        if not place.joined:
            moves.add(topic, report.partition, place._replace(joined=True), new_epoch=True)
        else:
            moves.add(topic, report.partition, Place(place.moving_to), new_epoch=True)
    return Decision(moves.records, [])


class _Moves:
    """The moves of one decision: partitions of a topic that go the same way share a record."""

    def __init__(self, state: ClusterState) -> None:
        self._numbers = Numbers(state)
        self._made: dict[tuple[UUID, Place], PartitionsMoved] = {}

    @property
    def records(self) -> list[Record]:
        return list(self._made.values())

    def add(self, topic: Topic, partition: int, place: Place, *, new_epoch: bool) -> None:
        """`place` without numbers says where to; it keeps its epoch unless others serve."""
        key = (topic.topic_id, place._replace(version=0, epoch=Epoch(-1 if new_epoch else
                                                                     place.epoch)))
        if key not in self._made:
            self._made[key] = PartitionsMoved(
                topic_id=topic.topic_id, chain=place.chain, moving_to=place.moving_to,
                joined=place.joined, version=self._numbers.version(),
                epoch=self._numbers.epoch() if new_epoch else place.epoch)
        self._made[key].partitions.append(partition)


def _plan(
    state: ClusterState,
    topic: Topic,
    wanted: Reassignment,
    moves: _Moves,
    *,
    factor_may_change: bool,
) -> None:
    partition = topic.partitions[wanted.partition]
    place = partition.place
    if wanted.replicas is None:
        if place.moving_to is None:
            raise RequestError(f"{topic.name}-{wanted.partition} is not moving",
                               code=Code.NO_REASSIGNMENT_IN_PROGRESS)
        target = state.chains[place.chain]
    else:
        target = _target(state, wanted.replicas)
        if not factor_may_change and len(target.nodes) != len(_stays(state, partition)):
            raise RequestError(
                f"chain {target.name} has {len(target.nodes)} nodes, and the replication factor "
                "may not change", code=Code.INVALID_REPLICATION_FACTOR)
    if place.chain == NO_CHAIN:
        raise RequestError(f"topic {topic.name} is on no chain yet: quipu chain create",
                           code=Code.INVALID_REPLICA_ASSIGNMENT)
    moving_to = target.name if target.name != place.chain else None
    if moving_to != place.moving_to:
        moves.add(topic, wanted.partition, place._replace(moving_to=moving_to, joined=False),
                  new_epoch=place.joined)


def _topic(state: ClusterState, wanted: Reassignment) -> Topic:
    topic = state.topics.get(wanted.topic)
    if topic is None or not 0 <= wanted.partition < len(topic.partitions):
        raise RequestError(
            f"there is no partition {wanted.partition} of a topic {wanted.topic[:80]!r}",
            code=Code.UNKNOWN_TOPIC_OR_PARTITION)
    return topic


def _stays(state: ClusterState, partition: PartitionState) -> tuple[NodeId, ...]:
    """The replicas of a partition, were it not moving."""
    if partition.chain == NO_CHAIN:
        return partition.replicas
    return state.chains[partition.chain].nodes


def _target(state: ClusterState, replicas: Sequence[int]) -> Chain:
    for chain in state.chains.values():
        if sorted(chain.nodes) == sorted(replicas):
            return chain
    raise RequestError(
        f"{list(replicas)[:20]} are not the nodes of a chain, and a partition is on one as a "
        f"whole; {chains_in_words(state)}", code=Code.INVALID_REPLICA_ASSIGNMENT)

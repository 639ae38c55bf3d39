"""Partitions that move from one chain to another (KIP-455).

    settled on A  --alter-->  copying to B  --advance-->  joined  --advance-->  settled on B
                                   |                         |
                                   +--------- cancel --------+-->  settled on A

While a partition is copied, A serves it as before and B's nodes sync.  When they have caught up,
both serve it under a new epoch; when all of their nodes do, B serves it alone under another.  So
the nodes of B have served in the epoch before, and have every record that was acknowledged.

A partition can only be on a chain: the target must be exactly the nodes of one.  A diskless
partition can be on any brokers, and is there at once, for nothing has to be copied.

Not here: which node sends what to which (chain), which have caught up (broker/replication).
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, assert_never
from uuid import UUID

from quipu.controller import diskless, migration
from quipu.controller.assignments import chains_in_words
from quipu.controller.decision import Decision, Numbers
from quipu.controller.members import Chain
from quipu.controller.placement import ChainPlacement, DisklessPlacement, LegacyPlacement
from quipu.controller.records import PartitionsMoved, PlacementKind, Record
from quipu.controller.state import ClusterState
from quipu.controller.topic_state import Topic
from quipu.model.errors import Code, QuipuError, RequestError
from quipu.model.ids import Epoch, NodeId, TopicPartition


class Reassignment(NamedTuple):
    """A request to move a partition to other nodes; without replicas, to call its move off."""

    topic: str
    partition: int
    replicas: Sequence[int] | None


class ReassignmentResult(NamedTuple):
    """The outcome of one reassignment."""

    topic: str
    partition: int
    code: Code = Code.NONE
    message: str | None = None


class Ongoing(NamedTuple):
    """A partition that is moving."""

    topic: str
    partition: int
    replicas: tuple[NodeId, ...]
    adding: tuple[NodeId, ...]
    removing: tuple[NodeId, ...]


class CaughtUp(NamedTuple):
    """The head's report that all replicas on a moving partition's path have every record.

    It is about the replica set with `version`.  While the partition is copied: every syncing node
    has caught up.  When it is joined: the new epoch's configuration is committed, so all serve in
    it.
    """

    topic_id: UUID
    partition: int
    version: int


def alter(
    state: ClusterState, wanted: Sequence[Reassignment], *, factor_may_change: bool = True
) -> Decision[ReassignmentResult]:
    """Begin moves, and call them off."""
    named = Counter((each.topic, each.partition) for each in wanted)
    moves = _Moves(state)
    results = []
    for each in wanted:
        try:
            if named[each.topic, each.partition] > 1:
                raise RequestError("a partition may be named once in a request",
                                   code=Code.INVALID_REQUEST)
            topic = _topic(state, each)
            _plan(state, topic, each, moves, factor_may_change=factor_may_change)
        except QuipuError as error:
            results.append(ReassignmentResult(each.topic, each.partition, error.code, str(error)))
        else:
            results.append(ReassignmentResult(each.topic, each.partition))
    assert len(results) == len(wanted), (len(results), len(wanted))
    return Decision(moves.records, results)


def ongoing(
    state: ClusterState, wanted: Sequence[TopicPartition] | None = None
) -> list[Ongoing]:
    """The partitions that are moving, out of those `wanted` if some are."""
    if wanted is None:
        wanted = [TopicPartition(topic.name, index) for topic in state.topics.values()
                  for index, partition in enumerate(topic.partitions)
                  if partition.moving_to is not None]
    found = []
    for name, index in wanted:
        topic = state.topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            continue
        partition = topic.partitions[index]
        placement = partition.placement
        match placement:
            case ChainPlacement():
                if placement.moving_to is not None:
                    found.append(Ongoing(
                        name, index, partition.replicas,
                        adding=state.chains[placement.moving_to].nodes,
                        removing=state.chains[placement.chain].nodes))
            case LegacyPlacement() | DisklessPlacement():
                pass
            case _:
                assert_never(placement)
    return found


def advance(state: ClusterState, reports: Sequence[CaughtUp]) -> Decision[None]:
    """The next step of moves whose replicas have caught up; reports out of date are ignored."""
    moves = _Moves(state)
    for report in dict.fromkeys(reports):
        topic = state.topics_by_id.get(report.topic_id)
        if topic is None or not 0 <= report.partition < len(topic.partitions):
            continue
        partition = topic.partitions[report.partition]
        placement = partition.placement
        if partition.moving_to is None or partition.partition_epoch != report.version:
            continue
        if not all(map(state.is_live, state.chains[partition.moving_to].serving)):
            continue
        assert isinstance(placement, ChainPlacement), placement  # it moves
        assert placement.moving_to != placement.chain, placement
        if not placement.joined:
            moves.add(topic, report.partition, placement._replace(joined=True), new_epoch=True)
        else:
            moves.add(
                topic, report.partition, ChainPlacement(partition.moving_to), new_epoch=True)
    return Decision(moves.records, [])


class _Moves:
    """The moves of one decision: partitions of a topic that go the same way share a record."""

    def __init__(self, state: ClusterState) -> None:
        self._numbers = Numbers(state)
        self._made: dict[tuple[UUID, ChainPlacement], PartitionsMoved] = {}
        self.diskless = diskless.DisklessMoves(self._numbers)

    @property
    def records(self) -> list[Record]:
        return [*self._made.values(), *self.diskless.records]

    def add(
        self, topic: Topic, partition: int, target: ChainPlacement, *, new_epoch: bool
    ) -> None:
        """Place `partition` at `target`; it gets a new epoch if other nodes serve it then."""
        assert 0 <= partition < len(topic.partitions), (topic.name, partition)  # controller.S3
        assert target.moving_to != target.chain, target
        assert target.moving_to is not None or not target.joined, target
        key = (topic.topic_id, target._replace(
            version=0, epoch=Epoch(-1 if new_epoch else target.epoch)))
        if key not in self._made:
            self._made[key] = PartitionsMoved(
                topic_id=topic.topic_id, chain=target.chain, moving_to=target.moving_to,
                joined=target.joined, version=self._numbers.version(), kind=PlacementKind.CHAIN,
                epoch=self._numbers.epoch() if new_epoch else target.epoch)
        made = self._made[key]
        assert made.topic_id == topic.topic_id, (topic.name, made)
        made.partitions.append(partition)


def _plan(
    state: ClusterState,
    topic: Topic,
    wanted: Reassignment,
    moves: _Moves,
    *,
    factor_may_change: bool,
) -> None:
    migration.check_fixed(topic, "moved")
    placement = topic.partitions[wanted.partition].placement
    match placement:
        case ChainPlacement():
            stays = state.chains[placement.chain].nodes  # its replicas, were it not moving
        case LegacyPlacement():
            stays = placement.replicas
        case DisklessPlacement():
            _plan_diskless(state, topic, wanted, moves, factor_may_change=factor_may_change)
            return
        case _:
            assert_never(placement)
    target = None
    if wanted.replicas is not None:
        target = _target(state, wanted.replicas)
        if not factor_may_change and len(target.nodes) != len(stays):
            raise RequestError(
                f"chain {target.name} has {len(target.nodes)} nodes, and the replication factor "
                "may not change", code=Code.INVALID_REPLICATION_FACTOR)
    elif isinstance(placement, LegacyPlacement) or placement.moving_to is None:
        raise RequestError(f"{topic.name}-{wanted.partition} is not moving",
                           code=Code.NO_REASSIGNMENT_IN_PROGRESS)
    if isinstance(placement, LegacyPlacement):
        raise RequestError(f"topic {topic.name} is on no chain yet: quipu chain create",
                           code=Code.INVALID_REPLICA_ASSIGNMENT)
    moving_to = target.name if target is not None and target.name != placement.chain else None
    assert placement.chain in state.chains, placement
    assert moving_to is None or moving_to in state.chains, moving_to
    if moving_to != placement.moving_to:
        moves.add(topic, wanted.partition,
                  placement._replace(moving_to=moving_to, joined=False),
                  new_epoch=placement.joined)


def _plan_diskless(
    state: ClusterState, topic: Topic, wanted: Reassignment, moves: _Moves,
    *, factor_may_change: bool,
) -> None:
    """Give a diskless partition other replicas, at once: nothing has to be copied."""
    if wanted.replicas is None:
        raise RequestError(f"{topic.name}-{wanted.partition} is not moving",
                           code=Code.NO_REASSIGNMENT_IN_PROGRESS)
    partition = topic.partitions[wanted.partition]
    replicas = diskless.target(
        state, partition, wanted.replicas, factor_may_change=factor_may_change)
    if partition.replicas != replicas:
        moves.diskless.add(topic, wanted.partition, replicas)


def _topic(state: ClusterState, wanted: Reassignment) -> Topic:
    topic = state.topics.get(wanted.topic)
    if topic is None or not 0 <= wanted.partition < len(topic.partitions):
        raise RequestError(
            f"there is no partition {wanted.partition} of a topic {wanted.topic[:80]!r}",
            code=Code.UNKNOWN_TOPIC_OR_PARTITION)
    return topic


def _target(state: ClusterState, replicas: Sequence[int]) -> Chain:
    for chain in state.chains.values():
        if sorted(chain.nodes) == sorted(replicas):
            return chain
    raise RequestError(
        f"{list(replicas)[:20]} are not the nodes of a chain, and a partition is on one as a "
        f"whole; {chains_in_words(state)}", code=Code.INVALID_REPLICA_ASSIGNMENT)

"""Partitions that move to other nodes, or to the same nodes in another order (KIP-455).

    settled on A  --alter-->  copying to B  --advance-->  joined  --advance-->  settled on B
          |                      |    ^                    |   |                    ^
          |                      |    +-- a node is lost --+   |                    |
          |                      +--------- cancel ------------+-->  settled on A   |
          +-- alter, if all of B serve already: nothing has to be copied -----------+

A partition can be on any list of nodes: B is the chain of that list, an operator's or a derived one
(derived_chains.py), and may have nodes in common with A.  While the partition is copied, A serves
it as before and the other nodes of B sync.  When they have caught up, all of them serve it under a
new epoch; when all of them have begun to, B serves it alone under another, in its own order.

A diskless partition can be on any brokers, and is there at once, for nothing has to be copied.

Invariants
    controller.J1  a node serves a partition after a step of its move only if it served before the
                   step, or has caught up in the very version before it; and its process has lived
                   on since.  So it has every record that was acknowledged
    controller.J2  a move ends only when all nodes that it adds serve: a partition never ends up on
                   fewer nodes because some were lost on the way

Not here: which node sends what to which (chain), which have caught up (broker/replication).
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, assert_never
from uuid import UUID

from quipu.controller import diskless, migration
from quipu.controller.assignments import assigned_orders
from quipu.controller.decision import Decision, Numbers
from quipu.controller.derived_chains import DerivedChains
from quipu.controller.members import Chain
from quipu.controller.placement import ChainPlacement, DisklessPlacement, LegacyPlacement
from quipu.controller.records import PartitionsMoved, PlacementKind, Record
from quipu.controller.state import ClusterState
from quipu.controller.topic_state import PartitionState, Topic
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
                    stays = state.chain_index.preferred(placement.chain)
                    wanted_nodes = state.chain_index.preferred(placement.moving_to)
                    found.append(Ongoing(
                        name, index, partition.replicas,
                        adding=_without(wanted_nodes, stays),
                        removing=_without(stays, wanted_nodes)))
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
        assert isinstance(placement, ChainPlacement), placement  # it moves
        there = state.chains[partition.moving_to]
        here = placement.own_chain or state.chains[placement.chain]
        assert there.name != placement.chain, placement
        if _can_take_over(state, here, there):
            joined = placement._replace(joined=True)
            is_over = placement.joined or not awaited(state, partition)
            moves.add(topic, report.partition,
                      ChainPlacement(there.name) if is_over else joined, new_epoch=True)
        elif placement.joined:  # controller.J2: those that were lost sync again
            moves.add(topic, report.partition, placement._replace(joined=False), new_epoch=True)
    return Decision(moves.records, [])


def awaited(state: ClusterState, partition: PartitionState) -> frozenset[NodeId]:
    """The nodes that must catch up before a partition that is copied is joined."""
    if partition.moving_to is None:
        return frozenset()
    serving = state.chains[partition.moving_to].replica_set.serving
    return frozenset(serving).difference(partition.replica_set.serving)


def _can_take_over(state: ClusterState, here: Chain, there: Chain) -> bool:
    """Whether `there` may serve what `here` does, once its members have caught up."""
    added = _without(there.nodes, here.nodes)
    if not set(added) <= set(there.replica_set.serving):  # controller.J2
        return False
    known = [here.find(member.node_id) for member in there.serving]
    return all(map(state.is_live, (*there.serving, *filter(None, known))))  # controller.J1


def _without(nodes: Sequence[NodeId], others: Sequence[NodeId]) -> tuple[NodeId, ...]:
    return tuple(node_id for node_id in nodes if node_id not in others)


class _Moves:
    """The moves of one decision: partitions of a topic that go the same way share a record."""

    def __init__(self, state: ClusterState) -> None:
        self._numbers = Numbers(state)
        self.derived = DerivedChains(state, self._numbers)
        self._made: dict[tuple[UUID, ChainPlacement], PartitionsMoved] = {}
        self.diskless = diskless.DisklessMoves(self._numbers)

    @property
    def records(self) -> list[Record]:
        used = {name for made in self._made.values() for name in (made.chain, made.moving_to)}
        return [*self.derived.records({name for name in used if name is not None}),
                *self._made.values(), *self.diskless.records]

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
    partition = topic.partitions[wanted.partition]
    placement = partition.placement
    match placement:
        case ChainPlacement():
            stays = state.chain_index.preferred(placement.chain)  # were it not moving
        case LegacyPlacement():
            stays = placement.replicas
        case DisklessPlacement():
            _plan_diskless(state, topic, wanted, moves, factor_may_change=factor_may_change)
            return
        case _:
            assert_never(placement)
    if wanted.replicas is not None:
        target = _target(state, wanted.replicas, moves.derived)
        if not factor_may_change and len(target.nodes) != len(stays):
            raise RequestError(
                f"{list(wanted.replicas)[:20]} has {len(target.nodes)} nodes instead of "
                f"{len(stays)}, and the replication factor may not change",
                code=Code.INVALID_REPLICATION_FACTOR)
    elif isinstance(placement, LegacyPlacement) or placement.moving_to is None:
        raise RequestError(f"{topic.name}-{wanted.partition} is not moving",
                           code=Code.NO_REASSIGNMENT_IN_PROGRESS)
    else:
        target = state.chains[placement.chain]
    if isinstance(placement, LegacyPlacement):
        raise RequestError(f"topic {topic.name} is on no chain yet: quipu chain create",
                           code=Code.INVALID_REPLICA_ASSIGNMENT)
    _plan_to(state, topic, wanted.partition, target, moves)


def _plan_to(
    state: ClusterState, topic: Topic, index: int, target: Chain, moves: _Moves
) -> None:
    """Begin the move of a partition to the chain `target`, or call off the one to another."""
    partition = topic.partitions[index]
    placement = partition.placement
    assert isinstance(placement, ChainPlacement), placement
    here = placement.own_chain or state.chains[placement.chain]
    moving_to = target.name if target.name != placement.chain else None
    if moving_to == placement.moving_to:
        return
    if moving_to is not None and _can_take_over(state, here, target) and (
            set(target.replica_set.serving) <= set(here.replica_set.serving)):  # controller.J1
        moves.add(topic, index, ChainPlacement(target.name), new_epoch=True)
        return
    moves.add(topic, index, placement._replace(moving_to=moving_to, joined=False),
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


def _target(state: ClusterState, replicas: Sequence[int], derived: DerivedChains) -> Chain:
    """The chain of a list of nodes; raises with Kafka's code for one that cannot be."""
    (order,) = assigned_orders(state, [replicas], len(replicas), derived)
    return derived.at(order)

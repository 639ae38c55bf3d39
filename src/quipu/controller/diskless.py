"""Diskless topics in the metadata: their replicas when they are created, moved and elected.

Any broker takes writes of a diskless partition and serves its records, so a replica holds nothing.
It says which brokers clients are shown, one in each rack (managed/), and which of them coordinates
the work that one broker must do.

Invariants
    controller.D1  clients are shown a live broker as the leader of a diskless partition as long as
                   there is one: its leader, or, if no replica is up, another by a fixed rule over
                   topic id and partition (`placement.acting_leader`)
    controller.D2  the leader epoch of a diskless partition never changes: nothing is fenced by it,
                   and all batches in objects have this epoch.  It is 0 if the partition was made
                   diskless, else the last one that it had on a chain (migration.py)
    controller.D3  the leader of a diskless partition changes only if it is down (the first replica
                   that is up follows it), if it is no replica any more, or by an election
    controller.D4  all replicas of a diskless partition are in sync

Not here: what makes a topic diskless (model/diskless_rules.py), which replicas a partition should
have (managed/planning.py).
"""

from collections.abc import Iterable, Sequence
from typing import Final

from quipu.controller.decision import Numbers
from quipu.controller.managed.load import ReplicaLoad
from quipu.controller.managed.placing import place
from quipu.controller.managed.topology import Topology
from quipu.controller.placement import DisklessPlacement
from quipu.controller.racks import rack_of
from quipu.controller.records import (
    PartitionRecord,
    PartitionRun,
    PartitionsMoved,
    PlacementKind,
    Record,
)
from quipu.controller.state import ClusterState
from quipu.controller.topic_requests import USE_DEFAULT, NewPartitions, NewTopic
from quipu.controller.topic_state import PartitionState, Topic
from quipu.model.errors import Code, RequestError
from quipu.model.ids import NO_NODE, NodeId
from quipu.model.settings import BrokerSettings
from quipu.model.topics import PARTITION_COUNT_MAX

REPLICATION_FACTORS: Final = (1, USE_DEFAULT)  # that a request may have

Replicas = tuple[NodeId, ...]


# -- new partitions


class Placer:
    """The placement of the diskless topics of one decision."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._load: ReplicaLoad | None = None  # with what this decision has placed

    def place(self, count: int) -> list[Replicas]:
        """The replicas of `count` new partitions."""
        topology = Topology.of(self._state.brokers.values())
        if not topology.up:
            raise RequestError("there is no broker that is up to place partitions on",
                               code=Code.INVALID_REPLICATION_FACTOR)
        if self._load is None:
            self._load = self._state.diskless_load.copy()
        return list(place(topology, self._load, count))


def new_topic(wanted: NewTopic, settings: BrokerSettings, placer: Placer) -> list[Replicas]:
    """The replicas of each partition of a topic that is created."""
    if wanted.assignments:
        raise assignments_refused()
    if wanted.replication_factor not in REPLICATION_FACTORS:
        raise RequestError(
            "replication factor is system-managed for diskless topics; use replicationFactor=-1 or "
            "replicationFactor=1", code=Code.INVALID_REQUEST)
    count = wanted.partition_count
    count = settings.num_partitions if count == USE_DEFAULT else count
    if not 1 <= count <= PARTITION_COUNT_MAX:
        raise RequestError(
            f"{count} partitions: a topic may have 1 to {PARTITION_COUNT_MAX}, or -1 for the "
            "default", code=Code.INVALID_PARTITIONS)
    return placer.place(count)


def added(topic: Topic, wanted: NewPartitions, placer: Placer) -> list[Replicas]:
    """The replicas of each partition that a topic gets besides those that it has."""
    count = wanted.total - len(topic.partitions)
    assert count > 0, (topic.name, wanted)
    if wanted.assignments is not None:
        raise assignments_refused()
    return placer.place(count)


def assignments_refused() -> RequestError:
    """The error of a request that names the replicas of new diskless partitions."""
    return RequestError(
        "replica assignments cannot be specified for diskless topics; placement is system-managed",
        code=Code.INVALID_REQUEST)


def runs_of(placed: Sequence[Replicas]) -> tuple[list[PartitionRecord], list[PartitionRun]]:
    """Partitions with these replicas, as a record about their topic has them."""
    assert placed, "partitions to place"
    return ([PartitionRecord(replicas=list(each), isr=list(each), leader=each[0])
             for each in placed],
            [PartitionRun(count=len(placed), kind=PlacementKind.DISKLESS)])


# -- partitions that there are


class DisklessMoves:
    """Changes of one decision: partitions of a topic that become alike share a record."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._made: dict[tuple[str, Replicas, NodeId], PartitionsMoved] = {}

    @property
    def records(self) -> list[Record]:
        return list(self._made.values())

    def add(
        self, topic: Topic, partition: int, replicas: Replicas, leader: NodeId = NO_NODE
    ) -> None:
        """Give a partition these replicas; with NO_NODE, its leader stays if it can."""
        key = topic.name, replicas, leader
        if key not in self._made:
            self._made[key] = PartitionsMoved(
                topic_id=topic.topic_id, replicas=list(replicas), leader=leader,
                version=self._numbers.version(), kind=PlacementKind.DISKLESS)
        self._made[key].partitions.append(partition)


def target(
    state: ClusterState, partition: PartitionState, replicas: Sequence[int], *,
    factor_may_change: bool,
) -> Replicas:
    """The replicas that an operator gives a partition: any brokers, each once (D18).

    Whether there is one in each rack is observed, and repaired, later.
    """
    unknown = [node_id for node_id in replicas if node_id not in state.brokers]
    if not replicas or unknown or len(set(replicas)) != len(replicas):
        raise RequestError(
            f"{list(replicas)[:20]}: the replicas of a diskless partition are registered brokers, "
            "at least one, each once", code=Code.INVALID_REPLICA_ASSIGNMENT)
    if not factor_may_change and len(replicas) != len(partition.replicas):
        raise RequestError(
            f"{len(replicas)} replicas, and the partition has {len(partition.replicas)}: the "
            "replication factor may not change", code=Code.INVALID_REPLICATION_FACTOR)
    if state.up().keys().isdisjoint(replicas):
        raise RequestError(f"none of the brokers {list(replicas)[:20]} is up",
                           code=Code.INVALID_REPLICA_ASSIGNMENT)
    return tuple(map(NodeId, replicas))


def preferred(state: ClusterState, placement: DisklessPlacement) -> NodeId:
    """The leader of a partition after an election of the preferred one; raises if there is none."""
    first = placement.replicas[0]
    if first == placement.leader:
        raise RequestError(f"broker {first} leads already", code=Code.ELECTION_NOT_NEEDED)
    if first not in state.up():
        raise RequestError(f"broker {first}, the preferred leader, is not up",
                           code=Code.PREFERRED_LEADER_NOT_AVAILABLE)
    return first


def moved_off(state: ClusterState, node_id: NodeId, numbers: Numbers) -> Iterable[Record]:
    """Replace a broker that will not come back, by another of its rack where there is one.

    Nothing else of its partitions changes: that is for reconciliation, if it may.
    """
    rack = rack_of(state.brokers[node_id])
    rest = Topology.of(broker for broker in state.brokers.values() if broker.node_id != node_id)
    load = state.diskless_load.copy()
    moves = DisklessMoves(numbers)
    for topic in state.diskless_topics():
        for index, partition in enumerate(topic.partitions):
            if node_id in partition.replicas:
                moves.add(topic, index, _without(node_id, rack, partition.replicas, rest, load))
    return moves.records


def _without(
    node_id: NodeId, rack: str, replicas: Replicas, rest: Topology, load: ReplicaLoad
) -> Replicas:
    """The replicas of a partition after the broker `node_id` of `rack` is gone for good."""
    others = [each for each in replicas if each != node_id]
    if rack in rest.eligible and all(rest.rack_of.get(each) != rack for each in others):
        others.insert(replicas.index(node_id), load.take(rest.eligible[rack]))
    if not others:  # no broker of its rack is up, and it was the only one: any will do
        others = sorted(rest.up or rest.rack_of)[:1]
    if not others:
        raise RequestError(
            f"node {node_id} is the last broker, and diskless topics need one: delete them first",
            code=Code.INVALID_REQUEST)
    return tuple(others)

"""Which brokers the partitions of diskless topics are placed on.

Any broker takes writes of a diskless partition and serves its records, so a replica holds nothing:
it says which broker clients are shown as the leader, so that the work is spread.  Each partition
has one replica.

Invariants
    controller.D1  clients are shown a live broker as the leader of a diskless partition as long as
                   there is one: the replica if it is up, else another by a fixed rule over topic
                   id and partition (`placement.diskless_leader`)
    controller.D2  the leader epoch of a diskless partition is 0 for ever: nothing is fenced by it,
                   and all batches have this epoch

Not here: what makes a topic diskless (model/diskless_rules.py).
"""

from collections.abc import Iterable, Sequence
from typing import Final

from quipu.controller.decision import Numbers
from quipu.controller.placer import Chance
from quipu.controller.records import (
    PartitionRecord,
    PartitionRun,
    PartitionsMoved,
    PlacementKind,
    Record,
)
from quipu.controller.state import ClusterState
from quipu.controller.topic_requests import (
    USE_DEFAULT,
    Assignment,
    NewPartitions,
    NewTopic,
    assigned_in_order,
)
from quipu.controller.topic_state import Topic
from quipu.model.errors import Code, RequestError
from quipu.model.ids import NodeId
from quipu.model.settings import BrokerSettings
from quipu.model.topics import PARTITION_COUNT_MAX

REPLICAS: Final = (1, USE_DEFAULT)  # replication factors that a request may have


def new_topic(
    state: ClusterState, wanted: NewTopic, settings: BrokerSettings, chance: Chance
) -> list[NodeId]:
    """The replica of each partition of a topic that is created."""
    if wanted.assignments:
        return _assigned(state, assigned_in_order(wanted))
    if wanted.replication_factor not in REPLICAS:
        raise RequestError(
            f"replication factor {wanted.replication_factor}: the records of a diskless topic are "
            "in object storage, and brokers hold no copies; it must be 1, or -1",
            code=Code.INVALID_REPLICATION_FACTOR)
    count = wanted.partition_count
    count = settings.num_partitions if count == USE_DEFAULT else count
    if not 1 <= count <= PARTITION_COUNT_MAX:
        raise RequestError(
            f"{count} partitions: a topic may have 1 to {PARTITION_COUNT_MAX}, or -1 for the "
            "default", code=Code.INVALID_PARTITIONS)
    nodes = live_nodes(state)
    return _in_turns(nodes, int(chance() * len(nodes)), count)


def added(state: ClusterState, topic: Topic, wanted: NewPartitions) -> list[NodeId]:
    """The replica of each partition that a topic gets besides those that it has."""
    count = wanted.total - len(topic.partitions)
    assert count > 0, (topic.name, wanted)
    if wanted.assignments is not None:
        if len(wanted.assignments) != count:
            raise RequestError(
                f"{count} partitions would be added, but {len(wanted.assignments)} assignments "
                "are given", code=Code.INVALID_REPLICA_ASSIGNMENT)
        return _assigned(state, wanted.assignments)
    nodes = live_nodes(state)
    last = topic.partitions[-1].replicas[0]
    return _in_turns(nodes, sum(node_id <= last for node_id in nodes), count)


def target(state: ClusterState, replicas: Sequence[int]) -> NodeId:
    """The broker that a reassignment names."""
    if len(replicas) != 1:
        raise RequestError(
            f"{list(replicas)[:20]}: a diskless partition has one replica, as its records are in "
            "object storage", code=Code.INVALID_REPLICATION_FACTOR)
    node_id = _assigned(state, [replicas])[0]
    if node_id not in state.up():
        raise RequestError(f"broker {node_id} is not up", code=Code.INVALID_REPLICA_ASSIGNMENT)
    return node_id


def runs_of(nodes: Sequence[NodeId]) -> tuple[list[PartitionRecord], list[PartitionRun]]:
    """Partitions with these replicas, as a record about their topic has them."""
    assert nodes, "partitions to place"
    return ([PartitionRecord(replicas=[node_id], isr=[node_id], leader=node_id)
             for node_id in nodes],
            [PartitionRun(count=len(nodes), kind=PlacementKind.DISKLESS)])


def moved_off(state: ClusterState, node_id: NodeId, numbers: Numbers) -> Iterable[Record]:
    """Place the partitions of a broker that will not come back on the others."""
    others = [other for other in sorted(state.up()) if other != node_id]
    if not others:
        return
    for topic in state.diskless_topics():
        moved: dict[NodeId, list[int]] = {}
        for index, partition in enumerate(topic.partitions):
            if partition.replicas[0] == node_id:
                other = partition.leader if partition.leader in others else others[0]
                moved.setdefault(other, []).append(index)
        for other, partitions in moved.items():
            yield moved_record(topic, partitions, other, numbers)


def moved_record(
    topic: Topic, partitions: list[int], node_id: NodeId, numbers: Numbers
) -> PartitionsMoved:
    """The record that gives partitions of a topic another replica, at once."""
    return PartitionsMoved(
        topic_id=topic.topic_id, partitions=partitions, replicas=[node_id],
        version=numbers.version(), kind=PlacementKind.DISKLESS)



def live_nodes(state: ClusterState) -> list[NodeId]:
    """The brokers to place partitions on: those that are up, else all."""
    nodes = sorted(state.up()) or sorted(state.brokers)
    if not nodes:
        raise RequestError("there is no broker yet", code=Code.INVALID_REPLICATION_FACTOR)
    return nodes


def _in_turns(nodes: Sequence[NodeId], first: int, count: int) -> list[NodeId]:
    return [nodes[(first + index) % len(nodes)] for index in range(count)]


def _assigned(state: ClusterState, assignments: Sequence[Assignment]) -> list[NodeId]:
    for brokers in assignments:
        if len(brokers) != 1:
            raise RequestError(
                f"an assignment {list(brokers)[:20]}: a diskless partition has one replica, as its "
                "records are in object storage", code=Code.INVALID_REPLICA_ASSIGNMENT)
        if brokers[0] not in state.brokers:
            raise RequestError(f"an assignment names broker {brokers[0]}, which is not registered",
                               code=Code.INVALID_REPLICA_ASSIGNMENT)
    return [NodeId(brokers[0]) for brokers in assignments]

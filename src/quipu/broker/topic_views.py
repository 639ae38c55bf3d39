"""Topics as Metadata and DescribeTopicPartitions show them.

A topic's partitions are shown again and again and seldom change, so what was made for one answer
is kept for the next, for as long as the topic is the same object and the same partitions work.
"""

from typing import Final, NamedTuple
from uuid import UUID

from quipu.broker.context import Broker
from quipu.controller.state import PartitionState, Topic
from quipu.model.errors import Code
from quipu.model.ids import NO_NODE, NodeId
from quipu.wire.messages.k03_metadata import MetadataResponsePartition

# What may be done to a topic or the cluster, one bit per operation; without access control, all.
NOT_ASKED: Final = -0x8000_0000
TOPIC_OPERATIONS: Final = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS: Final = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))

_VIEWS_MAX: Final = 20_000


class _View(NamedTuple):
    topic: Topic
    failed: frozenset[int]
    down: frozenset[NodeId]
    partitions: list[MetadataResponsePartition]


class TopicViews:
    """What was shown last of each topic."""

    def __init__(self) -> None:
        self._views: dict[UUID, _View] = {}

    def partitions(self, broker: Broker, topic: Topic) -> list[MetadataResponsePartition]:
        """Every partition of `topic`; not to be changed by whoever gets it."""
        failed = failed_partitions(broker, topic)
        down = frozenset(
            known.node_id for known in broker.cluster.state.brokers.values() if known.fenced)
        view = self._views.get(topic.topic_id)
        if (view is None or view.topic is not topic or view.failed != failed
                or view.down != down):
            view = _View(topic, failed, down, [
                _partition(index, state, broker.node_id if index in failed else None, down)
                for index, state in enumerate(topic.partitions)
            ])
            if len(self._views) >= _VIEWS_MAX:
                self._views.clear()
            self._views[topic.topic_id] = view
        return view.partitions


def failed_partitions(broker: Broker, topic: Topic) -> frozenset[int]:
    """Partitions that this node leads, and whose log it cannot serve."""
    failed = []
    for index, state in enumerate(topic.partitions):
        if state.leader == broker.node_id:
            partition = broker.partitions.find(topic.name, index)
            if partition is None or partition.failed is not None:
                failed.append(index)
    return frozenset(failed)


def _partition(
    index: int, state: PartitionState, failed_on: NodeId | None, down: frozenset[NodeId]
) -> MetadataResponsePartition:
    leader = NO_NODE if failed_on is not None else state.leader
    return MetadataResponsePartition(
        error_code=Code.LEADER_NOT_AVAILABLE if leader == NO_NODE else Code.NONE,
        partition_index=index,
        leader_id=leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        offline_replicas=[node_id for node_id in state.replicas
                          if node_id in down or node_id == failed_on
                          or node_id in state.place.failed],
    )

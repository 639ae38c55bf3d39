"""Topics as Metadata and DescribeTopicPartitions show them.

A topic's partitions are shown again and again and seldom change, so what was made for one answer
is kept for the next, for as long as the topic is the same object and the same partitions work.
"""

from typing import Final, NamedTuple
from uuid import UUID

from quipu.broker.context import Broker
from quipu.controller.state import PartitionState, Topic
from quipu.model.errors import Code
from quipu.wire.messages.k03_metadata import MetadataResponsePartition

# What may be done to a topic or the cluster, one bit per operation; without access control, all.
NOT_ASKED: Final = -0x8000_0000
TOPIC_OPERATIONS: Final = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS: Final = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))
NO_LEADER: Final = -1

_VIEWS_MAX: Final = 20_000


class _View(NamedTuple):
    topic: Topic
    failed: frozenset[int]
    partitions: list[MetadataResponsePartition]


class TopicViews:
    """What was shown last of each topic."""

    def __init__(self) -> None:
        self._views: dict[UUID, _View] = {}

    def partitions(self, broker: Broker, topic: Topic) -> list[MetadataResponsePartition]:
        """Every partition of `topic`; not to be changed by whoever gets it."""
        failed = failed_partitions(broker, topic)
        view = self._views.get(topic.topic_id)
        if view is None or view.topic is not topic or view.failed != failed:
            view = _View(topic, failed, [
                _partition(index, state, is_failed=index in failed)
                for index, state in enumerate(topic.partitions)
            ])
            if len(self._views) >= _VIEWS_MAX:
                self._views.clear()
            self._views[topic.topic_id] = view
        return view.partitions


def failed_partitions(broker: Broker, topic: Topic) -> frozenset[int]:
    """Partitions whose log this node cannot serve."""
    failed = []
    for index in range(len(topic.partitions)):
        partition = broker.partitions.find(topic.name, index)
        if partition is None or partition.failed is not None:
            failed.append(index)
    return frozenset(failed)


def _partition(index: int, state: PartitionState, *, is_failed: bool) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=Code.LEADER_NOT_AVAILABLE if is_failed else Code.NONE,
        partition_index=index,
        leader_id=NO_LEADER if is_failed else state.leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        offline_replicas=[state.leader] if is_failed else [],
    )

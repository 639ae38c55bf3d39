"""Topics as Metadata and DescribeTopicPartitions show them.

A topic's partitions are shown again and again and seldom change, so what was encoded for one answer
is kept for the next, for as long as the topic is the same object and the same partitions work.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple
from uuid import UUID

from quipu.broker.context import Broker, Context
from quipu.controller.state import ClusterState, PartitionState, Topic
from quipu.model.errors import Code
from quipu.model.ids import NO_NODE, NodeId
from quipu.wire.messages.k03_metadata import MetadataResponsePartition

# What may be done to a topic or the cluster, one bit per operation; without access control, all.
NOT_ASKED: Final = -0x8000_0000
TOPIC_OPERATIONS: Final = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS: Final = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))

_KEPT_SIZE_MAX: Final = 64 << 20  # bytes of all views that are kept
_PAUSE_EACH: Final = 64  # partitions that are looked at between two pauses


class _View(NamedTuple):
    """The partitions of a topic as they were when they were encoded."""

    topic: Topic
    failed: frozenset[int]
    down: frozenset[NodeId]
    encoded: bytes


class TopicViews:
    """What was shown last of each topic, encoded in the versions in which it was asked for."""

    def __init__(self) -> None:
        self._views: dict[tuple[UUID, int], _View] = {}
        self._size = 0
        self._names: tuple[int, list[str]] = -1, []

    def names(self, state: ClusterState) -> list[str]:
        """The names of all topics, in order; sorted anew only when one came or went."""
        if self._names[0] != state.names_version:
            self._names = state.names_version, sorted(state.topics)
        return self._names[1]

    async def show(
        self, broker: Broker, topic: Topic, context: Context
    ) -> list[MetadataResponsePartition]:
        """Every partition of `topic`, for an answer to Metadata."""
        if context.answer is None:
            return list(show_some(broker, topic, range(len(topic.partitions))))
        shown = context.answer.encoded_array(MetadataResponsePartition)
        failed, down = await failed_partitions(broker, topic, context), _down(broker)
        key = topic.topic_id, context.api_version
        view = self._views.get(key)
        if view is not None and (view.topic is topic and view.failed == failed
                                 and view.down == down):
            shown.append_encoded(view.encoded, len(topic.partitions))
            return shown.as_list()
        for index, state in enumerate(topic.partitions):
            if index % _PAUSE_EACH == 0:
                await context.pause()
            shown.append(
                _partition(index, state, broker.node_id if index in failed else None, down))
        self._keep(key, _View(topic, failed, down, shown.encoded()))
        return shown.as_list()

    def _keep(self, key: tuple[UUID, int], view: _View) -> None:
        old = self._views.pop(key, None)
        self._size += len(view.encoded) - (len(old.encoded) if old is not None else 0)
        self._views[key] = view
        while self._size > _KEPT_SIZE_MAX:  # the oldest goes, it may be of a topic that is gone
            self._size -= len(self._views.pop(next(iter(self._views))).encoded)


async def failed_partitions(broker: Broker, topic: Topic, context: Context) -> frozenset[int]:
    """Partitions that this node leads, and whose log it cannot serve."""
    failed = []
    for index, state in enumerate(topic.partitions):
        if index % _PAUSE_EACH == 0:
            await context.pause()
        if state.leader == broker.node_id and is_failed(broker, topic, index):
            failed.append(index)
    return frozenset(failed)


def is_failed(broker: Broker, topic: Topic, index: int) -> bool:
    """Is there no log here that could serve this partition?"""
    partition = broker.partitions.find(topic.name, index)
    return partition is None or partition.failed is not None


def show_some(
    broker: Broker, topic: Topic, partitions: range
) -> Iterator[MetadataResponsePartition]:
    """A few partitions of `topic`."""
    down = _down(broker)
    for index in partitions:
        state = topic.partitions[index]
        failed = state.leader == broker.node_id and is_failed(broker, topic, index)
        yield _partition(index, state, broker.node_id if failed else None, down)


def _down(broker: Broker) -> frozenset[NodeId]:
    return frozenset(
        known.node_id for known in broker.cluster.state.brokers.values() if known.fenced)


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

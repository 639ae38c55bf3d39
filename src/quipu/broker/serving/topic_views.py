"""Topics as Metadata and DescribeTopicPartitions show them.

Clients ask for the same topics again and again, and topics seldom change.  So the encoded
partitions of a topic are kept for the next response, until the topic, the set of its failed
partitions or the set of fenced nodes changes.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple
from uuid import UUID

from quipu.broker.serving.context import Broker, Context
from quipu.broker.serving.routing import unreachable
from quipu.controller.state import ClusterState
from quipu.controller.topic_state import PartitionState, Topic
from quipu.model.errors import Code
from quipu.model.ids import NO_NODE, NodeId
from quipu.wire.messages.k03_metadata import MetadataResponsePartition

# The operations that a client may do, one bit each; there is no access control, so it is all.
NOT_ASKED: Final = -0x8000_0000
TOPIC_OPERATIONS: Final = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS: Final = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))

VERSION_LISTENER_NOT_FOUND: Final = 6  # of Metadata: from here on, clients know the error

_KEPT_SIZE_MAX: Final = 64 << 20  # bytes of all kept views
_PAUSE_EACH: Final = 64  # partitions between two pauses


class _View(NamedTuple):
    """The encoded partitions of a topic, and what they were encoded from."""

    topic: Topic
    failed: frozenset[int]
    down: frozenset[NodeId]
    encoded: bytes


_Key = tuple[UUID, int, frozenset[NodeId]]  # topic, version, nodes that its clients cannot reach


class TopicViews:
    """The encoded partitions of topics, for each version of Metadata that clients used."""

    def __init__(self) -> None:
        self._views: dict[_Key, _View] = {}
        self._size = 0
        self._names: tuple[int, list[str]] = -1, []

    def names(self, state: ClusterState) -> list[str]:
        """The names of all topics, sorted; sorted again only after one was added or deleted."""
        if self._names[0] != state.names_version:
            self._names = state.names_version, sorted(state.topics)
        return self._names[1]

    async def show(
        self, broker: Broker, topic: Topic, context: Context
    ) -> list[MetadataResponsePartition]:
        """Every partition of `topic`, for a response to Metadata."""
        if context.budget is None:
            return list(show_some(broker, topic, range(len(topic.partitions)), context))
        shown = context.budget.encoded_array(MetadataResponsePartition)
        failed, down = await failed_partitions(broker, topic, context), _down(broker)
        hidden = unreachable(broker, context.listener)
        key = topic.topic_id, context.api_version, hidden
        view = self._views.get(key)
        if view is not None and (view.topic is topic and view.failed == failed
                                 and view.down == down):
            shown.append_encoded(view.encoded, len(topic.partitions))
            return shown.as_list()
        for index, state in enumerate(topic.partitions):
            if index % _PAUSE_EACH == 0:
                await context.pause()
            partition = _partition(index, state, broker.node_id if index in failed else None, down)
            shown.append(_hide_leader(partition, hidden, context.api_version))
        self._keep(key, _View(topic, failed, down, shown.encoded()))
        return shown.as_list()

    def _keep(self, key: _Key, view: _View) -> None:
        old = self._views.pop(key, None)
        self._size += len(view.encoded) - (len(old.encoded) if old is not None else 0)
        self._views[key] = view
        while self._size > _KEPT_SIZE_MAX:  # the oldest; its topic may be deleted
            self._size -= len(self._views.pop(next(iter(self._views))).encoded)


async def failed_partitions(broker: Broker, topic: Topic, context: Context) -> frozenset[int]:
    """Partitions that this node leads and whose log has failed."""
    failed = []
    for index, state in enumerate(topic.partitions):
        if index % _PAUSE_EACH == 0:
            await context.pause()
        if state.leader == broker.node_id and is_failed(broker, topic, index):
            failed.append(index)
    return frozenset(failed)


def is_failed(broker: Broker, topic: Topic, index: int) -> bool:
    """Whether this node has no log that can serve the partition."""
    partition = broker.partitions.find(topic.name, index)
    return partition is None or partition.failure is not None


def show_some(
    broker: Broker, topic: Topic, partitions: range, context: Context,
    *, version: int | None = None,
) -> Iterator[MetadataResponsePartition]:
    """The given partitions of `topic`, as `version` of Metadata shows them."""
    version = context.api_version if version is None else version
    down, hidden = _down(broker), unreachable(broker, context.listener)
    for index in partitions:
        state = topic.partitions[index]
        failed = state.leader == broker.node_id and is_failed(broker, topic, index)
        partition = _partition(index, state, broker.node_id if failed else None, down)
        yield _hide_leader(partition, hidden, version)


def _down(broker: Broker) -> frozenset[NodeId]:
    return frozenset(
        known.node_id for known in broker.cluster.state.brokers.values() if known.fenced)


def _hide_leader(
    partition: MetadataResponsePartition, hidden: frozenset[NodeId], version: int
) -> MetadataResponsePartition:
    """`partition` without its leader, if clients of this listener cannot connect to it."""
    if partition.leader_id in hidden:
        partition.leader_id = NO_NODE
        partition.error_code = (Code.LISTENER_NOT_FOUND if version >= VERSION_LISTENER_NOT_FOUND
                                else Code.LEADER_NOT_AVAILABLE)
    return partition


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
                          or node_id in state.failed_replicas],
    )

"""Topics as Metadata and DescribeTopicPartitions show them.

Clients ask for the same topics again and again, and topics seldom change.  So the encoded
partitions of a topic are kept for the next response, until the topic, the set of its failed
partitions or the set of fenced nodes changes.  Those of a diskless topic are kept for each zone of
clients (zone_views.py), until the set of nodes in that zone changes.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple
from uuid import UUID

from quipu.broker.serving.context import Broker, Context
from quipu.broker.serving.routing import unreachable
from quipu.broker.serving.zone_views import NOWHERE, Nodes, ZoneHits, nodes_in, projected
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
_COUNTED_MAX: Final = 10_000  # topics for which it is counted whether zones have replicas
_PAUSE_EACH: Final = 64  # partitions between two pauses


class _View(NamedTuple):
    """The encoded partitions of a topic, and what they were encoded from."""

    topic: Topic
    failed: frozenset[int]
    down: frozenset[NodeId]
    near: Nodes  # that are in the zone of its clients; none if the zone does not matter
    hits: int  # partitions of which the replica in the zone is shown
    encoded: bytes


# Topic, version, nodes that its clients cannot reach, their zone if it matters (broker.serving.Z1).
_Key = tuple[UUID, int, frozenset[NodeId], str | None]


class TopicViews:
    """The encoded partitions of topics, for each version of Metadata that clients used."""

    def __init__(self) -> None:
        self._views: dict[_Key, _View] = {}
        self._size = 0
        self._names: tuple[int, list[str]] = -1, []
        self._hits: dict[UUID, ZoneHits] = {}  # of diskless topics, for clients with a zone

    def names(self, state: ClusterState) -> list[str]:
        """The names of all topics, sorted; sorted again only after one was added or deleted."""
        if self._names[0] != state.names_version:
            self._names = state.names_version, sorted(state.topics)
        return self._names[1]

    def hits(self, state: ClusterState) -> Iterator[tuple[str, ZoneHits]]:
        """By topic: how often clients with a zone were shown a replica in it."""
        for topic_id, hits in list(self._hits.items()):
            topic = state.topics_by_id.get(topic_id)
            if topic is not None:
                yield topic.name, hits

    async def show(
        self, broker: Broker, topic: Topic, context: Context, zone: str | None = None
    ) -> list[MetadataResponsePartition]:
        """Every partition of `topic`, for a response to Metadata of a client in `zone`."""
        if context.budget is None:
            return list(show_some(broker, topic, range(len(topic.partitions)), context, zone=zone))
        shown = context.budget.encoded_array(MetadataResponsePartition)
        failed, down = await failed_partitions(broker, topic, context), _down(broker)
        hidden, near = unreachable(broker, context.listener), _near(broker, topic, context, zone)
        key = topic.topic_id, context.api_version, hidden, zone if near else None
        view = self._views.get(key)
        if view is not None and (view.topic is topic and view.failed == failed
                                 and view.down == down and view.near == near):
            shown.append_encoded(view.encoded, len(topic.partitions))
        else:
            hits = 0
            for index, state in enumerate(topic.partitions):
                if index % _PAUSE_EACH == 0:
                    await context.pause()
                seen = projected(state, near) if near else state
                hits += seen is not state
                is_failed_here = index in failed and seen.leader == broker.node_id
                partition = _partition(
                    index, seen, broker.node_id if is_failed_here else None, down)
                shown.append(_hide_leader(partition, hidden, context.api_version))
            view = _View(topic, failed, down, near, hits, shown.encoded())
            self._keep(key, view)
        if zone is not None and topic.is_diskless:
            self._count(topic, view.hits)
        return shown.as_list()

    def _count(self, topic: Topic, hits: int) -> None:
        before = self._hits.pop(topic.topic_id, ZoneHits())
        self._hits[topic.topic_id] = ZoneHits(
            before.hits + hits, before.shown + len(topic.partitions))
        if len(self._hits) > _COUNTED_MAX:  # the one that was not shown for longest
            del self._hits[next(iter(self._hits))]

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
    *, version: int | None = None, zone: str | None = None,
) -> Iterator[MetadataResponsePartition]:
    """The given partitions of `topic`, as `version` of Metadata shows them in `zone`."""
    version = context.api_version if version is None else version
    down, hidden = _down(broker), unreachable(broker, context.listener)
    near = _near(broker, topic, context, zone)
    for index in partitions:
        state = topic.partitions[index]
        if near:
            state = projected(state, near)
        failed = state.leader == broker.node_id and is_failed(broker, topic, index)
        partition = _partition(index, state, broker.node_id if failed else None, down)
        yield _hide_leader(partition, hidden, version)


def _near(broker: Broker, topic: Topic, context: Context, zone: str | None) -> Nodes:
    """The nodes in the zone of a client, if they matter for what it is shown of `topic`."""
    if zone is None or not topic.is_diskless:
        return NOWHERE
    return nodes_in(broker, zone, context.listener)


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

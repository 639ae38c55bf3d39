"""What nodes see of members that catch up, until the controller has acted on it.

A node sees, per partition, that a member that syncs has every record.  From there:

    a chain's member     serves when it has caught up in all of the chain's partitions.  All of
                         them have the same tail, so the tail adds up, and tells once (`Reports`)
    a partition that is detached from its chain: the same for this one alone
    a moving partition   goes on when all who sync have caught up, which different nodes see; the
                         controller adds up (`Arrivals`)

Invariants
    U1  what was seen counts for the version of the replica set in which it was seen, and no other
    U2  what is kept is bounded by the partitions there are
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

from quipu.broker.cluster.requests import CaughtUpChain, CaughtUpPartition
from quipu.controller.members import Chain, PartitionState
from quipu.controller.reassignment import CaughtUp
from quipu.controller.state import ClusterState
from quipu.model.chains import MemberState
from quipu.model.ids import NO_NODE, NodeId

TOLD_MAX: Final = 1000  # partitions in one heartbeat; the others have their turn later

Key = tuple[UUID, int]


class _Seen(NamedTuple):
    version: int
    nodes: frozenset[NodeId]

    def of(self, version: int) -> frozenset[NodeId]:
        return self.nodes if self.version == version else frozenset()  # U1


_NOTHING: Final = _Seen(-1, frozenset())


class Reports:
    """What this node has seen."""

    def __init__(self, node_id: NodeId) -> None:
        self._node_id = node_id
        self._seen: dict[Key, _Seen] = {}

    def see(self, key: Key, node_id: NodeId, version: int) -> bool:
        """`node_id` has caught up; NO_NODE: all who serve have begun to.  False if known."""
        seen = self._seen.get(key, _NOTHING)
        if version < seen.version or node_id in seen.of(version):
            return False
        self._seen[key] = _Seen(version, seen.of(version) | {node_id})
        return True

    def caught_up_chains(self, state: ClusterState) -> list[CaughtUpChain]:
        """The next to serve in this node's chain, if this node is its tail and it has caught up."""
        chain = state.chain_of(self._node_id)
        if chain is None or chain.serving[-1].node_id != self._node_id:
            return []
        syncing = chain.within(MemberState.SYNCING)
        if not syncing or not self._has_all(state, chain, syncing[0].node_id):
            return []
        return [CaughtUpChain(chain=chain.name, node_id=syncing[0].node_id,
                              version=state.chain_mark(chain.name))]

    def caught_up_partitions(self, state: ClusterState) -> list[CaughtUpPartition]:
        """What was seen of partitions that move or are detached from their chain; and what is out
        of date is forgotten (U2).
        """
        return list(islice(self._moving(state), TOLD_MAX))

    def _has_all(self, state: ClusterState, chain: Chain, node_id: NodeId) -> bool:
        return all(
            node_id in self._seen.get((topic.topic_id, index), _NOTHING).of(
                topic.partitions[index].partition_epoch)
            for topic, index in state.partitions_on(chain.name))

    def _moving(self, state: ClusterState) -> Iterator[CaughtUpPartition]:
        for key, seen in list(self._seen.items()):
            partition = _find(state, key)
            if partition is None or partition.partition_epoch > seen.version:
                del self._seen[key]
            elif partition.moving_to is not None or partition.place.own is not None:
                for node_id in sorted(seen.of(partition.partition_epoch)):
                    yield CaughtUpPartition(topic_id=key[0], partition=key[1], node_id=node_id,
                                            version=seen.version)


class Arrivals:
    """What the controller has been told of partitions that move."""

    def __init__(self) -> None:
        self._seen: dict[Key, _Seen] = {}

    def add(
        self, state: ClusterState, told: list[CaughtUpPartition], sender: NodeId
    ) -> list[CaughtUp]:
        """Take in what `sender` tells of partitions that it has; those that can go on."""
        arrived = []
        for report in told:
            key = (report.topic_id, report.partition)
            partition = _find(state, key)
            if partition is None or partition.partition_epoch != report.version:
                continue  # U1
            if partition.replica_set.state_of(sender) is None:
                continue  # it cannot know
            seen = self._seen.get(key, _NOTHING).of(report.version) | {NodeId(report.node_id)}
            self._seen[key] = _Seen(report.version, seen)
            if _has_arrived(partition, seen):
                arrived.append(CaughtUp(*key, report.version))
        for key in [key for key, seen in self._seen.items() if _is_over(state, key, seen)]:
            del self._seen[key]  # U2
        return arrived


def _has_arrived(partition: PartitionState, seen: frozenset[NodeId]) -> bool:
    if partition.place.joined:
        return NO_NODE in seen
    return seen.issuperset(partition.replica_set.syncing)


def _is_over(state: ClusterState, key: Key, seen: _Seen) -> bool:
    partition = _find(state, key)
    return partition is None or partition.partition_epoch != seen.version


def _find(state: ClusterState, key: Key) -> PartitionState | None:
    topic_id, index = key
    topic = state.topics_by_id.get(topic_id)
    if topic is None or not 0 <= index < len(topic.partitions):
        return None
    return topic.partitions[index]

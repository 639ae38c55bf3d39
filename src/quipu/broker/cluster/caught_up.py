"""Collects reports that replicas have caught up, on the node that sees it and on the controller.

A node sees, per partition, that a syncing member has every record.  Then:

    a chain's member      serves when it has caught up in all partitions of the chain, an
                          operator's or a derived one.  All of them have the same tail, so the tail
                          collects and reports once (`CaughtUpReports`)
    a detached partition  its syncing member serves when it has caught up in this partition
    a moving partition    moves on when all syncing members have caught up, which different nodes
                          see; so the controller collects (`CaughtUpTally`)

Invariants
    broker.cluster.U1  an observation counts only for the version of the replica set in which it was
                       made
    broker.cluster.U2  what is kept is bounded by the number of existing partitions
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple, assert_never
from uuid import UUID

from quipu.broker.cluster.requests import CaughtUpChain, CaughtUpPartition
from quipu.controller.members import Chain
from quipu.controller.placement import ChainPlacement, DisklessPlacement, LegacyPlacement
from quipu.controller.reassignment import CaughtUp, awaited
from quipu.controller.state import ClusterState
from quipu.controller.topic_state import PartitionState
from quipu.model.ids import NO_NODE, NodeId

REPORTED_MAX: Final = 1000  # partitions in one heartbeat; the next one has more

Key = tuple[UUID, int]


class _CaughtUpNodes(NamedTuple):
    """The nodes that have caught up in one version of a partition's replica set."""

    version: int
    nodes: frozenset[NodeId]

    def of(self, version: int) -> frozenset[NodeId]:
        return self.nodes if self.version == version else frozenset()  # broker.cluster.U1


_NOTHING: Final = _CaughtUpNodes(-1, frozenset())


class CaughtUpReports:
    """The observations of this node, which its heartbeats report."""

    def __init__(self, node_id: NodeId) -> None:
        self._node_id = node_id
        self._seen: dict[Key, _CaughtUpNodes] = {}

    def see(self, key: Key, node_id: NodeId, version: int) -> bool:
        """Note that `node_id` has caught up; returns False if that was known.

        NO_NODE means that the configuration of the replica set is committed.
        """
        seen = self._seen.get(key, _NOTHING)
        if version < seen.version or node_id in seen.of(version):
            return False
        self._seen[key] = _CaughtUpNodes(version, seen.of(version) | {node_id})
        return True

    def caught_up_chains(self, state: ClusterState) -> list[CaughtUpChain]:
        """The next member to serve of each chain whose tail this node is, if it has caught up."""
        reports = []
        for chain in state.chain_index.with_node(self._node_id):
            syncing = chain.replica_set.syncing
            if (syncing and chain.replica_set.tail == self._node_id
                    and self._has_all(state, chain, syncing[0])):
                reports.append(CaughtUpChain(chain=chain.name, node_id=syncing[0],
                                             version=state.chain_mark(chain.name)))
        return reports

    def caught_up_partitions(self, state: ClusterState) -> list[CaughtUpPartition]:
        """The observations of moving and detached partitions.

        Outdated observations are dropped (broker.cluster.U2).
        """
        return list(islice(self._moving(state), REPORTED_MAX))

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
            elif partition.moving_to is not None or partition.own_chain is not None:
                for node_id in sorted(seen.of(partition.partition_epoch)):
                    yield CaughtUpPartition(topic_id=key[0], partition=key[1], node_id=node_id,
                                            version=seen.version)


class CaughtUpTally:
    """The reports of all nodes about moving partitions, on the controller."""

    def __init__(self) -> None:
        self._seen: dict[Key, _CaughtUpNodes] = {}

    def add(
        self, state: ClusterState, reports: list[CaughtUpPartition], sender: NodeId
    ) -> list[CaughtUp]:
        """Add the reports of `sender`; returns the partitions that can move on."""
        arrived = []
        for report in reports:
            key = (report.topic_id, report.partition)
            partition = _find(state, key)
            if partition is None or partition.partition_epoch != report.version:
                continue  # broker.cluster.U1
            if partition.replica_set.state_of(sender) is None:
                continue  # the sender has no replica of it
            seen = self._seen.get(key, _NOTHING).of(report.version) | {NodeId(report.node_id)}
            self._seen[key] = _CaughtUpNodes(report.version, seen)
            if _has_arrived(state, partition, seen):
                arrived.append(CaughtUp(*key, report.version))
        for key in [key for key, seen in self._seen.items() if _is_over(state, key, seen)]:
            del self._seen[key]  # broker.cluster.U2
        return arrived


def _has_arrived(
    state: ClusterState, partition: PartitionState, seen: frozenset[NodeId]
) -> bool:
    match partition.placement:
        case ChainPlacement():
            if partition.placement.joined:
                return NO_NODE in seen
            return seen >= awaited(state, partition)
        case LegacyPlacement() | DisklessPlacement():
            return False  # such a partition does not move
        case _:
            assert_never(partition.placement)


def _is_over(state: ClusterState, key: Key, seen: _CaughtUpNodes) -> bool:
    partition = _find(state, key)
    return partition is None or partition.partition_epoch != seen.version


def _find(state: ClusterState, key: Key) -> PartitionState | None:
    topic_id, index = key
    topic = state.topics_by_id.get(topic_id)
    if topic is None or not 0 <= index < len(topic.partitions):
        return None
    return topic.partitions[index]

"""Topics whose partitions have other replicas or another leader, because brokers or chains changed.

Each function returns the topics as they are now, made from the placements of their partitions; it
changes nothing (controller.S1).
"""

import dataclasses
from operator import is_not
from typing import TYPE_CHECKING
from uuid import UUID

from quipu.controller.placement import DisklessPlacement, Placement, chains_of
from quipu.controller.topic_state import PartitionState, Topic
from quipu.model.ids import NodeId

if TYPE_CHECKING:
    from quipu.controller.state import ClusterState


def on_chain(state: "ClusterState", chain: str) -> list[Topic]:
    """The topics on `chain`, which has changed."""
    known: dict[Placement, PartitionState] = {}
    topics = state.topics_on(chain)
    for position, topic in enumerate(topics):
        partitions = []
        last = derived = None
        for partition in topic.partitions:
            if partition is not last:  # those that are placed alike are one value
                last, placement = partition, partition.placement
                if chain not in chains_of(placement):
                    derived = partition
                else:
                    derived = known.get(placement) or known.setdefault(
                        placement, state.partition_at(placement))
            assert derived is not None
            partitions.append(derived)
        assert len(partitions) == len(topic.partitions), topic.name  # controller.S3
        topics[position] = Topic(  # several times as fast as `replace`
            name=topic.name, topic_id=topic.topic_id, partitions=tuple(partitions),
            configs=topic.configs)
    return topics


def detached_from_chains(state: "ClusterState", node_id: NodeId) -> list[Topic]:
    """The topics with detached partitions whose head is `node_id`, which has changed."""
    changed: dict[UUID, Topic] = {}
    for (topic_id, index), placement in state.detached_partitions():
        assert placement.own_chain is not None
        if placement.own_chain.head.node_id == node_id:
            topic = changed.get(topic_id) or state.topics_by_id[topic_id]
            partitions = list(topic.partitions)
            partitions[index] = state.partition_at(placement)
            changed[topic_id] = dataclasses.replace(topic, partitions=tuple(partitions))
    return list(changed.values())


def diskless(state: "ClusterState") -> list[Topic]:
    """The diskless topics with another leader, after a broker came or went (controller.D1)."""
    changed = []
    for topic in state.diskless_topics():
        partitions = list(topic.partitions)
        for index, partition in enumerate(partitions):
            placement = partition.placement
            assert isinstance(placement, DisklessPlacement), topic.name
            leader = state.diskless_leader(placement, (topic.topic_id, index))
            if leader != partition.leader:
                partitions[index] = partition._replace(leader=leader)
        if any(map(is_not, partitions, topic.partitions)):
            changed.append(dataclasses.replace(topic, partitions=tuple(partitions)))
    return changed

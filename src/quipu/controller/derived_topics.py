"""Topics whose partitions have other replicas or another leader, because brokers or chains changed.

Each function returns topics, or a partition, as they are now, made from the placements of
partitions; it changes nothing (controller.S1).
"""

import dataclasses
from collections.abc import Mapping
from operator import is_not
from typing import TYPE_CHECKING, assert_never
from uuid import UUID

from quipu.controller.members import Chain
from quipu.controller.placement import (
    ChainPlacement,
    DisklessPlacement,
    LegacyPlacement,
    Placement,
    acting_leader,
    assigned_order,
    chains_of,
    elected,
    replica_set_of,
)
from quipu.controller.topic_state import PartitionState, Topic, partition_state
from quipu.model.ids import NodeId

if TYPE_CHECKING:
    from quipu.controller.state import ClusterState


def partition_at(
    state: "ClusterState", placement: Placement, key: tuple[UUID, int] | None = None,
    chains: Mapping[str, Chain] | None = None,
) -> PartitionState:
    """A partition with this placement, by the brokers and chains of now, or by `chains`.

    The leader of a diskless one depends on its `key` too.
    """
    match placement:
        case ChainPlacement():
            found = state.chains if chains is None else chains
            replica_set = replica_set_of(placement, found)
            return partition_state(
                placement, replica_set,
                state.leader_of(placement.own_chain or found[placement.chain]),  # controller.P2
                assigned_order(placement, replica_set, lambda name: (
                    found[name].order or state.chain_index.preferred(name))))
        case LegacyPlacement():
            return partition_state(
                placement, replica_set_of(placement, state.chains), placement.leader,
                placement.replicas)
        case DisklessPlacement():
            assert key is not None, placement
            return diskless_partition(state, placement, key)
        case _:
            assert_never(placement)


def on_chain(state: "ClusterState", chain: str) -> list[Topic]:
    """The topics on `chain`, which has changed."""
    known: dict[Placement, PartitionState] = {}
    topics = state.topics_on(chain)
    for position, topic in enumerate(topics):
        derived: dict[int, PartitionState] = {}  # those that are placed alike are one value
        for partition in topic.partitions:
            if id(partition) not in derived:
                placement = partition.placement
                derived[id(partition)] = partition if chain not in chains_of(placement) else (
                    known.get(placement) or known.setdefault(
                        placement, partition_at(state, placement)))
        partitions = [derived[id(partition)] for partition in topic.partitions]
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
            partitions[index] = partition_at(state, placement)
            changed[topic_id] = dataclasses.replace(topic, partitions=tuple(partitions))
    return list(changed.values())


def diskless_partition(
    state: "ClusterState", placement: DisklessPlacement, key: tuple[UUID, int]
) -> PartitionState:
    """A diskless partition, with a leader that is up if there is one."""
    is_up = state.is_up(placement.leader)  # as nearly always
    up = (placement.leader,) if is_up else tuple(state.up())
    placement = elected(placement, up)  # controller.D3
    return partition_state(placement, replica_set_of(placement, state.chains),
                           acting_leader(placement, *key, up), placement.replicas)  # controller.D1


def diskless(state: "ClusterState") -> list[Topic]:
    """The diskless topics with another leader, after a broker came or went."""
    changed = []
    known: dict[DisklessPlacement, DisklessPlacement] = {}  # equal ones stay one value
    up = state.up()
    for topic in state.diskless_topics():
        partitions = list(topic.partitions)
        for index, partition in enumerate(partitions):
            placement = partition.placement
            assert isinstance(placement, DisklessPlacement), topic.name
            after = elected(placement, up)  # controller.D3
            leader = acting_leader(after, topic.topic_id, index, up)  # controller.D1
            if leader != partition.leader or after is not placement:
                partitions[index] = partition._replace(
                    leader=leader, placement=known.setdefault(after, after))
        if any(map(is_not, partitions, topic.partitions)):
            changed.append(dataclasses.replace(topic, partitions=tuple(partitions)))
    return changed

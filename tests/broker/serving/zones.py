"""Brokers in zones, and diskless topics on them: metadata as nodes apply it, without the nodes."""

from uuid import UUID

from quipu.controller.records import (
    BrokerFencingChanged,
    BrokerRegistered,
    ListenerRecord,
    PartitionRecord,
    PartitionRun,
    PartitionsMoved,
    PlacementKind,
    TopicCreated,
)
from quipu.controller.state import ClusterState
from quipu.controller.topic_state import Topic
from quipu.model.listeners import DEFAULT


def register(
    state: ClusterState, node_id: int, rack: str | None, *, fenced: bool = False,
    listeners: tuple[str, ...] = (DEFAULT.name,), host: str = "kafka.test", port: int = 0,
) -> None:
    """Register a broker, or register it anew."""
    state.apply(BrokerRegistered(
        node_id=node_id, host=host, port=port or 9000 + node_id, rack=rack, fenced=fenced,
        name=f"a-{node_id}", epoch=state.next_version, listeners=[
            ListenerRecord(name=name, host=host, port=port or 9000 + node_id)
            for name in listeners]))


def fence(state: ClusterState, node_id: int, *, fenced: bool = True) -> None:
    state.apply(BrokerFencingChanged(node_id=node_id, fenced=fenced))


def create(state: ClusterState, name: str, *placements: list[int], number: int = 7) -> Topic:
    """A diskless topic whose partitions have these replicas; the first of each leads."""
    state.apply(TopicCreated(
        name=name, topic_id=UUID(int=number), partitions=[
            PartitionRecord(replicas=replicas, isr=replicas, leader=replicas[0])
            for replicas in placements],
        runs=[PartitionRun(count=len(placements), kind=PlacementKind.DISKLESS,
                           version=state.next_version)]))
    return state.topics[name]


def move(state: ClusterState, topic: str, index: int, replicas: list[int]) -> None:
    """Give a diskless partition other replicas."""
    state.apply(moved(state, topic, index, replicas))


def moved(state: ClusterState, topic: str, index: int, replicas: list[int]) -> PartitionsMoved:
    return PartitionsMoved(
        topic_id=state.topics[topic].topic_id, partitions=[index], replicas=replicas,
        version=state.next_version, kind=PlacementKind.DISKLESS)

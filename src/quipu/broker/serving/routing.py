"""Finds the node that leads a partition, and the address where clients reach a node.

Used mostly when a request came to the wrong node, so nothing here has to be fast.
"""

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from quipu.broker.serving.context import Broker
from quipu.controller.topic_state import Topic
from quipu.model.errors import Code
from quipu.model.ids import NO_NODE, Epoch, NodeId
from quipu.model.listeners import ClientListener

Key = tuple[str | bytes, int]  # topic name, or id as 16 bytes, and partition


class PartitionLeader(NamedTuple):
    """The node that leads a partition, and its leader epoch."""

    node_id: NodeId
    epoch: Epoch


class BrokerEndpoint(NamedTuple):
    """The address at which clients reach a node."""

    node_id: NodeId
    host: str
    port: int
    rack: str | None


def find_topic(broker: Broker, topic: str | bytes) -> Topic | None:
    """The topic with this name, or with this id as 16 bytes."""
    state = broker.cluster.state
    if isinstance(topic, str):
        return state.topics.get(topic)
    return state.topics_by_id.get(UUID(bytes=topic))


def why_absent(broker: Broker, topic: str | bytes, partition: int) -> Code:
    """The error code for a partition that this node does not have."""
    found = find_topic(broker, topic)
    if found is None and not isinstance(topic, str):
        return Code.UNKNOWN_TOPIC_ID
    if found is None or not 0 <= partition < len(found.partitions):
        return Code.UNKNOWN_TOPIC_OR_PARTITION
    return Code.NOT_LEADER_OR_FOLLOWER


def find_leader(broker: Broker, key: Key) -> PartitionLeader | None:
    """The leader of a partition as far as this node knows; None if there is none."""
    topic, index = key
    found = find_topic(broker, topic)
    if found is None or not 0 <= index < len(found.partitions):
        return None
    state = found.partitions[index]
    return PartitionLeader(state.leader, state.leader_epoch) if state.leader != NO_NODE else None


def find_leaders(broker: Broker, keys: Iterable[Key]) -> dict[Key, PartitionLeader]:
    """The leaders of those partitions that have one."""
    leaders = {key: find_leader(broker, key) for key in keys}
    return {key: leader for key, leader in leaders.items() if leader is not None}


def endpoints(
    broker: Broker, leaders: Iterable[PartitionLeader], listener: ClientListener
) -> list[BrokerEndpoint]:
    """Where clients of `listener` reach the leaders; nodes without it are left out."""
    brokers = broker.cluster.state.brokers
    found = []
    for node_id in sorted({leader.node_id for leader in leaders}):
        known = brokers.get(node_id)
        there = None if known is None else known.endpoint(listener.name)
        if known is not None and there is not None:
            found.append(BrokerEndpoint(node_id, there.host, there.port, known.rack))
    return found


def unreachable(broker: Broker, listener: ClientListener) -> frozenset[NodeId]:
    """Nodes without this listener: clients of the listener cannot connect to them."""
    return frozenset(known.node_id for known in broker.cluster.state.brokers.values()
                     if known.endpoint(listener.name) is None)


def controller_for(broker: Broker, listener: ClientListener) -> int:
    """The node that clients of `listener` are shown as the controller.

    If they cannot reach the controller, it is this node, which forwards their requests to it.
    """
    controller_id = broker.cluster.controller_id
    known = broker.cluster.state.brokers.get(NodeId(controller_id))
    return broker.node_id if known is not None and known.endpoint(listener.name) is None else (
        controller_id)


def is_up(broker: Broker, node_id: NodeId) -> bool:
    """Is `node_id` registered and not fenced?"""
    known = broker.cluster.state.brokers.get(node_id)
    return known is not None and not known.fenced

"""Where a request should have gone: which node leads a partition, and how to reach it.

Asked only when a request came to the wrong node, so nothing here need be fast.
"""

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from quipu.broker.context import Broker
from quipu.controller.state import Topic
from quipu.model.errors import Code
from quipu.model.ids import NO_NODE, Epoch, NodeId

Key = tuple[str | bytes, int]  # topic name, or id as 16 bytes, and partition


class Leader(NamedTuple):
    """Who leads a partition, and since which epoch."""

    node_id: NodeId
    epoch: Epoch


class Endpoint(NamedTuple):
    """How clients reach a node."""

    node_id: NodeId
    host: str
    port: int
    rack: str | None


def find_topic(broker: Broker, topic: str | bytes) -> Topic | None:
    """By name, or by id as 16 bytes."""
    state = broker.cluster.state
    if isinstance(topic, str):
        return state.topics.get(topic)
    return state.topics_by_id.get(UUID(bytes=topic))


def why_absent(broker: Broker, topic: str | bytes, partition: int) -> Code:
    """What to answer about a partition that this node does not have."""
    found = find_topic(broker, topic)
    if found is None and not isinstance(topic, str):
        return Code.UNKNOWN_TOPIC_ID
    if found is None or not 0 <= partition < len(found.partitions):
        return Code.UNKNOWN_TOPIC_OR_PARTITION
    return Code.NOT_LEADER_OR_FOLLOWER


def find_leader(broker: Broker, key: Key) -> Leader | None:
    """Who leads a partition as far as this node knows; None if nobody does."""
    topic, index = key
    found = find_topic(broker, topic)
    if found is None or not 0 <= index < len(found.partitions):
        return None
    state = found.partitions[index]
    return Leader(state.leader, state.leader_epoch) if state.leader != NO_NODE else None


def find_leaders(broker: Broker, keys: Iterable[Key]) -> dict[Key, Leader]:
    """The leaders of those partitions that have one."""
    leaders = {key: find_leader(broker, key) for key in keys}
    return {key: leader for key, leader in leaders.items() if leader is not None}


def endpoints(broker: Broker, leaders: Iterable[Leader]) -> list[Endpoint]:
    """How to reach the nodes that lead."""
    brokers = broker.cluster.state.brokers
    found = []
    for node_id in sorted({leader.node_id for leader in leaders}):
        known = brokers.get(node_id)
        if known is not None:
            found.append(Endpoint(node_id, known.host, known.port, known.rack))
    return found


def is_up(broker: Broker, node_id: NodeId) -> bool:
    """Does the controller take `node_id` for alive?"""
    known = broker.cluster.state.brokers.get(node_id)
    return known is not None and not known.fenced

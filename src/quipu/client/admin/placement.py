"""Describes how diskless partitions are placed, and the racks that they are placed in.

Placements are tagged fields of DescribeTopicPartitions, racks have a request of Quipu's own.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

from quipu.client.admin.routing import ask_any
from quipu.client.cluster import Cluster
from quipu.client.errors import broker_refused
from quipu.model.errors import Code
from quipu.wire.messages.k75_describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    TopicRequest,
)
from quipu.wire.messages.k10005_describe_racks import DescribeRacksRequest, DescribeRacksResponse

PLACEMENT_STATES: Final = ("steady", "reconciling", "frozen")  # by number
RACK_STATES: Final = ("HEALTHY", "DEGRADED", "UNAVAILABLE")  # by number
UNKNOWN_STATE: Final = "unknown"  # of a newer version
PAGE_PARTITIONS: Final = 2000


class PartitionPlacement(NamedTuple):
    """The placement of one diskless partition."""

    topic: str
    partition: int
    leader: int | None  # None while there is none
    replicas: tuple[int, ...]
    target_racks: tuple[str, ...]
    assigned_racks: tuple[str, ...]
    rack_coverage: int  # percent of the target racks where a replica is up
    state: str  # one of PLACEMENT_STATES
    is_drifted: bool
    exceptions: tuple[str, ...]


class TopicPlacement(NamedTuple):
    """The placement of a diskless topic; partitions in the order of their numbers."""

    topic: str
    effective_rf: int  # replicas that each partition should have
    partitions: tuple[PartitionPlacement, ...]


class RackDescription(NamedTuple):
    """A rack."""

    name: str
    state: str  # one of RACK_STATES
    degraded_since_ms: int  # 0: one of its brokers is up
    brokers: tuple[int, ...]
    eligible_brokers: tuple[int, ...]  # those that may get replicas


class RacksDescription(NamedTuple):
    """All racks by name, and how the controller places diskless partitions."""

    controller_id: int
    effective_rf: int
    auto_reconcile: bool
    rack_unavailable_threshold_ms: int
    reassignment_backlog: int  # partitions that are not at their target
    racks: tuple[RackDescription, ...]


def describe_placement(
    cluster: Cluster, names: Collection[str] = (), *, page_partitions: int = PAGE_PARTITIONS
) -> dict[str, TopicPlacement]:
    """Diskless topics by name, all if none are named; others are left out."""
    found: dict[str, TopicPlacement] = {}
    cursor: Cursor | None = None
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names],
            response_partition_limit=page_partitions, cursor=cursor)
        response = ask_any(
            cluster, request, DescribeTopicPartitionsResponse,
            lambda answer: [each.error_code for each in answer.topics]).response
        for topic in response.topics:
            if topic.error_code and topic.error_code != Code.UNKNOWN_TOPIC_OR_PARTITION:
                raise broker_refused(topic.error_code, f"cannot describe topic {topic.name}")
            if topic.error_code or topic.name is None or topic.effective_rf < 0:
                continue
            before = found[topic.name].partitions if topic.name in found else ()
            found[topic.name] = TopicPlacement(topic.name, topic.effective_rf, (
                *before, *(_partition(topic.name, each) for each in topic.partitions)))
        cursor = response.next_cursor
        if cursor is None:
            return found


def describe_racks(cluster: Cluster) -> RacksDescription:
    """The racks, as the controller knows them."""
    response = ask_any(cluster, DescribeRacksRequest(), DescribeRacksResponse).response
    if response.error_code:
        raise broker_refused(response.error_code, "cannot describe racks", response.error_message)
    return RacksDescription(
        response.controller_id, response.effective_rf, response.auto_reconcile,
        response.rack_unavailable_threshold_ms, response.reassignment_backlog,
        tuple(RackDescription(
            rack.name, _named(RACK_STATES, rack.state), rack.degraded_since_ms,
            tuple(rack.brokers), tuple(rack.eligible_brokers)) for rack in response.racks))


def _partition(
    topic: str, part: DescribeTopicPartitionsResponsePartition
) -> PartitionPlacement:
    return PartitionPlacement(
        topic, part.partition_index, part.leader_id if part.leader_id >= 0 else None,
        tuple(part.assigned_replicas), tuple(part.target_racks), tuple(part.assigned_racks),
        part.rack_coverage, _named(PLACEMENT_STATES, part.placement_state), part.placement_drift,
        tuple(part.exceptions))


def _named(names: tuple[str, ...], number: int) -> str:
    return names[number] if 0 <= number < len(names) else UNKNOWN_STATE

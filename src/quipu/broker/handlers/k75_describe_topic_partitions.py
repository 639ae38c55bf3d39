"""DescribeTopicPartitions — API key 75, version 0.

Behaviour
    * responds with partitions page by page, topics by name; no topics named asks for all
    * a page holds response_partition_limit partitions, max.request.partition.size.limit at most
      and one at least; `next_cursor` says where the next page begins, null when there is none
    * a topic that does not exist gets an error, and does not count on the page; none is on a page
      that is full
    * a cursor before the first partition, or at a topic that is not one of those named, is
      INVALID_REQUEST for every named topic; if none is named, the response is empty
    * a client with a zone is shown partitions of diskless topics as by Metadata; which topics are
      diskless, a tagged field of our own says
    * of a diskless topic, tagged fields have the effective replication factor and, of each
      partition, its racks, its coverage, what the controller does about it, and exceptions
    * arrays that may be null are empty instead: Java's tools fail on null
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice

from quipu.broker.error_codes import code_of
from quipu.broker.serving.client_zone import zone_of
from quipu.broker.serving.context import Broker, Context
from quipu.broker.serving.placements import Placements
from quipu.broker.serving.topic_views import (
    TOPIC_OPERATIONS,
    VERSION_LISTENER_NOT_FOUND,
    show_some,
)
from quipu.controller.topic_state import PartitionState, Topic
from quipu.model.errors import Code, QuipuError
from quipu.model.topics import check_topic_name
from quipu.wire.messages.k75_describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


async def handle(
    broker: Broker, request: DescribeTopicPartitionsRequest, context: Context
) -> DescribeTopicPartitionsResponse:
    left = max(1, min(request.response_partition_limit,
                      broker.settings.max_request_partition_size_limit))
    zone = zone_of(broker, context)
    response = DescribeTopicPartitionsResponse(
        topics=context.array(DescribeTopicPartitionsResponseTopic))
    if not _is_cursor_usable(request):
        for named in request.topics:
            await context.pause()
            response.topics.append(DescribeTopicPartitionsResponseTopic(
                error_code=Code.INVALID_REQUEST, name=named.name))
        return response
    placements = Placements(broker)
    for name, first in _names(broker, request):
        await context.pause()
        if left == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=first)
            break
        topic = broker.cluster.state.topics.get(name)
        if topic is None:
            response.topics.append(_missing(name))
            continue
        last = min(len(topic.partitions), first + left)
        described = await _topic(
            broker, topic, range(first, last), context, zone=zone, placements=placements)
        response.topics.append(described)
        left -= max(last - first, 0)
        if last < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=last)
            break
    return response


def _is_cursor_usable(request: DescribeTopicPartitionsRequest) -> bool:
    cursor = request.cursor
    return cursor is None or (cursor.partition_index >= 0 and (
        not request.topics or any(topic.name == cursor.topic_name for topic in request.topics)))


def refuse(
    request: DescribeTopicPartitionsRequest, error: QuipuError
) -> DescribeTopicPartitionsResponse:
    """Respond with the error for each topic, or for a nameless one if none is named."""
    names: list[str | None] = [topic.name for topic in request.topics]
    return DescribeTopicPartitionsResponse(topics=[
        DescribeTopicPartitionsResponseTopic(error_code=code_of(error), name=name)
        for name in names or [None]])


def _names(
    broker: Broker, request: DescribeTopicPartitionsRequest
) -> Iterator[tuple[str, int]]:
    """Names from the cursor on, each with the partition to begin with."""
    cursor = request.cursor
    names = (sorted(topic.name for topic in request.topics)
             or broker.cluster.views.names(broker.cluster.state))
    start = 0 if cursor is None else bisect_left(names, cursor.topic_name)
    for name in islice(names, start, None):
        at_cursor = cursor is not None and name == cursor.topic_name
        yield name, cursor.partition_index if cursor is not None and at_cursor else 0


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = Code.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_topic_name(name)
    except QuipuError as error:
        code = code_of(error)
    return DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, topic_authorized_operations=TOPIC_OPERATIONS)


async def _topic(
    broker: Broker, topic: Topic, partitions: range, context: Context,
    *, zone: str | None, placements: Placements,
) -> DescribeTopicPartitionsResponseTopic:
    described = DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=context.array(DescribeTopicPartitionsResponsePartition),
        topic_authorized_operations=TOPIC_OPERATIONS,
        is_diskless=topic.is_diskless,
    )
    if topic.is_diskless:
        described.effective_rf = placements.effective_factor
    for partition in show_some(
            broker, topic, partitions, context, version=VERSION_LISTENER_NOT_FOUND, zone=zone):
        await context.pause()
        shown = DescribeTopicPartitionsResponsePartition(
            error_code=partition.error_code,
            partition_index=partition.partition_index,
            leader_id=partition.leader_id,
            leader_epoch=partition.leader_epoch,
            replica_nodes=partition.replica_nodes,
            isr_nodes=partition.isr_nodes,
            eligible_leader_replicas=[],
            last_known_elr=[],
            offline_replicas=partition.offline_replicas,
        )
        if topic.is_diskless:
            _place(shown, topic.partitions[partition.partition_index], placements)
        described.partitions.append(shown)
    return described


def _place(
    shown: DescribeTopicPartitionsResponsePartition, partition: PartitionState,
    placements: Placements,
) -> None:
    """Add how a diskless partition is placed."""
    found = placements.of(partition)
    shown.target_racks = list(found.target_racks)
    shown.assigned_racks = list(found.assigned_racks)
    shown.rack_coverage = found.rack_coverage
    shown.placement_state = found.state
    shown.exceptions = list(found.exceptions)
    shown.assigned_replicas = list(partition.replicas)
    shown.placement_drift = found.is_drifted

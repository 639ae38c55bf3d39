"""OffsetCommit — API key 8, versions 2-10.

Behaviour
    * keeps the offsets of a group; responds when they are durable
    * members commit with their generation; -1 is for tools, and for consumers that assign
      partitions themselves, while the group has no members
    * an unknown partition or too much metadata fails that partition alone
Versions
    v2-4  a retention time of the commit's own, which is honoured
    v6    leader epochs
    v7    static members
    v9    a member of a group that does not exist gets GROUP_ID_NOT_FOUND, before ILLEGAL_GENERATION
    v10   topics by id instead of by name
"""

from typing import Final

from quipu.broker.groups import offsets
from quipu.broker.groups.kafka_records import CommittedOffset, OffsetKey
from quipu.broker.serving.context import Broker, Context
from quipu.controller.topic_state import Topic
from quipu.model.errors import Code
from quipu.model.ids import NO_TIMESTAMP, TimestampMs
from quipu.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

NO_GROUP_SINCE: Final = 9
TOPIC_IDS_SINCE: Final = 10
TIMESTAMP_MAX: Final = (1 << 63) - 1
# Of partitions that exist: an error of the group comes before them.
_CODES_OF_GROUP: Final = frozenset({Code.NONE, Code.OFFSET_METADATA_TOO_LARGE})


async def handle(
    broker: Broker, request: OffsetCommitRequest, context: Context
) -> OffsetCommitResponse:
    """Keep the offsets that are valid, and respond with a code for each partition."""
    now_ms = broker.clock.now_ms()
    expires_ms = NO_TIMESTAMP
    if request.retention_time >= 0:
        expires_ms = TimestampMs(min(now_ms + request.retention_time, TIMESTAMP_MAX))
    by_id = context.api_version >= TOPIC_IDS_SINCE
    unknown = Code.UNKNOWN_TOPIC_ID if by_id else Code.UNKNOWN_TOPIC_OR_PARTITION
    wanted: dict[OffsetKey, CommittedOffset] = {}
    response = OffsetCommitResponse()
    for topic in request.topics:
        await context.pause()
        found = broker.cluster.state.find_topic(None if by_id else topic.name, topic.topic_id)
        topic_response = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        if topic.partitions or found is None:
            response.topics.append(topic_response)
        for partition in topic.partitions:
            await context.pause()
            code = _check(broker, found, partition) if found is not None else unknown
            if found is not None and code is Code.NONE:
                wanted[found.name, partition.partition_index] = CommittedOffset(
                    found.topic_id, partition.committed_offset, partition.committed_leader_epoch,
                    partition.committed_metadata or "", now_ms, expires_ms)
            topic_response.partitions.append(OffsetCommitResponsePartition(
                partition_index=partition.partition_index, error_code=code))
    sender = offsets.Sender(
        request.group_id, request.member_id, request.group_instance_id,
        request.generation_id_or_member_epoch, context.client_host, by_id)
    has_code = context.api_version >= NO_GROUP_SINCE
    no_group = Code.GROUP_ID_NOT_FOUND if has_code else Code.ILLEGAL_GENERATION
    if not any(partition.error_code in _CODES_OF_GROUP
               for topic_response in response.topics for partition in topic_response.partitions):
        return response  # as in Kafka, the group is not looked at
    code = await broker.groups.commit(sender, wanted, no_group=no_group)
    if code is not Code.NONE:
        _fail(response, code)
    return response


def _check(broker: Broker, topic: Topic, partition: OffsetCommitRequestPartition) -> Code:
    """Whether this partition's offset can be kept."""
    if not 0 <= partition.partition_index < len(topic.partitions):
        return Code.UNKNOWN_TOPIC_OR_PARTITION
    size = len(partition.committed_metadata or "")
    if size > broker.settings.offset_metadata_max_bytes:
        return Code.OFFSET_METADATA_TOO_LARGE
    return Code.NONE


def _fail(response: OffsetCommitResponse, code: Code) -> None:
    """Set `code` for every partition that the group was asked to keep: no offset was kept."""
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code in _CODES_OF_GROUP:
                partition.error_code = code

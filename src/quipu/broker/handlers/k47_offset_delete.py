"""OffsetDelete — API key 47, version 0.

Behaviour
    * deletes offsets of a group; an offset that does not exist is no error
    * topics that members of the group are subscribed to are GROUP_SUBSCRIBED_TO_TOPIC
    * a group with members of another protocol type than consumer is NON_EMPTY_GROUP
"""

from quipu.broker.groups import offsets
from quipu.broker.groups.kafka_records import OffsetKey
from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code
from quipu.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


async def handle(
    broker: Broker, request: OffsetDeleteRequest, context: Context
) -> OffsetDeleteResponse:
    """Delete offsets."""
    if not request.group_id:
        return OffsetDeleteResponse(error_code=Code.INVALID_GROUP_ID)
    shard, code = broker.groups.shards.shard_of(request.group_id)
    if shard is None:
        return OffsetDeleteResponse(error_code=code)
    code = offsets.check_delete(shard, request.group_id)
    if code is not Code.NONE:
        return OffsetDeleteResponse(error_code=code)
    group = shard.find(request.group_id)
    assert group is not None, "checked before, without an await in between"
    topics: list[OffsetDeleteResponseTopic] = []
    keys: list[OffsetKey] = []
    read = group.subscribed_topics()
    for topic in request.topics:
        topic_response = OffsetDeleteResponseTopic(name=topic.name)
        if topic.partitions:
            topics.append(topic_response)
        for partition in topic.partitions:
            await context.pause()
            code, key = _check(broker, read, topic.name, partition.partition_index)
            if key is not None:
                keys.append(key)
            topic_response.partitions.append(OffsetDeleteResponsePartition(
                partition_index=partition.partition_index, error_code=code))
    code = offsets.check_delete(shard, request.group_id)  # again, after the pauses
    if code is not Code.NONE:
        return OffsetDeleteResponse(error_code=code)
    code = await offsets.delete(shard, request.group_id, keys)
    return OffsetDeleteResponse(error_code=code, topics=topics if code is Code.NONE else [])


def _check(
    broker: Broker, read: frozenset[str] | None, name: str, partition: int
) -> tuple[Code, OffsetKey | None]:
    """The error code if this offset may not be deleted, else its key in the registry.

    `read` are the topics that members of the group are subscribed to; None if they may be any.
    """
    topic = broker.cluster.state.topics.get(name)
    if topic is None or not 0 <= partition < len(topic.partitions):
        return Code.UNKNOWN_TOPIC_OR_PARTITION, None
    if read is None or name in read:
        return Code.GROUP_SUBSCRIBED_TO_TOPIC, None
    return Code.NONE, (name, partition)

"""OffsetDelete — API key 47, version 0.

Behaviour
    * forgets offsets of a group; one that is not there is forgotten already
    * topics that members of the group read are GROUP_SUBSCRIBED_TO_TOPIC
    * a group with members that are no consumers keeps its offsets: NON_EMPTY_GROUP
"""

from quipu.broker.context import Broker, Context
from quipu.broker.groups import offsets
from quipu.broker.groups.registry import OffsetKey
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
    """Forget offsets."""
    shard, code = broker.groups.shard_of(request.group_id)
    if shard is None:
        return OffsetDeleteResponse(error_code=code)
    code = offsets.check_delete(shard, request.group_id)
    if code is not Code.NONE:
        return OffsetDeleteResponse(error_code=code)
    group = shard.find(request.group_id)
    assert group is not None, "checked before, and nothing has been waited for"
    answers: list[OffsetDeleteResponseTopic] = []
    keys: list[OffsetKey] = []
    read = group.subscribed_topics()
    for topic in request.topics:
        answer = OffsetDeleteResponseTopic(name=topic.name)
        answers.append(answer)
        for partition in topic.partitions:
            await context.pause()
            code, key = _check(broker, read, topic.name, partition.partition_index)
            if key is not None:
                keys.append(key)
            answer.partitions.append(OffsetDeleteResponsePartition(
                partition_index=partition.partition_index, error_code=code))
    code = offsets.check_delete(shard, request.group_id)  # again: others had their turns
    if code is not Code.NONE:
        return OffsetDeleteResponse(error_code=code)
    code = await offsets.delete(shard, request.group_id, keys)
    return OffsetDeleteResponse(error_code=code, topics=answers if code is Code.NONE else [])


def _check(
    broker: Broker, read: frozenset[str] | None, name: str, partition: int
) -> tuple[Code, OffsetKey | None]:
    """Whether this offset may go, and what it is called inside.

    `read` are the topics that members of the group read; None if they may be any.
    """
    topic = broker.cluster.state.topics.get(name)
    if topic is None or not 0 <= partition < len(topic.partitions):
        return Code.UNKNOWN_TOPIC_OR_PARTITION, None
    if read is None or name in read:
        return Code.GROUP_SUBSCRIBED_TO_TOPIC, None
    return Code.NONE, (topic.topic_id, partition)

"""DescribeShareGroupOffsets — API key 90, versions 0-1.

Behaviour
    * there are no share groups: GROUP_ID_NOT_FOUND for a group of which all topics are asked for;
      partitions that are named have no offset (-1), as in Kafka
Versions
    v1  the lag of a partition
"""

from typing import Final

from quipu.broker.serving.context import Broker, Context
from quipu.broker.serving.routing import find_topic
from quipu.model.errors import Code
from quipu.model.ids import ZERO_UUID
from quipu.wire.messages.k90_describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

NO_OFFSET: Final = -1
NO_SHARE_GROUPS: Final = "there is no such share group: they are not served"


async def handle(
    broker: Broker, request: DescribeShareGroupOffsetsRequest, context: Context
) -> DescribeShareGroupOffsetsResponse:
    response = DescribeShareGroupOffsetsResponse(
        groups=context.array(DescribeShareGroupOffsetsResponseGroup))
    for group in request.groups:
        response.groups.append(await _group(broker, group, context))
    return response


async def _group(
    broker: Broker, group: DescribeShareGroupOffsetsRequestGroup, context: Context
) -> DescribeShareGroupOffsetsResponseGroup:
    if group.topics is None:
        return DescribeShareGroupOffsetsResponseGroup(
            group_id=group.group_id, error_code=Code.GROUP_ID_NOT_FOUND,
            error_message=NO_SHARE_GROUPS)
    topics = context.array(DescribeShareGroupOffsetsResponseTopic)
    for topic in group.topics:
        partitions = context.array(DescribeShareGroupOffsetsResponsePartition)
        for index in topic.partitions:
            await context.pause()
            partitions.append(DescribeShareGroupOffsetsResponsePartition(
                partition_index=index, start_offset=NO_OFFSET))
        found = find_topic(broker, topic.topic_name)
        topics.append(DescribeShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name, partitions=partitions,
            topic_id=ZERO_UUID if found is None else found.topic_id))
    return DescribeShareGroupOffsetsResponseGroup(group_id=group.group_id, topics=topics)

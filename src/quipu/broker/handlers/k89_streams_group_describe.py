"""StreamsGroupDescribe — API key 89, version 0.

Behaviour
    * there are no streams groups: GROUP_ID_NOT_FOUND for each, as for a group that Kafka does not
      know; an empty id is INVALID_GROUP_ID
Versions
    v0  flexible encoding from the start
"""

from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code
from quipu.wire.messages.k89_streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)


async def handle(
    broker: Broker, request: StreamsGroupDescribeRequest, context: Context
) -> StreamsGroupDescribeResponse:
    del broker
    response = StreamsGroupDescribeResponse(groups=context.array(DescribedGroup))
    for group_id in request.group_ids:
        await context.pause()
        response.groups.append(_described(group_id))
    return response


def _described(group_id: str) -> DescribedGroup:
    if not group_id:
        return DescribedGroup(error_code=Code.INVALID_GROUP_ID)
    return DescribedGroup(
        group_id=group_id, error_code=Code.GROUP_ID_NOT_FOUND,
        error_message=f"there is no streams group {group_id[:80]}: they are not served")

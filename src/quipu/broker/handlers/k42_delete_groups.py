"""DeleteGroups — API key 42, versions 0-2.

Behaviour
    * deletes groups without members, and the offsets that they committed
    * responds per group: an error of one group does not fail the others
"""

from quipu.broker.serving.context import Broker, Context
from quipu.wire.messages.k42_delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


async def handle(
    broker: Broker, request: DeleteGroupsRequest, context: Context
) -> DeleteGroupsResponse:
    """Delete groups."""
    response = DeleteGroupsResponse(results=context.array(DeletableGroupResult))
    for group_id in request.groups_names:
        await context.pause()
        response.results.append(DeletableGroupResult(
            group_id=group_id, error_code=await broker.groups.delete(group_id)))
    return response

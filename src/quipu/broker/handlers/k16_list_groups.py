"""ListGroups — API key 16, versions 0-5.

Behaviour
    * responds with the groups that this node coordinates, in the order of their names
    * filters are names of states and types in any case; an unknown one matches nothing
Versions
    v4  states: in the response, and to filter by
    v5  types: in the response, and to filter by; all groups here are classic ones
"""

from typing import Final

from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code
from quipu.wire.messages.k16_list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

CLASSIC: Final = "classic"


async def handle(
    broker: Broker, request: ListGroupsRequest, context: Context
) -> ListGroupsResponse:
    """Respond with the groups that this node coordinates."""
    if broker.groups.shards.unavailable is not Code.NONE:
        return ListGroupsResponse(error_code=broker.groups.shards.unavailable)
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    if types and CLASSIC not in types:
        return ListGroupsResponse()
    response = ListGroupsResponse(groups=context.array(ListedGroup))
    for group in sorted(broker.groups.all(), key=lambda group: group.group_id):
        await context.pause()
        if not states or group.state.lower() in states:
            response.groups.append(ListedGroup(
                group_id=group.group_id, protocol_type=group.protocol_type or "",
                group_state=group.state.value, group_type=CLASSIC))
    return response

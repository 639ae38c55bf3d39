"""LeaveGroup — API key 13, versions 0-5.

Behaviour
    * removes members from a group at once, rather than when their sessions end
    * a member that is named several times has one result; more than group.max.size members are
      INVALID_REQUEST
    * a static member may be removed by its instance id alone, as operators do
Versions
    v3  several members in one request, one code for each; before, one code for the request
"""

from typing import Final

from quipu.broker.groups.events import Leaver
from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code
from quipu.wire.messages.k13_leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)

MANY_MEMBERS_SINCE: Final = 3
# Errors of the coordinator, not of a member: they are the error of the whole request.
_WHOLE: Final = frozenset({
    Code.COORDINATOR_NOT_AVAILABLE, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.NOT_COORDINATOR,
    Code.INVALID_GROUP_ID})


async def handle(
    broker: Broker, request: LeaveGroupRequest, context: Context
) -> LeaveGroupResponse:
    """Remove members."""
    if context.api_version < MANY_MEMBERS_SINCE:
        codes = await broker.groups.leave(request.group_id, (Leaver(request.member_id, None),))
        return LeaveGroupResponse(error_code=codes[0])
    leavers = tuple(Leaver(m.member_id, m.group_instance_id) for m in request.members)
    if len(leavers) > broker.settings.group_max_size:
        return LeaveGroupResponse(error_code=Code.INVALID_REQUEST)
    codes = await broker.groups.leave(request.group_id, leavers)
    if not leavers and not request.group_id:
        return LeaveGroupResponse(error_code=Code.INVALID_GROUP_ID)
    if codes and codes[0] in _WHOLE:
        return LeaveGroupResponse(error_code=codes[0])
    return LeaveGroupResponse(members=[
        MemberResponse(
            member_id=leaver.member_id, group_instance_id=leaver.instance_id, error_code=code)
        for leaver, code in zip(leavers, codes, strict=True)
    ])

"""SyncGroup — API key 14, versions 0-5.

Behaviour
    * the leader sends the assignments of all members; each member gets its own, once they are
      durable
    * a member that syncs later, in a stable group, gets its assignment at once
    * more assignments than group.max.size are INVALID_REQUEST
Versions
    v3  static members
    v5  protocol type and name: INCONSISTENT_GROUP_PROTOCOL without them; also in the response
"""

from typing import Final

from quipu.broker.groups.events import Sync
from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code
from quipu.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_SINCE: Final = 5


async def handle(
    broker: Broker, request: SyncGroupRequest, context: Context
) -> SyncGroupResponse:
    """Wait for the leader's assignment."""
    if context.api_version >= PROTOCOL_SINCE and (
            request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=Code.INCONSISTENT_GROUP_PROTOCOL)
    if len(request.assignments) > broker.settings.group_max_size:
        return SyncGroupResponse(error_code=Code.INVALID_REQUEST)
    synced = await broker.groups.sync(request.group_id, Sync(
        ticket=broker.groups.ticket(),
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments=tuple((a.member_id, a.assignment) for a in request.assignments),
    ))
    return SyncGroupResponse(
        error_code=synced.code, protocol_type=synced.protocol_type,
        protocol_name=synced.protocol, assignment=synced.assignment)

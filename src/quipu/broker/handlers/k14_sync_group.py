"""SyncGroup — API key 14, versions 0-5.

Behaviour
    * the leader brings everybody's assignment; all are answered with their own, once it is kept
    * a member that asks later, in a stable group, gets its assignment at once
    * more assignments than group.max.size are INVALID_REQUEST
Versions
    v3  static members
    v5  protocol type and name: checked if they are given, and told in the answer
"""

from quipu.broker.context import Broker, Context
from quipu.broker.groups.events import Sync
from quipu.model.errors import Code
from quipu.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse


async def handle(
    broker: Broker, request: SyncGroupRequest, context: Context
) -> SyncGroupResponse:
    """Wait for the leader's decision."""
    del context
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

"""DescribeGroups — API key 15, versions 0-6.

Behaviour
    * responds with the state and the members of groups
    * only stable groups have metadata and assignments: during a rebalance they mean nothing
Versions
    v3  operations that the client may do
    v6  a group that does not exist is GROUP_ID_NOT_FOUND; before, it has the state Dead
"""

from typing import Final

from quipu.broker.error_codes import code_of
from quipu.broker.groups.members import GroupMember
from quipu.broker.groups.states import State
from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code, QuipuError
from quipu.wire.messages.k15_describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

NOT_FOUND_SINCE: Final = 6
NOT_ASKED: Final = -0x8000_0000
# Read, delete, describe, describe and alter configs, by Kafka's numbers: no access control.
ALL_OPERATIONS: Final = sum(1 << bit for bit in (3, 6, 8, 10, 11))


async def handle(
    broker: Broker, request: DescribeGroupsRequest, context: Context
) -> DescribeGroupsResponse:
    """Respond with the state and members of groups."""
    response = DescribeGroupsResponse(groups=context.array(DescribedGroup))
    for group_id in request.groups:
        await context.pause()
        group = await _describe(broker, group_id, context)
        if request.include_authorized_operations and group.error_code == Code.NONE:
            group.authorized_operations = ALL_OPERATIONS
        response.groups.append(group)
    return response


def refuse(request: DescribeGroupsRequest, error: QuipuError) -> DescribeGroupsResponse:
    """Respond with the error for each group."""
    return DescribeGroupsResponse(groups=[
        DescribedGroup(group_id=group_id, error_code=code_of(error), error_message=str(error))
        for group_id in request.groups])


async def _describe(broker: Broker, group_id: str, context: Context) -> DescribedGroup:
    shard, code = broker.groups.shards.shard_of(group_id)
    if shard is None:
        return DescribedGroup(group_id=group_id, error_code=code)
    group = shard.find(group_id)
    if group is None and context.api_version >= NOT_FOUND_SINCE:
        return DescribedGroup(
            group_id=group_id, group_state=State.DEAD.value, error_code=Code.GROUP_ID_NOT_FOUND,
            error_message=f"group {group_id[:100]} does not exist")
    if group is None:
        return DescribedGroup(group_id=group_id, group_state=State.DEAD.value)
    protocol = group.protocol if group.state is State.STABLE else None
    described = DescribedGroup(
        group_id=group_id, group_state=group.state.value, protocol_type=group.protocol_type or "",
        protocol_data=protocol or "", members=context.array(DescribedGroupMember))
    for member in list(group.members):
        await context.pause()
        described.members.append(_member(member, protocol))
    return described


def _member(member: GroupMember, protocol: str | None) -> DescribedGroupMember:
    described = DescribedGroupMember(
        member_id=member.member_id, group_instance_id=member.instance_id,
        client_id=member.client_id, client_host=member.client_host)
    if protocol is not None:
        described.member_metadata = member.metadata(protocol)
        described.member_assignment = member.assignment
    return described


assert DescribedGroup().authorized_operations == NOT_ASKED

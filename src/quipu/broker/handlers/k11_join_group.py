"""JoinGroup — API key 11, versions 0-9.

Behaviour
    * makes the sender a member of the group's next generation; responds when all members have
      joined, or when the rebalance timeout is over
    * only the leader gets the list of members
    * a group may have any protocol type; its members must have the same type and a common protocol
    * a member with more than PROTOCOLS_MAX protocols gets INVALID_REQUEST
Versions
    v1  rebalance timeout, apart from that of the session
    v4  a new member gets its id with MEMBER_ID_REQUIRED first, and joins again with it
    v5  static members
    v7  responses name the protocol type; no protocol is null instead of empty
    v9  the response may say that a static leader that comes back need not assign anything
"""

from typing import Final

from quipu.broker.groups.events import GroupProtocol, Join, JoinResult
from quipu.broker.serving.context import Broker, Context
from quipu.model.errors import Code
from quipu.wire.messages.k11_join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

REBALANCE_TIMEOUT_SINCE: Final = 1
KNOWN_ID_SINCE: Final = 4
NULL_PROTOCOL_SINCE: Final = 7
SKIP_ASSIGNMENT_SINCE: Final = 9
PROTOCOLS_MAX: Final = 100  # of one member; clients have two or three


async def handle(
    broker: Broker, request: JoinGroupRequest, context: Context
) -> JoinGroupResponse:
    """Wait for the next generation."""
    if len(request.protocols) > PROTOCOLS_MAX:
        return JoinGroupResponse(
            error_code=Code.INVALID_REQUEST, member_id=request.member_id,
            protocol_name=None if context.api_version >= NULL_PROTOCOL_SINCE else "")
    rebalance_timeout_ms = request.rebalance_timeout
    if context.api_version < REBALANCE_TIMEOUT_SINCE or rebalance_timeout_ms <= 0:
        rebalance_timeout_ms = request.session_timeout
    joined = await broker.groups.join(request.group_id, Join(
        ticket=broker.groups.ticket(),
        member_id=request.member_id,
        new_member_id="",  # the group's shard sets it
        instance_id=request.group_instance_id,
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",  # as Kafka writes it, and tools expect it
        session_timeout_ms=request.session_timeout,
        rebalance_timeout_ms=min(
            rebalance_timeout_ms, broker.settings.group_max_rebalance_timeout_ms),
        protocol_type=request.protocol_type,
        protocols=tuple(GroupProtocol(p.name, p.metadata) for p in request.protocols),
        needs_known_id=context.api_version >= KNOWN_ID_SINCE,
        may_skip_assignment=context.api_version >= SKIP_ASSIGNMENT_SINCE,
    ))
    return _response(joined, context.api_version)


def _response(joined: JoinResult, version: int) -> JoinGroupResponse:
    protocol = joined.protocol
    if protocol is None and version < NULL_PROTOCOL_SINCE:
        protocol = ""
    return JoinGroupResponse(
        error_code=joined.code,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=protocol,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=m.member_id, group_instance_id=m.instance_id, metadata=m.metadata)
            for m in joined.members
        ],
    )

"""Heartbeat — API key 12, versions 0-4.

Behaviour
    * keeps a member's session alive
    * REBALANCE_IN_PROGRESS: the member must join again; UNKNOWN_MEMBER_ID: it is not a member any
      more; FENCED_INSTANCE_ID: another member has its instance id now
Versions
    v3  static members
"""

from quipu.broker.groups.events import MemberHeartbeat
from quipu.broker.serving.context import Broker, Context
from quipu.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(broker: Broker, request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
    """Note that a member is alive."""
    del context
    heartbeat = MemberHeartbeat(
        broker.groups.ticket(), request.member_id, request.group_instance_id,
        request.generation_id)
    return HeartbeatResponse(error_code=broker.groups.heartbeat(request.group_id, heartbeat))

"""Heartbeat — API key 12, versions 0-4.

Behaviour
    * keeps a member's session alive
    * REBALANCE_IN_PROGRESS tells a member to join anew, UNKNOWN_MEMBER_ID that it is no member
      any more, FENCED_INSTANCE_ID that another took its place
Versions
    v3  static members
"""

from quipu.broker.context import Broker, Context
from quipu.broker.groups.events import Heartbeat
from quipu.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(broker: Broker, request: HeartbeatRequest, context: Context) -> HeartbeatResponse:
    """Hear a member."""
    del context
    heartbeat = Heartbeat(
        broker.groups.ticket(), request.member_id, request.group_instance_id,
        request.generation_id)
    return HeartbeatResponse(error_code=broker.groups.heartbeat(request.group_id, heartbeat))

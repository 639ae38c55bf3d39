"""Heartbeat — API key 12, versions 0-4.

Behaviour
    * keeps a member's session alive; the response says when the member has to join again
Versions
    v3  static members
    v4  flexible encoding
"""

from quipu.wire.fields import int16, int32, string
from quipu.wire.schema import Request, Response


class HeartbeatRequest(Request, key=12, versions="0-4", flexible="4+"):
    """Keep a member's session alive."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="0+", default=None)


class HeartbeatResponse(Response, key=12, versions="0-4", flexible="4+"):
    """Whether the member may go on or has to join again."""

    throttle_time: int = int32("1+")
    error_code: int = int16()

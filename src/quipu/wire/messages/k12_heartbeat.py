"""Heartbeat — API key 12, versions 0-4.

Behaviour
    * tells that a member lives; the answer tells it when to join again
Versions
    v3  static members
    v4  flexible encoding
"""

from quipu.wire.fields import int16, int32, string
from quipu.wire.schema import Request, Response


class HeartbeatRequest(Request, key=12, versions="0-4", flexible="4+"):
    """I am alive."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="0+", default=None)


class HeartbeatResponse(Response, key=12, versions="0-4", flexible="4+"):
    """Whether to go on or to join again."""

    throttle_time: int = int32("1+")
    error_code: int = int16()

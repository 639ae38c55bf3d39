"""Heartbeat — API key 12.
"""

from quipu.wire.fields import int16, int32, string
from quipu.wire.schema import Request, Response


class HeartbeatRequest(Request, key=12, versions="0-4", flexible="4+"):
    """TODO."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="0+", default=None)


class HeartbeatResponse(Response, key=12, versions="0-4", flexible="4+"):
    """TODO."""

    throttle_time: int = int32("1+")
    error_code: int = int16()

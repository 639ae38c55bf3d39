"""JoinGroup — API key 11.
"""

from quipu.wire.fields import array, binary, boolean, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class JoinGroupRequestProtocol(Struct):
    """TODO."""

    name: str = string()
    metadata: bytes = binary()


class JoinGroupRequest(Request, key=11, versions="0-9", flexible="6+"):
    """TODO."""

    group_id: str = string()
    session_timeout: int = int32()
    rebalance_timeout: int = int32("1+", default=-1)
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="0+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", nullable="0+", default=None)


class JoinGroupResponseMember(Struct):
    """TODO."""

    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="0+", default=None)
    metadata: bytes = binary()


class JoinGroupResponse(Response, key=11, versions="0-9", flexible="6+"):
    """TODO."""

    throttle_time: int = int32("2+")
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="0+", default=None)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)

"""LeaveGroup — API key 13.
"""

from quipu.wire.fields import array, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class MemberIdentity(Struct):
    """TODO."""

    member_id: str = string()
    group_instance_id: str | None = string(nullable="0+", default=None)
    reason: str | None = string("5+", nullable="0+", default=None)


class LeaveGroupRequest(Request, key=13, versions="0-5", flexible="4+"):
    """TODO."""

    group_id: str = string()
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


class MemberResponse(Struct):
    """TODO."""

    member_id: str = string()
    group_instance_id: str | None = string(nullable="0+")
    error_code: int = int16()


class LeaveGroupResponse(Response, key=13, versions="0-5", flexible="4+"):
    """TODO."""

    throttle_time: int = int32("1+")
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+")

"""LeaveGroup — API key 13, versions 0-5.

Behaviour
    * removes members from a group at once, instead of when their sessions time out
Versions
    v3  several members in one request, static ones by instance id
    v4  flexible encoding
    v5  a reason, for the broker's log
"""

from quipu.wire.fields import array, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class MemberIdentity(Struct):
    """A member that leaves."""

    member_id: str = string()
    group_instance_id: str | None = string(nullable="0+", default=None)
    reason: str | None = string("5+", nullable="0+", default=None)


class LeaveGroupRequest(Request, key=13, versions="0-5", flexible="4+"):
    """Remove these members."""

    group_id: str = string()
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


class MemberResponse(Struct):
    """Whether one member has left."""

    member_id: str = string()
    group_instance_id: str | None = string(nullable="0+")
    error_code: int = int16()


class LeaveGroupResponse(Response, key=13, versions="0-5", flexible="4+"):
    """Which members have left."""

    throttle_time: int = int32("1+")
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+")

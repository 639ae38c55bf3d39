"""SyncGroup — API key 14, versions 0-5.

Behaviour
    * the leader sends the assignments of all members, and every member gets its own
Versions
    v3  static members
    v4  flexible encoding
    v5  protocol type and name, which must match the group's
"""

from quipu.wire.fields import array, binary, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class SyncGroupRequestAssignment(Struct):
    """The assignment of one member."""

    member_id: str = string()
    assignment: bytes = binary()


class SyncGroupRequest(Request, key=14, versions="0-5", flexible="4+"):
    """Get the member's assignment; from the leader, with the assignments of all members."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="0+", default=None)
    protocol_type: str | None = string("5+", nullable="0+", default=None)
    protocol_name: str | None = string("5+", nullable="0+", default=None)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Response, key=14, versions="0-5", flexible="4+"):
    """The assignment of the member."""

    throttle_time: int = int32("1+")
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="0+", default=None)
    protocol_name: str | None = string("5+", nullable="0+", default=None)
    assignment: bytes = binary()

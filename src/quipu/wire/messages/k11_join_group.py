"""JoinGroup — API key 11, versions 0-9.

Behaviour
    * asks to be a member of a group's next generation; answered when all members have asked
    * the member that is made leader gets everybody's metadata, and divides the work
    * metadata is for the members alone: the broker only finds a protocol that all of them speak
Versions
    v1   rebalance timeout, apart from that of the session
    v4   a new member is given an id first, with MEMBER_ID_REQUIRED, and asks again with it
    v5   static members
    v6   flexible encoding
    v7   answers name the protocol type
    v8   a reason, for the broker's log
    v9   the leader may be told to assign nothing
"""

from quipu.wire.fields import array, binary, boolean, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class JoinGroupRequestProtocol(Struct):
    """A way to divide the work, and what its assignor has to know."""

    name: str = string()
    metadata: bytes = binary()


class JoinGroupRequest(Request, key=11, versions="0-9", flexible="6+"):
    """Let me be a member."""

    group_id: str = string()
    session_timeout: int = int32()
    rebalance_timeout: int = int32("1+", default=-1)
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="0+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", nullable="0+", default=None)


class JoinGroupResponseMember(Struct):
    """A member as its leader sees it."""

    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="0+", default=None)
    metadata: bytes = binary()


class JoinGroupResponse(Response, key=11, versions="0-9", flexible="6+"):
    """The new generation and your part in it."""

    throttle_time: int = int32("2+")
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="0+", default=None)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)

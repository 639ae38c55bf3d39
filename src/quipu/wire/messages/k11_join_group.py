"""JoinGroup — API key 11, versions 0-9.

Behaviour
    * joins the next generation of a group; the response comes when all members have joined
    * the member chosen as leader gets the metadata of all members, and assigns partitions
    * the broker does not read the metadata: it only finds a protocol that all members support
Versions
    v1   rebalance timeout, separate from the session timeout
    v4   a new member first gets an id, with MEMBER_ID_REQUIRED, and joins again with it
    v5   static members
    v6   flexible encoding
    v7   responses have the protocol type
    v8   a reason, for the broker's log
    v9   the broker may ask the leader to skip the assignment
"""

from quipu.wire.fields import array, binary, boolean, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class JoinGroupRequestProtocol(Struct):
    """An assignment protocol, and the member's metadata for it."""

    name: str = string()
    metadata: bytes = binary()


class JoinGroupRequest(Request, key=11, versions="0-9", flexible="6+"):
    """Join a group."""

    group_id: str = string()
    session_timeout: int = int32()
    rebalance_timeout: int = int32("1+", default=-1)
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="0+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", nullable="0+", default=None)


class JoinGroupResponseMember(Struct):
    """A member, as the leader gets it."""

    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="0+", default=None)
    metadata: bytes = binary()


class JoinGroupResponse(Response, key=11, versions="0-9", flexible="6+"):
    """The new generation, and the member's role in it."""

    throttle_time: int = int32("2+")
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="0+", default=None)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)

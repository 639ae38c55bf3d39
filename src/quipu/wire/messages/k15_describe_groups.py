"""DescribeGroups — API key 15, versions 0-6.

Behaviour
    * returns the state and the members of groups
Versions
    v3  operations that the client is authorized for
    v4  instance ids of static members
    v5  flexible encoding
    v6  a group that does not exist is an error, with a message, no longer a dead group
"""

from quipu.wire.fields import STRING, array, binary, boolean, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class DescribeGroupsRequest(Request, key=15, versions="0-6", flexible="5+"):
    """Get the state and members of these groups."""

    groups: list[str] = array(STRING)
    include_authorized_operations: bool = boolean("3+")


class DescribedGroupMember(Struct):
    """A member of a group."""

    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable="0+", default=None)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = binary()
    member_assignment: bytes = binary()


class DescribedGroup(Struct):
    """A group and its members."""

    error_code: int = int16()
    error_message: str | None = string("6+", nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=-0x8000_0000)


class DescribeGroupsResponse(Response, key=15, versions="0-6", flexible="5+"):
    """The groups."""

    throttle_time: int = int32("1+")
    groups: list[DescribedGroup] = array(DescribedGroup)

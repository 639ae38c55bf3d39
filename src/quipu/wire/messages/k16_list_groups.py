"""ListGroups — API key 16, versions 0-5.

Behaviour
    * returns the groups that this broker coordinates
Versions
    v3  flexible encoding
    v4  states, and a filter by state
    v5  types, and a filter by type
"""

from quipu.wire.fields import STRING, array, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class ListGroupsRequest(Request, key=16, versions="0-5", flexible="3+"):
    """List groups."""

    states_filter: list[str] = array(STRING, "4+")
    types_filter: list[str] = array(STRING, "5+")


class ListedGroup(Struct):
    """A group."""

    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+")
    group_type: str = string("5+")


class ListGroupsResponse(Response, key=16, versions="0-5", flexible="3+"):
    """The groups."""

    throttle_time: int = int32("1+")
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)

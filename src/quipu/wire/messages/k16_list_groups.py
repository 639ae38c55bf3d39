"""ListGroups — API key 16, versions 0-5.

Behaviour
    * tells the groups that this broker looks after
Versions
    v3  flexible encoding
    v4  states: told, and to choose by
    v5  types: told, and to choose by
"""

from quipu.wire.fields import STRING, array, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class ListGroupsRequest(Request, key=16, versions="0-5", flexible="3+"):
    """Which groups are there?"""

    states_filter: list[str] = array(STRING, "4+")
    types_filter: list[str] = array(STRING, "5+")


class ListedGroup(Struct):
    """A group."""

    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+")
    group_type: str = string("5+")


class ListGroupsResponse(Response, key=16, versions="0-5", flexible="3+"):
    """The groups that are there."""

    throttle_time: int = int32("1+")
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)

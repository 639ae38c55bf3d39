"""DeleteGroups — API key 42, versions 0-2.

Behaviour
    * deletes groups without members, and the offsets that they committed
Versions
    v2  flexible encoding
"""

from quipu.wire.fields import STRING, array, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class DeleteGroupsRequest(Request, key=42, versions="0-2", flexible="2+"):
    """Delete these groups."""

    groups_names: list[str] = array(STRING)


class DeletableGroupResult(Struct):
    """Whether one group was deleted."""

    group_id: str = string()
    error_code: int = int16()


class DeleteGroupsResponse(Response, key=42, versions="0-2", flexible="2+"):
    """Which groups were deleted."""

    throttle_time: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)

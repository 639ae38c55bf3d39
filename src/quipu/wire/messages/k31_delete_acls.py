"""DeleteAcls — API key 31, versions 1-3.

Behaviour
    * removes the access rules that match any of the filters; the response has them, by filter
Versions
    v2  flexible encoding
    v3  users may be resources (KIP-373)
"""

from quipu.wire.fields import array, int8, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class DeleteAclsFilter(Struct):
    """What the access rules to remove have in common."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8(default=3)
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


class DeleteAclsRequest(Request, key=31, versions="1-3", flexible="2+"):
    """Remove the access rules that match."""

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


class DeleteAclsMatchingAcl(Struct):
    """An access rule that was removed."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DeleteAclsFilterResult(Struct):
    """What one filter removed."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


class DeleteAclsResponse(Response, key=31, versions="1-3", flexible="2+"):
    """The result for each filter."""

    throttle_time: int = int32()
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)

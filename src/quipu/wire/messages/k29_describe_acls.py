"""DescribeAcls — API key 29, versions 1-3.

Behaviour
    * returns the access rules that match a filter; null matches every name, principal or host
Versions
    v2  flexible encoding
    v3  users may be resources (KIP-373)
"""

from quipu.wire.fields import array, int8, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class DescribeAclsRequest(Request, key=29, versions="1-3", flexible="2+"):
    """Get the access rules that match this filter."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8(default=3)
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


class AclDescription(Struct):
    """What one principal may do, or may not, from one host."""

    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DescribeAclsResource(Struct):
    """A resource, or a pattern of names, and its access rules."""

    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=3)
    acls: list[AclDescription] = array(AclDescription)


class DescribeAclsResponse(Response, key=29, versions="1-3", flexible="2+"):
    """The access rules."""

    throttle_time: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)

"""CreateAcls — API key 30, versions 1-3.

Behaviour
    * adds access rules; the response has a result for each, in the same order
Versions
    v2  flexible encoding
    v3  users may be resources (KIP-373)
"""

from quipu.wire.fields import array, int8, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class AclCreation(Struct):
    """One access rule."""

    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class CreateAclsRequest(Request, key=30, versions="1-3", flexible="2+"):
    """Add these access rules."""

    creations: list[AclCreation] = array(AclCreation)


class AclCreationResult(Struct):
    """Whether one access rule was added."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class CreateAclsResponse(Response, key=30, versions="1-3", flexible="2+"):
    """The result for each access rule."""

    throttle_time: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)

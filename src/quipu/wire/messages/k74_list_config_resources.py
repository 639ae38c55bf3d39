"""ListConfigResources — API key 74, versions 0-1.

Behaviour
    * returns the resources that have settings; v0 lists client metrics only
Versions
    v0  flexible encoding from the start
    v1  which types of resources to list; none means all
"""

from quipu.wire.fields import INT8, array, int8, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class ListConfigResourcesRequest(Request, key=74, versions="0-1", flexible="0+"):
    """Get the resources of these types."""

    resource_types: list[int] = array(INT8, "1+")


class ConfigResource(Struct):
    """One resource."""

    resource_name: str = string()
    resource_type: int = int8("1+", default=16)


class ListConfigResourcesResponse(Response, key=74, versions="0-1", flexible="0+"):
    """The resources."""

    throttle_time: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)

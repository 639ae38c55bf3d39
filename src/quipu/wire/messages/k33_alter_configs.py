"""AlterConfigs — API key 33, versions 0-2.

Behaviour
    * replaces all settings of a resource: those not named are reset to their defaults
    * tools now use IncrementalAlterConfigs, which changes single settings
Versions
    v2  flexible encoding
"""

from quipu.wire.fields import array, boolean, int8, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class AlterableConfig(Struct):
    """A setting and its new value."""

    name: str = string()
    value: str | None = string(nullable="0+")


class AlterConfigsResource(Struct):
    """A resource and all its new settings."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class AlterConfigsRequest(Request, key=33, versions="0-2", flexible="2+"):
    """Replace the settings of these resources."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    """Whether the settings of one resource were changed."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


class AlterConfigsResponse(Response, key=33, versions="0-2", flexible="2+"):
    """The result for each resource."""

    throttle_time: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)

"""IncrementalAlterConfigs — API key 44, versions 0-1.

Behaviour
    * changes single settings of a resource: sets one (operation 0), resets it to the default (1),
      appends to a list (2) or removes from it (3)
Versions
    v1  flexible encoding
"""

from quipu.wire.fields import array, boolean, int8, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class AlterableConfig(Struct):
    """A setting and what to do with it."""

    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable="0+")


class AlterConfigsResource(Struct):
    """A resource and the changes to its settings."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class IncrementalAlterConfigsRequest(Request, key=44, versions="0-1", flexible="1+"):
    """Change settings of these resources."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    """Whether the settings of one resource were changed."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


class IncrementalAlterConfigsResponse(Response, key=44, versions="0-1", flexible="1+"):
    """The result for each resource."""

    throttle_time: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)

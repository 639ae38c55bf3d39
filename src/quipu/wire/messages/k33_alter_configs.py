"""AlterConfigs — API key 33.
"""

from quipu.wire.fields import array, boolean, int16, int32, int8, string
from quipu.wire.schema import Request, Response, Struct


class AlterableConfig(Struct):
    """TODO."""

    name: str = string()
    value: str | None = string(nullable="0+")


class AlterConfigsResource(Struct):
    """TODO."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class AlterConfigsRequest(Request, key=33, versions="0-2", flexible="2+"):
    """TODO."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    """TODO."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


class AlterConfigsResponse(Response, key=33, versions="0-2", flexible="2+"):
    """TODO."""

    throttle_time: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)

"""DescribeConfigs — API key 32.
"""

from quipu.wire.fields import STRING, array, boolean, int16, int32, int8, string
from quipu.wire.schema import Request, Response, Struct


class DescribeConfigsResource(Struct):
    """TODO."""

    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array(STRING, nullable="0+")


class DescribeConfigsRequest(Request, key=32, versions="1-4", flexible="4+"):
    """TODO."""

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean()
    include_documentation: bool = boolean("3+")


class DescribeConfigsSynonym(Struct):
    """TODO."""

    name: str = string()
    value: str | None = string(nullable="0+")
    source: int = int8()


class DescribeConfigsResourceResult(Struct):
    """TODO."""

    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym)
    config_type: int = int8("3+")
    documentation: str | None = string("3+", nullable="0+")


class DescribeConfigsResult(Struct):
    """TODO."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


class DescribeConfigsResponse(Response, key=32, versions="1-4", flexible="4+"):
    """TODO."""

    throttle_time: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)

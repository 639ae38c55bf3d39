"""DescribeConfigs — API key 32, versions 1-4.

Behaviour
    * returns the settings of topics (resource type 2), brokers (4) and their loggers (8), with
      the source of each value; null means all settings of a resource
Versions
    v1  source of each value; the values that it overrides
    v3  type and documentation
    v4  flexible encoding
"""

from quipu.wire.fields import STRING, array, boolean, int8, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class DescribeConfigsResource(Struct):
    """A resource and which of its settings to return."""

    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array(STRING, nullable="0+")


class DescribeConfigsRequest(Request, key=32, versions="1-4", flexible="4+"):
    """Get the settings of these resources."""

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean()
    include_documentation: bool = boolean("3+")


class DescribeConfigsSynonym(Struct):
    """A value of the setting, and its source; the first one counts."""

    name: str = string()
    value: str | None = string(nullable="0+")
    source: int = int8()


class DescribeConfigsResourceResult(Struct):
    """One setting."""

    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym)
    config_type: int = int8("3+")
    documentation: str | None = string("3+", nullable="0+")


class DescribeConfigsResult(Struct):
    """The settings of one resource."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


class DescribeConfigsResponse(Response, key=32, versions="1-4", flexible="4+"):
    """The settings."""

    throttle_time: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)

"""ApiVersions — API key 18, versions 0-4.

Behaviour
    * returns the supported APIs and their versions; the first request on a connection
    * the header of the response has no tags in any version, so that every client can read it
Versions
    v1  throttle time
    v3  flexible encoding; name and version of the client's software; features
    v4  features may have a lowest version of 0
"""

from quipu.wire.fields import array, boolean, int16, int32, int64, string
from quipu.wire.schema import Request, Response, Struct


class ApiVersionsRequest(Request, key=18, versions="0-4", flexible="3+"):
    """Get the supported APIs."""

    client_software_name: str = string("3+")
    client_software_version: str = string("3+")


class ApiVersion(Struct):
    """The versions of one API, both ends included."""

    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeatureKey(Struct):
    """The levels of a feature that this broker supports."""

    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


class FinalizedFeatureKey(Struct):
    """The levels of a feature that the whole cluster uses."""

    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


class ApiVersionsResponse(Response, key=18, versions="0-4", flexible="3+"):
    """The supported APIs and features."""

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time: int = int32("1+")
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0)
    finalized_features_epoch: int = int64("3+", default=-1, tag=1)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2)
    zk_migration_ready: bool = boolean("3+", tag=3)

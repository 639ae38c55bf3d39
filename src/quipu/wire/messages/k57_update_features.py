"""UpdateFeatures — API key 57, versions 0-2.

Behaviour
    * changes the finalized levels of the cluster's features; a level below 1 removes one
Versions
    v0  flexible encoding from the start
    v1  the kind of the change: upgrade (1), safe downgrade (2), unsafe downgrade (3); validate_only
    v2  the response has one error for all features instead of one for each
"""

from quipu.wire.fields import array, boolean, int8, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class FeatureUpdateKey(Struct):
    """A feature, and the level that it is to have."""

    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean("0")
    upgrade_type: int = int8("1+", default=1)


class UpdateFeaturesRequest(Request, key=57, versions="0-2", flexible="0+"):
    """Change the levels of these features."""

    timeout: int = int32(default=60_000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean("1+")


class UpdatableFeatureResult(Struct):
    """Whether the level of one feature was changed."""

    feature: str = string("0-1")
    error_code: int = int16("0-1")
    error_message: str | None = string("0-1", nullable="0+")


class UpdateFeaturesResponse(Response, key=57, versions="0-2", flexible="0+"):
    """Whether the levels were changed."""

    throttle_time: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1")

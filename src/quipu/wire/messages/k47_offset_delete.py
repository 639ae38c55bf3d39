"""OffsetDelete — API key 47, version 0.

Behaviour
    * deletes committed offsets of a group, for topics that it does not subscribe to
Versions
    v0  never made flexible; the error code comes before the throttle time here
"""

from quipu.wire.fields import array, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class OffsetDeleteRequestPartition(Struct):
    """A partition."""

    partition_index: int = int32()


class OffsetDeleteRequestTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


class OffsetDeleteRequest(Request, key=47, versions="0"):
    """Delete a group's committed offsets of these partitions."""

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


class OffsetDeleteResponsePartition(Struct):
    """Whether the offset of one partition was deleted."""

    partition_index: int = int32()
    error_code: int = int16()


class OffsetDeleteResponseTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


class OffsetDeleteResponse(Response, key=47, versions="0"):
    """Which offsets were deleted."""

    error_code: int = int16()
    throttle_time: int = int32()
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)

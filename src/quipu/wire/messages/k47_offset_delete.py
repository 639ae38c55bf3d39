"""OffsetDelete — API key 47.
"""

from quipu.wire.fields import array, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class OffsetDeleteRequestPartition(Struct):
    """TODO."""

    partition_index: int = int32()


class OffsetDeleteRequestTopic(Struct):
    """TODO."""

    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


class OffsetDeleteRequest(Request, key=47, versions="0"):
    """TODO."""

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


class OffsetDeleteResponsePartition(Struct):
    """TODO."""

    partition_index: int = int32()
    error_code: int = int16()


class OffsetDeleteResponseTopic(Struct):
    """TODO."""

    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


class OffsetDeleteResponse(Response, key=47, versions="0"):
    """TODO."""

    error_code: int = int16()
    throttle_time: int = int32()
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)

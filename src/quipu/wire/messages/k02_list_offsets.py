"""ListOffsets — API key 2.
"""

from quipu.wire.fields import array, int16, int32, int64, int8, string
from quipu.wire.schema import Request, Response, Struct


class ListOffsetsPartition(Struct):
    """TODO."""

    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1)
    timestamp: int = int64()


class ListOffsetsTopic(Struct):
    """TODO."""

    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


class ListOffsetsRequest(Request, key=2, versions="1-11", flexible="6+"):
    """TODO."""

    replica_id: int = int32()
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout: int = int32("10+")


class ListOffsetsPartitionResponse(Struct):
    """TODO."""

    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64(default=-1)
    offset: int = int64(default=-1)
    leader_epoch: int = int32("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    """TODO."""

    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


class ListOffsetsResponse(Response, key=2, versions="1-11", flexible="6+"):
    """TODO."""

    throttle_time: int = int32("2+")
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)

"""ListOffsets — API key 2, versions 1-11.

Behaviour
    * finds the first offset whose record is not older than a timestamp
    * negative timestamps are special: -1 latest, -2 earliest, -3 the record with the largest
      timestamp, -4 earliest kept locally, -5 latest kept remotely, -6 earliest not yet copied
Versions
    v1   one offset and its timestamp per partition
    v2   isolation level
    v4   leader epochs
    v5   OFFSET_NOT_AVAILABLE may be returned
    v6   flexible encoding
    v7   timestamp -3
    v8   timestamp -4
    v9   timestamp -5
    v10  timeout for lookups in remote storage
    v11  timestamp -6
"""

from quipu.wire.fields import array, int8, int16, int32, int64, string
from quipu.wire.schema import Request, Response, Struct


class ListOffsetsPartition(Struct):
    """The timestamp to look for in one partition."""

    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1)
    timestamp: int = int64()


class ListOffsetsTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


class ListOffsetsRequest(Request, key=2, versions="1-11", flexible="6+"):
    """Find offsets by timestamps."""

    replica_id: int = int32()
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout: int = int32("10+")


class ListOffsetsPartitionResponse(Struct):
    """The record found in one partition; offset and timestamp -1 if none."""

    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64(default=-1)
    offset: int = int64(default=-1)
    leader_epoch: int = int32("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    """The results for one topic."""

    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


class ListOffsetsResponse(Response, key=2, versions="1-11", flexible="6+"):
    """The offsets that were found."""

    throttle_time: int = int32("2+")
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)

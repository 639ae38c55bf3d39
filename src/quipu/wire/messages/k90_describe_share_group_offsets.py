"""DescribeShareGroupOffsets — API key 90, versions 0-1.

Behaviour
    * returns the share-partition start offsets of groups; topics of null mean all
Versions
    v0  flexible encoding from the start
    v1  the lag of a partition
"""

from uuid import UUID

from quipu.wire.fields import INT32, array, int16, int32, int64, string, uuid
from quipu.wire.schema import Request, Response, Struct


class DescribeShareGroupOffsetsRequestTopic(Struct):
    """Partitions of one topic."""

    topic_name: str = string()
    partitions: list[int] = array(INT32)


class DescribeShareGroupOffsetsRequestGroup(Struct):
    """One group."""

    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = array(
        DescribeShareGroupOffsetsRequestTopic, nullable="0+")


class DescribeShareGroupOffsetsRequest(Request, key=90, versions="0-1", flexible="0+"):
    """Get the offsets of these groups."""

    groups: list[DescribeShareGroupOffsetsRequestGroup] = array(
        DescribeShareGroupOffsetsRequestGroup)


class DescribeShareGroupOffsetsResponsePartition(Struct):
    """The start offset of one partition."""

    partition_index: int = int32()
    start_offset: int = int64()
    leader_epoch: int = int32()
    lag: int = int64("1+", default=-1)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class DescribeShareGroupOffsetsResponseTopic(Struct):
    """Offsets of one topic."""

    topic_name: str = string()
    topic_id: UUID = uuid()
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = array(
        DescribeShareGroupOffsetsResponsePartition)


class DescribeShareGroupOffsetsResponseGroup(Struct):
    """Offsets of one group."""

    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsResponseTopic] = array(
        DescribeShareGroupOffsetsResponseTopic)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class DescribeShareGroupOffsetsResponse(Response, key=90, versions="0-1", flexible="0+"):
    """The offsets by group."""

    throttle_time: int = int32()
    groups: list[DescribeShareGroupOffsetsResponseGroup] = array(
        DescribeShareGroupOffsetsResponseGroup)

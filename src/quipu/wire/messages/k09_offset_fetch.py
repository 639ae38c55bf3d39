"""OffsetFetch — API key 9.
"""

from uuid import UUID

from quipu.wire.fields import INT32, array, boolean, int16, int32, int64, string, uuid
from quipu.wire.schema import Request, Response, Struct


class OffsetFetchRequestTopic(Struct):
    """TODO."""

    name: str = string()
    partition_indexes: list[int] = array(INT32)


class OffsetFetchRequestTopics(Struct):
    """TODO."""

    name: str = string("8-9")
    topic_id: UUID = uuid("10+")
    partition_indexes: list[int] = array(INT32)


class OffsetFetchRequestGroup(Struct):
    """TODO."""

    group_id: str = string()
    member_id: str | None = string("9+", nullable="0+", default=None)
    member_epoch: int = int32("9+", default=-1)
    topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, nullable="0+")


class OffsetFetchRequest(Request, key=9, versions="1-10", flexible="6+"):
    """TODO."""

    group_id: str = string("1-7")
    topics: list[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, "1-7", nullable="2+")
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+")
    require_stable: bool = boolean("7+")


class OffsetFetchResponsePartition(Struct):
    """TODO."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("5+", default=-1)
    metadata: str | None = string(nullable="0+")
    error_code: int = int16()


class OffsetFetchResponseTopic(Struct):
    """TODO."""

    name: str = string()
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


class OffsetFetchResponsePartitions(Struct):
    """TODO."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(default=-1)
    metadata: str | None = string(nullable="0+")
    error_code: int = int16()


class OffsetFetchResponseTopics(Struct):
    """TODO."""

    name: str = string("8-9")
    topic_id: UUID = uuid("10+")
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions)


class OffsetFetchResponseGroup(Struct):
    """TODO."""

    group_id: str = string()
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics)
    error_code: int = int16()


class OffsetFetchResponse(Response, key=9, versions="1-10", flexible="6+"):
    """TODO."""

    throttle_time: int = int32("3+")
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "1-7")
    error_code: int = int16("2-7")
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+")

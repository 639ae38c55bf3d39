"""OffsetFetch — API key 9, versions 1-10.

Behaviour
    * returns the offsets that groups have committed; -1 where there is none
    * a null array of topics means all offsets of a group
Versions
    v2   all topics may be requested; an error code for the whole response
    v5   leader epochs
    v6   flexible encoding
    v7   require_stable: an error while a transaction has offsets pending
    v8   several groups in one request
    v9   member id and epoch, for the newer group protocol
    v10  topics by id instead of by name
"""

from uuid import UUID

from quipu.wire.fields import INT32, array, boolean, int16, int32, int64, string, uuid
from quipu.wire.schema import Request, Response, Struct


class OffsetFetchRequestTopic(Struct):
    """Partitions of one topic; up to v7, of the one group."""

    name: str = string()
    partition_indexes: list[int] = array(INT32)


class OffsetFetchRequestTopics(Struct):
    """Partitions of one topic; since v8, of one of the groups."""

    name: str = string("8-9")
    topic_id: UUID = uuid("10+")
    partition_indexes: list[int] = array(INT32)


class OffsetFetchRequestGroup(Struct):
    """The group, and the topics whose offsets to return."""

    group_id: str = string()
    member_id: str | None = string("9+", nullable="0+", default=None)
    member_epoch: int = int32("9+", default=-1)
    topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, nullable="0+")


class OffsetFetchRequest(Request, key=9, versions="1-10", flexible="6+"):
    """Get the committed offsets of groups."""

    group_id: str = string("1-7")
    topics: list[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, "1-7", nullable="2+")
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+")
    require_stable: bool = boolean("7+")


class OffsetFetchResponsePartition(Struct):
    """The offset of one partition; up to v7."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("5+", default=-1)
    metadata: str | None = string(nullable="0+")
    error_code: int = int16()


class OffsetFetchResponseTopic(Struct):
    """Offsets of one topic; up to v7."""

    name: str = string()
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


class OffsetFetchResponsePartitions(Struct):
    """The offset of one partition; since v8."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(default=-1)
    metadata: str | None = string(nullable="0+")
    error_code: int = int16()


class OffsetFetchResponseTopics(Struct):
    """Offsets of one topic; since v8."""

    name: str = string("8-9")
    topic_id: UUID = uuid("10+")
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions)


class OffsetFetchResponseGroup(Struct):
    """Offsets of one group."""

    group_id: str = string()
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics)
    error_code: int = int16()


class OffsetFetchResponse(Response, key=9, versions="1-10", flexible="6+"):
    """The committed offsets of groups."""

    throttle_time: int = int32("3+")
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "1-7")
    error_code: int = int16("2-7")
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+")

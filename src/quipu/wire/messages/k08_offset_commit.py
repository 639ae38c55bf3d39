"""OffsetCommit — API key 8, versions 2-10.

Behaviour
    * stores the offsets up to which a group has read, with a short metadata text each
    * a commit by a client that is not a group member has generation -1 and no member id
Versions
    v5   no retention time any more: it is a setting of the broker
    v6   leader epochs
    v7   static members
    v8   flexible encoding
    v9   members of the newer group protocol send their epoch as generation
    v10  topics by id instead of by name
"""

from uuid import UUID

from quipu.wire.fields import array, int16, int32, int64, string, uuid
from quipu.wire.schema import Request, Response, Struct


class OffsetCommitRequestPartition(Struct):
    """The offset to store for one partition."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("6+", default=-1)
    committed_metadata: str | None = string(nullable="0+")


class OffsetCommitRequestTopic(Struct):
    """Offsets of one topic."""

    name: str = string("2-9")
    topic_id: UUID = uuid("10+")
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


class OffsetCommitRequest(Request, key=8, versions="2-10", flexible="8+"):
    """Commit offsets of a group."""

    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1)
    member_id: str = string()
    group_instance_id: str | None = string("7+", nullable="0+", default=None)
    retention_time: int = int64("2-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


class OffsetCommitResponsePartition(Struct):
    """Whether the offset of one partition was stored."""

    partition_index: int = int32()
    error_code: int = int16()


class OffsetCommitResponseTopic(Struct):
    """Partitions of one topic."""

    name: str = string("2-9")
    topic_id: UUID = uuid("10+")
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


class OffsetCommitResponse(Response, key=8, versions="2-10", flexible="8+"):
    """Which offsets were stored."""

    throttle_time: int = int32("3+")
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)

"""AlterShareGroupOffsets — API key 91, version 0.

Behaviour
    * sets the share-partition start offsets of a group without members
Versions
    v0  flexible encoding from the start
"""

from uuid import UUID

from quipu.wire.fields import array, int16, int32, int64, string, uuid
from quipu.wire.schema import Request, Response, Struct


class AlterShareGroupOffsetsRequestPartition(Struct):
    """The start offset of one partition."""

    partition_index: int = int32()
    start_offset: int = int64()


class AlterShareGroupOffsetsRequestTopic(Struct):
    """Offsets of one topic."""

    topic_name: str = string()
    partitions: list[AlterShareGroupOffsetsRequestPartition] = array(
        AlterShareGroupOffsetsRequestPartition)


class AlterShareGroupOffsetsRequest(Request, key=91, versions="0", flexible="0+"):
    """Set these offsets of the group."""

    group_id: str = string()
    topics: list[AlterShareGroupOffsetsRequestTopic] = array(AlterShareGroupOffsetsRequestTopic)


class AlterShareGroupOffsetsResponsePartition(Struct):
    """Whether one offset was set."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class AlterShareGroupOffsetsResponseTopic(Struct):
    """Results for one topic."""

    topic_name: str = string()
    topic_id: UUID = uuid()
    partitions: list[AlterShareGroupOffsetsResponsePartition] = array(
        AlterShareGroupOffsetsResponsePartition)


class AlterShareGroupOffsetsResponse(Response, key=91, versions="0", flexible="0+"):
    """The results by topic, or an error of the whole request."""

    throttle_time: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = array(
        AlterShareGroupOffsetsResponseTopic)

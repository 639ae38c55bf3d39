"""DescribeTopicPartitions — API key 75, version 0.

Behaviour
    * returns topics as Metadata does, in order of their names and page by page: a response that
      is not complete has a cursor to continue from
Versions
    v0  flexible from the start
Of our own
    A topic of a response may have the tagged field 100, `is_diskless`, as those of Metadata.
"""

from uuid import UUID

from quipu.wire.fields import INT32, array, boolean, int16, int32, string, struct, uuid
from quipu.wire.schema import Request, Response, Struct


class TopicRequest(Struct):
    """A topic to describe."""

    name: str = string()


class Cursor(Struct):
    """The first topic and partition of a page."""

    topic_name: str = string()
    partition_index: int = int32()


class DescribeTopicPartitionsRequest(Request, key=75, versions="0", flexible="0+"):
    """Get topics and their partitions, a page at a time."""

    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = struct(Cursor, nullable="0+")


class DescribeTopicPartitionsResponsePartition(Struct):
    """A partition: its leader, its replicas, and those eligible to lead."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1)
    replica_nodes: list[int] = array(INT32)
    isr_nodes: list[int] = array(INT32)
    eligible_leader_replicas: list[int] | None = array(INT32, nullable="0+", default=None)
    last_known_elr: list[int] | None = array(INT32, nullable="0+", default=None)
    offline_replicas: list[int] = array(INT32)


class DescribeTopicPartitionsResponseTopic(Struct):
    """A topic and its partitions, or those of them on this page."""

    error_code: int = int16()
    name: str | None = string(nullable="0+")
    topic_id: UUID = uuid()
    is_internal: bool = boolean()
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(
        DescribeTopicPartitionsResponsePartition)
    topic_authorized_operations: int = int32(default=-0x8000_0000)
    is_diskless: bool = boolean(tag=100)  # of our own


class DescribeTopicPartitionsResponse(Response, key=75, versions="0", flexible="0+"):
    """A page of topics."""

    throttle_time: int = int32()
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = struct(Cursor, nullable="0+")

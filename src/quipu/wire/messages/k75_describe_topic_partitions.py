"""DescribeTopicPartitions — API key 75, version 0.

Behaviour
    * returns topics as Metadata does, in order of their names and page by page: a response that
      is not complete has a cursor to continue from
    * of a diskless topic, fields of Quipu's own say how it is placed; they have tags from 100 on,
      which Kafka's clients skip
Versions
    v0  flexible from the start
Of our own
    A topic of a response may have the tagged field 100, `is_diskless`, as those of Metadata.
"""

from uuid import UUID

from quipu.wire.fields import (
    INT32,
    STRING,
    array,
    boolean,
    int8,
    int16,
    int32,
    string,
    struct,
    uuid,
)
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
    # Quipu's own, of a diskless partition.
    target_racks: list[str] = array(STRING, tag=100)
    assigned_racks: list[str] = array(STRING, tag=101)  # of `assigned_replicas`
    rack_coverage: int = int8(tag=102, default=-1)  # percent
    placement_state: int = int8(tag=103, default=-1)  # 0 steady, 1 reconciling, 2 frozen
    exceptions: list[str] = array(STRING, tag=104)
    assigned_replicas: list[int] = array(INT32, tag=105)  # all, whatever the client's zone is
    placement_drift: bool = boolean(tag=106)


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
    # Quipu's own: the number of replicas that each partition of a diskless topic should have.
    effective_rf: int = int32(tag=101, default=-1)


class DescribeTopicPartitionsResponse(Response, key=75, versions="0", flexible="0+"):
    """A page of topics."""

    throttle_time: int = int32()
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = struct(Cursor, nullable="0+")

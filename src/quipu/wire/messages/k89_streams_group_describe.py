"""StreamsGroupDescribe — API key 89, version 0.

Behaviour
    * returns streams groups, their topology and their members
Versions
    v0  flexible encoding from the start
"""

from typing import Final

from quipu.wire.fields import (
    INT32,
    STRING,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
)
from quipu.wire.schema import Request, Response, Struct

NOT_ASKED: Final = -(1 << 31)  # authorized operations


class StreamsGroupDescribeRequest(Request, key=89, versions="0", flexible="0+"):
    """Get these groups."""

    group_ids: list[str] = array(STRING)
    include_authorized_operations: bool = boolean()


class KeyValue(Struct):
    """A setting, or a tag, with its value."""

    key: str = string()
    value: str = string()


class TopicInfo(Struct):
    """An internal topic of the application."""

    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[KeyValue] = array(KeyValue)


class Subtopology(Struct):
    """A part of the topology that is connected."""

    subtopology_id: str = string()
    source_topics: list[str] = array(STRING)
    repartition_sink_topics: list[str] = array(STRING)
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)


class Topology(Struct):
    """The topology that the members run; null before the first one has joined."""

    epoch: int = int32()
    subtopologies: list[Subtopology] | None = array(Subtopology, nullable="0+")


class Endpoint(Struct):
    """Where a member can be asked for its state."""

    host: str = string()
    port: int = uint16()


class TaskOffset(Struct):
    """How far a task has read."""

    subtopology_id: str = string()
    partition: int = int32()
    offset: int = int64()


class TaskIds(Struct):
    """Tasks of one subtopology."""

    subtopology_id: str = string()
    partitions: list[int] = array(INT32)


class Assignment(Struct):
    """The tasks of a member."""

    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)


class Member(Struct):
    """One member of a group."""

    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    client_id: str = string()
    client_host: str = string()
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = struct(Endpoint, nullable="0+")
    client_tags: list[KeyValue] = array(KeyValue)
    task_offsets: list[TaskOffset] = array(TaskOffset)
    task_end_offsets: list[TaskOffset] = array(TaskOffset)
    assignment: Assignment = struct(Assignment)
    target_assignment: Assignment = struct(Assignment)
    is_classic: bool = boolean()


class DescribedGroup(Struct):
    """One group, or an error."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    topology: Topology | None = struct(Topology, nullable="0+")
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=NOT_ASKED)


class StreamsGroupDescribeResponse(Response, key=89, versions="0", flexible="0+"):
    """The groups."""

    throttle_time: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)

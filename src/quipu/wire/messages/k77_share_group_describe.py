"""ShareGroupDescribe — API key 77, version 1.

Behaviour
    * returns share groups and their members
Versions
    v1  the first version after its preview; flexible encoding
"""

from typing import Final
from uuid import UUID

from quipu.wire.fields import INT32, STRING, array, boolean, int16, int32, string, struct, uuid
from quipu.wire.schema import Request, Response, Struct

NOT_ASKED: Final = -(1 << 31)  # authorized operations


class ShareGroupDescribeRequest(Request, key=77, versions="1", flexible="1+"):
    """Get these groups."""

    group_ids: list[str] = array(STRING)
    include_authorized_operations: bool = boolean()


class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: UUID = uuid()
    topic_name: str = string()
    partitions: list[int] = array(INT32)


class Assignment(Struct):
    """The partitions of a member."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class Member(Struct):
    """One member of a group."""

    member_id: str = string()
    rack_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(STRING)
    assignment: Assignment = struct(Assignment)


class DescribedGroup(Struct):
    """One group, or an error."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=NOT_ASKED)


class ShareGroupDescribeResponse(Response, key=77, versions="1", flexible="1+"):
    """The groups."""

    throttle_time: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)

"""ListPartitionReassignments — API key 46, version 0.

Behaviour
    * tells which partitions are moving, from which replicas to which
    * no list of topics asks for all of them
"""

from quipu.wire.fields import INT32, array, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class ListPartitionReassignmentsTopics(Struct):
    """Partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(INT32)


class ListPartitionReassignmentsRequest(Request, key=46, versions="0", flexible="0+"):
    """Which of these are moving?"""

    timeout: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable="0+", default=None)


class OngoingPartitionReassignment(Struct):
    """A partition that is moving: all of its replicas, those to come and those to go."""

    partition_index: int = int32()
    replicas: list[int] = array(INT32)
    adding_replicas: list[int] = array(INT32)
    removing_replicas: list[int] = array(INT32)


class OngoingTopicReassignment(Struct):
    """Partitions of one topic that are moving."""

    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


class ListPartitionReassignmentsResponse(Response, key=46, versions="0", flexible="0+"):
    """The partitions that are moving."""

    throttle_time: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)

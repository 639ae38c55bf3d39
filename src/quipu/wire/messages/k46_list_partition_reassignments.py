"""ListPartitionReassignments — API key 46, version 0.

Behaviour
    * returns the partitions that are moving, from which replicas to which
    * a null list of topics means all
"""

from quipu.wire.fields import INT32, array, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class ListPartitionReassignmentsTopics(Struct):
    """Partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(INT32)


class ListPartitionReassignmentsRequest(Request, key=46, versions="0", flexible="0+"):
    """List those of these partitions that are moving."""

    timeout: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable="0+", default=None)


class OngoingPartitionReassignment(Struct):
    """A moving partition: all its replicas, those being added and those being removed."""

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

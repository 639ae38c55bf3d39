"""CreatePartitions — API key 37, versions 0-3.

Behaviour
    * raises a topic's number of partitions to `count`; never lowers it
Versions
    v2  flexible encoding
    v3  THROTTLING_QUOTA_EXCEEDED may be returned
"""

from quipu.wire.fields import INT32, array, boolean, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class CreatePartitionsAssignment(Struct):
    """The brokers of one new partition's replicas."""

    broker_ids: list[int] = array(INT32)


class CreatePartitionsTopic(Struct):
    """A topic and its new number of partitions."""

    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment, nullable="0+")


class CreatePartitionsRequest(Request, key=37, versions="0-3", flexible="2+"):
    """Add partitions to these topics."""

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsTopicResult(Struct):
    """Whether partitions were added to one topic."""

    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class CreatePartitionsResponse(Response, key=37, versions="0-3", flexible="2+"):
    """The result for each topic."""

    throttle_time: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)

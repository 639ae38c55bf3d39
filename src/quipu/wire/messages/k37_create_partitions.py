"""CreatePartitions — API key 37, versions 0-3.

Behaviour
    * raises a topic's number of partitions to `count`; never lowers it
Versions
    v2  flexible encoding
    v3  THROTTLING_QUOTA_EXCEEDED may be answered
"""

from quipu.wire.fields import INT32, array, boolean, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class CreatePartitionsAssignment(Struct):
    """Who is to have the replicas of one new partition."""

    broker_ids: list[int] = array(INT32)


class CreatePartitionsTopic(Struct):
    """A topic and the number of partitions that it is to have."""

    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment, nullable="0+")


class CreatePartitionsRequest(Request, key=37, versions="0-3", flexible="2+"):
    """Give these topics more partitions."""

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsTopicResult(Struct):
    """Whether one topic has them."""

    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class CreatePartitionsResponse(Response, key=37, versions="0-3", flexible="2+"):
    """Which topics have them."""

    throttle_time: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)

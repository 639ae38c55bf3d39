"""CreatePartitions — API key 37.
"""

from quipu.wire.fields import INT32, array, boolean, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class CreatePartitionsAssignment(Struct):
    """TODO."""

    broker_ids: list[int] = array(INT32)


class CreatePartitionsTopic(Struct):
    """TODO."""

    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment, nullable="0+")


class CreatePartitionsRequest(Request, key=37, versions="0-3", flexible="2+"):
    """TODO."""

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsTopicResult(Struct):
    """TODO."""

    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class CreatePartitionsResponse(Response, key=37, versions="0-3", flexible="2+"):
    """TODO."""

    throttle_time: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)

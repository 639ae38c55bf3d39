"""AlterPartitionReassignments — API key 45, versions 0-1.

Behaviour
    * moves partitions to other brokers; without replicas, cancels a move
Versions
    v1  the client may forbid that the number of replicas changes
"""

from quipu.wire.fields import INT32, array, boolean, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class ReassignablePartition(Struct):
    """The new replicas of one partition; null cancels its move."""

    partition_index: int = int32()
    replicas: list[int] | None = array(INT32, nullable="0+", default=None)


class ReassignableTopic(Struct):
    """The new replicas of one topic's partitions."""

    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


class AlterPartitionReassignmentsRequest(Request, key=45, versions="0-1", flexible="0+"):
    """Move these partitions."""

    timeout: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


class ReassignablePartitionResponse(Struct):
    """Whether one partition's move has begun."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class ReassignableTopicResponse(Struct):
    """Which moves of one topic have begun."""

    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


class AlterPartitionReassignmentsResponse(Response, key=45, versions="0-1", flexible="0+"):
    """Which moves have begun."""

    throttle_time: int = int32()
    allow_replication_factor_change: bool = boolean("1+", default=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)

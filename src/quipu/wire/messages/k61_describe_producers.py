"""DescribeProducers — API key 61, version 0.

Behaviour
    * returns the producers that a partition remembers, and where open transactions start
Versions
    v0  flexible from the start
"""

from quipu.wire.fields import INT32, array, int16, int32, int64, string
from quipu.wire.schema import Request, Response, Struct


class TopicRequest(Struct):
    """Partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(INT32)


class DescribeProducersRequest(Request, key=61, versions="0", flexible="0+"):
    """Get the producers of these partitions."""

    topics: list[TopicRequest] = array(TopicRequest)


class ProducerState(Struct):
    """A producer and its last batch; -1 for unknown values."""

    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


class PartitionResponse(Struct):
    """The producers of one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    active_producers: list[ProducerState] = array(ProducerState)


class TopicResponse(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


class DescribeProducersResponse(Response, key=61, versions="0", flexible="0+"):
    """The producers."""

    throttle_time: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)

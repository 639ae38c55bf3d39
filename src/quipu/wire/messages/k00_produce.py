"""Produce — API key 0.
"""

from uuid import UUID

from quipu.wire.fields import array, int16, int32, int64, records, string, struct, uuid
from quipu.wire.schema import Request, Response, Struct


class PartitionProduceData(Struct):
    """TODO."""

    index: int = int32()
    records: memoryview | None = records()


class TopicProduceData(Struct):
    """TODO."""

    name: str = string("3-12")
    topic_id: UUID = uuid("13+")
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Request, key=0, versions="3-13", flexible="9+"):
    """TODO."""

    transactional_id: str | None = string(nullable="0+", default=None)
    acks: int = int16()
    timeout: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Struct):
    """TODO."""

    batch_index: int = int32()
    batch_index_error_message: str | None = string(nullable="0+", default=None)


class LeaderIdAndEpoch(Struct):
    """TODO."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class PartitionProduceResponse(Struct):
    """TODO."""

    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time: int = int64(default=-1)
    log_start_offset: int = int64("5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+")
    error_message: str | None = string("8+", nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "10+", tag=0)


class TopicProduceResponse(Struct):
    """TODO."""

    name: str = string("3-12")
    topic_id: UUID = uuid("13+")
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class NodeEndpoint(Struct):
    """TODO."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


class ProduceResponse(Response, key=0, versions="3-13", flexible="9+"):
    """TODO."""

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time: int = int32()
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)

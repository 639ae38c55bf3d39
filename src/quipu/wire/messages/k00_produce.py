"""Produce — API key 0, versions 3-13.

Behaviour
    * carries one batch of records per partition, in the form in which it is stored; the response
      has its offset
    * acks 0: no response; 1: respond once the leader has the batch; -1: once every in-sync replica
      has it
Versions
    v3   transactional id; record batches of format 2, the only one supported here
    v4   KAFKA_STORAGE_ERROR may be returned
    v5   responses have the log start offset
    v7   batches may be compressed by zstd
    v8   responses name the records because of which a batch was refused
    v9   flexible encoding
    v10  responses may name the current leader, and its address
    v11  TRANSACTION_ABORTABLE may be returned
    v12  in a transaction, the partition need not have been added to it before
    v13  topics by id instead of by name
Kafka 4.0 removed versions 0-2, but librdkafka looks for them in the list of versions.
"""

from uuid import UUID

from quipu.wire.fields import array, int16, int32, int64, records, string, struct, uuid
from quipu.wire.schema import Request, Response, Struct


class PartitionProduceData(Struct):
    """Batches for one partition."""

    index: int = int32()
    records: memoryview | None = records()


class TopicProduceData(Struct):
    """Batches for one topic."""

    name: str = string("3-12")
    topic_id: UUID = uuid("13+")
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Request, key=0, versions="3-13", flexible="9+"):
    """Append these batches."""

    transactional_id: str | None = string(nullable="0+", default=None)
    acks: int = int16()
    timeout: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Struct):
    """A record because of which its batch was refused, and why."""

    batch_index: int = int32()
    batch_index_error_message: str | None = string(nullable="0+", default=None)


class LeaderIdAndEpoch(Struct):
    """The current leader, if this broker does not lead; else -1."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class PartitionProduceResponse(Struct):
    """The offset of a batch, or why it was refused."""

    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time: int = int64(default=-1)
    log_start_offset: int = int64("5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+")
    error_message: str | None = string("8+", nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "10+", tag=0)


class TopicProduceResponse(Struct):
    """The results for one topic."""

    name: str = string("3-12")
    topic_id: UUID = uuid("13+")
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class NodeEndpoint(Struct):
    """The address of a broker that some `current_leader` names."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


class ProduceResponse(Response, key=0, versions="3-13", flexible="9+"):
    """The result for each batch."""

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time: int = int32()
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)

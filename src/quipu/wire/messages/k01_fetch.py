"""Fetch — API key 1, versions 4-18.

Behaviour
    * reads batches from an offset on; waits up to max_wait for at least min_bytes
    * in a session, a request names only the partitions that changed since the last one
    * followers use the same request as consumers, with their id in place of -1
Versions
    v4   isolation level, aborted transactions
    v5   log start offset
    v7   sessions
    v9   current leader epoch: a different one is an error
    v10  batches may be compressed by zstd
    v11  rack of the consumer, and the replica that it should read from
    v12  flexible encoding; epoch of the last fetched record, and where the logs diverge
    v13  topics by id instead of by name
    v14  OFFSET_MOVED_TO_TIERED_STORAGE may be returned
    v15  replica id and epoch move to a tagged field
    v16  responses have the addresses of current leaders
    v17  directory id of the replica
    v18  high watermark of the replica
"""

from uuid import UUID

from quipu.wire.fields import INT32, array, int8, int16, int32, int64, records, string, struct, uuid
from quipu.wire.schema import Request, Response, Struct


class ReplicaState(Struct):
    """The follower that fetches; -1 for a consumer."""

    replica_id: int = int32(default=-1)
    replica_epoch: int = int64(default=-1)


class FetchPartition(Struct):
    """The offset to read from in one partition."""

    partition: int = int32()
    current_leader_epoch: int = int32("9+", default=-1)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    partition_max_bytes: int = int32()
    replica_directory_id: UUID = uuid("17+", tag=0)
    high_watermark: int = int64("18+", default=0x7FFF_FFFF_FFFF_FFFF, tag=1)


class FetchTopic(Struct):
    """Partitions of one topic."""

    topic: str = string("4-12")
    topic_id: UUID = uuid("13+")
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    """Partitions to remove from the session."""

    topic: str = string("7-12")
    topic_id: UUID = uuid("13+")
    partitions: list[int] = array(INT32)


class FetchRequest(Request, key=1, versions="4-18", flexible="12+"):
    """Read from these offsets on."""

    cluster_id: str | None = string("12+", nullable="0+", default=None, tag=0)
    replica_id: int = int32("4-14", default=-1)
    replica_state: ReplicaState = struct(ReplicaState, "15+", tag=1)
    max_wait: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=0x7FFF_FFFF)
    isolation_level: int = int8()
    session_id: int = int32("7+")
    session_epoch: int = int32("7+", default=-1)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+")


class EpochEndOffset(Struct):
    """Where the reader's log and the leader's diverge; -1 if they do not."""

    epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


class LeaderIdAndEpoch(Struct):
    """The current leader, if this broker does not lead; else -1."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class SnapshotId(Struct):
    """The snapshot that a follower has to start from; -1 for none."""

    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


class AbortedTransaction(Struct):
    """From this offset on, the records of this producer were aborted."""

    producer_id: int = int64()
    first_offset: int = int64()


class PartitionData(Struct):
    """Records and bounds of one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1)
    log_start_offset: int = int64("5+", default=-1)
    diverging_epoch: EpochEndOffset = struct(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId = struct(SnapshotId, "12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(AbortedTransaction, nullable="0+")
    preferred_read_replica: int = int32("11+", default=-1)
    records: memoryview | None = records()


class FetchableTopicResponse(Struct):
    """The results for one topic."""

    topic: str = string("4-12")
    topic_id: UUID = uuid("13+")
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Struct):
    """The address of a broker that some `current_leader` names."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


class FetchResponse(Response, key=1, versions="4-18", flexible="12+"):
    """The records that were read."""

    throttle_time: int = int32()
    error_code: int = int16("7+")
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0)

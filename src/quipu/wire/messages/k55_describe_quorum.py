"""DescribeQuorum — API key 55, versions 0-2.

Behaviour
    * returns the leader of the metadata quorum, and the log ends of its voters and observers
Versions
    v1  when a replica last fetched, and last was caught up
    v2  error messages, directories, and addresses of the nodes
"""

from uuid import UUID

from quipu.wire.fields import array, int16, int32, int64, string, uint16, uuid
from quipu.wire.schema import Request, Response, Struct


class PartitionData(Struct):
    """A partition."""

    partition_index: int = int32()


class TopicData(Struct):
    """Partitions of one topic; the metadata's is `__cluster_metadata`, with partition 0."""

    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class DescribeQuorumRequest(Request, key=55, versions="0-2", flexible="0+"):
    """Get the quorums of these partitions."""

    topics: list[TopicData] = array(TopicData)


class ReplicaState(Struct):
    """A voter or an observer; -1 for unknown values."""

    replica_id: int = int32()
    replica_directory_id: UUID = uuid("2+")
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1)
    last_caught_up_timestamp: int = int64("1+", default=-1)


class QuorumPartitionData(Struct):
    """A quorum."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", default=None)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


class QuorumTopicData(Struct):
    """The quorums of one topic."""

    topic_name: str = string()
    partitions: list[QuorumPartitionData] = array(QuorumPartitionData)


class Listener(Struct):
    """An address of a node."""

    name: str = string()
    host: str = string()
    port: int = uint16()


class Node(Struct):
    """A node of the quorum, and its listeners."""

    node_id: int = int32()
    listeners: list[Listener] = array(Listener)


class DescribeQuorumResponse(Response, key=55, versions="0-2", flexible="0+"):
    """The quorums."""

    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", default=None)
    topics: list[QuorumTopicData] = array(QuorumTopicData)
    nodes: list[Node] = array(Node, "2+")

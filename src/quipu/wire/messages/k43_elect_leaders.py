"""ElectLeaders — API key 43, versions 0-2.

Behaviour
    * makes the preferred replica the leader, or (unclean) any live replica if no in-sync one is
      alive
    * a null list of partitions means all
Versions
    v1  the type of the election, and an error code for the whole request
    v2  flexible encoding
"""

from quipu.wire.fields import INT32, array, int8, int16, int32, string
from quipu.wire.schema import Request, Response, Struct


class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(INT32)


class ElectLeadersRequest(Request, key=43, versions="0-2", flexible="2+"):
    """Elect leaders of these partitions.  `election_type`: 0 preferred, 1 unclean."""

    election_type: int = int8("1+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+")
    timeout: int = int32(default=60000)


class PartitionResult(Struct):
    """The result of one election."""

    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class ReplicaElectionResult(Struct):
    """The results for one topic."""

    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


class ElectLeadersResponse(Response, key=43, versions="0-2", flexible="2+"):
    """The results of the elections."""

    throttle_time: int = int32()
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)

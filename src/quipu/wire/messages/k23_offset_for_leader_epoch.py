"""OffsetForLeaderEpoch — API key 23.
"""

from quipu.wire.fields import array, int16, int32, int64, string
from quipu.wire.schema import Request, Response, Struct


class OffsetForLeaderPartition(Struct):
    """TODO."""

    partition: int = int32()
    current_leader_epoch: int = int32(default=-1)
    leader_epoch: int = int32()


class OffsetForLeaderTopic(Struct):
    """TODO."""

    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


class OffsetForLeaderEpochRequest(Request, key=23, versions="2-4", flexible="4+"):
    """TODO."""

    replica_id: int = int32("3+", default=-2)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


class EpochEndOffset(Struct):
    """TODO."""

    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


class OffsetForLeaderTopicResult(Struct):
    """TODO."""

    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


class OffsetForLeaderEpochResponse(Response, key=23, versions="2-4", flexible="4+"):
    """TODO."""

    throttle_time: int = int32()
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)

"""OffsetForLeaderEpoch — API key 23, versions 2-4.

Behaviour
    * tells where a leader's epoch ended, by which a reader finds out whether what it read is
      still there
Versions
    v3  replica id; -1 is a consumer, -2 one that may look beyond the high watermark
    v4  flexible encoding
"""

from quipu.wire.fields import array, int16, int32, int64, string
from quipu.wire.schema import Request, Response, Struct


class OffsetForLeaderPartition(Struct):
    """The epoch to look for in one partition."""

    partition: int = int32()
    current_leader_epoch: int = int32(default=-1)
    leader_epoch: int = int32()


class OffsetForLeaderTopic(Struct):
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


class OffsetForLeaderEpochRequest(Request, key=23, versions="2-4", flexible="4+"):
    """Where did these epochs end?"""

    replica_id: int = int32("3+", default=-2)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


class EpochEndOffset(Struct):
    """Where the epoch, or the last one before it, ended; -1 if neither is known."""

    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


class OffsetForLeaderTopicResult(Struct):
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


class OffsetForLeaderEpochResponse(Response, key=23, versions="2-4", flexible="4+"):
    """Where the epochs ended."""

    throttle_time: int = int32()
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)

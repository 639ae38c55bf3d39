"""OffsetForLeaderEpoch — API key 23, versions 2-4.

Behaviour
    * returns the end offset of a leader epoch, from which a reader learns whether the records
      that it read are still in the log
Versions
    v3  replica id; -1 is a consumer, -2 one that may read above the high watermark
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
    """Get the end offsets of these epochs."""

    replica_id: int = int32("3+", default=-2)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


class EpochEndOffset(Struct):
    """The end of the epoch, or of the last one before it; -1 if unknown."""

    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


class OffsetForLeaderTopicResult(Struct):
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


class OffsetForLeaderEpochResponse(Response, key=23, versions="2-4", flexible="4+"):
    """The end offsets of the epochs."""

    throttle_time: int = int32()
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)

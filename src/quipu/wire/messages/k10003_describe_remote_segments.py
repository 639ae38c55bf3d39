"""DescribeRemoteSegments — API key 10003, version 0.  Quipu's own: Kafka has no such API.

Behaviour
    * returns what the remote tier has of partitions, and where, at most `limit` segments of each
    * for clients that read objects: the segments in which the offsets of a range are read; each
      holds the offset after the last one of the segment before it, so a client reads each offset
      once, and goes on after the last offset
    * with `in_any_state`, for people: all segments by start offset and id, and their total size;
      a client goes on after the last start offset and id
"""

from uuid import UUID

from quipu.wire.fields import array, binary, boolean, int8, int16, int32, int64, string, uuid
from quipu.wire.schema import Request, Response, Struct


class RemoteSegmentsPartition(Struct):
    """A partition, and where to begin.

    The segments wanted are those of [start_offset, end_offset); in any state, those whose start
    offset and id are above `start_offset` and `after_segment_id`.
    """

    partition_index: int = int32()
    current_leader_epoch: int = int32(default=-1)  # as the client knows it; -1: not checked
    start_offset: int = int64(default=-1)
    after_segment_id: UUID = uuid()
    end_offset: int = int64(default=-1)  # -1: all that only the tier has; not used in any state


class RemoteSegmentsTopic(Struct):
    """A topic, by name."""

    name: str = string()
    partitions: list[RemoteSegmentsPartition] = array(RemoteSegmentsPartition)


class DescribeRemoteSegmentsRequest(Request, key=10_003, versions="0", flexible="0+"):
    """Get remote segments of partitions; a limit of 0 asks for the partitions' numbers only."""

    limit: int = int32(default=1000)  # of each partition
    in_any_state: bool = boolean()
    topics: list[RemoteSegmentsTopic] = array(RemoteSegmentsTopic)


class DescribedSegmentEpoch(Struct):
    """A leader epoch of a segment, and its first offset there."""

    leader_epoch: int = int32()
    start_offset: int = int64()


class DescribedRemoteSegment(Struct):
    """A segment; `state` is a number of RemoteLogSegmentState, and times are milliseconds."""

    segment_id: UUID = uuid()  # with topic id, partition and start offset, the name of its object
    start_offset: int = int64()
    end_offset: int = int64()  # of the last record
    state: int = int8()
    size: int = int32()  # bytes of the log, before any compression
    max_timestamp: int = int64(default=-1)
    event_timestamp: int = int64(default=-1)  # of the last change of its state
    broker_id: int = int32(default=-1)  # that made this change
    custom_metadata: bytes | None = binary(nullable="0+", default=None)
    leader_epochs: list[DescribedSegmentEpoch] = array(DescribedSegmentEpoch)


class DescribedRemotePartition(Struct):
    """A page of segments, and the partition's numbers when it was made."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    is_tiered: bool = boolean()  # the topic has a tier, or the tier still has copies
    leader_epoch: int = int32(default=-1)
    log_start_offset: int = int64(default=-1)
    local_start_offset: int = int64(default=-1)  # from here on, the leader has the records itself
    highest_tiered_offset: int = int64(default=-1)  # -1: nothing is in the tier
    log_end_offset: int = int64(default=-1)
    local_size: int = int64()  # bytes on the leader's disk
    remote_size: int = int64(default=-1)  # of the segments that are copied; -1: not asked for
    segment_count: int = int32(default=-1)  # in any state; -1: not asked for
    is_complete: bool = boolean(default=True)  # no more segments follow
    segments: list[DescribedRemoteSegment] = array(DescribedRemoteSegment)
    is_diskless: bool = boolean(tag=0)  # records above `local_start_offset` are in objects
    object_size: int = int64(tag=1)  # bytes of a diskless partition that are in objects


class DescribedRemoteTopic(Struct):
    """A topic, by name and by id."""

    name: str = string()
    topic_id: UUID = uuid()
    partitions: list[DescribedRemotePartition] = array(DescribedRemotePartition)


class DescribeRemoteSegmentsResponse(Response, key=10_003, versions="0", flexible="0+"):
    """Segments by partition, and the URL of the object store.

    It has no credentials, and no paths of files of the node; null: no other process can open the
    store.
    """

    throttle_time: int = int32()
    storage_url: str | None = string(nullable="0+", default=None)
    topics: list[DescribedRemoteTopic] = array(DescribedRemoteTopic)

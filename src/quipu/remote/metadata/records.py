"""The records in which metadata is stored; 0 to 2 are Kafka's, field by field, the others our own.

    0    a segment                     100  the header of a partition: its leader, its deletion
    1    an update of a segment        101  the header of a leader epoch: its highest offset
    2    the deletion of a partition   102  a reference: an epoch reads a segment at an offset
                                       103  a segment of an epoch that is not read
                                       104  a partition that has a header

Not here: the frame around a record, and the values that records hold (serde.py).
"""

from uuid import UUID

from quipu.wire.fields import array, binary, boolean, int8, int32, int64, string, struct, uuid
from quipu.wire.schema import Message, Struct


class TopicIdPartitionRecord(Struct):
    """A partition."""

    name: str = string()
    id: UUID = uuid()
    partition: int = int32()


class SegmentIdRecord(Struct):
    """A segment's id."""

    topic_id_partition: TopicIdPartitionRecord = struct(TopicIdPartitionRecord)
    id: UUID = uuid()


class SegmentLeaderEpochRecord(Struct):
    """A leader epoch of a segment."""

    leader_epoch: int = int32()
    offset: int = int64()


class SegmentRecord(Message, key=0, versions="0", flexible="0+"):
    """A segment."""

    remote_log_segment_id: SegmentIdRecord = struct(SegmentIdRecord)
    start_offset: int = int64()
    end_offset: int = int64()
    broker_id: int = int32()
    max_timestamp_ms: int = int64()
    event_timestamp_ms: int = int64()
    segment_leader_epochs: list[SegmentLeaderEpochRecord] = array(SegmentLeaderEpochRecord)
    segment_size_in_bytes: int = int32()
    custom_metadata: bytes | None = binary(nullable="0+", default=None)
    remote_log_segment_state: int = int8()
    txn_index_empty: bool = boolean(tag=0)


class SegmentUpdateRecord(Message, key=1, versions="0", flexible="0+"):
    """An update of a segment."""

    remote_log_segment_id: SegmentIdRecord = struct(SegmentIdRecord)
    broker_id: int = int32()
    event_timestamp_ms: int = int64()
    custom_metadata: bytes | None = binary(nullable="0+", default=None)
    remote_log_segment_state: int = int8()


class PartitionDeleteRecord(Message, key=2, versions="0", flexible="0+"):
    """How far the deletion of a partition is."""

    topic_id_partition: TopicIdPartitionRecord = struct(TopicIdPartitionRecord)
    broker_id: int = int32()
    event_timestamp_ms: int = int64()
    remote_partition_delete_state: int = int8()


class PartitionHeaderRecord(Message, key=100, versions="0", flexible="0+"):
    """Who leads a partition, and how far its deletion is."""

    topic_id_partition: TopicIdPartitionRecord = struct(TopicIdPartitionRecord)
    leader_epoch: int = int32()
    broker_id: int = int32()
    incarnation: UUID = uuid()
    remote_partition_delete_state: int = int8(default=-1)
    delete_broker_id: int = int32(default=-1)
    delete_event_timestamp_ms: int = int64(default=-1)


class EpochHeaderRecord(Message, key=101, versions="0", flexible="0+"):
    """The highest offset ever copied in a leader epoch."""

    leader_epoch: int = int32()
    highest_offset: int = int64()


class ReferenceRecord(Message, key=102, versions="0", flexible="0+"):
    """The segment that a leader epoch reads from `start_offset` up to `end_offset`, inclusive."""

    leader_epoch: int = int32()
    start_offset: int = int64()
    end_offset: int = int64()
    segment_id: UUID = uuid()


class UnreferencedRecord(Message, key=103, versions="0", flexible="0+"):
    """A segment of a leader epoch that is not read."""

    leader_epoch: int = int32()
    segment_id: UUID = uuid()


class KnownPartitionRecord(Message, key=104, versions="0", flexible="0+"):
    """A partition that has a header."""

    topic_id_partition: TopicIdPartitionRecord = struct(TopicIdPartitionRecord)

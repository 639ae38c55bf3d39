"""Metadata as bytes: Kafka's frame around one record.

    frame    uvarint frame version, 1 · uvarint record type · uvarint record version, 0
    record   a message of records.py in the flexible encoding

`rlmm.config.metadata.storage.serializer.class` names the class that is used; `KafkaSerde` is the
default.  What it stores of segments, updates and deletions is what Kafka stores in its topic.

Invariant
    remote.S1  `deserialize` uses all bytes, whoever wrote them, and returns a valid value, or
               raises `MalformedBytes`; memory is bounded by VALUE_SIZE_MAX

Not here: where values are stored (storage/).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeVar, runtime_checkable
from uuid import UUID

from quipu.model.errors import MalformedBytes
from quipu.remote.metadata import records
from quipu.remote.metadata.epoch_state import SegmentReference
from quipu.remote.metadata.errors import InvalidMetadata
from quipu.remote.metadata.segment_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
)
from quipu.remote.metadata.states import RemoteLogSegmentState, RemotePartitionDeleteState
from quipu.wire.primitives import read_uvarint, uvarint
from quipu.wire.schema import Message

VALUE_SIZE_MAX: Final = 1 << 20  # bytes of one value
FRAME_VERSION: Final = 1
RECORD_VERSION: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionHeader:
    """Who may write to a partition, and how far its deletion is."""

    partition: TopicIdPartition
    leader_epoch: int
    broker_id: int
    incarnation: UUID  # of this takeover: two by one broker in one epoch differ
    deletion: RemotePartitionDeleteMetadata | None = None


class EpochHeader(NamedTuple):
    """The highest offset ever copied in a leader epoch."""

    epoch: int
    highest: int


class EpochReference(NamedTuple):
    """A reference, with its leader epoch."""

    epoch: int
    reference: SegmentReference


class UnreferencedSegment(NamedTuple):
    """A segment of a leader epoch that is not read."""

    epoch: int
    segment: UUID


MetadataValue = (
    RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate | RemotePartitionDeleteMetadata
    | PartitionHeader | EpochHeader | EpochReference | UnreferencedSegment | TopicIdPartition)
V = TypeVar("V", bound=MetadataValue)


@runtime_checkable
class MetadataSerde(Protocol):
    """Turns values into bytes and back; a class of it is constructed without arguments."""

    def serialize(self, value: MetadataValue) -> bytes:
        """The bytes of a value; equal values have equal bytes."""
        ...

    def deserialize(self, data: bytes) -> MetadataValue:
        """The value of some bytes; raises `MalformedBytes` (remote.S1)."""
        ...


def read_value(serde: MetadataSerde, kind: type[V], key: str, data: bytes) -> V:
    """The value of type `kind` that is stored at `key`; raises `MalformedBytes`."""
    try:
        value = serde.deserialize(data)
    except MalformedBytes as error:
        raise MalformedBytes(f"stored value of {key!r}: {error}") from error
    if not isinstance(value, kind):
        raise MalformedBytes(f"stored value of {key!r} is a {type(value).__name__}, not a "
                             f"{kind.__name__}")
    return value


class KafkaSerde:
    """Kafka's frame and records, and records of our own in the same frame."""

    def serialize(self, value: MetadataValue) -> bytes:
        record = _WRITE[type(value)](value)
        framed = b"".join([uvarint(FRAME_VERSION), uvarint(record.KEY), uvarint(RECORD_VERSION),
                           *record.encode_chunks(RECORD_VERSION)])
        assert len(framed) <= VALUE_SIZE_MAX, len(framed)
        return framed

    def deserialize(self, data: bytes) -> MetadataValue:
        if len(data) > VALUE_SIZE_MAX:
            raise MalformedBytes(f"{len(data)} bytes; a value has at most {VALUE_SIZE_MAX}")
        try:
            frame, position = read_uvarint(data, 0)
            key, position = read_uvarint(data, position)
            version, position = read_uvarint(data, position)
        except IndexError as error:
            raise MalformedBytes(f"{len(data)} bytes are too few for a frame") from error
        if (frame, version) != (FRAME_VERSION, RECORD_VERSION) or key not in _READ:
            raise MalformedBytes(f"a frame of version {frame} with record {key} of version "
                                 f"{version}, which this version of Quipu cannot read")
        kind, read = _READ[key]
        record = kind.decode(data[position:], RECORD_VERSION)
        try:
            return read(record)
        except (InvalidMetadata, ValueError) as error:
            raise MalformedBytes(f"{kind.__name__}: {error}") from error


# -- Values and records, both directions side by side.


def _write_partition(value: TopicIdPartition) -> records.TopicIdPartitionRecord:
    return records.TopicIdPartitionRecord(
        name=value.topic, id=value.topic_id, partition=value.partition)


def _read_partition(record: records.TopicIdPartitionRecord) -> TopicIdPartition:
    return TopicIdPartition(record.id, record.partition, record.name)


def _write_id(value: RemoteLogSegmentId) -> records.SegmentIdRecord:
    return records.SegmentIdRecord(
        topic_id_partition=_write_partition(value.partition), id=value.id)


def _read_id(record: records.SegmentIdRecord) -> RemoteLogSegmentId:
    return RemoteLogSegmentId(_read_partition(record.topic_id_partition), record.id)


def _write_segment(value: RemoteLogSegmentMetadata) -> records.SegmentRecord:
    return records.SegmentRecord(
        remote_log_segment_id=_write_id(value.segment_id), start_offset=value.start_offset,
        end_offset=value.end_offset, broker_id=value.broker_id,
        max_timestamp_ms=value.max_timestamp_ms, event_timestamp_ms=value.event_timestamp_ms,
        segment_leader_epochs=[
            records.SegmentLeaderEpochRecord(leader_epoch=epoch, offset=offset)
            for epoch, offset in value.segment_leader_epochs.items()],
        segment_size_in_bytes=value.segment_size_bytes, custom_metadata=value.custom_metadata,
        remote_log_segment_state=value.state, txn_index_empty=value.txn_index_empty)


def _read_segment(record: records.SegmentRecord) -> RemoteLogSegmentMetadata:
    epochs = {each.leader_epoch: each.offset for each in record.segment_leader_epochs}
    if len(epochs) != len(record.segment_leader_epochs):
        raise InvalidMetadata("a leader epoch occurs twice")
    return RemoteLogSegmentMetadata(
        segment_id=_read_id(record.remote_log_segment_id), start_offset=record.start_offset,
        end_offset=record.end_offset, max_timestamp_ms=record.max_timestamp_ms,
        broker_id=record.broker_id, event_timestamp_ms=record.event_timestamp_ms,
        segment_size_bytes=record.segment_size_in_bytes, segment_leader_epochs=epochs,
        custom_metadata=record.custom_metadata,
        state=RemoteLogSegmentState(record.remote_log_segment_state),
        txn_index_empty=record.txn_index_empty)


def _write_update(value: RemoteLogSegmentMetadataUpdate) -> records.SegmentUpdateRecord:
    return records.SegmentUpdateRecord(
        remote_log_segment_id=_write_id(value.segment_id), broker_id=value.broker_id,
        event_timestamp_ms=value.event_timestamp_ms, custom_metadata=value.custom_metadata,
        remote_log_segment_state=value.state)


def _read_update(record: records.SegmentUpdateRecord) -> RemoteLogSegmentMetadataUpdate:
    return RemoteLogSegmentMetadataUpdate(
        segment_id=_read_id(record.remote_log_segment_id),
        event_timestamp_ms=record.event_timestamp_ms, broker_id=record.broker_id,
        custom_metadata=record.custom_metadata,
        state=RemoteLogSegmentState(record.remote_log_segment_state))


def _write_delete(value: RemotePartitionDeleteMetadata) -> records.PartitionDeleteRecord:
    return records.PartitionDeleteRecord(
        topic_id_partition=_write_partition(value.partition), broker_id=value.broker_id,
        event_timestamp_ms=value.event_timestamp_ms, remote_partition_delete_state=value.state)


def _read_delete(record: records.PartitionDeleteRecord) -> RemotePartitionDeleteMetadata:
    return RemotePartitionDeleteMetadata(
        partition=_read_partition(record.topic_id_partition), broker_id=record.broker_id,
        event_timestamp_ms=record.event_timestamp_ms,
        state=RemotePartitionDeleteState(record.remote_partition_delete_state))


def _write_header(value: PartitionHeader) -> records.PartitionHeaderRecord:
    record = records.PartitionHeaderRecord(
        topic_id_partition=_write_partition(value.partition), leader_epoch=value.leader_epoch,
        broker_id=value.broker_id, incarnation=value.incarnation)
    if value.deletion is not None:
        assert value.deletion.partition == value.partition, value
        record.remote_partition_delete_state = value.deletion.state
        record.delete_broker_id = value.deletion.broker_id
        record.delete_event_timestamp_ms = value.deletion.event_timestamp_ms
    return record


def _read_header(record: records.PartitionHeaderRecord) -> PartitionHeader:
    partition = _read_partition(record.topic_id_partition)
    _check_not_negative(record.leader_epoch)
    return PartitionHeader(
        partition=partition, leader_epoch=record.leader_epoch, broker_id=record.broker_id,
        incarnation=record.incarnation,
        deletion=None if record.remote_partition_delete_state == -1
        else RemotePartitionDeleteMetadata(
            partition=partition, broker_id=record.delete_broker_id,
            event_timestamp_ms=record.delete_event_timestamp_ms,
            state=RemotePartitionDeleteState(record.remote_partition_delete_state)))


def _write_epoch(value: EpochHeader) -> records.EpochHeaderRecord:
    return records.EpochHeaderRecord(leader_epoch=value.epoch, highest_offset=value.highest)


def _read_epoch(record: records.EpochHeaderRecord) -> EpochHeader:
    _check_not_negative(record.leader_epoch, record.highest_offset)
    return EpochHeader(record.leader_epoch, record.highest_offset)


def _write_reference(value: EpochReference) -> records.ReferenceRecord:
    return records.ReferenceRecord(
        leader_epoch=value.epoch, start_offset=value.reference.start,
        end_offset=value.reference.end, segment_id=value.reference.segment)


def _read_reference(record: records.ReferenceRecord) -> EpochReference:
    _check_not_negative(record.leader_epoch, record.start_offset,
                        record.end_offset - record.start_offset)
    return EpochReference(record.leader_epoch, SegmentReference(
        record.start_offset, record.end_offset, record.segment_id))


def _write_unreferenced(value: UnreferencedSegment) -> records.UnreferencedRecord:
    return records.UnreferencedRecord(leader_epoch=value.epoch, segment_id=value.segment)


def _read_unreferenced(record: records.UnreferencedRecord) -> UnreferencedSegment:
    _check_not_negative(record.leader_epoch)
    return UnreferencedSegment(record.leader_epoch, record.segment_id)


def _write_known(value: TopicIdPartition) -> records.KnownPartitionRecord:
    return records.KnownPartitionRecord(topic_id_partition=_write_partition(value))


def _read_known(record: records.KnownPartitionRecord) -> TopicIdPartition:
    return _read_partition(record.topic_id_partition)


def _check_not_negative(*numbers: int) -> None:
    if min(numbers) < 0:
        raise InvalidMetadata(f"a negative number among {numbers}")


_WRITE: Final[Mapping[type, Callable[[Any], Message]]] = {
    RemoteLogSegmentMetadata: _write_segment,
    RemoteLogSegmentMetadataUpdate: _write_update,
    RemotePartitionDeleteMetadata: _write_delete,
    PartitionHeader: _write_header,
    EpochHeader: _write_epoch,
    EpochReference: _write_reference,
    UnreferencedSegment: _write_unreferenced,
    TopicIdPartition: _write_known,
}
_READ: Final[Mapping[int, tuple[type[Message], Callable[[Any], MetadataValue]]]] = {
    0: (records.SegmentRecord, _read_segment),
    1: (records.SegmentUpdateRecord, _read_update),
    2: (records.PartitionDeleteRecord, _read_delete),
    100: (records.PartitionHeaderRecord, _read_header),
    101: (records.EpochHeaderRecord, _read_epoch),
    102: (records.ReferenceRecord, _read_reference),
    103: (records.UnreferencedRecord, _read_unreferenced),
    104: (records.KnownPartitionRecord, _read_known),
}
assert len(_READ) == len(_WRITE)
assert all(key == kind.KEY for key, (kind, _) in _READ.items())

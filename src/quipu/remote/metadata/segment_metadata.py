"""Values: a remote segment, an update of it, the deletion of a partition; Kafka's, with its checks.

Every value is checked when it is made, so its holders need no checks.  Offsets are inclusive at
both ends, as in Kafka's interface.

Invariants
    remote.M2  0 <= start_offset <= end_offset; a segment has at least one leader epoch, and the
               offsets of its leader epochs do not descend
    remote.M3  an update changes state, broker, time and custom metadata, and nothing else

Not here: which change may follow which (states.py), bytes (serde.py).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from quipu.model.topics import NAME_LENGTH_MAX
from quipu.remote.metadata.errors import InvalidMetadata
from quipu.remote.metadata.states import (
    COPY_STARTED,
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
)

INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1
CUSTOM_METADATA_SIZE_MAX: Final = 64 << 10  # bytes; what a storage manager may store is far less
SEGMENT_EPOCHS_MAX: Final = 10_000  # leader epochs of one segment: each costs a few keys


@dataclass(frozen=True, slots=True, order=True)
class TopicIdPartition:
    """A partition of a topic, which is known by its id; the name is for people."""

    topic_id: UUID
    partition: int
    topic: str = field(compare=False)

    def __post_init__(self) -> None:
        _check(self.topic, "partition", self.partition, 0, INT32_MAX)
        if not 0 < len(self.topic) <= NAME_LENGTH_MAX:
            raise InvalidMetadata(f"a topic name has 1 to {NAME_LENGTH_MAX} characters, not "
                                  f"{len(self.topic)}")

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} ({self.topic_id})"


@dataclass(frozen=True, slots=True, order=True)
class RemoteLogSegmentId:
    """One copy of a segment: every attempt to copy it has an id of its own."""

    partition: TopicIdPartition
    id: UUID

    def __str__(self) -> str:
        return f"segment {self.id} of {self.partition}"


class EpochRange(NamedTuple):
    """The offsets of one leader epoch in a segment; both ends are inclusive."""

    epoch: int
    start: int
    end: int  # start - 1 if the segment has no record of the epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLogSegmentMetadata:
    """A segment in remote storage, or on its way there, or on its way out."""

    segment_id: RemoteLogSegmentId
    start_offset: int
    end_offset: int  # of the last record
    max_timestamp_ms: int  # the largest of its records; -1: none
    broker_id: int  # that wrote this
    event_timestamp_ms: int  # when this was written
    segment_size_bytes: int
    segment_leader_epochs: Mapping[int, int] = field(hash=False)  # epoch: its first offset
    custom_metadata: bytes | None = None  # of the remote storage
    state: RemoteLogSegmentState = COPY_STARTED
    txn_index_empty: bool = False

    def __post_init__(self) -> None:
        of = self.segment_id
        _check(of, "start_offset", self.start_offset, 0, INT64_MAX)  # remote.M2
        _check(of, "end_offset", self.end_offset, self.start_offset, INT64_MAX)  # remote.M2
        _check(of, "max_timestamp_ms", self.max_timestamp_ms, -1, INT64_MAX)
        _check(of, "segment_size_bytes", self.segment_size_bytes, 0, INT32_MAX)
        _check_event(of, self.broker_id, self.event_timestamp_ms, self.custom_metadata)
        _check(of, "number of leader epochs", len(self.segment_leader_epochs), 1,
               SEGMENT_EPOCHS_MAX)
        previous = 0
        epochs = dict(sorted(self.segment_leader_epochs.items()))
        for epoch, offset in epochs.items():
            _check(of, "leader epoch", epoch, 0, INT32_MAX)
            _check(of, "offset of a leader epoch", offset, previous, INT64_MAX)  # remote.M2
            previous = offset
        object.__setattr__(self, "segment_leader_epochs", MappingProxyType(epochs))

    def with_update(self, update: "RemoteLogSegmentMetadataUpdate") -> "RemoteLogSegmentMetadata":
        """This segment after `update`; an update without custom metadata removes it."""
        if update.segment_id != self.segment_id:
            raise InvalidMetadata(f"an update of {update.segment_id} is none of {self.segment_id}")
        return replace(  # remote.M3
            self, state=update.state, broker_id=update.broker_id,
            event_timestamp_ms=update.event_timestamp_ms, custom_metadata=update.custom_metadata)

    @property
    def order(self) -> tuple[int, UUID]:
        """By what segments are listed: the start offset; the id if several have the same."""
        return self.start_offset, self.segment_id.id

    def is_same_segment(self, other: "RemoteLogSegmentMetadata") -> bool:
        """Whether `other` differs at most in what an update changes (remote.M3)."""
        return self == replace(
            other, state=self.state, broker_id=self.broker_id,
            event_timestamp_ms=self.event_timestamp_ms, custom_metadata=self.custom_metadata)

    def epoch_ranges(self) -> Iterator[EpochRange]:
        """The offsets of each leader epoch: up to the next epoch, or the end of the segment."""
        epochs = list(self.segment_leader_epochs.items())
        for index, (epoch, start) in enumerate(epochs):
            end = epochs[index + 1][1] - 1 if index + 1 < len(epochs) else self.end_offset
            yield EpochRange(epoch, start, max(start - 1, end))


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLogSegmentMetadataUpdate:
    """A change of a segment's state."""

    segment_id: RemoteLogSegmentId
    event_timestamp_ms: int
    state: RemoteLogSegmentState
    broker_id: int
    custom_metadata: bytes | None = None

    def __post_init__(self) -> None:
        _check_event(self.segment_id, self.broker_id, self.event_timestamp_ms,
                     self.custom_metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotePartitionDeleteMetadata:
    """How far the deletion of a partition's remote segments is."""

    partition: TopicIdPartition
    state: RemotePartitionDeleteState
    event_timestamp_ms: int
    broker_id: int

    def __post_init__(self) -> None:
        _check_event(self.partition, self.broker_id, self.event_timestamp_ms, None)


def _check_event(of: object, broker_id: int, timestamp_ms: int, custom: bytes | None) -> None:
    _check(of, "broker_id", broker_id, -1, INT32_MAX)
    _check(of, "event_timestamp_ms", timestamp_ms, -1, INT64_MAX)
    _check(of, "number of bytes of custom metadata", len(custom or b""), 0,
           CUSTOM_METADATA_SIZE_MAX)


def _check(of: object, name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InvalidMetadata(f"{of}: {name} is {value}; it must be from {least} to {most}")

"""What writers, readers and the control plane of diskless topics talk about.

Not here: the bytes of an object (objects/), the operations (control_plane/interface.py).
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from quipu.model.ids import NodeId, Offset, ProducerId, TimestampMs

LEADER_EPOCH: Final = 0  # of every batch of a log that was never on disks: no node leads it
NO_PRODUCER: Final = ProducerId(-1)
NO_SEQUENCE: Final = -1


# The leader epochs of a log, and where each begins; the last one is that of its objects.
Lineage = tuple[tuple[int, Offset], ...]
BORN_DISKLESS: Final[Lineage] = ((LEADER_EPOCH, Offset(0)),)


class LogKey(NamedTuple):
    """A partition of a diskless topic; topics are known by id, as names are reused."""

    topic_id: UUID
    partition: int

    def __str__(self) -> str:
        return f"{self.topic_id}-{self.partition}"


NO_EPOCHS: Final[Mapping[LogKey, int]] = MappingProxyType({})  # leader epochs of no log


class BatchCoordinates(NamedTuple):
    """A batch in an object that is about to be committed: where it is, and what is in it."""

    log: LogKey
    position: int  # of its first byte, from the beginning of the object
    size: int  # bytes
    record_count: int  # offsets that it takes: its last offset delta + 1
    max_timestamp: TimestampMs
    producer_id: ProducerId = NO_PRODUCER
    producer_epoch: int = -1
    base_sequence: int = NO_SEQUENCE

    @property
    def last_sequence(self) -> int:
        """The sequence number of its last record; after 2^31 - 1 comes 0, as in Kafka."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.record_count - 1) & 0x7FFFFFFF


class NewObject(NamedTuple):
    """An object that was stored, and whose batches are to be given offsets."""

    key: str  # in the object store; never used for another object
    uploader: NodeId
    size: int  # bytes, with the footer
    batches: Sequence[BatchCoordinates]  # in the order in which each log gets them


class BatchRun(NamedTuple):
    """Batches of one log that follow each other in one object, both in bytes and in offsets.

    Readers find the single batches by walking the headers from `position` on.
    """

    log: LogKey
    base_offset: Offset
    end_offset: Offset  # of the record after its last one
    key: str  # of the object
    position: int
    size: int
    batch_count: int
    max_timestamp: TimestampMs  # of its records


class LogBounds(NamedTuple):
    """What the control plane knows of a log at one moment."""

    log_start_offset: Offset  # records below it are gone, from all tiers
    diskless_start_offset: Offset  # records below it are in the remote tier alone
    high_watermark: Offset  # the offset of the next record
    size: int  # bytes of the batches from diskless_start_offset on

"""The cluster's own records in a partition's log, such as a coordinator's."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from quipu.model.batch_types import BatchType
from quipu.model.ids import LogOffset
from quipu.model.partition_log import InternalBatch
from quipu.storage.state_log import internal_batches
from quipu.wire.record_batch import Record

if TYPE_CHECKING:  # it makes these
    from quipu.broker.partitions.replicated_partition import ReplicatedPartition


class PartitionInternalRecords:
    """See `quipu.model.partition_log.InternalRecords`."""

    __slots__ = ("_partition",)

    def __init__(self, partition: "ReplicatedPartition") -> None:
        self._partition = partition

    @property
    def first_log_offset(self) -> LogOffset:
        return self._partition.log.first_log

    @property
    def segment_count(self) -> int:
        return len(self._partition.log.segments)

    def append(
        self, batch_type: BatchType, records: Sequence[tuple[bytes | None, bytes | None]],
        now_ms: int,
    ) -> None:
        """Append keys and values as one batch; raise if this node may not append now."""
        partition = self._partition
        partition.admit_internal()
        partition.log.append_records(
            batch_type, [Record(key, value, (), now_ms) for key, value in records],
            epoch=partition.leader_epoch, now_ms=now_ms)
        partition.appended_internal()

    def roll(self, now_ms: int) -> None:
        """Begin a segment, here and on every other replica."""
        partition = self._partition
        partition.admit_internal()
        partition.log.roll(now_ms)
        partition.appended_internal()

    def read(self, start: LogOffset) -> Iterator[InternalBatch]:
        """Every batch, of any type, from the one that holds `start` on."""
        return internal_batches(self._partition.log, start)

    def drop_before(self, log_offset: LogOffset) -> int:
        """Remove complete segments below `log_offset`; returns how many."""
        return self._partition.log.drop_segments_before(log_offset)

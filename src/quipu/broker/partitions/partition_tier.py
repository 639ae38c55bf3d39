"""A partition's side of tiered storage: segments to copy, and what is recorded of the copies."""

from typing import TYPE_CHECKING

from quipu.model.ids import Epoch, LogOffset, Offset
from quipu.model.partition_log import NOTHING_TIERED
from quipu.model.tiered_log import SegmentSource, TierableSegment

if TYPE_CHECKING:  # it makes these
    from quipu.broker.partitions.replicated_partition import ReplicatedPartition


class PartitionTier:
    """See `quipu.model.tiered_log.TieredLog`."""

    __slots__ = ("_partition",)

    def __init__(self, partition: "ReplicatedPartition") -> None:
        self._partition = partition

    @property
    def is_enabled(self) -> bool:
        return self._partition.log.config.is_tiered

    @property
    def has_copies(self) -> bool:
        log = self._partition.log  # what one that has failed says of the tier cannot be read
        return log.failure is None and log.tiered.offset != NOTHING_TIERED

    @property
    def is_copied(self) -> bool:
        config = self._partition.log.config
        return config.is_tiered and config.is_copied

    @property
    def is_sealed(self) -> bool:
        return self._partition.is_sealed

    @property
    def retention_ms(self) -> int:
        return self._partition.log.config.retention_ms

    @property
    def retention_bytes(self) -> int:
        return self._partition.log.config.retention_bytes

    def segments(self, count_max: int = 100) -> list[TierableSegment]:
        """The next segments to copy, oldest first."""
        partition = self._partition
        if not self.is_copied:
            return []
        return partition.log.tierable_segments(partition.last_stable_offset, count_max)

    def open(self, segment: TierableSegment) -> SegmentSource:
        """The bytes of one of `segments`."""
        return self._partition.log.open_segment(segment)

    async def note_tiered(
        self, last_offset: Offset, now_ms: int, *, timeout_ms: int | None = None
    ) -> None:
        """Record that the tier has everything up to `last_offset`; return when committed."""
        partition = self._partition
        self._admit()
        await self._committed(partition.log.note_tiered(
            last_offset, now_ms, stable_end=partition.last_stable_offset), timeout_ms)

    async def forget_tier(self, now_ms: int, *, timeout_ms: int | None = None) -> None:
        """Record that the tier has nothing; return when committed."""
        self._admit()
        await self._committed(self._partition.log.forget_tier(now_ms), timeout_ms)

    def _admit(self) -> None:
        self._partition.check_leader()
        self._partition.admit_internal()

    async def _committed(self, log_end: LogOffset, timeout_ms: int | None) -> None:
        self._partition.appended_internal()
        await self._partition.committed(log_end, timeout_ms=timeout_ms)

    @property
    def only_local_bytes(self) -> int:
        log = self._partition.log
        segments, tiered_end = log.segments, log.tiered.end_offset
        return sum(segment.size for segment in segments
                   if segment is segments[-1] or segment.end_offset > tiered_end)

    def epochs(self) -> list[tuple[Epoch, Offset]]:
        """The leader epochs that have records, and where each begins."""
        entries = self._partition.log.epochs.entries()
        starts = {entry.offset: entry.epoch for entry in entries}  # of those that share a start,
        return [(epoch, start) for start, epoch in starts.items()]  # only the last has records

    def epoch_for_offset(self, offset: Offset) -> Epoch:
        """The leader epoch of the record at `offset`; -1 if it is not known."""
        return self._partition.log.epochs.at(offset)

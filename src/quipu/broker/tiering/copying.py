"""Copies one segment of a partition to the tier.

    COPY_SEGMENT_STARTED in the metadata -> the bytes -> COPY_SEGMENT_FINISHED -> TIERED in the log

Invariants
    broker.tiering.C1  a segment is local until its metadata says that the copy is finished, and the
                       log says so too: whatever fails before, nothing is lost, and the copy is
                       begun again under a new id
    broker.tiering.C2  a copy that failed is deleted, now or by a later leader: its metadata says
                       that it was begun
"""

from typing import Final

from quipu.broker.observing.stats import Stats
from quipu.broker.tiering.deleting import SegmentDeleter
from quipu.model.errors import QuipuError
from quipu.model.ids import Offset
from quipu.model.partition_log import PartitionLog
from quipu.model.tiered_log import SegmentSource, TierableSegment
from quipu.remote.metadata.interface import RemoteLogMetadataManager
from quipu.remote.metadata.segment_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    TopicIdPartition,
)
from quipu.remote.metadata.states import COPY_FINISHED
from quipu.remote.segments.footer import SegmentEpoch
from quipu.remote.segments.names import SegmentName
from quipu.remote.segments.remote_storage import RemoteStorage
from quipu.remote.segments.writer import SegmentToCopy
from quipu.runtime.clock import Clock
from quipu.runtime.rng import Rng

NOTE_TIMEOUT_MS: Final = 30_000  # for the log to commit that a segment is in the tier


class CopyRefused(QuipuError):
    """The storage returned more custom metadata than is allowed."""


class SegmentCopier:
    """Copies segments of the partitions that this node leads."""

    def __init__(
        self, metadata: RemoteLogMetadataManager, storage: RemoteStorage,
        deleter: SegmentDeleter, *, clock: Clock, rng: Rng, broker_id: int,
        custom_metadata_max: int, stats: Stats,
    ) -> None:
        self._metadata = metadata
        self._storage = storage
        self._deleter = deleter
        self._clock = clock
        self._rng = rng
        self._broker_id = broker_id
        self._custom_metadata_max = custom_metadata_max
        self._stats = stats

    def begin(self, partition: TopicIdPartition, segment: TierableSegment
              ) -> RemoteLogSegmentMetadata:
        """The metadata of a new copy of `segment`."""
        assert segment.base_offset < segment.end_offset, segment
        return RemoteLogSegmentMetadata(
            segment_id=RemoteLogSegmentId(partition, self._rng.uuid()),
            start_offset=segment.base_offset, end_offset=segment.end_offset - 1,
            max_timestamp_ms=max(-1, segment.max_timestamp), broker_id=self._broker_id,
            event_timestamp_ms=self._clock.now_ms(), segment_size_bytes=segment.size,
            segment_leader_epochs={epoch: start for epoch, start, _ in segment.leader_epochs},
            txn_index_empty=True)

    async def copy(
        self, log: PartitionLog, segment: TierableSegment, copy: RemoteLogSegmentMetadata
    ) -> RemoteLogSegmentMetadata:
        """Copy `segment`; return its metadata when the log has committed that the tier has it."""
        self._stats.remote.copy_requests += 1
        try:
            return await self._copy(log, segment, copy)
        except QuipuError:
            self._stats.remote.copy_errors += 1
            raise

    async def _copy(
        self, log: PartitionLog, segment: TierableSegment, copy: RemoteLogSegmentMetadata
    ) -> RemoteLogSegmentMetadata:
        source = log.tier.open(segment)
        try:
            await self._metadata.add_remote_log_segment_metadata(copy)
            try:
                custom = await self._storage.copy_log_segment_data(
                    _to_copy(copy, segment, source, log.topic_partition.topic))
                if len(custom) > self._custom_metadata_max:
                    raise CopyRefused(
                        f"{copy.segment_id}: the storage returned {len(custom)} bytes of custom "
                        "metadata; allowed are remote.log.metadata.custom.metadata.max.bytes = "
                        f"{self._custom_metadata_max}")
            except QuipuError:
                await self._deleter.abandon(copy)  # broker.tiering.C2
                raise
        finally:
            source.release()
        update = RemoteLogSegmentMetadataUpdate(
            segment_id=copy.segment_id, event_timestamp_ms=self._clock.now_ms(),
            state=COPY_FINISHED, broker_id=self._broker_id, custom_metadata=custom)
        await self._metadata.update_remote_log_segment_metadata(update)
        self._stats.remote.copy_bytes += segment.size
        await self.note(log, Offset(copy.end_offset))
        return copy.with_update(update)

    async def note(self, log: PartitionLog, last_offset: Offset) -> None:
        """Record in the log that the tier has everything up to `last_offset`."""
        await log.tier.note_tiered(  # broker.tiering.C1
            last_offset, self._clock.now_ms(), timeout_ms=NOTE_TIMEOUT_MS)


def _to_copy(
    copy: RemoteLogSegmentMetadata, segment: TierableSegment, source: SegmentSource, topic: str
) -> SegmentToCopy:
    partition = copy.segment_id.partition
    return SegmentToCopy(
        name=SegmentName(partition.topic_id, partition.partition, copy.start_offset,
                         copy.segment_id.id),
        topic=topic, data=source.data, size=segment.size, end_offset=segment.end_offset,
        log_start=segment.base_log, log_end=segment.log_end,
        max_timestamp=segment.max_timestamp,
        epochs=tuple(SegmentEpoch(*each) for each in segment.leader_epochs),
        producer_snapshot=source.producers)

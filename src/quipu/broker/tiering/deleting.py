"""Deletes remote segments.

    DELETE_SEGMENT_STARTED in the metadata -> the bytes -> DELETE_SEGMENT_FINISHED

Invariants
    broker.tiering.D1  bytes are deleted only after the metadata says so: from then on no read is
                       sent to them
    broker.tiering.D2  a deletion that fails is repeated, by this leader or the next one: the
                       metadata keeps the segment until its bytes are gone
    broker.tiering.D3  the deletion of a partition goes on from wherever it was interrupted
"""

import logging
from collections.abc import Iterable
from contextlib import suppress

from quipu.broker.observing.stats import Stats
from quipu.model.errors import QuipuError
from quipu.remote.metadata.errors import InvalidTransition, RemoteResourceNotFound
from quipu.remote.metadata.interface import RemoteLogMetadataManager
from quipu.remote.metadata.segment_metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
)
from quipu.remote.metadata.states import (
    DELETE_FINISHED,
    DELETE_STARTED,
    PARTITION_FINISHED,
    PARTITION_MARKED,
    PARTITION_STARTED,
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
)
from quipu.remote.segments.names import SegmentName
from quipu.remote.segments.remote_storage import RemoteSegment, RemoteStorage
from quipu.runtime.clock import Clock

_log = logging.getLogger(__name__)


class SegmentDeleter:
    """Deletes segments of the partitions that this node leads."""

    def __init__(
        self, metadata: RemoteLogMetadataManager, storage: RemoteStorage, *, clock: Clock,
        broker_id: int, stats: Stats,
    ) -> None:
        self._metadata = metadata
        self._storage = storage
        self._clock = clock
        self._broker_id = broker_id
        self._stats = stats

    async def delete(self, segment: RemoteLogSegmentMetadata) -> None:
        """Delete a segment; return when nothing is left of it."""
        self._stats.remote.delete_requests += 1
        if segment.state is not DELETE_STARTED:
            await self._update(segment, DELETE_STARTED)  # broker.tiering.D1
        await self._storage.delete_log_segment_data(remote_segment(segment))
        await self._update(segment, DELETE_FINISHED)  # broker.tiering.D2

    async def delete_all(self, segments: Iterable[RemoteLogSegmentMetadata]) -> None:
        """Delete segments; the error of one does not keep the others."""
        failed: QuipuError | None = None
        for segment in segments:
            try:
                await self.delete(segment)
            except QuipuError as error:
                self._stats.remote.delete_errors += 1
                failed = error
        if failed is not None:
            raise failed

    async def abandon(self, copy: RemoteLogSegmentMetadata) -> None:
        """Delete a copy that failed; if that fails too, retention does it later."""
        try:
            await self.delete(copy)
        except QuipuError as error:
            _log.warning("%s: the copy failed, and is deleted later: %s", copy.segment_id, error)

    async def delete_partition(self, partition: TopicIdPartition) -> None:
        """Delete everything that the tier has of a partition, which this node leads."""
        with suppress(RemoteResourceNotFound):  # it was finished already
            with suppress(InvalidTransition):  # it was begun already (broker.tiering.D3)
                await self._put(partition, PARTITION_MARKED)
            await self._put(partition, PARTITION_STARTED)
            await self.delete_all(await self._metadata.list_remote_log_segments(partition))
            await self._put(partition, PARTITION_FINISHED)

    async def _put(self, partition: TopicIdPartition, state: RemotePartitionDeleteState) -> None:
        await self._metadata.put_remote_partition_delete_metadata(RemotePartitionDeleteMetadata(
            partition=partition, state=state, event_timestamp_ms=self._clock.now_ms(),
            broker_id=self._broker_id))

    async def _update(
        self, segment: RemoteLogSegmentMetadata, state: RemoteLogSegmentState
    ) -> None:
        try:
            await self._metadata.update_remote_log_segment_metadata(
                RemoteLogSegmentMetadataUpdate(
                    segment_id=segment.segment_id, event_timestamp_ms=self._clock.now_ms(),
                    state=state, broker_id=self._broker_id,
                    custom_metadata=segment.custom_metadata))
        except RemoteResourceNotFound:
            if state is not DELETE_FINISHED:
                raise


def remote_segment(segment: RemoteLogSegmentMetadata) -> RemoteSegment:
    """A segment as the storage knows it."""
    partition = segment.segment_id.partition
    return RemoteSegment(
        SegmentName(partition.topic_id, partition.partition, segment.start_offset,
                    segment.segment_id.id), segment.custom_metadata or b"")

"""Finds remote segments of a log: those that hold some offsets, or all of them in any state.

Invariants
    broker.tiering.U1  the segments found for offsets are of the log's own history, and finished;
                       each holds the offset after the last one of the segment before it, so that a
                       client reads every offset once
    broker.tiering.U2  the URL that clients get names no file of this node's credentials

Not here: reads for fetches, which this node carries out itself (remote_reads.py); the request
(handlers/k10003_describe_remote_segments.py).
"""

from collections.abc import Sequence
from functools import partial
from heapq import nsmallest
from typing import Final, NamedTuple
from uuid import UUID

from quipu.broker.tiering.expiry import LogHistory
from quipu.broker.tiering.roles import MetadataRoles, partition_of
from quipu.model.ids import Offset
from quipu.model.partition_log import PartitionLog, RunLong
from quipu.remote.metadata.interface import RemoteLogMetadataManager
from quipu.remote.metadata.segment_metadata import RemoteLogSegmentMetadata
from quipu.remote.metadata.states import COPY_FINISHED
from quipu.runtime.objects.urls import MEMORY, parse_store_url, public_url

SEGMENTS_HERE_MAX: Final = 1000  # that are put in order without a thread

SegmentOrder = tuple[int, UUID]  # start offset and id


class SegmentPage(NamedTuple):
    """Some segments of a partition, in order; the totals are those of all, if all are listed."""

    segments: Sequence[RemoteLogSegmentMetadata]
    is_complete: bool  # no segments follow
    segment_count: int = 0
    copied_bytes: int = 0


class TierLookup:
    """Finds segments, and says where their objects are."""

    def __init__(
        self, metadata: RemoteLogMetadataManager, roles: MetadataRoles, store_url: str | None,
        run: RunLong,
    ) -> None:
        """`store_url` is None if the objects are not Quipu's; `run` runs work in a thread."""
        self._metadata = metadata
        self._roles = roles
        self._run = run
        self.store_url = (  # broker.tiering.U2; None: no other process can read the objects
            None if store_url is None or parse_store_url(store_url).scheme == MEMORY
            else public_url(store_url))

    async def find(
        self, log: PartitionLog, start: Offset, end: Offset, limit: int
    ) -> SegmentPage:
        """The segments that hold offsets from `start` on, below `end`; at most `limit`.

        They end at the first offset that no segment holds, which only the log itself can say more
        about.
        """
        partition = partition_of(log)
        await self._roles.follow(partition)
        history = LogHistory(log.tier.epochs(), log.log_end_offset)
        found: list[RemoteLogSegmentMetadata] = []
        while start < end and len(found) < limit:
            epoch = log.tier.epoch_for_offset(start)
            segment = None if epoch < 0 else (
                await self._metadata.remote_log_segment_metadata(partition, epoch, start))
            if (segment is None or segment.state is not COPY_FINISHED
                    or segment.custom_metadata is None
                    or not segment.start_offset <= start <= segment.end_offset
                    or not history.has(segment)):
                return SegmentPage(found, is_complete=True)  # broker.tiering.U1
            found.append(segment)
            start = Offset(segment.end_offset + 1)
        return SegmentPage(found, start >= end)

    async def page(self, log: PartitionLog, after: SegmentOrder, limit: int) -> SegmentPage:
        """The first `limit` segments after `after`, in any state, and the totals of all."""
        partition = partition_of(log)
        await self._roles.follow(partition)  # unless this node leads it there too
        segments = await self._metadata.list_remote_log_segments(partition)
        if len(segments) <= SEGMENTS_HERE_MAX:
            return page_of(segments, after, limit)
        return await self._run(partial(page_of, segments, after, limit))


def page_of(
    segments: Sequence[RemoteLogSegmentMetadata], after: SegmentOrder, limit: int
) -> SegmentPage:
    """The first `limit` of `segments` after `after`, in order; the list itself has none."""
    assert limit >= 0, limit
    left = [segment for segment in segments if segment.order > after]
    return SegmentPage(
        nsmallest(limit, left, key=lambda segment: segment.order), len(left) <= limit,
        len(segments),
        sum(each.segment_size_bytes for each in segments if each.state is COPY_FINISHED))

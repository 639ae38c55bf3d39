"""Planted bugs of tiered storage: each breaks one rule, and is found by a world of few seeds.

Used by the world of this room (world.py) and by that of whole nodes (tests/sim).
"""

from collections.abc import Callable, Sequence

import pytest

from quipu.broker.tiering import led_partition, orphan_sweep
from quipu.broker.tiering.copying import SegmentCopier
from quipu.broker.tiering.deleting import SegmentDeleter, remote_segment
from quipu.broker.tiering.led_partition import LedPartition
from quipu.model.ids import Offset
from quipu.model.partition_log import PartitionLog
from quipu.model.tiered_log import TierableSegment
from quipu.remote.metadata.changes import change_operations
from quipu.remote.metadata.leading import LeaderPartition
from quipu.remote.metadata.partition_cache import SegmentChange
from quipu.remote.metadata.segment_metadata import RemoteLogSegmentMetadata
from quipu.remote.metadata.states import DELETE_FINISHED, DELETE_STARTED
from quipu.remote.metadata.storage.backend import Operation
from quipu.remote.segments import orphans

Patch = Callable[[pytest.MonkeyPatch], None]


def fencing_off(patch: pytest.MonkeyPatch) -> None:
    """remote.W3: a leader writes without the header that it expects."""

    async def execute(self: LeaderPartition, operations: Sequence[Operation]) -> None:
        await self._guarded(self._storage.backend.execute(operations))

    patch.setattr(LeaderPartition, "_execute", execute)


def cache_before_durable(patch: pytest.MonkeyPatch) -> None:
    """remote.W1: the cache changes before the change is stored."""

    async def store(self: LeaderPartition, change: SegmentChange) -> None:
        operations = change_operations(self._storage, self._cache, change)
        self._cache.apply(change)
        await self._execute(operations)

    patch.setattr(LeaderPartition, "_store", store)


def bytes_before_metadata(patch: pytest.MonkeyPatch) -> None:
    """broker.tiering.D1: bytes are deleted while the metadata still refers to them."""

    async def delete(self: SegmentDeleter, segment: RemoteLogSegmentMetadata) -> None:
        await self._storage.delete_log_segment_data(remote_segment(segment))
        if segment.state is not DELETE_STARTED:
            await self._update(segment, DELETE_STARTED)
        await self._update(segment, DELETE_FINISHED)

    patch.setattr(SegmentDeleter, "delete", delete)


def tiered_before_finished(patch: pytest.MonkeyPatch) -> None:
    """broker.tiering.C1: the log says that the tier has a segment before it is finished."""
    really = SegmentCopier._copy

    async def copy(
        self: SegmentCopier, log: PartitionLog, segment: TierableSegment,
        started: RemoteLogSegmentMetadata,
    ) -> None:
        await self.note(log, Offset(started.end_offset))
        await really(self, log, segment, started)

    patch.setattr(SegmentCopier, "_copy", copy)


def earlier_copies_ignored(patch: pytest.MonkeyPatch) -> None:
    """broker.tiering.P1: a leader does not learn what an earlier one has finished."""

    async def catch_up(self: LedPartition) -> None:
        self._is_caught_up = True

    patch.setattr(LedPartition, "_catch_up", catch_up)


def gaps_ignored(patch: pytest.MonkeyPatch) -> None:
    """broker.tiering.P4: whatever was begun to be copied is taken for copied."""
    patch.setattr(led_partition, "covered_end", lambda segments, _lineage, start, _end: max(
        [start, *(each.end_offset + 1 for each in segments)]))


def orphans_without_grace(patch: pytest.MonkeyPatch) -> None:
    """remote.segments.O1: objects are taken for orphans whatever the metadata says."""

    def find(objects: object, known: object, *, now_ms: int, grace_ms: int) -> object:
        del known
        return orphans.find_orphans(  # type: ignore[arg-type]
            objects, frozenset(), now_ms=now_ms, grace_ms=grace_ms)

    patch.setattr(orphan_sweep, "find_orphans", find)


def segments_before_log_start(patch: pytest.MonkeyPatch) -> None:
    """broker.tiering.P2: retention deletes segments without moving the log start."""

    async def stays(self: LedPartition, start: Offset) -> None:
        del self, start

    patch.setattr(LedPartition, "_move_log_start", stays)


def no_orphans_collected(patch: pytest.MonkeyPatch) -> None:
    """R15: nobody looks for orphans."""
    patch.setattr(orphan_sweep, "find_orphans", lambda *_, **__: [])

"""Looks for objects of the tier that no metadata refers to, and deletes them.

An object gets lost if a copy is cut off: its leader deletes the copy, metadata first, while the
store still carries out the write.  The leader of a partition lists its objects, then its metadata;
what is in no metadata for `remote.log.orphan.grace.ms` is an orphan.  Of topics that do not exist,
the controller's node deletes everything: objects and metadata.

A store may only be used by one cluster: every node leaves the id of its cluster in the store, and
nobody deletes topics that it does not know if there is another one's.

Invariants
    broker.tiering.O1  objects are listed first, then metadata, then the lease is checked: so an
                       object of a later leader is not in the list, and one of an earlier leader is
                       in the metadata, or was refused there
    broker.tiering.O2  an object whose copy is under way here is no orphan, whatever its age
    broker.tiering.O4  of a partition whose metadata lacks records that only the tier has, nothing
                       is an orphan: the metadata was lost or restored, and the objects are needed

Not here: what an orphan is (remote/segments/orphans.py), and which topics are deleted
(deleted_partitions.py, broker.tiering.O3).
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final
from uuid import UUID

from quipu.broker.observing.stats import Stats
from quipu.broker.tiering.deleted_partitions import DeletedPartitions, SweepView
from quipu.broker.tiering.expiry import covered_end
from quipu.broker.tiering.led_partition import LedPartition, TierServices
from quipu.model.errors import Code, ErrorKind, QuipuError
from quipu.model.partition_log import PartitionLog
from quipu.remote.metadata.segment_metadata import RemoteLogSegmentMetadata
from quipu.remote.segments.names import find_name, partition_prefix
from quipu.remote.segments.orphans import OrphanObject, find_orphans
from quipu.runtime.clock import Clock
from quipu.runtime.objects.store import ObjectInfo, ObjectStore

SWEEPS_PER_GRACE: Final = 4
INTERVAL_SECONDS_MAX: Final = 6 * 3600.0
PAGE_PAUSE_SECONDS: Final = 0.02  # between two requests to the store
MARKS_PREFIX: Final = "clusters/"
LAST_PARTITION: Final = "9999999999"  # sorts after every partition of a topic

_log = logging.getLogger(__name__)


class MetadataLacking(QuipuError):
    """The metadata of remote segments has less than the log was told that the tier has."""

    kind = ErrorKind.CORRUPT
    code = Code.KAFKA_STORAGE_ERROR


def check_metadata(log: PartitionLog, segments: Sequence[RemoteLogSegmentMetadata]) -> None:
    """Raise `MetadataLacking` unless finished segments have all records that only the tier has."""
    start, local_start = log.log_start_offset, log.local_start_offset
    found = covered_end(segments, log.tier.epochs(), start, log.log_end_offset)
    if found < local_start:
        raise MetadataLacking(
            f"{log.topic_partition}: no metadata has offset {found}, which only the remote tier "
            f"has (up to {local_start - 1}); restore the metadata's storage: no object of this "
            "partition is deleted as an orphan until then")


class OrphanSweeper:
    """Deletes orphans of one node's partitions, and of deleted topics."""

    def __init__(
        self, store: ObjectStore, services: TierServices, view: SweepView,
        deleted: DeletedPartitions, *, clock: Clock, stats: Stats, grace_ms: int,
    ) -> None:
        self._store = store
        self._services = services
        self._view = view
        self._deleted = deleted
        self._clock = clock
        self._stats = stats
        self._grace_ms = grace_ms
        self._is_marked = False

    @property
    def interval_seconds(self) -> float:
        """How often to look for orphans."""
        return min(self._grace_ms / 1000 / SWEEPS_PER_GRACE, INTERVAL_SECONDS_MAX)

    async def sweep_partition(self, led: LedPartition) -> None:
        """Delete the orphans of a partition that this node leads."""
        await self._services.roles.opened.wait()
        await self._mark()
        if not led.log.tier.is_enabled:
            await self._find_leftovers(led)
            return
        topic_id, number = led.partition.topic_id, led.partition.partition
        async for page in self._pages(partition_prefix(topic_id, number)):
            old = self._older(page, frozenset(led.being_copied), self._grace_ms)
            if not old:
                continue
            await self._services.roles.lead(led.partition, led.epoch)
            segments = await self._services.metadata.list_remote_log_segments(led.partition)
            check_metadata(led.log, segments)  # broker.tiering.O4
            known = {segment.segment_id.id for segment in segments} | led.being_copied
            led.log.check_leader()  # broker.tiering.O1
            await self._delete(self._older(page, known, self._grace_ms))  # broker.tiering.O2

    async def _find_leftovers(self, led: LedPartition) -> None:
        """Find out, once, what a partition without a tier has left there; a step deletes it."""
        if led.has_leftovers is None:
            prefix = partition_prefix(led.partition.topic_id, led.partition.partition)
            led.has_leftovers = bool((await self._store.list(prefix, limit=1)).objects)

    async def sweep_deleted_topics(self) -> None:
        """Delete everything of topics that do not exist, if this is the controller's node."""
        view = self._view
        await self._services.roles.opened.wait()
        if not view.is_controller() or not await self._is_alone():
            return
        after: str | None = ""
        while after is not None:
            page = await self._store.list("", after=after or None)
            after = page.after
            term = await view.confirmed_term()  # broker.tiering.O3
            alive = view.topics()
            dead = [each for each in self._older(page.objects, frozenset(), self._grace_ms)
                    if each.name.topic_id not in alive]
            for partition in sorted({(each.name.topic_id, each.name.partition) for each in dead}):
                await self._deleted.delete(*partition, term)
            await self._delete(dead)
            last = find_name(page.objects[-1].key) if page.objects else None
            if after is not None and last is not None and last.topic_id in alive:
                after = max(after, f"{last.topic_id}/{LAST_PARTITION}")  # its other objects
            await asyncio.sleep(PAGE_PAUSE_SECONDS)

    # -- the store

    async def _pages(self, prefix: str) -> AsyncIterator[Sequence[ObjectInfo]]:
        after: str | None = None
        while True:
            page = await self._store.list(prefix, after=after)
            yield page.objects
            after = page.after
            if after is None:
                return
            await asyncio.sleep(PAGE_PAUSE_SECONDS)

    def _older(
        self, objects: Sequence[ObjectInfo], known: AbstractSet[UUID], grace_ms: int
    ) -> list[OrphanObject]:
        return find_orphans(objects, known, now_ms=self._clock.now_ms(), grace_ms=grace_ms)

    async def _delete(self, orphans: Sequence[OrphanObject]) -> None:
        if orphans:
            await self._store.delete([orphan.info.key for orphan in orphans])
            self._stats.remote.orphans_deleted += len(orphans)
            _log.info("deleted %d objects that no metadata refers to, such as %s", len(orphans),
                      orphans[0].info.key)

    async def _mark(self) -> None:
        """Leave this cluster's id in the store, once in the life of this node."""
        cluster_id = self._view.cluster_id()
        if not self._is_marked and cluster_id:
            await self._store.put(f"{MARKS_PREFIX}{cluster_id}", [b""])
            self._is_marked = True

    async def _is_alone(self) -> bool:
        """Whether no other cluster uses the store."""
        await self._mark()
        page = await self._store.list(MARKS_PREFIX)
        others = [each.key for each in page.objects
                  if each.key != f"{MARKS_PREFIX}{self._view.cluster_id()}"]
        if others:
            _log.warning(
                "the remote tier is shared with other clusters (%s), so objects of deleted topics "
                "are kept: give each cluster a prefix of its own", ", ".join(others[:3]))
        return not others

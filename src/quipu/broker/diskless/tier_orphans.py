"""Deletes objects of the remote tier that no metadata of a diskless partition refers to.

An object gets lost if an owner loses its claim while the store still carries out its copy: the next
owner deletes the copy, metadata first, and the object appears after that.

Invariants
    broker.diskless.T4  objects are listed first, then metadata under a claim, then the claim is
                        renewed: so an object of a later owner is not in the list, and one of an
                        earlier owner is in the metadata, or was refused there
    broker.diskless.O2  of a log whose metadata lacks records that only the tier has, nothing is an
                        orphan: the metadata was lost or restored, and the objects are needed

Not here: what an orphan is (remote/segments/orphans.py), partitions of deleted topics
(broker/tiering/orphan_sweep.py).
"""

from contextlib import suppress
from typing import Final

from quipu.broker.diskless.tiered_partition import TieredPartition
from quipu.broker.observing.stats import Stats
from quipu.broker.tiering.expiry import covered_end
from quipu.diskless.tiering.steps import LogStep, StepServices
from quipu.model.errors import QuipuError
from quipu.remote.segments.names import partition_prefix
from quipu.remote.segments.orphans import OrphanObject, find_orphans
from quipu.runtime.objects.store import ObjectStore

SWEEPS_PER_GRACE: Final = 4
INTERVAL_SECONDS_MAX: Final = 6 * 3600.0


class TierOrphans:
    """Looks for orphans of the partitions of one node."""

    def __init__(
        self, services: StepServices, store: ObjectStore, *, stats: Stats, grace_ms: int
    ) -> None:
        self._services = services
        self._store = store
        self._stats = stats
        self._grace_ms = grace_ms

    @property
    def interval_seconds(self) -> float:
        """How often to look for orphans."""
        return min(self._grace_ms / 1000 / SWEEPS_PER_GRACE, INTERVAL_SECONDS_MAX)

    async def sweep(self, each: TieredPartition) -> None:
        """Delete the orphans of one partition, unless another owner has claimed it."""
        after: str | None = None
        while True:
            page = await self._store.list(
                partition_prefix(each.log.topic_id, each.log.partition), after=after)
            old = find_orphans(page.objects, frozenset(), now_ms=self._services.clock.now_ms(),
                               grace_ms=self._grace_ms)
            if old:
                await self._delete_unknown(each, old)
            if page.after is None:
                return
            after = page.after

    async def _delete_unknown(self, each: TieredPartition, old: list[OrphanObject]) -> None:
        services = self._services
        step = await LogStep.claimed(services, each.log, each.topic)
        if step is None:
            return
        try:
            await step.lead()
            segments = await services.metadata.list_remote_log_segments(each.partition)
            (bounds,) = await services.plane.bounds([each.log])
            if bounds is None or covered_end(
                    segments, each.lineage, bounds.log_start_offset, bounds.high_watermark
                    ) < bounds.diskless_start_offset:  # broker.diskless.O2
                return
            known = {segment.segment_id.id for segment in segments}
            lost = [orphan.info.key for orphan in old if orphan.name.segment_id not in known]
            if lost:
                await step.renew()  # broker.diskless.T4
                await self._store.delete(lost)
                self._stats.remote.orphans_deleted += len(lost)
        finally:
            with suppress(QuipuError):  # then the claim runs out by itself
                await step.end()

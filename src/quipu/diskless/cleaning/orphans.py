"""Finds objects that were stored and never committed, and deletes them.

Writers leave them when they crash between the two steps, or give up a commit; so do rewrites that
come too late.  The store is listed page by page; what the control plane does not know for longer
than a grace period, by the store's own time, is an orphan.

A slow writer may still want to commit it.  So an orphan is condemned first: from then on the
control plane refuses its key for ever (diskless.C10), and the writer's clients get an error that
they retry.  The grace period is only there so that this is rare; no clock has to be right for it
to be safe.

Invariants
    diskless.cleaning.O1  an object is deleted as an orphan only after the control plane has
                          promised that it is in no run and never will be
    diskless.cleaning.O2  objects whose keys no writer makes are left alone, and reported
    diskless.cleaning.O3  an object whose footer cannot be read is never deleted as an orphan, but
                          kept and reported: after a rebuild, which has to leave it out, it may hold
                          acknowledged records
"""

import asyncio
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from quipu.diskless.cleaning.ownership import is_alone
from quipu.diskless.cleaning.services import CleaningServices, KeepReceipts
from quipu.diskless.objects.names import OBJECTS_PREFIX, find_name, has_batches
from quipu.runtime.objects.store import NO_TIME, ObjectInfo

PAGE_PAUSE_SECONDS: Final = 0.02



def is_aged(info: ObjectInfo, *, now_ms: int, grace_ms: int) -> bool:
    """Whether an object was stored before the grace period began; unknown times are never old."""
    return info.modified_ms != NO_TIME and info.modified_ms < now_ms - grace_ms


def is_foreign(key: str) -> bool:
    """Whether no writer makes this key (diskless.cleaning.O2)."""
    return find_name(key) is None or not has_batches(key)


def find_orphans(
    objects: Iterable[ObjectInfo], known: AbstractSet[str], *, now_ms: int, grace_ms: int
) -> list[str]:
    """The keys of the objects that are orphans, given the keys that the control plane knows."""
    return [info.key for info in objects
            if info.key not in known and not is_foreign(info.key)
            and is_aged(info, now_ms=now_ms, grace_ms=grace_ms)]


class Orphans:
    """Deletes the orphans of a store, some pages in each pass."""

    def __init__(self, services: CleaningServices, keep_receipts: KeepReceipts) -> None:
        self._keep_receipts = keep_receipts
        self._log = services.log
        self._store = services.store
        self._plane = services.plane
        self._clock = services.clock
        self._limits = services.limits
        self._stats = services.stats
        self._after: str | None = None  # where the next pass goes on
        self._foreign = 0  # since the listing was begun

    async def run(self) -> None:
        """One pass, from where the last one ended; a pass that fails begins at the same page."""
        if not await is_alone(self._store, self._plane, self._log):
            return
        for _ in range(self._limits.orphan_pages_max):
            page = await self._store.list(OBJECTS_PREFIX, after=self._after)
            self._count_foreign([info.key for info in page.objects if is_foreign(info.key)])
            await self._collect(page.objects)
            self._after = page.after
            if page.after is None:
                self._stats.foreign_objects = self._foreign
                self._foreign = 0
                return
            await asyncio.sleep(PAGE_PAUSE_SECONDS)

    async def _collect(self, objects: Sequence[ObjectInfo]) -> None:
        now_ms, grace_ms = self._clock.now_ms(), self._limits.orphan_grace_ms
        aged = find_orphans(objects, frozenset(), now_ms=now_ms, grace_ms=grace_ms)
        if not aged:
            return
        known = await self._plane.known_objects(aged)
        orphans = [key for key in aged if key not in known]
        if orphans:
            await self.discard(orphans)

    async def discard(self, keys: Sequence[str]) -> None:
        """Delete those of the objects that the control plane does not know."""
        condemned = await self._plane.condemn_objects(keys)  # diskless.cleaning.O1
        if not condemned:
            return
        damaged = await self._keep_receipts(sorted(condemned))  # diskless.cleaning.D2
        if damaged:  # diskless.cleaning.O3
            self._log.warning(
                "damaged orphan", "%d damaged objects that are not in use are kept, such as %s: if "
                "a rebuild of the control plane has reported them, their records are in nothing "
                "else; restore them, and rebuild once more, or delete them", len(damaged),
                min(damaged))
        gone = sorted(condemned - damaged)
        if gone:
            await self._store.delete(gone)
            self._stats.orphans_deleted += len(gone)
            self._log.info("orphans", "deleted %d objects that were never committed, such as %s",
                           len(gone), gone[0])

    def _count_foreign(self, keys: Sequence[str]) -> None:
        self._foreign += len(keys)
        if keys:
            self._log.warning(
                "foreign object", "%d objects that no node has written are left alone, such as %s:"
                " the store of diskless topics should hold nothing else", len(keys), keys[0])

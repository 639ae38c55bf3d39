"""Objects in which nothing is left are deleted from the store, after a grace period.

The control plane marks an object in the step that takes away its last run, and never gives it one
again (diskless.C6).  A reader may have been told of the run before; so the object stays for a grace
period, longer than any reader uses what it was told (diskless.cleaning.L1).

Invariants
    diskless.cleaning.D1  an object is deleted from the store first and forgotten then: a crash in
                          between leaves a mark, by which the next pass deletes it once more, never
                          an object that nobody knows, nor a run without its object
    diskless.cleaning.D2  what a deleted object said about objects that stay is stored elsewhere
                          before it is deleted (receipts.py)
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from quipu.diskless.cleaning.services import CleaningServices, KeepReceipts
from quipu.diskless.control_plane.interface import LIMIT_MAX
from quipu.runtime.objects.store import DELETE_MAX

BATCH_MAX: Final = min(DELETE_MAX, LIMIT_MAX)
PAUSE_SECONDS: Final = 0.02  # between two batches


class Deletion:
    """Deletes objects that are marked for longer than the grace period."""

    def __init__(self, services: CleaningServices, keep_receipts: KeepReceipts) -> None:
        self._store = services.store
        self._plane = services.plane
        self._clock = services.clock
        self._keep_receipts = keep_receipts
        self._limits = services.limits
        self._stats = services.stats

    async def run(self) -> None:
        """One pass: batches of objects, oldest marks first, until none is due."""
        left = self._limits.deletions_max
        last: Sequence[str] = ()
        while left > 0:
            before_ms = self._clock.now_ms() - self._limits.object_grace_ms
            keys = await self._plane.deletable_objects(before_ms, min(BATCH_MAX, left))
            if not keys or keys == last:  # the same ones again: they could not be forgotten
                return
            await self._keep_receipts(keys)  # diskless.cleaning.D2
            await self._store.delete(keys)
            await self._plane.forget_objects(keys)  # diskless.cleaning.D1
            self._stats.objects_deleted += len(keys)
            left -= len(keys)
            last = keys
            await asyncio.sleep(PAUSE_SECONDS)

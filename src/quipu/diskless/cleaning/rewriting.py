"""Writes the live runs of sparse objects into a new object, and lets them be read from there.

Steps: ask for sparse objects and their runs; plan; read the runs; check every batch; store the new
object, whose footer has the offsets; then one compare-and-set in the control plane, which fails if
any of the runs has gone or moved since.  Whatever ends between two steps costs work only: until the
compare-and-set nothing refers to the new object, and it is an orphan if that is never done.

Two nodes may take the same objects; the second compare-and-set fails.  They wait at random so that
this is rare.

Invariants
    diskless.cleaning.M1  a batch is copied byte for byte, after its checksum, size and offsets were
                          checked against its run; of a damaged object nothing moves, so the damage
                          stays where it is, and is reported
    diskless.cleaning.M2  one pass reads and writes at most `rewrite_pass_bytes`, and holds the
                          bytes of one new object in memory
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from quipu.diskless.cleaning.plan import PlanLimits, SparseObject, in_new_order, plan_rewrites
from quipu.diskless.cleaning.services import CleaningServices
from quipu.diskless.control_plane.interface import (
    COMMIT_BATCHES_MAX,
    LIMIT_MAX,
    Replacement,
)
from quipu.diskless.errors import ControlPlaneUnavailable, CorruptObject
from quipu.diskless.objects.encoding import EncodedObject, PendingBatch, encode_object
from quipu.diskless.objects.reading import check_run, pending_of_run
from quipu.diskless.values import BatchRun
from quipu.runtime.objects.errors import ObjectNotFound
from quipu.runtime.objects.store import RANGES_MAX, Buffer, ByteRange

ATTEMPTS_MAX: Final = 3  # of a compare-and-set whose outcome is unknown
RETRY_SECONDS: Final = 0.5
PAUSE_SECONDS: Final = 0.05  # between two reads of objects
SKIPPED_MAX: Final = 1000  # damaged objects that are remembered


class Rewriting:
    """Rewrites sparse objects, some in each pass."""

    def __init__(self, services: CleaningServices) -> None:
        self._store = services.store
        self._plane = services.plane
        self._clock = services.clock
        self._new_name = services.new_name
        self._log = services.log
        self._limits = services.limits
        self._stats = services.stats
        self._skipped: dict[str, None] = {}  # keys of damaged objects

    async def run(self) -> None:
        """One pass (diskless.cleaning.M2)."""
        limits = self._limits
        found = await self._find()
        plan = plan_rewrites(found, PlanLimits(
            limits.rewrite_object_bytes, limits.rewrite_pass_bytes, limits.rewrite_live_share,
            limits.rewrite_objects_min, COMMIT_BATCHES_MAX))
        for group in plan:
            await self._rewrite(group)

    async def _find(self) -> list[SparseObject]:
        """Sparse objects with their runs, as many as one pass may copy."""
        limits = self._limits
        states = await self._plane.sparse_objects(
            live_size_max=limits.rewrite_small_bytes, live_share_max=limits.rewrite_live_share,
            committed_before_ms=self._clock.now_ms() - limits.rewrite_age_ms, limit=LIMIT_MAX)
        found: list[SparseObject] = []
        size = 0
        for state in states:
            if state.key in self._skipped:
                continue
            if size > limits.rewrite_pass_bytes:
                break
            found.append(SparseObject(state, tuple(await self._plane.object_runs(state.key))))
            size += found[-1].live_size
        return found

    async def _rewrite(self, group: Sequence[SparseObject]) -> None:
        """Replace the objects of a group by one."""
        data: dict[BatchRun, memoryview] = {}
        intact = []
        for each in group:
            try:
                data.update(await self._read(each))
            except CorruptObject as error:  # diskless.cleaning.M1
                self._skip(each.state.key, error)
            except ObjectNotFound:  # rewritten by another node since, or lost
                self._stats.rewrites_lost += 1
            else:
                intact.append(each)
            await asyncio.sleep(PAUSE_SECONDS)
        if len(intact) < len(group):
            return  # what is left may be worth it, too: the next pass plans again
        runs = in_new_order(intact)
        pending: list[PendingBatch] = []
        for run in runs:
            pending += pending_of_run(run.log, data[run], check_run(data[run], run))
        new = encode_object(self._new_name(), pending, created_ms=self._clock.now_ms())
        await self._store.put(new.key, new.buffers, if_absent=True)
        await self._replace(new, runs, len(group))

    async def _read(self, found: SparseObject) -> dict[BatchRun, memoryview]:
        """The bytes of the runs of an object, checked."""
        runs = found.runs
        parts: list[Buffer] = []
        for first in range(0, len(runs), RANGES_MAX):
            parts += await self._store.get_ranges(found.state.key, [
                ByteRange(run.position, run.position + run.size)
                for run in runs[first:first + RANGES_MAX]])
        data = {}
        for run, part in zip(runs, parts, strict=True):
            data[run] = memoryview(part)
            check_run(data[run], run)
        return data

    async def _replace(
        self, new: EncodedObject, runs: Sequence[BatchRun], object_count: int
    ) -> None:
        """Let the runs be read from the new object, or delete it again."""
        replacements = []
        index = 0
        for run in runs:  # their batches lie in the new object in the same order
            replacements.append(Replacement(run, new.key, new.coordinates[index].position))
            index += run.batch_count
        is_done = await self._compare_and_set(new, replacements)
        if is_done:
            self._stats.rewrites += 1
            self._stats.objects_rewritten += object_count
            self._stats.rewritten_bytes += sum(run.size for run in runs)
            return
        self._stats.rewrites_lost += 1
        if await self._plane.condemn_objects([new.key]):  # diskless.cleaning.O1
            await self._store.delete([new.key])

    async def _compare_and_set(
        self, new: EncodedObject, replacements: Sequence[Replacement]
    ) -> bool:
        """The outcome; raises if it stays unknown, and then the object may be in use."""
        stored = new.new_object._replace(batches=())
        for attempt in range(ATTEMPTS_MAX):
            try:
                return await self._plane.rewrite(stored, replacements, self._clock.now_ms())
            except ControlPlaneUnavailable:
                if attempt == ATTEMPTS_MAX - 1:
                    raise
                await asyncio.sleep(RETRY_SECONDS)
        raise AssertionError("unreachable")

    def _skip(self, key: str, error: CorruptObject) -> None:
        self._stats.damaged_objects += 1
        self._log.warning("damaged object", "not rewritten: %s", error)
        if len(self._skipped) < SKIPPED_MAX:
            self._skipped[key] = None

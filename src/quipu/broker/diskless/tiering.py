"""Moves old records of diskless topics to the remote tier, and lets old segments expire there.

Each node looks after the partitions that it is shown as the leader of; claims in the control plane
keep two nodes, or a node and a job, from doing the same (diskless/tiering/steps.py).  A pass asks
for each log whether anything is due, and takes a step only then.

Invariants
    broker.diskless.T1  a claim is held for the time of a step: between steps, a job on Spark may
                        take over, and this node reads its metadata as a follower
    broker.diskless.T2  remote segments are deleted only after the control plane has moved the log
                        start past them
    broker.diskless.T3  an error of one log does not keep the others

Not here: what is moved, and how (diskless/tiering); retention of what is not in the tier
(diskless/cleaning).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from quipu.broker.diskless.tier_orphans import TierOrphans
from quipu.broker.diskless.tiered_partition import TieredPartition
from quipu.broker.observing.stats import Stats
from quipu.broker.tiering.deleting import SegmentDeleter
from quipu.broker.tiering.expiry import ExpiryBounds, ExpiryPlan, RetentionRules, TierLedger
from quipu.diskless.control_plane.interface import LIMIT_MAX
from quipu.diskless.tiering.copying import copy_segment
from quipu.diskless.tiering.plan import PlanRules, local_retention, plan_segments
from quipu.diskless.tiering.steps import LogStep, StepServices, aged_runs
from quipu.diskless.values import LogBounds, LogKey
from quipu.model.errors import QuipuError
from quipu.model.ids import Offset
from quipu.model.partition_log import RunLong
from quipu.model.settings import TopicSettings
from quipu.runtime.log_limits import LimitedLog
from quipu.runtime.objects.store import ObjectStore
from quipu.runtime.rng import Rng

LEASE_MS: Final = 60_000
STEPS_MAX: Final = 2  # at the same time: a segment is merged in memory
ROUNDS_MAX: Final = 8  # of segments, in one step; then other logs get their turn
JITTER: Final = 0.1

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Known:
    """What the tier has of a log, as of when it ended there."""

    ledger: TierLedger
    diskless_start: Offset


class DisklessTiering:
    """Takes the steps of the diskless partitions of one node."""

    def __init__(
        self, services: StepServices, objects: ObjectStore, deleter: SegmentDeleter, *,
        partitions: Callable[[], Iterable[TieredPartition]], run: RunLong, rng: Rng, stats: Stats,
        interval_seconds: float, orphans: TierOrphans | None = None,
    ) -> None:
        """`partitions` are those of diskless topics that this node is shown as the leader of."""
        self._services = services
        self._objects = objects
        self._deleter = deleter
        self._partitions = partitions
        self._run = run
        self._rng = rng
        self._stats = stats
        self._interval_seconds = interval_seconds
        self._orphans = orphans  # None: nobody can list the segments
        self._swept_at = services.clock.monotonic()
        self._known: dict[LogKey, _Known] = {}
        self._limited = LimitedLog(_log, services.clock.monotonic)

    async def run(self) -> None:
        """Make a pass every now and then, until cancelled; the control plane is open."""
        while True:
            await asyncio.sleep(self._interval_seconds * (1 + JITTER * self._rng.random()))
            await self.make_pass()
            await self._sweep()

    async def _sweep(self) -> None:
        """Look for orphans, if it is time."""
        orphans, now = self._orphans, self._services.clock.monotonic()
        if orphans is None or now - self._swept_at < orphans.interval_seconds:
            return
        self._swept_at = now
        for each in list(self._partitions()):
            try:
                await orphans.sweep(each)
            except QuipuError as error:
                self._stats.remote.task_errors += 1
                self._failed(f"orphans of {each.partition}", error)

    async def make_pass(self) -> None:
        """Do what is due for every partition; errors are logged (broker.diskless.T3)."""
        wanted = list(self._partitions())
        led = {each.log for each in wanted}
        self._known = {log: known for log, known in self._known.items() if log in led}
        turns = asyncio.Semaphore(STEPS_MAX)
        for at in range(0, len(wanted), LIMIT_MAX):
            some = wanted[at : at + LIMIT_MAX]
            try:
                bounds = await self._services.plane.bounds([each.log for each in some])
            except QuipuError as error:
                self._failed("the control plane", error)
                return
            async with asyncio.TaskGroup() as group:
                for each, found in zip(some, bounds, strict=True):
                    if found is not None and _may_have_work(each, found):
                        await turns.acquire()
                        task = group.create_task(self._attempt(each, found))
                        task.add_done_callback(lambda _: turns.release())

    async def _attempt(self, each: TieredPartition, bounds: LogBounds) -> None:
        try:
            await self.step(each, bounds)
        except QuipuError as error:
            self._known.pop(each.log, None)
            self._stats.remote.task_errors += 1
            self._failed(str(each.partition), error)
        except Exception:  # noqa: BLE001 a bug in one log must not stop the others
            self._known.pop(each.log, None)
            self._stats.remote.task_errors += 1
            _log.exception("%s: records could not be moved to the remote tier", each.partition)

    def _failed(self, subject: str, error: QuipuError) -> None:
        self._limited.warning(f"tier {subject}", "%s: records are moved to the remote tier later, "
                              "because that failed: %s", subject, error)

    # -- one log

    async def step(self, each: TieredPartition, bounds: LogBounds) -> None:
        """Move and delete what is due of one log, if nobody else does."""
        is_due = await self._is_due(each)
        if not is_due and not _has_work(bounds, await self._expiry(each, bounds)):
            return
        step = await LogStep.claimed(self._services, each.log, each.topic)
        if step is None:
            return
        try:
            if is_due:
                await self._move(step, each)
            await self._expire(step, each)
        finally:
            with suppress(QuipuError):  # then the claim runs out by itself
                await step.end()  # broker.diskless.T1

    async def _is_due(self, each: TieredPartition) -> bool:
        if not each.settings.remote_storage_enable or each.settings.remote_log_copy_disable:
            return False
        before_ms, rules = self._rules(each.settings)
        if before_ms is None:
            return False
        runs = await aged_runs(self._services.plane, each.log, before_ms)
        return bool(plan_segments(runs, rules, topic=each.topic, claim_epoch=0, segments_max=1))

    def _rules(self, settings: TopicSettings) -> tuple[int | None, PlanRules]:
        """Before which time records are moved (None: never), and into which segments."""
        age_ms = local_retention(settings.local_retention_ms, settings.retention_ms)
        before_ms = self._services.clock.now_ms() - age_ms
        return (None if age_ms < 0 else before_ms,
                PlanRules(settings.segment_bytes, before_ms - settings.segment_ms))

    async def _move(self, step: LogStep, each: TieredPartition) -> None:
        stats = self._stats.remote
        for _ in range(ROUNDS_MAX):
            before_ms, rules = self._rules(each.settings)
            planned = [] if before_ms is None else await step.planned(rules, before_ms)
            if not planned:
                return
            for plan, custom in planned:
                stats.copy_requests += 1
                try:
                    copied = custom or await copy_segment(
                        plan, self._objects, self._services.storage, self._run)
                except QuipuError:
                    stats.copy_errors += 1
                    raise
                await step.renew()
                await step.finish(plan, copied)
                stats.copy_bytes += plan.size

    # -- expiry

    async def _expiry(self, each: TieredPartition, bounds: LogBounds) -> ExpiryPlan:
        """What is to be deleted, as far as this node can see without a claim."""
        known = self._known.get(each.log)
        if known is None or known.diskless_start != bounds.diskless_start_offset:
            await self._services.leading.follow(each.partition)
            known = self._known[each.log] = _Known(
                await self._ledger(each, bounds), bounds.diskless_start_offset)
        return self._plan(each, bounds, known.ledger)

    async def _ledger(self, each: TieredPartition, bounds: LogBounds) -> TierLedger:
        segments = await self._services.metadata.list_remote_log_segments(each.partition)
        return TierLedger(segments, each.lineage, bounds.high_watermark)

    def _plan(self, each: TieredPartition, bounds: LogBounds, ledger: TierLedger) -> ExpiryPlan:
        settings, start = each.settings, bounds.log_start_offset
        if not settings.remote_storage_enable:
            start = bounds.diskless_start_offset  # the topic has no tier any more
        return ledger.plan(
            each.lineage, ExpiryBounds(start, bounds.high_watermark, bounds.size),
            RetentionRules(settings.retention_ms, settings.retention_bytes),
            now_ms=self._services.clock.now_ms())

    async def _expire(self, step: LogStep, each: TieredPartition) -> None:
        services = self._services
        (bounds,) = await services.plane.bounds([each.log])
        if bounds is None:
            return
        await step.lead()
        ledger = await self._ledger(each, bounds)
        plan = self._plan(each, bounds, ledger)
        if plan.log_start > bounds.log_start_offset:
            start = min(plan.log_start, bounds.diskless_start_offset)
            await services.plane.advance_log_start(
                each.log, start, services.clock.now_ms())  # broker.diskless.T2
        if plan.deleted:
            await step.renew()
            await self._deleter.delete_all(plan.deleted)
            ledger.deleted(plan.deleted)
        self._known[each.log] = _Known(ledger, bounds.diskless_start_offset)


def _may_have_work(each: TieredPartition, bounds: LogBounds) -> bool:
    """Whether a log has records to move, or may have something in the tier."""
    return (bounds.size > 0 and each.settings.remote_storage_enable
            ) or bounds.diskless_start_offset > 0


def _has_work(bounds: LogBounds, plan: ExpiryPlan) -> bool:
    return bool(plan.deleted) or plan.log_start > bounds.log_start_offset

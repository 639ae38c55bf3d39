"""One partition that this node leads: copies what is due, and deletes what has expired.

A step is taken again and again: it leads the metadata, learns what the tier has already, copies
segments that are due, then lets old ones expire.  If anything fails, the whole step is taken again
after a while: each part finds out by itself how far the last one came.

Invariants
    broker.tiering.P1  a segment is copied only if the metadata does not say that its offsets are in
                       the tier already: what an earlier leader finished is taken over
    broker.tiering.P2  before remote segments of retention are deleted, the log start has passed
                       them, and that is committed
    broker.tiering.P3  when a topic has no tier any more, the log forgets the tier first: its start
                       passes what only the tier has, and nothing is deleted locally because the
                       tier has it.  Only then the tier's copies are deleted: should the topic get
                       a tier again in between, nothing relies on them
    broker.tiering.P4  the log learns of copies without its own knowledge only as far as finished
                       segments follow each other without a gap: that an offset was copied once
                       does not mean that it still is in the tier
    broker.tiering.P5  the metadata is led in the epoch in which this node began to lead, whatever
                       the log's is by now: that may be the epoch of the next leader, which would
                       be kept from its metadata
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

from quipu.broker.tiering.copying import SegmentCopier
from quipu.broker.tiering.deleting import SegmentDeleter
from quipu.broker.tiering.expiry import ExpiryBounds, RetentionRules, TierLedger, covered_end
from quipu.broker.tiering.roles import MetadataRoles, partition_of
from quipu.model.errors import QuipuError
from quipu.model.ids import Offset
from quipu.model.partition_log import PartitionLog, RunLong
from quipu.remote.metadata.interface import RemoteLogMetadataManager
from quipu.remote.metadata.segment_metadata import RemoteLogSegmentMetadata
from quipu.runtime.clock import Clock
from quipu.runtime.slots import Slots

T = TypeVar("T")

MOVE_TIMEOUT_MS: Final = 30_000  # for the log to commit a move of its start
TAKEOVERS_MAX: Final = 16  # partitions whose metadata is loaded at the same time
SEGMENTS_HERE_MAX: Final = 300  # of which a step may go through the metadata without a thread
COPIES_MAX: Final = 20  # in one step: then old segments expire before more are copied


class TierServices:
    """What the partitions of a node share."""

    def __init__(
        self, metadata: RemoteLogMetadataManager, roles: MetadataRoles, copier: SegmentCopier,
        deleter: SegmentDeleter, *, clock: Clock, run: RunLong, copies_max: int,
        deletions_max: int,
    ) -> None:
        """`run` runs work in a thread."""
        self.metadata = metadata
        self.roles = roles
        self.copier = copier
        self.deleter = deleter
        self.clock = clock
        self.run = run
        self.takeovers = asyncio.Semaphore(TAKEOVERS_MAX)
        self.copies = Slots(copies_max)
        self.deletions = Slots(deletions_max)


class LedPartition:
    """The tier's work for one partition, while this node leads it."""

    def __init__(self, log: PartitionLog, services: TierServices) -> None:
        self.log = log
        self.partition = partition_of(log)
        self.epoch = log.leader_epoch  # broker.tiering.P5
        self._services = services
        self._is_caught_up = False  # whether the log knows what the metadata knows
        self._ledger: TierLedger | None = None  # None: not known what the tier has
        self.being_copied: set[UUID] = set()
        self.has_leftovers: bool | None = None  # in the tier, though it was dropped; None: unknown
        # as of the last step, for metrics
        self.remote_bytes = 0
        self.metadata_count = 0  # segments in any state
        self.delete_lag: tuple[int, int] = 0, 0  # bytes and segments that are to be deleted

    @property
    def has_work(self) -> bool:
        """Whether the partition has a tier, or has had one that is not dropped yet."""
        tier = self.log.tier
        return tier.is_enabled or tier.has_copies or self.has_leftovers is True

    async def step(self) -> bool:
        """Do what is due; raises the first error, after which it is called again.

        Returns whether more is due at once.
        """
        log, services = self.log, self._services
        log.check_leader()
        try:
            if not log.tier.is_enabled:
                await self._drop_tier()
                return False
            if not self._is_caught_up:
                async with services.takeovers:
                    await self._catch_up()
            try:
                is_more_due = await self._copy_due()
            except Exception:  # and not if it is cancelled: another step may run (L1)
                self._ledger = None  # what has become of the copy, the metadata knows
                await self._expire()
                raise
            await self._expire()
        except BaseException:
            self._is_caught_up = False  # an update may have been carried out all the same
            self._ledger = None
            raise
        return is_more_due

    async def delete(self) -> None:
        """Delete everything that the tier has: the topic was deleted."""
        services = self._services
        await services.roles.lead(self.partition, self.epoch)
        async with services.deletions:
            await services.deleter.delete_partition(self.partition)
        await services.roles.stop(self.partition)

    async def _catch_up(self) -> None:
        """Record in the log what the metadata says is in the tier (broker.tiering.P1)."""
        log, services = self.log, self._services
        await services.roles.lead(self.partition, self.epoch)
        segments = await services.metadata.list_remote_log_segments(self.partition)
        self._ledger = await self._made_ledger(segments)
        known_end = max(log.log_start_offset, Offset(log.highest_tiered_offset + 1))
        covered = await self._computed(len(segments), partial(  # broker.tiering.P4
            covered_end, segments, log.tier.epochs(), known_end, log.log_end_offset))
        end = min(covered, log.last_stable_offset)
        if end > known_end:
            await services.copier.note(log, Offset(end - 1))
        self._is_caught_up = True

    async def _copy_due(self) -> bool:
        """Copy some of the segments that are due; returns whether there may be more."""
        log, services = self.log, self._services
        for _ in range(COPIES_MAX):
            if not (log.tier.is_copied and log.is_active_leader):
                return False
            async with services.copies:
                segments = log.tier.segments(1)
                if not segments:
                    return False
                copy = services.copier.begin(self.partition, segments[0])
                self.being_copied.add(copy.segment_id.id)
                try:
                    copied = await services.copier.copy(log, segments[0], copy)
                    if self._ledger is not None:
                        self._ledger.copied(copied)
                finally:
                    self.being_copied.discard(copy.segment_id.id)
        return True

    async def _expire(self) -> None:
        """Move the log start by the retention of both tiers, and delete what is below it."""
        log, services = self.log, self._services
        if log.tier.is_sealed:
            return  # broker.diskless.M2
        ledger = self._ledger
        if ledger is None:
            ledger = self._ledger = await self._made_ledger(
                await services.metadata.list_remote_log_segments(self.partition))
        tier = log.tier
        plan = ledger.plan(
            tier.epochs(),
            ExpiryBounds(log.log_start_offset, log.log_end_offset, tier.only_local_bytes),
            RetentionRules(tier.retention_ms, tier.retention_bytes),
            now_ms=services.clock.now_ms(), being_copied=frozenset(self.being_copied))
        self.remote_bytes, self.metadata_count = plan.kept_bytes, len(ledger)
        self.delete_lag = (sum(each.segment_size_bytes for each in plan.deleted),
                           len(plan.deleted))
        if plan.log_start > log.log_start_offset:
            await self._move_log_start(plan.log_start)  # broker.tiering.P2
        if plan.deleted:
            async with services.deletions:
                await services.deleter.delete_all(plan.deleted)
            ledger.deleted(plan.deleted)
            self.metadata_count = len(ledger)
            self.delete_lag = 0, 0

    async def _made_ledger(self, segments: Sequence[RemoteLogSegmentMetadata]) -> TierLedger:
        return await self._computed(len(segments), partial(
            TierLedger, segments, self.log.tier.epochs(), self.log.log_end_offset))

    async def _computed(self, segment_count: int, work: Callable[[], T]) -> T:
        """The result of `work`, which goes through segments; in a thread if they are many."""
        return work() if segment_count <= SEGMENTS_HERE_MAX else await self._services.run(work)

    async def _move_log_start(self, start: Offset) -> None:
        moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(outcome: Offset | QuipuError) -> None:
            if moved.done():
                return
            if isinstance(outcome, QuipuError):
                moved.set_exception(outcome)
            else:
                moved.set_result(None)

        self.log.delete_records(
            min(start, self.log.high_watermark), self._services.clock.now_ms(),
            timeout_ms=MOVE_TIMEOUT_MS, done=done)
        await moved

    async def _drop_tier(self) -> None:
        """Forget what the tier has, and delete it: the topic has no tier any more."""
        log, services = self.log, self._services
        await log.tier.forget_tier(  # broker.tiering.P3
            services.clock.now_ms(), timeout_ms=MOVE_TIMEOUT_MS)
        await self.delete()
        self._ledger, self._is_caught_up = None, False
        self.has_leftovers = False
        self.remote_bytes = 0

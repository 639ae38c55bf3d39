"""The cleaner: compacts the logs of topics whose cleanup.policy includes compact.

It looks at all such logs, makes one pass over the one with the largest share of dirty bytes, and
looks again; if there is none, it waits for log.cleaner.backoff.ms.  Each member of a chain compacts
its own log: members may differ in which replaced records they still have, never in what a reader
makes of them.

Invariants
    broker.partitions.K1  the work is done in another process (storage/compaction/child.py); the
                          event loop only renames files that are complete and durable
    broker.partitions.K2  only logs of serving replicas are compacted, below what is committed
    broker.partitions.K3  a log whose pass fails is counted as uncleanable and tried again after a
                          while; it delays no other
    broker.partitions.K4  logs whose state machines replace old segments by snapshots are left alone
                          (storage/state_log.py)

Not here: what is compacted (storage/compaction/planning.py); the work itself
(storage/compaction/worker.py).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol

from quipu.broker.observing.stats import Stats
from quipu.broker.partitions.replicated_partition import ReplicatedPartition
from quipu.model.errors import QuipuError
from quipu.model.settings import BrokerSettings
from quipu.model.topics import KEPT_BY_SNAPSHOTS
from quipu.runtime.child_process import run_child
from quipu.runtime.clock import Clock
from quipu.runtime.disks.disk import Disk, RealDisk
from quipu.runtime.disks.work import off_loop
from quipu.runtime.rng import Rng
from quipu.storage.compaction.messages import decode_outcome, encode_job
from quipu.storage.compaction.planning import CompactionPlan
from quipu.storage.compaction.walk import SECRET_SIZE
from quipu.storage.compaction.worker import (
    CompactedGroup,
    CompactionJob,
    PassEnd,
    compact,
    new_paths,
)
from quipu.storage.log import Log
from quipu.storage.segments.segment_list import remove_all

CHILD_MODULE: Final = "quipu.storage.compaction.child"
RETRY_SECONDS_MIN: Final = 10.0  # after a failed pass; doubled each time
RETRY_SECONDS_MAX: Final = 600.0

Outcome = CompactedGroup | PassEnd
Runner = Callable[[CompactionJob, bytes, int, Callable[[Outcome], None]], Awaitable[None]]

_log = logging.getLogger(__name__)


RATE_MAX: Final = 1 << 62  # bytes per second: no limit


class CompactablePartitions(Protocol):
    """The partitions of a node, as far as the cleaner must know them."""

    def replicated(self) -> list[ReplicatedPartition]: ...


class _Retry(NamedTuple):
    at: float
    pause_seconds: float


class PassOvertaken(QuipuError):
    """The log was cut or emptied while it was compacted: the pass is given up."""


async def run_in_child(
    job: CompactionJob, secret: bytes, rate: int, on_outcome: Callable[[Outcome], None]
) -> None:
    """Make a pass in a process of its own (broker.partitions.K1)."""
    await run_child(CHILD_MODULE, encode_job(job, secret, rate),
                    lambda line: on_outcome(decode_outcome(line)))


def runner_for(disk: Disk) -> Runner:
    """How passes are made on `disk`: another process can use only the machine's own."""
    if isinstance(disk, RealDisk):
        return run_in_child

    async def run_here(
        job: CompactionJob, secret: bytes, _: int, on_outcome: Callable[[Outcome], None]
    ) -> None:
        for outcome in compact(disk, job, secret):
            on_outcome(outcome)
            await asyncio.sleep(0)
    return run_here


class Cleaner:
    """Compacts the logs of one node, one after the other."""

    def __init__(
        self, partitions: CompactablePartitions, settings: Callable[[], BrokerSettings], disk: Disk,
        clock: Clock, rng: Rng, *, stats: Stats,
    ) -> None:
        self._partitions = partitions
        self._settings = settings  # some of them may change while the node runs
        self._disk = disk
        self._run_pass = runner_for(disk)
        self._clock = clock
        self._rng = rng
        self._stats = stats
        self._retries: dict[Log, _Retry] = {}

    async def run(self) -> None:
        """Compact what is due, until cancelled; do nothing if log.cleaner.enable is false."""
        if not self._settings().log_cleaner_enable:
            return
        while True:
            await asyncio.sleep(self._settings().log_cleaner_backoff_ms / 1000)
            try:
                while await self.clean_one():
                    pass
            except Exception:  # noqa: BLE001 the next time may go well
                _log.exception("the search for a log to compact failed")

    async def clean_one(self) -> bool:
        """Make a pass over the log that needs it most; False if none does."""
        found: tuple[ReplicatedPartition, CompactionPlan] | None = None
        for partition in self._partitions.replicated():
            plan = self._plan(partition)
            if plan is not None and (found is None or plan.dirty_ratio > found[1].dirty_ratio):
                found = partition, plan
            await asyncio.sleep(0)
        alive = {partition.log for partition in self._partitions.replicated()}
        self._retries = {log: retry for log, retry in self._retries.items() if log in alive}
        self._stats.uncleanable_partitions = len(self._retries)
        self._stats.cleaner_last_looked_ms = self._clock.now_ms()
        if found is None:
            return False
        await self._clean(*found)
        return True

    def _plan(self, partition: ReplicatedPartition) -> CompactionPlan | None:
        log = partition.log
        if (not log.config.compacts or partition.failure is not None or not partition.is_serving
                or partition.topic_partition.topic in KEPT_BY_SNAPSHOTS):
            return None  # broker.partitions.K2, broker.partitions.K4
        retry = self._retries.get(log)
        if retry is not None and retry.at > self._clock.monotonic():
            return None
        try:
            return log.plan_compaction(
                committed_log=partition.committed_end, now_ms=self._clock.now_ms())
        except QuipuError as error:
            self._failed(log, error)
            return None

    async def _clean(self, partition: ReplicatedPartition, plan: CompactionPlan) -> None:
        log, began = partition.log, self._clock.monotonic()
        job = log.compaction_job(
            plan, now_ms=self._clock.now_ms(), nonce=self._rng.token(8).hex(),
            map_size_max=self._settings().log_cleaner_dedupe_buffer_size)
        tally = _Tally()

        def take(outcome: Outcome) -> None:
            if isinstance(outcome, PassEnd):
                tally.end = outcome
            elif not log.take_compacted(job, outcome):
                raise PassOvertaken(f"{log.name}: changed while it was compacted")
            else:
                tally.add(outcome)

        try:
            await self._run_pass(job, self._rng.token(SECRET_SIZE),
                                 self._bytes_per_second(), take)
        except QuipuError as error:
            self._failed(log, error)
            return
        finally:
            if tally.end is None:
                await self._remove_rest(job)
        self._retries.pop(log, None)
        self._note(log, plan, tally, self._clock.monotonic() - began)

    def _bytes_per_second(self) -> int:
        return int(min(self._settings().log_cleaner_io_max_bytes_per_second, RATE_MAX))

    def _note(self, log: Log, plan: CompactionPlan, tally: "_Tally", seconds: float) -> None:
        stats, end = self._stats, tally.end
        assert end is not None, log.name
        stats.cleaner_passes += 1
        stats.cleaner_read_bytes += end.bytes_read
        stats.cleaner_written_bytes += end.bytes_written
        stats.cleaner_recopy_percent = 100 * tally.size_after // max(1, tally.size_before)
        stats.max_clean_seconds = max(stats.max_clean_seconds, seconds)
        _log.info("compacted", extra={
            "log": log.name, "seconds": round(seconds, 3), "segments": len(job_bases(plan)),
            "keys": end.key_count, "records_before": tally.records_read,
            "records_after": tally.records_kept, "tombstones_removed": tally.tombstones_removed,
            "bytes_before": tally.size_before, "bytes_after": tally.size_after,
            "cleaned_end": end.map_end})

    def _failed(self, log: Log, error: QuipuError) -> None:
        """Try the log again after a while (broker.partitions.K3)."""
        last = self._retries.get(log)
        pause = RETRY_SECONDS_MIN if last is None else min(
            2 * last.pause_seconds, RETRY_SECONDS_MAX)
        if isinstance(error, PassOvertaken):
            _log.info("%s", error)
        else:
            _log.warning("%s: cannot be compacted, tried again in %d s: %s", log.name, pause, error)
        self._stats.cleaner_failures += 1
        self._retries[log] = _Retry(self._clock.monotonic() + pause, pause)
        self._stats.uncleanable_partitions = len(self._retries)

    async def _remove_rest(self, job: CompactionJob) -> None:
        """Remove what a pass wrote that was given up."""
        disk = self._disk
        await off_loop(disk, lambda: remove_all(disk, new_paths(job)))


def job_bases(plan: CompactionPlan) -> list[int]:
    """The base log offsets of all segments of a plan."""
    return [base for group in plan.groups for base in group]


class _Tally:
    """What the groups of one pass add up to."""

    def __init__(self) -> None:
        self.end: PassEnd | None = None
        self.size_before = 0
        self.size_after = 0
        self.records_read = 0
        self.records_kept = 0
        self.tombstones_removed = 0

    def add(self, group: CompactedGroup) -> None:
        self.size_before += group.size_before
        self.size_after += group.summary.size
        self.records_read += group.records_read
        self.records_kept += group.records_kept
        self.tombstones_removed += group.tombstones_removed

"""What a control plane in memory knows: plain Python values, changed by one step at a time."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from quipu.diskless.control_plane.fences import fence_of, fences_of
from quipu.diskless.control_plane.interface import (
    BatchOutcome,
    Listener,
    ObjectState,
    TieringClaim,
)
from quipu.diskless.control_plane.sequences import ProducerHistory
from quipu.diskless.values import BORN_DISKLESS, BatchRun, Lineage, LogBounds, LogKey
from quipu.model.ids import NodeId, Offset, ProducerId, TimestampMs

_ZERO: Final = Offset(0)


@dataclass(slots=True)
class MemoryLog:
    """A log: its bounds, its runs in order, its producers, and who moves it to the tier."""

    log_start: Offset = _ZERO
    diskless_start: Offset = _ZERO
    high_watermark: Offset = _ZERO
    runs: list[BatchRun] = field(default_factory=list)
    ends: list[Offset] = field(default_factory=list)  # end offset of each run
    ages: list[TimestampMs] = field(default_factory=list)  # of each run (commit_plan.age_ms)
    size: int = 0
    producers: dict[ProducerId, ProducerHistory] = field(default_factory=dict)
    claim: TieringClaim | None = None
    lineage: Lineage = BORN_DISKLESS

    def bounds(self) -> LogBounds:
        return LogBounds(self.log_start, self.diskless_start, self.high_watermark, self.size)

    def index_at(self, offset: int) -> int:
        """The index of the first run that ends after `offset`."""
        return bisect_right(self.ends, offset)

    def add(self, run: BatchRun, age: TimestampMs) -> None:
        """Enter a run where its offsets belong; the high watermark follows."""
        index = self.index_at(run.base_offset)
        self.runs.insert(index, run)
        self.ends.insert(index, run.end_offset)
        self.ages.insert(index, age)
        self.size += run.size
        self.high_watermark = max(self.high_watermark, run.end_offset)


@dataclass(slots=True)
class MemoryObject:
    """An object with the runs that are read from it."""

    uploader: NodeId
    size: int
    committed_ms: TimestampMs
    outcomes: list[BatchOutcome] = field(default_factory=list)
    runs: dict[tuple[LogKey, Offset], BatchRun] = field(default_factory=dict)
    marked_ms: TimestampMs | None = None

    def state(self, key: str) -> ObjectState:
        return ObjectState(
            key, self.uploader, self.size, sum(run.size for run in self.runs.values()),
            len(self.runs), self.committed_ms, self.marked_ms)

    def mark_if_unused(self, now_ms: int | None) -> None:
        """diskless.C6: called in the step that takes a run away; None: unused from the first."""
        if not self.runs and self.marked_ms is None:
            self.marked_ms = self.committed_ms if now_ms is None else TimestampMs(now_ms)


class MemoryTables:
    """All topics, logs and objects; several control planes (nodes) may share one of these."""

    def __init__(self, identity: UUID | None = None) -> None:
        self.topics: dict[UUID, tuple[str, int]] = {}
        self.deleted: set[UUID] = set()
        self.logs: dict[LogKey, MemoryLog] = {}
        self.objects: dict[str, MemoryObject] = {}
        self.listeners: dict[object, Listener] = {}
        self.fences: dict[str, int] = {}  # by writer (fences.py)
        self.identity = identity or UUID(int=0)
        self.cluster_id = ""  # that it belongs to

    def fence(self, keys: Iterable[str]) -> None:
        """diskless.C10: the keys are never committed from now on."""
        for writer, sequence in fences_of(keys):
            self.fences[writer] = max(sequence, self.fences.get(writer, sequence))

    def is_fenced(self, key: str) -> bool:
        """Whether a key that is not known can never be committed."""
        writer, sequence = fence_of(key)
        return sequence <= self.fences.get(writer, -1)

    def enter_run(self, run: BatchRun, age: TimestampMs) -> None:
        self.logs[run.log].add(run, age)
        self.objects[run.key].runs[run.log, run.base_offset] = run

    def remove_runs(self, log: MemoryLog, count: int, now_ms: int | None) -> None:
        """Remove the first `count` runs of a log."""
        for run in log.runs[:count]:
            log.size -= run.size
            holder = self.objects[run.key]
            del holder.runs[run.log, run.base_offset]
            holder.mark_if_unused(now_ms)
        del log.runs[:count], log.ends[:count], log.ages[:count]

    def start_at(self, log: MemoryLog, offset: int, now_ms: int | None) -> None:
        """Move the diskless start up; runs that end before it go (diskless.C4, diskless.C5)."""
        log.diskless_start = max(log.diskless_start, Offset(offset))
        self.remove_runs(log, log.index_at(log.diskless_start), now_ms)

"""Cut a log at its last good batch, on an operator's order, and keep everything that is cut.

    plan_repair    what is wrong, where the log would be cut and what would be lost; only reads
    carry_out      does it

Invariants
    storage.inspect.P1  nothing is deleted but indexes, which are caches: cut bytes go to
        <base>.cut-<ms>, and later segments are renamed to that
    storage.inspect.P2  what a later version wrote is not damage, and is not cut

A log is cut at the first thing that a node would refuse: bytes that are no batch, a bad checksum,
type 0, or offsets and epochs that do not follow.  What comes after may be sound; it is counted as
lost, because offsets without a hole are promised to clients and a hole cannot be filled.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from quipu.model.errors import CorruptLog, QuipuError
from quipu.runtime.clock import Clock
from quipu.runtime.disks.disk import Disk, Lock
from quipu.storage.directory.node_log import NODE_LOG_NAME
from quipu.storage.inspect.continuity import Finding, FindingKind
from quipu.storage.inspect.examine import Examination, ExaminedBatch, Seen, SeenDamage
from quipu.storage.inspect.files import (
    INDEX_SUFFIX,
    LOCK_NAME,
    SEGMENT_SUFFIX,
    LogFiles,
    SegmentFile,
    data_directory_of,
)
from quipu.storage.inspect.marks import flushed_marks, lower_mark
from quipu.storage.recovery import UNFINISHED_SUFFIX
from quipu.wire.stored_batch import Fault

# Faults that no cut would mend.
_HARMLESS: Final = frozenset({FindingKind.INDEX, FindingKind.RECORDS})


class CannotRepair(QuipuError):
    """A log that cutting would not help; the message says what to do instead."""


class Loss(NamedTuple):
    """What is in the part that is cut off."""

    batches: int  # sound or not, but with a sound header
    records: int
    bytes: int
    damaged_bytes: int  # of which: no batch at all
    offset_end: int  # clients lose offsets from the new end up to this one, as far as is known
    log_offset_end: int


class RepairPlan(NamedTuple):
    """Where to cut, why, and what is lost."""

    log: LogFiles
    segment_index: int
    position: int  # 0: the segment goes as a whole; its size: nothing needs to be cut
    why: Finding
    end_offset: int  # of the log after the cut
    log_end: int
    loss: Loss

    @property
    def segment(self) -> SegmentFile:
        return self.log.segments[self.segment_index]


def plan_repair(disk: Disk, log: LogFiles) -> RepairPlan | None:
    """Read the whole log; None if there is nothing to cut.  Raises `CannotRepair`."""
    cut: tuple[SegmentFile, int, Finding] | None = None
    end_offset = log_end = 0
    loss = _LossCount()
    for seen in Examination(disk, log):
        if cut is None:
            why = _reason(seen)
            if why is None:
                if isinstance(seen, ExaminedBatch):
                    end_offset = seen.batch.header.next_offset
                    log_end = seen.batch.header.next_log_offset
                continue
            cut = (seen.segment, _position(seen), why)
            loss.offset_end, loss.log_offset_end = end_offset, log_end
        loss.note(seen)
    if cut is None:
        return _plan_mark(disk, log, end_offset, log_end)
    segment, position, why = cut
    number = log.segments.index(segment)
    if log.entry == NODE_LOG_NAME:
        raise CannotRepair(f"{log.name}: {why}; nothing to do: a node starts its node log again "
                           "by itself, and checks every log")
    if number == 0 and position == 0:
        raise CannotRepair(f"{log.name}: {why} in the very first batch, so there is no good one to "
                           "cut at; restore the log from a replica, or move its directory away "
                           "to start anew at offset 0")
    return RepairPlan(log, number, position, why, end_offset, log_end,
                      loss.total(disk, log, number, position))


def _plan_mark(disk: Disk, log: LogFiles, end_offset: int, log_end: int) -> RepairPlan | None:
    """A sound log that ends before what was durable: its last files were lost, or cut by hand."""
    mark = flushed_marks(disk, data_directory_of(log)).get(log.entry, 0)
    if mark <= log_end:
        return None
    why = Finding(FindingKind.SHORT, f"ends at log offset {log_end}, {mark} were durable")
    last = len(log.segments) - 1
    return RepairPlan(log, last, disk.size(log.segments[last].path), why, end_offset, log_end,
                      Loss(0, 0, 0, 0, end_offset, mark))


class _LossCount:
    def __init__(self) -> None:
        self.batches = self.records = self.damaged_bytes = 0
        self.offset_end = self.log_offset_end = 0

    def note(self, seen: Seen) -> None:
        if isinstance(seen, SeenDamage):
            self.damaged_bytes += seen.damage.end - seen.damage.position
        elif isinstance(seen, ExaminedBatch):
            header = seen.batch.header
            self.batches += 1
            self.records += max(0, header.count)
            self.offset_end = max(self.offset_end, header.next_offset)
            self.log_offset_end = max(self.log_offset_end, header.next_log_offset)

    def total(self, disk: Disk, log: LogFiles, number: int, position: int) -> Loss:
        size = sum(disk.size(segment.path) for segment in log.segments[number:]) - position
        return Loss(self.batches, self.records, size, self.damaged_bytes, self.offset_end,
                    self.log_offset_end)


def _reason(seen: Seen) -> Finding | None:
    """The first finding that a cut would mend, if any.

    Raises `CannotRepair` for what a later version wrote (storage.inspect.P2).
    """
    if isinstance(seen, SeenDamage) and seen.damage.fault is Fault.LAYOUT:
        raise CannotRepair(f"{seen.segment.path}: position {seen.damage.position} was written by a "
                           "later version; nothing is wrong with it: use that version")
    return next((finding for finding in seen.findings
                 if finding.is_fault and finding.kind not in _HARMLESS), None)


def _position(seen: Seen) -> int:
    if isinstance(seen, ExaminedBatch):
        return seen.batch.position
    return seen.damage.position if isinstance(seen, SeenDamage) else 0


@contextmanager
def hold(disk: Disk, logs: list[LogFiles]) -> Iterator[None]:
    """Keep nodes away from the data directories of `logs`; raises if one is running there."""
    locks: list[Lock] = []
    try:
        for directory in sorted({data_directory_of(log) for log in logs}):
            path = f"{directory}/{LOCK_NAME}"
            if not disk.exists(path):
                continue  # no node ever ran here: a copy, made to be looked at
            lock = disk.lock(path)
            if lock is None:
                raise CannotRepair(f"a node is running on {directory}: stop it first")
            locks.append(lock)
        yield
    finally:
        for lock in locks:
            lock.release()


def repair(disk: Disk, plan: RepairPlan, clock: Clock) -> list[str]:
    """Lower what the node expects of the log, then cut; returns the files that keep what was cut.

    In this order: a node that starts in between finds the damage above the mark, and cuts the log
    there by itself.
    """
    data_directory = data_directory_of(plan.log)
    lower_mark(disk, clock, data_directory, plan.log.entry, plan.log_end)
    return carry_out(disk, plan, clock.now_ms())


def carry_out(disk: Disk, plan: RepairPlan, now_ms: int) -> list[str]:
    """Cut the log; returns the files in which the cut bytes are kept (storage.inspect.P1).

    Later segments go first, the last of them before the others, and the cut itself comes last:
    until then the damage is still there to be found again, if the machine stops in between.
    """
    assert 0 <= plan.segment_index < len(plan.log.segments), plan
    assert plan.position >= 0, plan
    later = plan.log.segments[plan.segment_index + 1 :]
    kept = [_put_aside(disk, segment, now_ms) for segment in reversed(later)]
    if plan.why.kind is FindingKind.SHORT:
        pass  # the loss has happened before: only the mark has to be lowered
    elif plan.position == 0:
        kept.append(_put_aside(disk, plan.segment, now_ms))
    else:
        kept.append(_cut(disk, plan, now_ms))
    assert len(kept) >= len(later), kept  # storage.inspect.P1
    disk.sync_directory(plan.log.directory)
    return sorted(kept)


def _put_aside(disk: Disk, segment: SegmentFile, now_ms: int) -> str:
    target = _aside_path(disk, segment, now_ms)
    _drop_index(disk, segment)
    disk.rename(segment.path, target)
    return target


def _cut(disk: Disk, plan: RepairPlan, now_ms: int) -> str:
    """Replace the segment by its good part; a reader that has the old file open keeps it."""
    segment, size = plan.segment, disk.size(plan.segment.path)
    if plan.position >= size:
        raise CorruptLog(f"{segment.path} changed while it was being repaired; try again")
    assert plan.position > 0, plan
    target = _aside_path(disk, segment, now_ms)
    disk.copy(segment.path, target, start=plan.position, end=size)
    unfinished = segment.path + UNFINISHED_SUFFIX
    disk.copy(segment.path, unfinished, start=0, end=plan.position)
    disk.sync_directory(plan.log.directory)
    _drop_index(disk, segment)
    disk.rename(unfinished, segment.path)
    return target


def _aside_path(disk: Disk, segment: SegmentFile, now_ms: int) -> str:
    target = f"{segment.path.removesuffix(SEGMENT_SUFFIX)}.cut-{now_ms}"
    if disk.exists(target):
        raise CannotRepair(f"{target} exists already; move it away first")
    return target


def _drop_index(disk: Disk, segment: SegmentFile) -> None:
    path = segment.path.removesuffix(SEGMENT_SUFFIX) + INDEX_SUFFIX
    if disk.exists(path):
        disk.remove(path)

"""What must hold from one batch of a log to the next.

Invariants of a sound log
    storage.inspect.L1  log offsets follow each other without a gap and without an overlap
    storage.inspect.L2  so do client offsets, of which only data batches take any
    storage.inspect.L3  leader epochs never fall
    storage.inspect.L4  a batch has as many records as offsets, and at least one; if it holds data
        and was compacted, fewer or none
    storage.inspect.L5  a segment begins with a checkpoint, at the log offset that its name says
"""

from enum import StrEnum
from typing import Final, NamedTuple

from quipu.model.batch_types import CHECKPOINT, DATA, FILLER, describe, find
from quipu.wire.stored_batch import StoredHeader


class FindingKind(StrEnum):
    """What was found; the first part of what is printed about it."""

    DAMAGE = "damage"  # bytes that are no batch
    UNSET = "unset type"
    UNKNOWN = "unknown type"  # from a later version: worth saying, and no fault
    BODY = "bad body checksum"
    GAP = "gap"
    OVERLAP = "overlap"
    EPOCH = "epoch falls"
    COUNT = "count"
    NO_CHECKPOINT = "no checkpoint"
    NAME = "wrong name"
    LOST = "lost"
    SHORT = "too short"  # ends before what was once durable
    RECORDS = "records"  # cannot be decoded although the checksum holds
    INDEX = "index"
    NO_INDEX = "no index"  # missing or out of date, as while a node runs: no fault
    COMPACTED = "compacted"  # fewer records than offsets: no fault
    ASIDE = "put aside"  # by recovery or repair: worth saying, and no fault


NOTES: Final = frozenset({
    FindingKind.UNKNOWN, FindingKind.NO_INDEX, FindingKind.ASIDE, FindingKind.COMPACTED})


class Finding(NamedTuple):
    """Something to report about a position in a log."""

    kind: FindingKind
    detail: str

    @property
    def is_fault(self) -> bool:
        """Is it wrong, or only remarkable?"""
        return self.kind not in NOTES

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


class Continuity:
    """Remembers where the next batch must start."""

    __slots__ = ("_broken", "_epoch", "next_log_offset", "next_offset")

    def __init__(self) -> None:
        self.next_log_offset: int | None = None  # None before the first batch
        self.next_offset: int | None = None
        self._epoch: int | None = None
        self._broken = False

    def break_off(self) -> None:
        """Note damage: the next batch need not follow, and what lies between is lost."""
        self._broken = True

    def note(self, header: StoredHeader) -> list[Finding]:
        """Take the next batch; what is wrong with it, given those before."""
        findings: list[Finding] = []
        if (header.log_offset != self.next_log_offset or header.base_offset != self.next_offset
                or self._broken) and self.next_log_offset is not None:
            findings += self._offsets(header)
        if self._epoch is not None and header.leader_epoch < self._epoch:
            findings.append(Finding(  # storage.inspect.L3
                FindingKind.EPOCH, f"{header.leader_epoch} after {self._epoch}"))
        span = header.last_offset_delta + 1
        if 0 <= header.count < span and header.batch_type in {DATA, FILLER}:
            findings.append(Finding(
                FindingKind.COMPACTED, f"{header.count} records are left of {span}"))
        elif header.count < 1 or header.count != span:
            findings.append(Finding(  # storage.inspect.L4
                FindingKind.COUNT,
                f"{header.count} records in {header.last_offset_delta + 1} offsets"))
        if find(header.batch_type) is None and header.batch_type != 0:
            findings.append(Finding(
                FindingKind.UNKNOWN,
                f"{describe(header.batch_type)}; kept and hidden from clients"))
        self._epoch = header.leader_epoch
        self.next_log_offset = header.next_log_offset
        self.next_offset = header.next_offset
        self._broken = False
        return findings

    def note_first(self, header: StoredHeader, first_log_offset: int | None) -> list[Finding]:
        """What is wrong with the first batch of a segment besides (storage.inspect.L5)."""
        findings = []
        if first_log_offset is not None and header.log_offset != first_log_offset:
            findings.append(Finding(
                FindingKind.NAME,
                f"named {first_log_offset}, begins at log offset {header.log_offset}"))
        if header.batch_type != CHECKPOINT:
            findings.append(Finding(
                FindingKind.NO_CHECKPOINT, f"segment begins with {describe(header.batch_type)}"))
        return findings

    def _offsets(self, header: StoredHeader) -> list[Finding]:
        """What is wrong with a batch's offsets (storage.inspect.L1, storage.inspect.L2)."""
        wanted_log, wanted = self.next_log_offset, self.next_offset
        assert wanted_log is not None
        assert wanted is not None
        if header.log_offset > wanted_log:
            kind = FindingKind.LOST if self._broken else FindingKind.GAP
            return [Finding(kind, f"log offsets {_span(wanted_log, header.log_offset)}, "
                                  f"offsets {_span(wanted, header.base_offset)}")]
        if header.log_offset < wanted_log:
            return [Finding(FindingKind.OVERLAP, f"log offset {header.log_offset} again, "
                                          f"{wanted_log} comes next")]
        if header.base_offset != wanted:
            return [Finding(FindingKind.GAP if header.base_offset > wanted else FindingKind.OVERLAP,
                            f"offset {header.base_offset}, {wanted} comes next")]
        return []


def _span(start: int, end: int) -> str:
    """A half-open range in words."""
    if end <= start:
        return "none"
    return f"{start}" if end == start + 1 else f"{start} to {end - 1}"

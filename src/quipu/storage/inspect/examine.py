"""A whole log, gone through once: every batch, everything that is wrong, and a summary.

    examination = Examination(disk, log)
    for seen in examination:    # ExaminedBatch, SeenDamage, SeenFile
        ...
    examination.summary

Files are mapped one after the other and walked in order, so memory stays the same for any size.
What is wrong is always given, also outside of a selection; but files that a selection of offsets
rules out are not opened at all.
"""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from quipu.model.batch_types import DATA, describe
from quipu.model.ids import NO_TIMESTAMP
from quipu.runtime.disks.disk import Disk
from quipu.runtime.disks.mapping import release_pages
from quipu.storage.inspect.continuity import Continuity, Finding, FindingKind
from quipu.storage.inspect.files import LogFiles, SegmentFile
from quipu.storage.inspect.index_check import IndexCheck
from quipu.storage.inspect.walk import WalkedBatch, WalkedDamage, walk
from quipu.wire.stored_batch import STORED_HEADER_SIZE, Fault, StoredHeader, check_header

RELEASE_SIZE: Final = 32 << 20  # bytes walked after which their memory is given back
_FAR: Final = 1 << 62  # an end that no batch reaches: to check a header without its body


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which batches to return; ranges are half-open, None is no limit."""

    offset_start: int | None = None  # client offsets
    offset_end: int | None = None
    time_start_ms: int | None = None
    time_end_ms: int | None = None
    types: frozenset[int] | None = None

    def wants(self, header: StoredHeader) -> bool:
        """Does any record of the batch lie in the range?"""
        if self.types is not None and header.batch_type not in self.types:
            return False
        last_offset = max(header.base_offset, header.next_offset - 1)
        return ((self.offset_start is None or last_offset >= self.offset_start)
                and (self.offset_end is None or header.base_offset < self.offset_end)
                and (self.time_start_ms is None or header.max_timestamp >= self.time_start_ms)
                and (self.time_end_ms is None or header.base_timestamp < self.time_end_ms))

    def wants_record(self, offset: int, timestamp_ms: int) -> bool:
        """Does this record of a data batch lie in the range?"""
        return ((self.offset_start is None or offset >= self.offset_start)
                and (self.offset_end is None or offset < self.offset_end)
                and (self.time_start_ms is None or timestamp_ms >= self.time_start_ms)
                and (self.time_end_ms is None or timestamp_ms < self.time_end_ms))


EVERYTHING: Final = Selection()


class ExaminedBatch(NamedTuple):
    """One batch; its bytes are those of `data` from its position on."""

    segment: SegmentFile
    batch: WalkedBatch
    findings: list[Finding]
    data: memoryview
    is_verified: bool  # was the body's checksum computed?


class SeenDamage(NamedTuple):
    """Bytes that are no batch."""

    segment: SegmentFile
    damage: WalkedDamage
    findings: list[Finding]


class SeenFile(NamedTuple):
    """Something about a file as a whole."""

    segment: SegmentFile
    findings: list[Finding]


Seen = ExaminedBatch | SeenDamage | SeenFile


@dataclass(slots=True)
class TypeCount:
    """How much of a log has one type."""

    batches: int = 0
    records: int = 0
    bytes: int = 0


@dataclass(slots=True)
class LogSummary:
    """What was seen of a log.  Offsets are None where there was no batch."""

    name: str
    segments: int = 0
    bytes: int = 0
    damaged_bytes: int = 0
    start_offset: int | None = None
    end_offset: int | None = None
    start_log_offset: int | None = None
    end_log_offset: int | None = None
    first_timestamp: int = NO_TIMESTAMP
    last_timestamp: int = NO_TIMESTAMP
    last_epoch: int = -1
    types: dict[str, TypeCount] = field(default_factory=dict)
    findings: Counter[str] = field(default_factory=Counter)
    fault_count: int = 0

    @property
    def batches(self) -> int:
        return sum(count.batches for count in self.types.values())

    @property
    def records(self) -> int:
        return sum(count.records for count in self.types.values())

    def note(self, header: StoredHeader) -> None:
        """Count one batch."""
        name = describe(header.batch_type)
        count = self.types.get(name)
        if count is None:
            count = self.types[name] = TypeCount()
        count.batches += 1
        count.records += max(0, header.count)
        count.bytes += header.size
        if self.start_log_offset is None:
            self.start_offset, self.start_log_offset = header.base_offset, header.log_offset
        self.end_offset, self.end_log_offset = header.next_offset, header.next_log_offset
        self.last_epoch = header.leader_epoch
        if header.batch_type == DATA and header.base_timestamp >= 0:
            if self.first_timestamp < 0 or header.base_timestamp < self.first_timestamp:
                self.first_timestamp = header.base_timestamp
            self.last_timestamp = max(self.last_timestamp, header.max_timestamp)

    def note_findings(self, findings: list[Finding]) -> None:
        for finding in findings:
            self.findings[finding.kind.value] += 1
            self.fault_count += finding.is_fault


class Examination:
    """Iterate once; `summary` is complete afterwards."""

    def __init__(
        self, disk: Disk, log: LogFiles, *, verify: bool = True,
        selection: Selection = EVERYTHING, flushed: int = 0,
    ) -> None:
        """`flushed` is the log offset below which a node expects everything to be there."""
        self.log = log
        self._flushed = flushed
        self.summary = LogSummary(log.name)
        self._disk = disk
        self._verify = verify
        self._selection = selection
        self._continuity = Continuity()

    def __iter__(self) -> Iterator[Seen]:
        segments = list(self._selected())
        for segment in segments:
            yield from self._segment(segment)
        findings = [Finding(FindingKind.ASIDE, name) for name in self.log.aside]
        log_end = self._continuity.next_log_offset or 0
        if log_end < self._flushed and self._selection.offset_end is None:
            findings.append(Finding(
                FindingKind.SHORT, f"ends at log offset {log_end}, {self._flushed} were durable"))
        if findings and segments:
            yield self._file(segments[-1], findings)

    def _segment(self, segment: SegmentFile) -> Iterator[Seen]:
        data = self._disk.map(segment.path)
        self.summary.segments += 1
        self.summary.bytes += len(data)
        index = IndexCheck(self._disk, segment)
        log_offset_min = max(segment.first_log_offset or 0, self._continuity.next_log_offset or 0)
        release_at = RELEASE_SIZE
        for item in walk(data, log_offset_min=log_offset_min, verify=self._verify):
            if item.position >= release_at:
                release_pages(data, item.position)
                release_at = item.position + RELEASE_SIZE
            if isinstance(item, WalkedDamage):
                index.note_damage()
                yield self._damage(segment, item)
                continue
            index.note(item.position, item.header)
            findings = self._batch_findings(segment, item)
            if (self._selection is EVERYTHING or self._selection.wants(item.header)
                    or any(each.is_fault for each in findings)):
                yield ExaminedBatch(segment, item, findings, data, self._verify)
        is_last = segment == self.log.segments[-1]
        findings = index.finish(len(data), is_last=is_last)
        if len(data) == 0 and not is_last:
            findings.append(Finding(FindingKind.DAMAGE, "an empty segment before the last one"))
        if findings:
            yield self._file(segment, findings)

    def _batch_findings(self, segment: SegmentFile, batch: WalkedBatch) -> list[Finding]:
        header = batch.header
        findings = self._continuity.note(header)
        if batch.position == 0:
            findings += self._continuity.note_first(header, segment.first_log_offset)
        if batch.fault is Fault.UNSET_TYPE:
            findings.append(Finding(
                FindingKind.UNSET, "type 0: the writer of this batch has a bug"))
        elif batch.fault is not None:
            findings.append(Finding(FindingKind.BODY, "the bytes are not what was written"))
        self.summary.note(header)
        self.summary.note_findings(findings)
        return findings

    def _damage(self, segment: SegmentFile, damage: WalkedDamage) -> SeenDamage:
        size = damage.end - damage.position
        self._continuity.break_off()
        self.summary.damaged_bytes += size
        finding = Finding(FindingKind.DAMAGE, f"{damage.fault}: {size} bytes at position "
                                       f"{damage.position} are no batch")
        self.summary.note_findings([finding])
        return SeenDamage(segment, damage, [finding])

    def _file(self, segment: SegmentFile, findings: list[Finding]) -> SeenFile:
        self.summary.note_findings(findings)
        return SeenFile(segment, findings)

    def _selected(self) -> Iterator[SegmentFile]:
        """The segments that may hold what is wanted, by the first offset of each."""
        start, end = self._selection.offset_start, self._selection.offset_end
        segments = self.log.segments
        for segment, following in zip(segments, [*segments[1:], None], strict=True):
            first = self._first_offset(segment) if end is not None else None
            if first is not None and end is not None and first >= end:
                return
            if start is not None and following is not None:
                next_first = self._first_offset(following)
                if next_first is not None and next_first <= start:
                    continue
            yield segment

    def _first_offset(self, segment: SegmentFile) -> int | None:
        """The client offset at which a segment begins; None if its first header is damaged."""
        data = memoryview(self._disk.read(segment.path, STORED_HEADER_SIZE))
        header = check_header(data, end=_FAR) if len(data) == STORED_HEADER_SIZE else None
        return header.base_offset if isinstance(header, StoredHeader) else None


def file_name(segment: SegmentFile) -> str:
    """The name of a file as it is printed."""
    return os.path.basename(segment.path)

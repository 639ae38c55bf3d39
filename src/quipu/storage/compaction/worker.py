"""One pass of compaction over one log: reads its segments, and writes new ones beside them.

Runs outside of the broker's process (child.py); in a simulation, within.  It changes no file of the
log: the log switches to the new files itself (switching.py), as the pass yields them.

    00000000000000000417.log.<nonce>.compacted.new     the segments of a group, as one
    00000000000000000417.index.<nonce>.compacted.new   its index

Invariants
    storage.KW1  memory is bounded: the offset map has the size that the job says, or that of the
        keys of the largest batch; besides that, one batch is in memory, and mapped segments
    storage.KW2  a new segment is durable, and was read again and checked as a whole, before it is
        yielded: every checksum, and that its offsets are those of the segments it replaces
    storage.KW3  a damaged batch ends the pass, before any record is taken for the last of its key

Not here: what becomes of a batch (rewriting.py), which segments (planning.py).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from quipu.model.batch_types import CHECKPOINT, DATA, FILLER
from quipu.model.errors import CorruptLog, MalformedBytes
from quipu.runtime.disks.disk import Disk, File
from quipu.runtime.disks.mapping import release_pages
from quipu.storage.compaction.fillers import SPAN_MAX, make_filler
from quipu.storage.compaction.marks import CompactionMark, with_mark
from quipu.storage.compaction.planning import SegmentFacts
from quipu.storage.compaction.rewriting import (
    PassCounts,
    PassRules,
    Rewriter,
    records_of,
)
from quipu.storage.compaction.walk import ENTRY_SIZE, OffsetMap
from quipu.storage.segments.index import Summary
from quipu.storage.segments.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    OpenSegments,
    Segment,
    segment_path,
)
from quipu.wire.stored_batch import Fault, StoredHeader, check_stored

COMPACTED_SUFFIX: Final = ".compacted.new"  # recovery removes what ends so
WRITE_SIZE: Final = 1 << 20  # bytes written at a time, and between two pauses
RELEASE_SIZE: Final = 8 << 20  # mapped bytes after which their pages are released
MAP_SIZE_MIN: Final = 1 << 16

Pause = Callable[[int], None]  # called with bytes that were read or written; may wait


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionJob:
    """What one pass does, as it is sent to the process that does it."""

    path: str  # of the log's directory
    nonce: str  # part of the new files' names: no two passes write the same file
    segments: tuple[SegmentFacts, ...]
    groups: tuple[tuple[int, ...], ...]  # base log offsets
    first_dirty: int
    end: int
    now_ms: int
    delete_retention_ms: int
    kept_bases: tuple[int, ...] = ()
    map_size_max: int = 128 << 20
    index_interval_bytes: int = 4096
    index_max_bytes: int = 10 << 20


class CompactedGroup(NamedTuple):
    """A new segment that is to replace others."""

    bases: tuple[int, ...]  # of the segments that it replaces
    summary: Summary
    mark: CompactionMark
    size_before: int
    records_read: int
    records_kept: int
    tombstones_removed: int


class PassEnd(NamedTuple):
    """How a pass ended."""

    map_end: int  # log offset up to which keys were noted
    key_count: int
    bytes_read: int
    bytes_written: int


def new_path(job: CompactionJob, base_log: int, suffix: str = LOG_SUFFIX) -> str:
    """Where the new file of a group lies until the log takes it."""
    stem = segment_path(job.path, base_log).removesuffix(LOG_SUFFIX)
    return f"{stem}{suffix}.{job.nonce}{COMPACTED_SUFFIX}"


def new_paths(job: CompactionJob) -> list[str]:
    """All files that a job may have written."""
    return [new_path(job, bases[0], suffix)
            for bases in job.groups for suffix in (LOG_SUFFIX, INDEX_SUFFIX)]


def compact(
    disk: Disk, job: CompactionJob, secret: bytes, pause: Pause = lambda _: None
) -> Iterator[CompactedGroup | PassEnd]:
    """Make the pass: yields each group that has changed, oldest first, and how it ended."""
    run = _Pass(disk, job, secret, pause)
    offsets = run.note_keys()
    for bases in job.groups:
        if bases[0] >= run.map_end > job.first_dirty:
            break
        group = run.rewrite(bases, offsets)
        if group is not None:
            yield group
    yield PassEnd(run.map_end, len(offsets), run.bytes_read, run.bytes_written)


class _Pass:
    def __init__(self, disk: Disk, job: CompactionJob, secret: bytes, pause: Pause) -> None:
        self._disk = disk
        self._job = job
        self._secret = secret
        self._pause = pause
        self._facts = {facts.base_log: facts for facts in job.segments}
        self.map_end = job.first_dirty
        self.bytes_read = 0
        self.bytes_written = 0

    # --- the keys ---------------------------------------------------------------------------

    def note_keys(self) -> OffsetMap:
        """Note the last offset of each key from the first dirty log offset on (storage.KW1)."""
        job = self._job
        dirty = [facts for facts in job.segments
                 if facts.log_end > job.first_dirty and facts.base_log < job.end]
        records_max = sum(facts.end_offset - facts.base_offset for facts in dirty)
        size = min(job.map_size_max, max(MAP_SIZE_MIN, records_max * ENTRY_SIZE))
        offsets = OffsetMap(size, self._secret)
        for facts in dirty:
            for header, stored in self._batches(facts):
                if header.next_log_offset <= job.first_dirty:
                    continue
                if header.next_log_offset > job.end:
                    return offsets
                if not self._put(offsets, header, stored):
                    if self.map_end > job.first_dirty:
                        return offsets
                    offsets = OffsetMap(header.count * ENTRY_SIZE, self._secret)
                    self._put(offsets, header, stored)
                    self.map_end = header.next_log_offset
                    return offsets
                self.map_end = header.next_log_offset
        return offsets

    @staticmethod
    def _put(offsets: OffsetMap, header: StoredHeader, stored: memoryview) -> bool:
        if header.batch_type != DATA or header.count == 0:
            return True
        try:
            return offsets.put(records_of(header, stored), header.count, header.base_offset)
        except MalformedBytes:
            return True  # it stays as it is (storage.KR4)

    def _batches(self, facts: SegmentFacts) -> Iterator[tuple[StoredHeader, memoryview]]:
        """The batches of a segment, all checked (storage.KW3)."""
        path = segment_path(self._job.path, facts.base_log)
        view = self._disk.map(path)
        if len(view) != facts.size:
            raise CorruptLog(f"{path}: has {len(view)} bytes, not {facts.size}")
        position, log_offset, paused_at, release_at = 0, facts.base_log, 0, RELEASE_SIZE
        while position < len(view):
            header = check_stored(view, position)
            if isinstance(header, Fault) or header.log_offset != log_offset:
                raise CorruptLog(f"{path}: damaged at position {position}, log offset "
                                 f"{log_offset}: it is compacted once it is repaired")
            end = position + header.size
            yield header, view[position:end]
            position, log_offset = end, header.next_log_offset
            if position - paused_at >= WRITE_SIZE:
                self._note_read(position - paused_at)
                paused_at = position
            if position >= release_at:
                release_pages(view, position)
                release_at = position + RELEASE_SIZE
        self._note_read(position - paused_at)

    def _note_read(self, size: int) -> None:
        self.bytes_read += size
        self._pause(size)

    # --- a new segment ----------------------------------------------------------------------

    def rewrite(self, bases: tuple[int, ...], offsets: OffsetMap) -> CompactedGroup | None:
        """Write the segments of a group as one; None if nothing would change."""
        job, group = self._job, [self._facts[base] for base in bases]
        rewriter = Rewriter(offsets, PassRules(
            map_end=self.map_end, clean_end=job.first_dirty, now_ms=job.now_ms,
            delete_retention_ms=job.delete_retention_ms, kept_bases=frozenset(job.kept_bases)))
        path = new_path(job, bases[0])
        file = self._disk.open(path, create=True)
        try:
            assert file.size == 0, path  # the name is its own
            output = _Output(file, self._note_written)
            for facts in group:
                for header, stored in self._batches(facts):
                    output.add(header, self._rewritten(rewriter, output, header, stored))
            output.finish()
            mark = self._mark(group, rewriter.counts)
            if (len(group) == 1 and not rewriter.counts.is_changed
                    and mark == group[0].mark):
                self._disk.remove(path)
                return None
            first, stored = output.first()
            file.patch(with_mark(stored, first, mark), 0)
            file.sync()
            summary = self._sealed(path, file, group)
        finally:
            file.close()
        self._disk.sync_directory(job.path)
        counts = rewriter.counts
        return CompactedGroup(
            bases, summary, mark, sum(facts.size for facts in group), counts.records_read,
            counts.records_kept, counts.tombstones_removed)

    def _rewritten(
        self, rewriter: Rewriter, output: "_Output", header: StoredHeader, stored: memoryview
    ) -> memoryview | None:
        if header.batch_type != CHECKPOINT:
            return rewriter.rewrite(header, stored)
        if output.is_empty:  # as large as it will be with the mark that is not known yet
            return memoryview(with_mark(stored, header, _WIDE))
        rewriter.counts.is_changed = True
        return None

    def _mark(self, group: list[SegmentFacts], counts: PassCounts) -> CompactionMark:
        """What the new segment says (storage.KM1)."""
        start, end = group[0].base_log, group[-1].log_end
        claims = [facts.mark.cleaned_end for facts in group
                  if facts.base_log < facts.mark.cleaned_end <= facts.log_end]
        if start < self.map_end <= end:
            claims.append(self.map_end)
        removed = max(counts.removed_end, *(facts.mark.removed_end for facts in group))
        return CompactionMark(max(claims, default=0), removed, counts.horizon_ms)

    def _sealed(self, path: str, file: File, group: list[SegmentFacts]) -> Summary:
        """Read the new segment again, check all of it, and write its index (storage.KW2)."""
        job = self._job
        segment = Segment(self._disk, OpenSegments(), path, group[0].base_log)
        segment.index_interval = job.index_interval_bytes
        segment.index_size_max = job.index_max_bytes
        segment.file = file
        scan = segment.scan(file, lambda _: None)
        segment.file = None
        found = (segment.base_offset, scan.end_offset, scan.log_end, scan.position)
        wanted = (group[0].base_offset, group[-1].end_offset, group[-1].log_end, file.size)
        if scan.fault is not None or found != wanted:
            raise CorruptLog(f"{path}: written wrong: {scan.fault}, {found} instead of {wanted}")
        summary = segment.summary._replace(size=file.size)
        self._disk.write(new_path(job, group[0].base_log, INDEX_SUFFIX),
                         segment.encode_index(summary))
        return summary

    def _note_written(self, size: int) -> None:
        self.bytes_written += size
        self._pause(size)


_WIDE: Final = CompactionMark(-1, -1, -1)  # a mark has one size, whatever it says


class _Output:
    """The batches of a new segment, with fillers where batches went."""

    def __init__(self, file: File, note_written: Pause) -> None:
        self._file = file
        self._note_written = note_written
        self._parts: list[memoryview | bytes] = []
        self._size = 0
        self._filler: tuple[int, int, int, int, int] | None = None
        self._first: tuple[StoredHeader, memoryview] | None = None

    @property
    def is_empty(self) -> bool:
        return self._first is None

    def first(self) -> tuple[StoredHeader, memoryview]:
        """The checkpoint that the file begins with."""
        assert self._first is not None
        return self._first

    def add(self, header: StoredHeader, stored: memoryview | None) -> None:
        """Write `stored` in place of the batch with this header; None: have it covered."""
        if stored is None:
            self._cover(header)
            return
        if self._first is None:
            assert header.batch_type == CHECKPOINT, header  # storage.L3
            self._first = header, stored
        self._flush_filler()
        self._write(stored)

    def finish(self) -> None:
        self._flush_filler()
        self._write_out()

    def _cover(self, header: StoredHeader) -> None:
        """Add the offsets of a batch to the filler before it, if they belong together.

        Keeps storage.KF1.
        """
        batch_type = DATA if header.batch_type == DATA else FILLER
        span = header.last_offset_delta + 1
        if self._filler is not None:
            kind, log_offset, offset, covered, epoch = self._filler
            if (kind, epoch) == (batch_type, header.leader_epoch) and covered + span <= SPAN_MAX:
                self._filler = kind, log_offset, offset, covered + span, epoch
                return
            self._flush_filler()
        self._filler = (batch_type, header.log_offset, header.base_offset, span,
                        header.leader_epoch)

    def _flush_filler(self) -> None:
        if self._filler is not None:
            batch_type, log_offset, base_offset, span, epoch = self._filler
            self._filler = None
            self._write(make_filler(batch_type, log_offset=log_offset, base_offset=base_offset,
                                    span=span, leader_epoch=epoch))

    def _write(self, stored: memoryview | bytes) -> None:
        self._parts.append(stored)
        self._size += len(stored)
        if self._size >= WRITE_SIZE or len(self._parts) >= 512:
            self._write_out()

    def _write_out(self) -> None:
        if self._parts:
            self._file.append(self._parts, self._size)
            self._note_written(self._size)
            self._parts, self._size = [], 0

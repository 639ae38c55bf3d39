"""One segment: a run of batches in one append-only file, and the index that finds them.

    00000000000000000417.log     batches back to back, each with its stored prefix
    00000000000000000417.index   sparse offsets and timestamps -> position; a cache (index.py)

The name is the log offset of the first batch, which is a CHECKPOINT.

Invariants
    storage.S1  base_log <= every log offset in the file < base_log of the next segment, no gap
    storage.S2  only the last segment of a log, the active one, is written to
    storage.S3  a sealed segment is complete, durable, and has a sound index file; it is unsealed
        only between the roll that completed it and the sync that follows
    storage.S4  what a reader got stays valid while it is held: files are cut by replacing them
    storage.S5  what a client or another node is given is checked each time; but of the active
        segment, what this process has written, or scanned at its start, is trusted

Not here: when to roll (log.py) or to delete (retention.py); a batch's layout (wire).
"""

import logging
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from struct import Struct
from typing import Final

from quipu.model.batch_types import DATA
from quipu.model.errors import CorruptLog, MalformedBytes
from quipu.model.ids import NO_TIMESTAMP
from quipu.runtime.disks.disk import Disk, File, NotFound, TransientDiskError
from quipu.storage.compaction.marks import CompactionMark, read_mark
from quipu.storage.config import NEVER, LogConfig
from quipu.storage.segments.damage import Damage, next_damage, scan_to_fault
from quipu.storage.segments.index import (
    DELTA_MAX,
    ENTRY_SIZE,
    HEADER_SIZE,
    Index,
    IndexEntry,
    Summary,
    decode_index,
    decode_summary,
)
from quipu.storage.segments.scan import Scan, Scanned
from quipu.wire.scan_run import Run
from quipu.wire.stored_batch import STORED_HEADER_SIZE, Fault, StoredHeader, check_header

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
NAME_DIGITS: Final = 20
OPEN_SEGMENTS_MAX: Final = 512  # complete segments that one node keeps mapped
TAIL_READ_SIZE: Final = 512 << 10  # up to here a copy of the tail is cheaper than a new map
TAILS_SIZE_MAX: Final = 8 << 20  # bytes of such copies that one node keeps for the next reader

Visit = Callable[[Scanned | Run], None]

_log = logging.getLogger(__name__)
_LOG_OFFSET: Final = Struct(">8xq")  # of a stored batch


def segment_path(directory: str, base_log: int) -> str:
    return f"{directory}/{base_log:0{NAME_DIGITS}d}{LOG_SUFFIX}"


class OpenSegments:
    """Which complete segments are mapped: the ones read last, for all logs of a node."""

    def __init__(self, count_max: int = OPEN_SEGMENTS_MAX) -> None:
        self._count_max = count_max
        self._segments: OrderedDict[Segment, None] = OrderedDict()
        self._tails: OrderedDict[Segment, int] = OrderedDict()
        self._tails_size = 0
        self.damaged: dict[Segment, None] = {}  # have batches that are not what was written

    def keep_tail(self, segment: "Segment", size: int) -> None:
        """Let `segment` keep a copy of its tail; those that were read longest ago make room."""
        tails = self._tails
        self._tails_size += size - tails.get(segment, 0)
        tails[segment] = size
        tails.move_to_end(segment)
        while self._tails_size > TAILS_SIZE_MAX:
            oldest, oldest_size = tails.popitem(last=False)
            self._tails_size -= oldest_size
            oldest.forget_tail()
        assert self._tails_size >= size, (self._tails_size, size)  # its own is kept

    def touch(self, segment: "Segment") -> None:
        """Count a segment as read last; the one that was read longest ago makes room."""
        self._segments[segment] = None
        self._segments.move_to_end(segment)
        if len(self._segments) > self._count_max:
            oldest, _ = self._segments.popitem(last=False)
            oldest.release()
        assert len(self._segments) <= self._count_max, len(self._segments)

    def forget(self, segment: "Segment") -> None:
        """Count a segment no longer: nothing of it is mapped, and it keeps no tail."""
        self._segments.pop(segment, None)
        self._tails_size -= self._tails.pop(segment, 0)
        assert self._tails_size >= 0, self._tails_size

    def __len__(self) -> int:
        return len(self._segments)


class Segment:
    """One segment, active (`file` is open) or complete."""

    __slots__ = ("_disk", "_index", "_opened", "_resumed_at", "_size", "_tail", "_tail_start",
                 "_view", "base_log", "base_offset", "checkpoint_log_end", "created_ms",
                 "damage", "end_offset", "file", "index_due", "index_interval", "index_size_max",
                 "kept_read", "log_end", "mark", "max_timestamp", "path", "roll_ms", "roll_size",
                 "trusted_from")

    def __init__(self, disk: Disk, opened: OpenSegments, path: str, base_log: int) -> None:
        self.path = path
        self.base_log = base_log
        self.base_offset = 0
        self.end_offset = 0  # of a complete one; the active one's are the log's
        self.log_end = 0
        self.max_timestamp: int = NO_TIMESTAMP  # of data batches
        self.created_ms = 0
        self.file: File | None = None
        self.checkpoint_log_end = 0  # log offset after its checkpoint, 0 if not known
        self.roll_size = 0  # limits of the active one, set by the log
        self.roll_ms = 0
        self.index_due = 0  # position from which the next batch gets an entry
        self.index_interval = 4096
        self.index_size_max = 2**31
        self.trusted_from = NEVER  # position from which bytes are not checked (storage.S5)
        self.damage: list[Damage] = []  # that is known, in order
        self.mark: CompactionMark | None = None  # what its checkpoint says; None: not read yet
        self._resumed_at = 0, 0, 0  # where this process went on: position, log and client offset
        self._disk = disk
        self._opened = opened
        self._size = 0
        self._index: Index | None = None
        self._view: memoryview | None = None
        self._tail: memoryview | None = None  # what was last read of the end, for other readers
        self._tail_start = 0
        # The last read of the tail, and its result: consumers at the end all read the same.
        self.kept_read: tuple[tuple[int, int, int, bool], list[memoryview]] | None = None

    # --- what it is -------------------------------------------------------------------------

    @property
    def size(self) -> int:
        return self.file.size if self.file is not None else self._size

    @property
    def newest_ms(self) -> int:
        """When its newest record was written; without any, when it was created."""
        return self.max_timestamp if self.max_timestamp != NO_TIMESTAMP else self.created_ms

    @property
    def stem(self) -> str:
        """Its path without what comes after the number."""
        return self.path.removesuffix(LOG_SUFFIX)

    @property
    def index_path(self) -> str:
        return self.stem + INDEX_SUFFIX

    @property
    def summary(self) -> Summary:
        return Summary(self.size, self.base_offset, self.end_offset, self.log_end,
                       self.max_timestamp, self.created_ms)

    def share(self, opened: OpenSegments) -> None:
        """From now on it is one of those that share `opened`; before, nothing of it was mapped."""
        assert self._view is None, self.path
        self._opened = opened

    # --- writing ----------------------------------------------------------------------------

    def set_limits(self, config: LogConfig) -> None:
        """Set when to roll, and how densely to index."""
        assert self.file is not None or self._size == 0, self.path  # storage.S2
        self.roll_size = config.segment_bytes
        self.roll_ms = self.created_ms + config.segment_ms
        self.index_interval = config.index_interval_bytes
        self.index_size_max = max(config.index_max_bytes, ENTRY_SIZE)  # one for the checkpoint

    def postpone_roll(self, roll_ms: int) -> None:
        """Let it grow older, up to `roll_ms`: there is nothing in it yet."""
        assert roll_ms >= self.roll_ms, self.path
        self.roll_ms = roll_ms

    def add_entry(self, offset: int, log_offset: int, position: int) -> bool:
        """Index the batch that is about to be written; False if the index is full."""
        index = self._index
        assert index is not None, self.path
        assert position >= self.index_due, (self.path, position)
        delta = log_offset - self.base_log
        assert delta >= 0, (self.path, log_offset)  # storage.S1
        if index.size + ENTRY_SIZE > self.index_size_max or delta > DELTA_MAX:
            return False
        index.add((offset - self.base_offset, delta, position, self.max_timestamp))
        self.index_due = position + self.index_interval
        return True

    def start_index(self) -> None:
        self._index = Index()
        self.index_due = 0
        self.max_timestamp = NO_TIMESTAMP

    def resume_index(self) -> None:
        """Let the index that was read from a file grow again; the file would become stale."""
        assert self.file is None, self.path
        index = self._loaded_index()
        self._index = Index()
        for number in range(len(index)):
            self._index.add(index[number])
        assert len(self._index) == len(index), self.path
        self.index_due = self._index[len(self._index) - 1].position + self.index_interval
        self._opened.forget(self)
        self._disk.remove(self.index_path)

    def write_index(self) -> None:
        """Write the index file: the segment is complete and durable (storage.S3)."""
        assert self._index is not None, self.path
        assert self.log_end > self.base_log, self.path  # storage.S1
        self._disk.write(self.index_path, self.encode_index(self.summary))

    def encode_index(self, summary: Summary) -> bytes:
        """The bytes of the index file of this segment, which `summary` describes."""
        assert self._index is not None, self.path
        return self._index.encode(summary)

    def adopt(self, summary: Summary) -> None:
        """Be the complete segment that `summary` describes; its files are in place."""
        assert self.file is None, self.path
        assert summary.log_end > self.base_log, self.path  # storage.S1
        (self._size, self.base_offset, self.end_offset, self.log_end, self.max_timestamp,
         self.created_ms) = summary

    def complete(self, end_offset: int, log_end: int) -> None:
        """Note that no more batches will come (storage.S2); the file stays open until synced."""
        assert self.file is not None, self.path
        assert log_end > self.base_log, self.path  # storage.S1
        assert end_offset >= self.base_offset, self.path
        self.end_offset = end_offset
        self.log_end = log_end

    def close(self) -> None:
        """Close the file; what is read later is mapped again."""
        if self.file is not None:
            self._size = self.file.size
            self.file.close()
            self.file = None
            self.trusted_from = NEVER
        self.release()
        self._opened.damaged.pop(self, None)

    def trust(self) -> None:
        """Trust all of it: it was checked, or is written by this process (storage.S5)."""
        self.trusted_from = 0

    def trust_from_here(self) -> None:
        """Trust only what is appended from now on, by this process (storage.S5)."""
        assert self.file is not None, self.path
        self.trusted_from = self.size
        self._resumed_at = self.size, self.log_end, self.end_offset

    def report_damage(self) -> None:
        """Have the node look for a repair of its damage."""
        assert self.damage, self.path
        self._opened.damaged[self] = None

    def release(self) -> None:
        """Drop what can be had again from the files."""
        if self.file is None:
            self._index = None
        self._view = None
        self.forget_tail()
        self._opened.forget(self)

    # --- reading ----------------------------------------------------------------------------

    def window(self, position: int, size: int) -> tuple[memoryview, int]:
        """Bytes from `position` on, at least `size` of them if the segment has them, or one batch.

        Returns a buffer that ends where a batch does, and where in the segment it begins.
        """
        view = self._view
        if self.file is None:
            if view is None:
                view = self._map()
            self._opened.touch(self)
            return view, 0
        segment_size = self.file.size
        if view is not None and position < len(view) and position + size <= len(view):
            return view, 0
        if view is not None and len(view) == segment_size:
            return view, 0
        if segment_size - position <= TAIL_READ_SIZE:
            return self._read_tail(position, segment_size)
        self._view = view = self.file.map()
        return view, 0

    def _read_tail(self, position: int, segment_size: int) -> tuple[memoryview, int]:
        """The bytes from `position` or before it to the end; one copy serves many readers."""
        tail, start = self._tail, self._tail_start
        if tail is None or position < start or start + len(tail) != segment_size:
            assert self.file is not None, self.path
            assert 0 <= position < segment_size, (self.path, position)
            tail, start = memoryview(self.file.read(segment_size - position, position)), position
            self._tail, self._tail_start = tail, start
            assert start + len(tail) == segment_size, self.path
            self._opened.keep_tail(self, len(tail))
        return tail, start

    def forget_tail(self) -> None:
        self._tail = self.kept_read = None

    def _map(self) -> memoryview:
        view = self._disk.map(self.path)
        if len(view) != self._size:
            raise CorruptLog(f"{self.path}: has {len(view)} bytes, {self._size} were written; "
                             "something else changed it: see `quipu log show`")
        self._view = view
        return view

    def index_around(self, position: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """The batches that the index names at or before `position`, and after it: for each, its
        position, log offset and client offset.  After the last one comes the segment's end.
        """
        before, after = self._loaded_index().around(position)
        end = (self.size, self.log_end, self.end_offset)
        if self.file is not None and position < self.trusted_from:
            end = self._resumed_at
            after = after if after is not None and after.position < end[0] else None
        if after is not None:
            end = (after.position, self.base_log + after.log_offset_delta,
                   self.base_offset + after.offset_delta)
        return (before.position, self.base_log + before.log_offset_delta,
                self.base_offset + before.offset_delta), end

    def index_entries(self) -> bytes:
        """The entries of its index, as they are in the file."""
        return self._loaded_index().entries

    def find_offset(self, offset: int) -> int:
        """Position of a batch at or before the one that holds client offset `offset`."""
        delta = offset - self.base_offset
        return self._locate(lambda index: index.find_offset(delta))

    def find_log_offset(self, log_offset: int) -> int:
        """The same by log offset."""
        delta = log_offset - self.base_log
        return self._locate(lambda index: index.find_log_offset(delta))

    def find_timestamp(self, timestamp: int) -> int:
        """Position before which no data batch is as new as `timestamp`."""
        return self._locate(lambda index: index.find_timestamp(timestamp))

    def _locate(self, find: Callable[[Index], IndexEntry]) -> int:
        entry = find(self._loaded_index())
        # An active one's index was made here; a damaged header is found by the read that follows.
        if self.file is not None or self._is_true(entry) or self._is_damaged(entry.position):
            return entry.position
        _log.warning("%s names other batches than the segment has: rebuilt", self.index_path)
        entry = find(self.rebuild_index())
        return entry.position

    def _is_true(self, entry: IndexEntry) -> bool:
        """Is the batch at the entry's position the one that it names?"""
        view, _ = self.window(entry.position, STORED_HEADER_SIZE)
        if entry.position + STORED_HEADER_SIZE > len(view):
            return False
        (log_offset,) = _LOG_OFFSET.unpack_from(view, entry.position)
        return bool(log_offset == self.base_log + entry.log_offset_delta)

    def _is_damaged(self, position: int) -> bool:
        view, _ = self.window(position, STORED_HEADER_SIZE)
        return isinstance(check_header(view, position), Fault)

    def _loaded_index(self) -> Index:
        if self._index is None:
            try:
                summary, index = decode_index(self._disk.map(self.index_path))
                if summary != self.summary:
                    raise MalformedBytes("written for another segment")
            except (MalformedBytes, NotFound) as error:
                _log.warning("%s: %s; rebuilt", self.index_path, error)
                return self.rebuild_index()
            self._index = index
            self._opened.touch(self)
        return self._index

    # --- getting to know a segment --------------------------------------------------------

    def resized(self, growth: int) -> None:
        """Note that other bytes replaced some of its own: `growth` more, or fewer if negative."""
        assert self.file is None, self.path
        assert self._size + growth > 0, (self.path, growth)
        self._size += growth

    def compaction_mark(self) -> CompactionMark:
        """What its checkpoint says of its compaction."""
        if self.mark is None:
            self.mark = read_mark(self._disk, self.path)
        return self.mark

    def load_summary(self, size: int) -> bool:
        """Take what the index file says; False if there is no sound one for `size` bytes."""
        try:
            summary = decode_summary(self._disk.read(self.index_path, HEADER_SIZE))
        except (MalformedBytes, NotFound):
            return False
        if summary.size != size or summary.log_end <= self.base_log:
            return False
        self.adopt(summary)
        return True

    def scan(self, file: File, visit: Visit, *, end_offset: int | None = None) -> Scan:
        """Check every batch in `file`, which is this segment's, and index it on the way.

        `visit` sees each sound batch, or the sum of a run of plain ones.  The result says where
        it ended and why.
        """
        self.start_index()
        scan = Scan(file, log_end=self.base_log, end_offset=end_offset)
        for batch in scan:
            header = batch.header
            if batch.position == 0:
                self.base_offset, self.created_ms = header.base_offset, header.base_timestamp
                self.checkpoint_log_end = header.next_log_offset
            self.index_batch(header, batch.position)
            visit(batch)
            run = scan.skim(mark_due=self.index_due, mark_interval=self.index_interval)
            if run is not None:
                self.index_run(run)
                visit(run)
        self.log_end = scan.log_end
        self.end_offset = scan.end_offset if scan.end_offset is not None else 0
        assert self.log_end >= self.base_log, self.path  # storage.S1
        assert scan.position <= file.size, (self.path, scan.position)
        return scan

    def index_batch(self, header: StoredHeader, position: int) -> None:
        """Index a batch that is in the file at `position`, if it is due."""
        if position >= self.index_due:
            self.add_entry(header.base_offset, header.log_offset, position)
        if header.batch_type == DATA:
            self.max_timestamp = max(self.max_timestamp, header.max_timestamp)

    def index_run(self, run: Run, *, shift: int = 0) -> None:
        """Add the entries of a run whose positions count from `shift`."""
        newest, marks = self.max_timestamp, run.marks
        if marks:
            index, base_offset, base_log = self._index, self.base_offset, self.base_log
            assert index is not None, self.path
            assert shift + marks[0][2] >= self.index_due, (self.path, shift)
            room = max(0, self.index_size_max - index.size) // ENTRY_SIZE
            entries = [
                (offset - base_offset, log_offset - base_log, shift + position,
                 max(newest, timestamp))
                for offset, log_offset, position, timestamp in marks[:room]
                if log_offset - base_log <= DELTA_MAX]
            if entries:
                index.add_all(entries)
                self.index_due = entries[-1][2] + self.index_interval
        self.max_timestamp = max(newest, run.max_timestamp)

    def rebuild_index(self) -> Index:
        """Scan the complete segment and write a new index.

        If the segment is damaged too, the index reaches as far as it is not, and is not written.
        """
        assert self.file is None, self.path
        known, checkpoint_log_end, self._view = self.summary, self.checkpoint_log_end, None
        file = self._disk.open(self.path)
        try:
            scan = self.scan(file, lambda _: None)
            self._size = file.size
        finally:
            file.close()
        assert self._index is not None, self.path
        if self.compaction_mark().may_have_holes:  # a repair may have brought other records
            known = known._replace(max_timestamp=self.max_timestamp)
        if scan.fault is not None or self.summary != known:
            why = scan.fault or f"now holds {self.summary}, held {known}"
            (self._size, self.base_offset, self.end_offset, self.log_end, self.max_timestamp,
             self.created_ms) = known
            self.checkpoint_log_end = checkpoint_log_end
            if file.size != known.size or scan.position >= known.size:
                raise CorruptLog(f"{self.path}: {why}, at position {scan.position}; nothing was "
                                 "changed: see `quipu log show` and `quipu log repair`")
            if not len(self._index):
                self._index.add((0, 0, 0, NO_TIMESTAMP))
            if next_damage(self, scan.position) is None:
                self.damage.append(scan_to_fault(self, scan, why))
                self.report_damage()
                _log.error("%s: %s", self.path, self.damage[-1])
        else:
            with suppress(TransientDiskError):  # the one in memory serves; a later one is written
                self.write_index()
        self._opened.touch(self)
        return self._index

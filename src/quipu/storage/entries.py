"""Entries: batches of one type that travel together, by value, from one log to another.

An entry is stored batches back to back, and a checkpoint is an entry of its own.  A log that is fed
with the entries of another holds the same bytes in the same files, whatever their types.

Invariants
    storage.T1  an entry is checked as a whole before any of it is written: every checksum, type,
        epoch and offset, how many records it counts, and what this node would have to understand
        of it.  Not the records themselves: the leader has checked them before it stored them
    storage.T2  an entry is written with one call, straight from the buffer that it arrived in
    storage.T3  what is read for others is checked too: damage is found here, and never sent.  (What
        is sent on from memory was checked by storage.T1, or when a client brought it.)

Runs of plain data batches are checked in C (wire/scan_run.py); so the work in Python is per entry,
and per batch only for those that are not plain.

Reads and checks.  Not here: the append itself (log.py).
"""

from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from quipu.model.batch_types import (
    CHECKPOINT,
    DATA,
    FILLER,
    LOG_START,
    TIERED,
    describe,
    require_set,
)
from quipu.model.errors import Code, CorruptLog, MalformedBytes, RequestError
from quipu.model.ids import ZERO_UUID, LogOffset, Offset
from quipu.storage.compaction.fillers import is_filler, split_filler
from quipu.storage.derived.checkpoint import (
    Checkpoint,
    decode_checkpoint,
    decode_log_start,
    decode_tiered,
)
from quipu.storage.segments.damage import note
from quipu.storage.segments.reading import walk
from quipu.storage.segments.segment import Segment
from quipu.storage.segments.segment_list import SegmentList
from quipu.wire.record_batch import count_max
from quipu.wire.scan_run import Expected, Run, scan_run
from quipu.wire.stored_batch import (
    STORED_HEADER_SIZE,
    Fault,
    StoredHeader,
    check_body,
    check_header,
    check_stored,
)

if TYPE_CHECKING:
    from quipu.storage.log_state import LogState

SEGMENT_SIZE_MAX: Final = 2**32 - 1  # positions that an index can name
OFFSET_MAX: Final = 1 << 62
_NO_MARKS: Final = 1 << 62
_TYPE_POSITION: Final = 4  # in a stored batch
_base_log = attrgetter("base_log")


class LogEntry(NamedTuple):
    """Batches of one type, as they lie in a segment."""

    batch_type: int
    data: memoryview
    next_log: LogOffset  # the offsets that follow
    next_offset: Offset


class EntryBatch(NamedTuple):
    """One batch of an entry that was checked by itself, not as part of a run."""

    header: StoredHeader
    data: memoryview
    position: int


# --- reading ----------------------------------------------------------------------------------


class EntryReader:
    """Reads the entries of one log, and remembers where the last reader stopped."""

    def __init__(self, segments: SegmentList) -> None:
        self._segments = segments
        self._next_log = -1
        self._stopped: tuple[Segment | None, int] = None, 0

    def read(self, log_offset: LogOffset, max_bytes: int, *, log: str) -> list[LogEntry]:
        """Entries from `log_offset` on; see `Log.read_entries`."""
        number, position, split = self._locate(log_offset, log)
        found: list[LogEntry] = [] if split is None else [split]
        while number < len(self._segments):
            segment = self._segments[number]
            size = segment.size
            while position < size:
                view, start = segment.window(position, max_bytes)
                try:
                    entry = _read_entry(view, position - start, max_bytes, segment.path,
                                        is_first=not found)
                except CorruptLog:
                    note(segment, position)
                    if found:
                        return found  # what comes before it is sound
                    raise
                if entry is None:
                    assert found, log  # the first batch is returned whatever its size
                    return found
                assert len(entry.data) > 0, log
                found.append(entry)
                max_bytes -= len(entry.data)
                position += len(entry.data)
                assert position <= size, (log, position, size)
                self._next_log, self._stopped = entry.next_log, (segment, position)
                if max_bytes <= 0:
                    return found
            number, position = number + 1, 0
        return found

    def _locate(self, log_offset: int, log: str) -> tuple[int, int, LogEntry | None]:
        """The number of the segment, and where in it the batch begins.

        If `log_offset` is within a filler: the rest of that, and the position after it.
        """
        segments = self._segments
        number = len(segments) - 1
        if number >= 0 and log_offset < segments[number].base_log:
            number = bisect_right(segments, log_offset, key=_base_log) - 1
        if number < 0:
            raise RequestError(f"{log}: log offset {log_offset} is no longer kept",
                               code=Code.OFFSET_OUT_OF_RANGE)
        assert segments[number].base_log <= log_offset, (log, log_offset)
        segment, position = self._stopped
        if log_offset == self._next_log and segment is segments[number]:
            assert 0 < position <= segment.size, (log, position)
            return number, position, None
        if log_offset == segments[number].base_log:
            return number, 0, None
        for batch in walk(segments[number], segments[number].find_log_offset(log_offset)):
            header = batch.header
            if header.next_log_offset <= log_offset:
                continue
            if header.log_offset == log_offset:
                return number, batch.position, None
            if header.log_offset < log_offset and is_filler(header):
                rest = memoryview(split_filler(header, log_offset, header.next_log_offset))
                return number, batch.position + header.size, LogEntry(
                    header.batch_type, rest, LogOffset(header.next_log_offset),
                    Offset(header.next_offset))
            break
        for damage in segments[number].damage:
            if damage.log_offset <= log_offset < damage.next_log:
                raise damage.error(segments[number].path)
        raise RequestError(f"{log}: no batch begins at log offset {log_offset}",
                           code=Code.OFFSET_OUT_OF_RANGE)


def _read_entry(
    view: memoryview, position: int, max_bytes: int, path: str, *, is_first: bool
) -> LogEntry | None:
    """The entry at `position`; None if its first batch exceeds `max_bytes` and is not `is_first`.

    `view` ends where a batch does.
    """
    assert 0 <= position < len(view), (path, position, len(view))
    header = _header(view, position, path)
    start, end = position, min(position + max_bytes, len(view))
    if position + header.size > end:
        if not is_first:
            return None
        end = position + header.size
    limited, batch_type = view[:end], header.batch_type
    next_log, next_offset = header.log_offset, header.base_offset
    while True:
        run = scan_run(limited, position, Expected(next_log, next_offset, header.leader_epoch),
                       mark_due=_NO_MARKS, mark_interval=1) if batch_type == DATA else None
        if run is not None and run.end > position:
            position, next_log, next_offset = run[:3]
        elif check_body(view, position, header) is None:
            position += header.size
            next_log, next_offset = header.next_log_offset, header.next_offset
        elif position > start:
            break  # the next call raises for it
        else:
            raise CorruptLog(f"{path}: bad body checksum at log offset {header.log_offset}")
        if end - position < STORED_HEADER_SIZE or batch_type == CHECKPOINT:
            break
        after = check_header(view, position)
        if isinstance(after, Fault) or after.batch_type != batch_type or (
                position + after.size > end):
            break
        header = after
    assert position > start, (path, start, position)
    return LogEntry(batch_type, view[start:position], LogOffset(next_log), Offset(next_offset))


def _header(view: memoryview, position: int, path: str) -> StoredHeader:
    header = check_header(view, position)
    if isinstance(header, Fault):
        raise CorruptLog(f"{path}: {header} at a batch that is to be sent")  # storage.T3
    return header


# --- checking what is to be appended ----------------------------------------------------------


class NextEntry(NamedTuple):
    """What the next entry of a log must follow."""

    name: str  # of the log
    log_end: LogOffset
    end_offset: Offset
    epoch: int  # the newest leader epoch in the log
    epoch_max: int  # the newest that there can be
    may_have_holes: bool = False  # may batches have fewer records than offsets?

    @classmethod
    def of(cls, state: "LogState", epoch_max: int) -> "NextEntry":
        """What must follow the batches that a log has."""
        active = state.active
        return cls(state.name, state.log_end, state.end_offset, state.derived.epochs.latest,
                   epoch_max, state.config.compacts or (
                       active is not None and active.compaction_mark().may_have_holes))

    def type_of(self, stored: memoryview) -> int:
        """The batch type of an entry that is not checked yet."""
        if len(stored) < STORED_HEADER_SIZE:
            raise RequestError(f"{self.name}: entry of {len(stored)} bytes",
                               code=Code.CORRUPT_MESSAGE)
        return stored[_TYPE_POSITION]

    def require(self, header: StoredHeader) -> None:
        """Raise `RequestError` if the batch is not the one that comes next."""
        _expect(self.name, header, self.log_end, self.end_offset)
        _fence(self.name, header, self.epoch)


def check_entry(
    stored: memoryview, batch_type: int, expected: NextEntry, active: Segment
) -> list[Run | EntryBatch]:
    """Check an entry that is to be appended to `active`, all of it (storage.T1).

    Returns runs of plain batches, and the others one by one.  Raises `RequestError`.
    """
    assert batch_type != CHECKPOINT, "a checkpoint starts a segment"
    assert active.file is not None, active.path  # storage.S2
    size = active.size
    if size + len(stored) > SEGMENT_SIZE_MAX:
        raise RequestError(f"{expected.name}: a segment of {size + len(stored)} bytes",
                           code=Code.RECORD_LIST_TOO_LARGE)
    return _EntryCheck(stored, batch_type, expected).parts(
        mark_due=active.index_due - size, mark_interval=active.index_interval)


class _EntryCheck:
    """Walks over an entry, and raises what is wrong with it (storage.T1)."""

    def __init__(self, stored: memoryview, batch_type: int, expected: NextEntry) -> None:
        self._name = expected.name
        self._epoch_max = expected.epoch_max
        self._stored = stored
        self._type = batch_type
        self._log_end: int = expected.log_end
        self._end_offset: int = expected.end_offset
        self._epoch = expected.epoch
        self._may_have_holes = expected.may_have_holes

    def parts(self, *, mark_due: int, mark_interval: int) -> list[Run | EntryBatch]:
        """Runs of plain batches, and the others one by one."""
        parts: list[Run | EntryBatch] = []
        position, end, log_end = 0, len(self._stored), self._log_end
        while position < end:
            if self._type == DATA:
                run = scan_run(
                    self._stored, position,
                    Expected(self._log_end, self._end_offset, self._epoch),
                    mark_due=mark_due, mark_interval=mark_interval)
                if run.end > position:
                    parts.append(run)
                    position, self._log_end, self._end_offset = run[:3]
                    if run.marks:
                        mark_due = run.marks[-1][2] + mark_interval
                    continue
            batch = self._one(position)
            parts.append(batch)
            if position >= mark_due:
                mark_due = position + mark_interval
            position += batch.header.size
            self._log_end, self._end_offset = (
                batch.header.next_log_offset, batch.header.next_offset)
        assert position == end, (self._name, position, end)
        assert self._log_end > log_end, (self._name, log_end)  # it was checked to be no less
        return parts

    def _one(self, position: int) -> EntryBatch:
        header = checked_header(self._name, self._stored, position, self._end_offset,
                                may_have_holes=self._may_have_holes)
        _expect(self._name, header, self._log_end, self._end_offset)
        if header.batch_type != self._type:
            raise RequestError(
                f"{self._name}: entry mixes batches of type {describe(self._type)} and "
                f"{describe(header.batch_type)}: send one entry per type",
                code=Code.INVALID_RECORD)
        _fence(self._name, header, self._epoch)
        _check_epoch(self._name, header.leader_epoch, self._epoch_max)
        assert header.leader_epoch < 0 or header.leader_epoch >= self._epoch, header
        self._epoch = max(self._epoch, header.leader_epoch)
        data = self._stored[position : position + header.size]
        if header.batch_type == LOG_START:
            _check_log_start(self._name, data, self._end_offset)
        elif header.batch_type == TIERED:
            _check_tiered(self._name, data, self._end_offset)
        return EntryBatch(header, data, position)


def checked_header(
    name: str, stored: memoryview, position: int, end_offset: int, *, may_have_holes: bool = False
) -> StoredHeader:
    """The header of an intact batch; raises `RequestError`, or `UnsetBatchType` for type 0.

    With `may_have_holes`, data may be compacted: it may have fewer records than offsets, or none.
    """
    header = check_stored(stored, position)
    if header is Fault.UNSET_TYPE:
        require_set(0, name, end_offset)
    if isinstance(header, Fault):
        raise RequestError(f"{name}: entry with {header.value} at byte {position}",
                           code=Code.CORRUPT_MESSAGE)
    if header.last_offset_delta < 0 or header.log_offset < 0 or header.base_offset < 0:
        raise RequestError(f"{name}: batch with impossible offsets", code=Code.INVALID_RECORD)
    has_hole = may_have_holes and (
        0 <= header.count <= header.last_offset_delta and header.batch_type in {DATA, FILLER})
    if ((header.count != header.last_offset_delta + 1 and not has_hole)
            or header.next_log_offset > OFFSET_MAX
            or header.count > count_max(header.size - STORED_HEADER_SIZE, header.attributes)):
        raise RequestError(
            f"{name}: batch of {header.size} bytes that counts {header.count} records, the last "
            f"one at {header.last_offset_delta}: it would move the next offset to where no record "
            "is", code=Code.INVALID_RECORD)
    return header


def _expect(name: str, header: StoredHeader, log_end: int, end_offset: int) -> None:
    if (header.log_offset, header.base_offset) != (log_end, end_offset):
        raise RequestError(
            f"{name}: entry at log offset {header.log_offset}, offset {header.base_offset}, "
            f"where {log_end} and {end_offset} come next: send what lies between first",
            code=Code.OFFSET_OUT_OF_RANGE)


def _fence(name: str, header: StoredHeader, epoch: int) -> None:
    if 0 <= header.leader_epoch < epoch:
        raise RequestError(f"{name}: batch of leader epoch {header.leader_epoch} after one of "
                           f"{epoch}", code=Code.FENCED_LEADER_EPOCH)


def _check_epoch(name: str, epoch: int, epoch_max: int) -> None:
    """A batch of an epoch that has not begun would shut out all that do begin."""
    if epoch > epoch_max:
        raise RequestError(f"{name}: batch of leader epoch {epoch} in epoch {epoch_max}",
                           code=Code.INVALID_RECORD)


def check_checkpoint(
    stored: memoryview, expected: NextEntry, topic_id: UUID
) -> tuple[StoredHeader, Checkpoint]:
    """Decode the checkpoint that an entry is; raises `RequestError` if it cannot begin a segment.

    It may be at any offset: `NextEntry.require` checks whether it follows the log's end.
    """
    name = expected.name
    header = checked_header(name, stored, 0, expected.end_offset)
    if header.batch_type != CHECKPOINT or header.size != len(stored):
        raise RequestError(f"{name}: a checkpoint must be an entry of its own",
                           code=Code.INVALID_RECORD)
    try:
        checkpoint = decode_checkpoint(stored)
    except MalformedBytes as error:
        raise RequestError(f"{name}: {error}", code=Code.CORRUPT_MESSAGE) from error
    if checkpoint.topic_id != topic_id and ZERO_UUID not in (checkpoint.topic_id, topic_id):
        raise RequestError(f"{name}: checkpoint of topic id {checkpoint.topic_id}, the log "
                           f"is of {topic_id}", code=Code.INCONSISTENT_TOPIC_ID)
    if not 0 <= checkpoint.state.log_start_offset <= header.base_offset:
        raise RequestError(f"{name}: checkpoint whose log starts after its end",
                           code=Code.INVALID_RECORD)
    if checkpoint.state.tiered.offset >= header.base_offset:
        raise RequestError(f"{name}: checkpoint of a log that is tiered beyond its end",
                           code=Code.INVALID_RECORD)
    if not checkpoint.state.epochs.begin_by(header.base_offset, header.log_offset):
        raise RequestError(f"{name}: checkpoint with a leader epoch that begins after it",
                           code=Code.INVALID_RECORD)
    _fence(name, header, checkpoint.state.epochs.latest)
    _check_epoch(name, max(header.leader_epoch, checkpoint.state.epochs.latest),
                 expected.epoch_max)
    assert checkpoint.state.epochs.latest <= expected.epoch_max, (name, expected)
    return header, checkpoint


def _check_tiered(name: str, data: memoryview, end_offset: int) -> None:
    try:
        tiered = decode_tiered(data)
    except MalformedBytes as error:
        raise RequestError(f"{name}: {error}", code=Code.CORRUPT_MESSAGE) from error
    if tiered.offset >= end_offset:
        raise RequestError(f"{name}: tiered up to {tiered.offset}, but it ends at {end_offset}",
                           code=Code.INVALID_RECORD)


def _check_log_start(name: str, data: memoryview, end_offset: int) -> None:
    try:
        start = decode_log_start(data)
    except MalformedBytes as error:
        raise RequestError(f"{name}: {error}", code=Code.CORRUPT_MESSAGE) from error
    if not 0 <= start <= end_offset:
        raise RequestError(f"{name}: log start {start} outside [0, {end_offset}]",
                           code=Code.INVALID_RECORD)

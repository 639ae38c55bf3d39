"""Entries: batches of one type that travel together, by value, from one log to another.

An entry is stored batches back to back, and a checkpoint is an entry of its own.  A log that is fed
with the entries of another holds the same bytes in the same files, whatever their types.

Invariants
    T1  an entry is checked as a whole before any of it is written: every checksum, type, epoch and
        offset, how many records it counts, and what this node would have to understand of it.  Not
        the records themselves: the head of the chain has looked at them before it stored them
    T2  an entry is written with one call, straight from the buffer that it arrived in
    T3  what is read for others is checked too: damage is told here, and never sent.  (What is
        sent on from memory was checked by T1, or when a client brought it.)

Runs of plain data batches are checked in C (wire/scan_run.py); so the work in Python is per entry,
and per batch only for those that are not plain.
"""

from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from quipu.model.batch_types import CHECKPOINT, DATA, LOG_START, describe, require_set
from quipu.model.errors import Code, CorruptLog, MalformedBytes, RequestError
from quipu.model.ids import ZERO_UUID, LogOffset, Offset
from quipu.storage import rolling
from quipu.storage.checkpoint import Checkpoint, decode_checkpoint, decode_log_start
from quipu.storage.damage import note
from quipu.storage.reading import walk
from quipu.storage.segment import Segment
from quipu.storage.segments import Segments
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
    from quipu.storage.log import Log

SEGMENT_SIZE_MAX: Final = 2**32 - 1  # positions that an index can name
_NO_MARKS: Final = 1 << 62
_TYPE_POSITION: Final = 4  # in a stored batch
_base_log = attrgetter("base_log")


class Entry(NamedTuple):
    """Batches of one type, as they lie in a segment."""

    batch_type: int
    data: memoryview
    next_log: LogOffset  # the offsets that follow
    next_offset: Offset


class EntryBatch(NamedTuple):
    """One batch of an entry that was looked at by itself."""

    header: StoredHeader
    data: memoryview
    position: int


# --- reading ----------------------------------------------------------------------------------


class EntryReader:
    """Reads the entries of one log, and remembers where the last reader stopped."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._next_log = -1
        self._stopped: tuple[Segment | None, int] = None, 0

    def read(self, log_offset: LogOffset, max_bytes: int, *, log: str) -> list[Entry]:
        """Entries from `log_offset` on; see `Log.read_entries`."""
        number, position = self._locate(log_offset, log)
        found: list[Entry] = []
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
                    return found
                found.append(entry)
                max_bytes -= len(entry.data)
                position += len(entry.data)
                self._next_log, self._stopped = entry.next_log, (segment, position)
                if max_bytes <= 0:
                    return found
            number, position = number + 1, 0
        return found

    def _locate(self, log_offset: int, log: str) -> tuple[int, int]:
        """The number of the segment, and where in it the batch begins."""
        segments = self._segments
        number = len(segments) - 1
        if number >= 0 and log_offset < segments[number].base_log:
            number = bisect_right(segments, log_offset, key=_base_log) - 1
        if number < 0:
            raise RequestError(f"{log}: log offset {log_offset} is no longer kept",
                               code=Code.OFFSET_OUT_OF_RANGE)
        segment, position = self._stopped
        if log_offset == self._next_log and segment is segments[number]:
            return number, position
        if log_offset == segments[number].base_log:
            return number, 0
        for batch in walk(segments[number], segments[number].find_log_offset(log_offset)):
            if batch.header.log_offset >= log_offset:
                if batch.header.log_offset == log_offset:
                    return number, batch.position
                break
        for damage in segments[number].damage:
            if damage.log_offset <= log_offset < damage.next_log:
                raise damage.error(segments[number].path)
        raise RequestError(f"{log}: no batch begins at log offset {log_offset}",
                           code=Code.OFFSET_OUT_OF_RANGE)


def _read_entry(
    view: memoryview, position: int, max_bytes: int, path: str, *, is_first: bool
) -> Entry | None:
    """The entry at `position`; None if its first batch exceeds `max_bytes` and is not `is_first`.

    `view` ends where a batch does.
    """
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
            break  # it is for the next call to tell
        else:
            raise CorruptLog(f"{path}: bad body checksum at log offset {header.log_offset}")
        if end - position < STORED_HEADER_SIZE or batch_type == CHECKPOINT:
            break
        after = check_header(view, position)
        if isinstance(after, Fault) or after.batch_type != batch_type or (
                position + after.size > end):
            break
        header = after
    return Entry(batch_type, view[start:position], LogOffset(next_log), Offset(next_offset))


def _header(view: memoryview, position: int, path: str) -> StoredHeader:
    header = check_header(view, position)
    if isinstance(header, Fault):
        raise CorruptLog(f"{path}: {header} at a batch that is to be sent")  # T3
    return header


# --- appending --------------------------------------------------------------------------------


def append_entry(log: "Log", stored: memoryview, now_ms: int, *, epoch_max: int) -> None:
    """Append an entry to `log`; see `Log.append_stored`.

    A checkpoint starts a segment, so the copy's files are the original's, byte for byte.
    """
    log.load()
    log.raw_state.epochs.forget_unwritten(log.log_end)  # a reign of this node that never began
    if len(stored) < STORED_HEADER_SIZE:
        raise RequestError(f"{log.name}: entry of {len(stored)} bytes", code=Code.CORRUPT_MESSAGE)
    batch_type = stored[_TYPE_POSITION]
    if batch_type == CHECKPOINT:
        header, checkpoint = check_checkpoint(log, stored, epoch_max=epoch_max)
        _expect(log.name, header, log.log_end, log.end_offset)
        _fence(log.name, header, log.raw_state.epochs.latest)
        rolling.follow_roll(log, stored, header, checkpoint, now_ms)
        return
    if log.active is None:
        raise RequestError(f"{log.name}: is empty: send its first checkpoint first",
                           code=Code.OFFSET_OUT_OF_RANGE)
    active, file = log.writable()
    base = file.size
    if base + len(stored) > SEGMENT_SIZE_MAX:
        raise RequestError(f"{log.name}: a segment of {base + len(stored)} bytes",
                           code=Code.RECORD_LIST_TOO_LARGE)
    parts = _EntryCheck(log, stored, batch_type, epoch_max).parts(
        mark_due=active.index_due - base, mark_interval=active.index_interval)
    log.write(file, (stored,), len(stored))  # T2
    for part in parts:
        _take_in(log, active, part, base, now_ms)
    log.leader_epoch = log.raw_state.epochs.latest
    if log.log_end >= log.flusher.due_at:
        log.flusher.appended(now_ms)


def _take_in(
    log: "Log", active: Segment, part: Run | EntryBatch, base: int, now_ms: int
) -> None:
    """Batches of another log are in the file: let the state follow, as recovery would."""
    state = log.raw_state
    if isinstance(part, Run):
        active.index_run(part, shift=base)
        state.replay_run(part, now_ms)
        log.end_offset, log.log_end = Offset(part.end_offset), LogOffset(part.log_end)
        return
    header, data, position = part
    if base + position >= active.index_due:
        active.add_entry(header.base_offset, header.log_offset, base + position)
    if header.batch_type == DATA:
        active.max_timestamp = max(active.max_timestamp, header.max_timestamp)
    state.replay(header, data, now_ms)
    log.end_offset, log.log_end = Offset(header.next_offset), LogOffset(header.next_log_offset)
    log.log_start_offset = state.log_start_offset = max(
        state.log_start_offset, log.log_start_offset)


class _EntryCheck:
    """Goes through an entry that is to follow what a log has; raises what is wrong with it (T1)."""

    def __init__(
        self, log: "Log", stored: memoryview, batch_type: int, epoch_max: int
    ) -> None:
        self._name = log.name
        self._epoch_max = epoch_max
        self._stored = stored
        self._type = batch_type
        self._log_end: int = log.log_end
        self._end_offset: int = log.end_offset
        self._epoch: int = log.raw_state.epochs.latest

    def parts(self, *, mark_due: int, mark_interval: int) -> list[Run | EntryBatch]:
        """Runs of plain batches, and the others one by one."""
        parts: list[Run | EntryBatch] = []
        position, end = 0, len(self._stored)
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
        return parts

    def _one(self, position: int) -> EntryBatch:
        header = checked_header(self._name, self._stored, position, self._end_offset)
        _expect(self._name, header, self._log_end, self._end_offset)
        if header.batch_type != self._type:
            raise RequestError(
                f"{self._name}: entry mixes batches of type {describe(self._type)} and "
                f"{describe(header.batch_type)}: send one entry per type",
                code=Code.INVALID_RECORD)
        _fence(self._name, header, self._epoch)
        _check_epoch(self._name, header.leader_epoch, self._epoch_max)
        self._epoch = max(self._epoch, header.leader_epoch)
        data = self._stored[position : position + header.size]
        if header.batch_type == LOG_START:
            _check_log_start(self._name, data, self._end_offset)
        return EntryBatch(header, data, position)


def checked_header(name: str, stored: memoryview, position: int, end_offset: int) -> StoredHeader:
    """The header of an intact batch; raises `RequestError`, or `UnsetBatchType` for type 0."""
    header = check_stored(stored, position)
    if header is Fault.UNSET_TYPE:
        require_set(0, name, end_offset)
    if isinstance(header, Fault):
        raise RequestError(f"{name}: entry with {header.value} at byte {position}",
                           code=Code.CORRUPT_MESSAGE)
    if header.last_offset_delta < 0 or header.log_offset < 0 or header.base_offset < 0:
        raise RequestError(f"{name}: batch with impossible offsets", code=Code.INVALID_RECORD)
    if (header.count != header.last_offset_delta + 1
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
    log: "Log", stored: memoryview, *, epoch_max: int
) -> tuple[StoredHeader, Checkpoint]:
    """The checkpoint that an entry is; raises `RequestError` if it cannot begin a segment."""
    header = checked_header(log.name, stored, 0, log.end_offset)
    if header.batch_type != CHECKPOINT or header.size != len(stored):
        raise RequestError(f"{log.name}: a checkpoint must be an entry of its own",
                           code=Code.INVALID_RECORD)
    try:
        checkpoint = decode_checkpoint(stored)
    except MalformedBytes as error:
        raise RequestError(f"{log.name}: {error}", code=Code.CORRUPT_MESSAGE) from error
    if checkpoint.topic_id != log.topic_id and ZERO_UUID not in (checkpoint.topic_id,
                                                                 log.topic_id):
        raise RequestError(f"{log.name}: checkpoint of topic id {checkpoint.topic_id}, the log "
                           f"is of {log.topic_id}", code=Code.INCONSISTENT_TOPIC_ID)
    if not 0 <= checkpoint.state.log_start_offset <= header.base_offset:
        raise RequestError(f"{log.name}: checkpoint whose log starts after its end",
                           code=Code.INVALID_RECORD)
    _fence(log.name, header, checkpoint.state.epochs.latest)
    _check_epoch(log.name, max(header.leader_epoch, checkpoint.state.epochs.latest), epoch_max)
    return header, checkpoint


def _check_log_start(name: str, data: memoryview, end_offset: int) -> None:
    try:
        start = decode_log_start(data)
    except MalformedBytes as error:
        raise RequestError(f"{name}: {error}", code=Code.CORRUPT_MESSAGE) from error
    if not 0 <= start <= end_offset:
        raise RequestError(f"{name}: log start {start} outside [0, {end_offset}]",
                           code=Code.INVALID_RECORD)

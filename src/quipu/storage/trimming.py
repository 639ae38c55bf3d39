"""What makes a log shorter: at its front by retention and DeleteRecords, at its end by truncation.

Invariants
    storage.M1  before anything is cut or dropped, the node has durably forgotten what it knew of it
    storage.M2  what truncation removes is kept aside, as <base>.cut-<ms>; what retention and a
        restart remove is not: the former is old, the latter comes again from another node

Each function first does the I/O, and then calls one transition of the state (log_state.py).
Not here: which segments retention removes (retention.py), the files (segments/segment_list.py).
"""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from quipu.model.batch_types import LOG_START
from quipu.model.errors import Code, OffsetOutOfRange, RequestError
from quipu.model.ids import LogOffset, Offset
from quipu.runtime.disks.disk import Disk, DiskError
from quipu.storage import opening, rolling, tiering, writing
from quipu.storage.appended import Truncation
from quipu.storage.derived.checkpoint import encode_log_start
from quipu.storage.entries import NextEntry, check_checkpoint
from quipu.storage.log_state import LogState
from quipu.storage.retention import expired_count
from quipu.storage.segments.reading import read_stored
from quipu.storage.segments.segment import Segment
from quipu.wire.record_batch import encode_batch, parse_header

_log = logging.getLogger(__name__)


class CutPoint(NamedTuple):
    """Where a log is cut: in which segment, at which position, and where the log ends then."""

    segment_index: int
    position: int
    log_end: LogOffset


def delete_records(
    state: LogState, before: Offset, now_ms: int, *, high_watermark: Offset
) -> Offset:
    """Move the log start offset to `before`, to the high watermark for -1; returns it.

    The move is a batch in the log itself, so it is as durable as any other.  Files go with the
    next retention.
    """
    opening.load(state)
    target = high_watermark if before == -1 else before
    if not 0 <= target <= high_watermark:
        raise OffsetOutOfRange(state.name, target, state.log_start_offset, high_watermark)
    if target > state.log_start_offset:
        batch = encode_batch(encode_log_start(target, now_ms), base_offset=state.end_offset,
                             leader_epoch=state.leader_epoch)
        writing.append_internal(state, LOG_START, batch, parse_header(memoryview(batch)), now_ms)
        state.log_start_moved(target)
    assert state.log_start_offset >= target, (state.name, target)
    return state.log_start_offset


def apply_retention(
    state: LogState, now_ms: int, *, high_watermark: Offset, committed_log: LogOffset,
    may_roll: bool,
) -> int:
    """Drop what the settings allow; an active segment that must go is rolled first."""
    opening.load(state)
    if state.active is None:
        return 0
    state.derived.producers.expire(now_ms, state.config.producer_expiration_ms)
    count = expired_count(
        state.segments, state.config, now_ms=now_ms, log_start_offset=state.log_start_offset,
        end_offset=state.end_offset, high_watermark=high_watermark,
        tiered_end=tiering.local_end(state, committed_log) if state.config.is_tiered else 0)
    if count == len(state.segments):
        if state.active.base_offset == state.end_offset or not may_roll:
            count -= 1  # no records in it: rolling would gain nothing
        else:
            rolling.roll(state, now_ms)
    _drop(state, count)
    return count


def drop_segments_before(state: LogState, log_offset: LogOffset) -> int:
    """Remove complete segments that lie below `log_offset`; returns how many."""
    opening.load(state)
    count = sum(segment.log_end <= log_offset for segment in state.segments[:-1])
    assert count == 0 or state.segments[count].base_log <= log_offset, (state.name, log_offset)
    _drop(state, count)
    return count


def _drop(state: LogState, count: int) -> None:
    assert count == 0 or 0 < count < len(state.segments), (state.name, count)
    if count == 0:
        return
    rolling.seal_earlier(state)  # no thread may sync a file that goes
    first_log = state.segments[count].base_log
    state.segments.drop_front(count)
    assert state.segments[0].base_log == first_log, (state.name, first_log)
    state.front_dropped()


def truncate(state: LogState, log_offset: LogOffset, now_ms: int) -> Truncation | None:
    """Cut at the batch that holds `log_offset`; the state becomes that of what is left."""
    opening.load(state)
    if log_offset >= state.log_end:
        return None
    cut = _find_cut(state.segments, log_offset, state.name)
    log_end, end_offset, size = state.log_end, state.end_offset, state.size_bytes
    state.cut_planned(cut.log_end)
    state.forget_beyond(cut.log_end)
    directory = state.directory
    kept = state.segments.cut(cut.segment_index, cut.position, suffix=_unused_suffix(
        directory.disk, directory.path, now_ms))  # storage.M2
    state.unloaded()
    opening.load(state)
    assert state.log_end == cut.log_end, (state.name, state.log_end, cut.log_end)
    assert state.end_offset <= end_offset, (state.name, state.end_offset, end_offset)
    done = Truncation(cut.log_end, state.end_offset, log_end, end_offset,
                      size - state.size_bytes, tuple(kept))
    _log.warning("%s: cut at log offset %d, offset %d; %d bytes up to log offset %d, offset %d "
                 "are kept in %s", state.name, done.log_offset, done.offset, done.size_bytes,
                 done.log_end, done.end_offset, ", ".join(kept))
    return done


def restart(
    state: LogState, stored: memoryview, now_ms: int, *, log_start: LogOffset, epoch_max: int
) -> None:
    """Drop everything and begin with the checkpoint that `stored` is, which lies at `log_start`."""
    opening.load(state)
    header, checkpoint = check_checkpoint(
        stored, NextEntry.of(state, epoch_max), state.directory.topic_id)
    if header.log_offset != log_start:
        raise RequestError(
            f"{state.name}: to begin anew at log offset {log_start} a checkpoint came that lies at "
            f"{header.log_offset}", code=Code.INVALID_REQUEST)
    first_log = state.segments[0].base_log if state.segments else state.log_end
    _log.warning("%s: dropped from log offset %d to %d; begins anew at %d, offset %d", state.name,
                 first_log, state.log_end, header.log_offset, header.base_offset)
    state.forget_beyond(LogOffset(0))
    state.segments.drop_all()
    state.emptied(header.log_offset, header.base_offset)
    try:
        rolling.follow_roll(state, stored, header, checkpoint, now_ms)
    except DiskError:
        state.emptied(0, 0)  # and so it stays until there is room
        raise
    assert state.log_end == header.next_log_offset, (state.name, state.log_end)


def _find_cut(segments: Sequence[Segment], log_offset: LogOffset, name: str) -> CutPoint:
    """Find the batch that holds `log_offset`, which must be in the log: the cut is before it."""
    assert segments, name
    cut = next(read_stored(segments, log_offset))
    index = max(number for number, segment in enumerate(segments)
                if segment.base_log <= cut.header.log_offset)
    position = cut.position
    if position == 0:  # with its checkpoint goes the segment
        index -= 1
        position = segments[index].size
    if index < 0:
        raise RequestError(f"{name}: cannot be cut at {log_offset}, where it begins",
                           code=Code.OFFSET_OUT_OF_RANGE)
    assert cut.header.log_offset <= log_offset
    return CutPoint(index, position, LogOffset(cut.header.log_offset))


def _unused_suffix(disk: Disk, path: str, now_ms: int) -> str:
    """An ending for files that are kept aside, which no file in the directory has yet."""
    names = disk.list(path)
    while any(name.endswith(f".cut-{now_ms}") for name in names):
        now_ms += 1
    return f".cut-{now_ms}"

"""What makes a log shorter: at its front by retention and DeleteRecords, at its end by truncation.

The functions behind the methods of `Log` with the same names.

Invariants
    M1  before anything is cut or dropped, the node has durably forgotten what it knew of it
    M2  what truncation removes is kept aside, as <base>.cut-<ms>; what retention and a restart
        remove is not: the former is old, the latter comes again from another node
"""

import logging
from typing import TYPE_CHECKING

from quipu.model.batch_types import LOG_START
from quipu.model.errors import Code, OffsetOutOfRange, RequestError
from quipu.model.ids import NO_EPOCH, LogOffset, Offset
from quipu.runtime.disk import DiskError
from quipu.storage import rolling
from quipu.storage.appended import Cut
from quipu.storage.checkpoint import LogState, encode_log_start
from quipu.storage.entries import check_checkpoint
from quipu.storage.place import NOTHING, Memory
from quipu.storage.reading import read_stored
from quipu.storage.retention import expired_count
from quipu.wire.record_batch import encode_batch, parse_header

if TYPE_CHECKING:
    from quipu.storage.log import Log

_log = logging.getLogger(__name__)


def delete_records(log: "Log", before: Offset, now_ms: int, *, high_watermark: Offset) -> Offset:
    """Move the log start offset, to the high watermark for -1; files go with the next retention.

    The move is a batch in the log itself, so it is as durable as any other.
    """
    log.load()
    before = high_watermark if before == -1 else before
    if not 0 <= before <= high_watermark:
        raise OffsetOutOfRange(log.name, before, log.log_start_offset, high_watermark)
    if before > log.log_start_offset:
        batch = encode_batch(encode_log_start(before, now_ms), base_offset=log.end_offset,
                             leader_epoch=log.leader_epoch)
        log.append_internal(LOG_START, batch, parse_header(memoryview(batch)), now_ms)
        log.log_start_offset = log.raw_state.log_start_offset = before
    return log.log_start_offset


def apply_retention(log: "Log", now_ms: int, *, high_watermark: Offset, may_roll: bool) -> int:
    """Drop what the settings allow; an active segment that must go is rolled first."""
    if not log.segments:
        return 0
    active = log.segments[-1]
    active.end_offset = log.end_offset
    log.state.producers.expire(now_ms, log.config.producer_expiration_ms)
    count = expired_count(log.segments, log.config, now_ms=now_ms,
                          log_start_offset=log.log_start_offset, high_watermark=high_watermark)
    if count == len(log.segments):
        if active.base_offset == log.end_offset or not may_roll:
            count -= 1  # no records in it: rolling would gain nothing
        else:
            log.roll(now_ms)
    _drop(log, count)
    return count


def drop_segments_before(log: "Log", log_offset: LogOffset) -> int:
    count = sum(segment.log_end <= log_offset for segment in log.segments[:-1])
    _drop(log, count)
    return count


def _drop(log: "Log", count: int) -> None:
    if count == 0:
        return
    if len(log.unsynced) > 1:
        log.flush_now()  # no thread may sync a file that goes
    log.segments.drop_front(count)
    log.unsynced = [segment for segment in log.unsynced if segment.file is not None]
    first = log.segments[0]
    log.log_start_offset = log.raw_state.log_start_offset = Offset(
        max(log.log_start_offset, first.base_offset))
    log.raw_state.epochs.advance_start(first.base_log)


def truncate(log: "Log", log_offset: LogOffset, now_ms: int) -> Cut | None:
    """Cut at the batch that holds `log_offset`; the state becomes that of what is left."""
    log.load()
    if log_offset >= log.log_end:
        return None
    cut = next(read_stored(log.segments, log_offset))
    number = max(index for index, segment in enumerate(log.segments)
                 if segment.base_log <= cut.header.log_offset)
    position = cut.position
    if position == 0:  # with its checkpoint goes the segment
        number -= 1
        position = log.segments[number].size
    if number < 0:
        raise RequestError(f"{log.name}: cannot be cut at {log_offset}, where it begins",
                           code=Code.OFFSET_OUT_OF_RANGE)
    new_end = LogOffset(cut.header.log_offset)
    before = log.log_end, log.end_offset, log.size_bytes
    log.memory = Memory(min(new_end, log.flushed_end), committed=min(new_end, log.committed_mark))
    _forget_beyond(log, new_end)
    kept = log.segments.cut(number, position, suffix=_suffix(log, now_ms))
    log.unsynced, log.active, log.leader_epoch = [], None, NO_EPOCH
    log.load()
    assert log.log_end == new_end, (log.log_end, new_end)
    found = Cut(new_end, log.end_offset, *before[:2], before[2] - log.size_bytes, tuple(kept))
    _log.warning("%s: cut at log offset %d, offset %d; %d bytes up to log offset %d, offset %d "
                 "are kept in %s", log.name, found.log_offset, found.offset, found.size_bytes,
                 found.log_end, found.end_offset, ", ".join(kept))
    return found


def _forget_beyond(log: "Log", log_end: LogOffset) -> None:
    """Expect nothing at or after `log_end` any more (M1), and let nobody wait for it."""
    if log.watcher is not None:
        log.watcher.truncating(log, log_end)
    log.flusher.drain()
    log.flusher.dismiss(RequestError(f"{log.name}: was cut at log offset {log_end}",
                                     code=Code.NOT_LEADER_OR_FOLLOWER))


def _suffix(log: "Log", now_ms: int) -> str:
    """An ending that no file in the directory has yet."""
    names = log.place.disk.list(log.directory)
    while any(name.endswith(f".cut-{now_ms}") for name in names):
        now_ms += 1
    return f".cut-{now_ms}"


def restart(log: "Log", stored: memoryview, now_ms: int, *, epoch_max: int) -> None:
    """Drop everything and begin with the checkpoint that `stored` is; see `Log.restart`."""
    log.load()
    header, checkpoint = check_checkpoint(log, stored, epoch_max=epoch_max)
    _log.warning("%s: dropped from log offset %d to %d; begins anew at %d, offset %d", log.name,
                 log.log_start_log_offset, log.log_end, header.log_offset, header.base_offset)
    _forget_beyond(log, LogOffset(0))
    log.files.drop_all()
    log.memory, log.committed_mark = NOTHING, LogOffset(0)
    _empty(log, header.log_offset, header.base_offset)
    try:
        rolling.follow_roll(log, stored, header, checkpoint, now_ms)
    except DiskError:
        _empty(log, 0, 0)  # and so it stays until there is room
        raise


def _empty(log: "Log", log_end: int, end_offset: int) -> None:
    """Let `log` be blank, and what comes next be at these offsets."""
    log.unsynced, log.active, log.is_blank = [], None, log.failure is None
    log.raw_state, log.leader_epoch = LogState(), NO_EPOCH
    log.log_start_offset = Offset(0)
    log.log_end, log.end_offset = LogOffset(log_end), Offset(end_offset)
    log.flusher.reset()

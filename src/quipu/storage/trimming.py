"""What makes a log shorter: at its front by retention and DeleteRecords, at its end by truncation.

The functions behind the methods of `Log` with the same names.
"""

from typing import TYPE_CHECKING

from quipu.model.batch_types import LOG_START
from quipu.model.errors import Code, OffsetOutOfRange, RequestError
from quipu.model.ids import LogOffset, Offset
from quipu.storage.checkpoint import encode_log_start
from quipu.storage.reading import read_stored
from quipu.storage.retention import expired_count
from quipu.wire.record_batch import encode_batch, parse_header

if TYPE_CHECKING:
    from quipu.storage.log import Log


def delete_records(log: "Log", before: Offset, now_ms: int) -> Offset:
    """Move the log start offset, to the high watermark for -1; files go with the next retention.

    The move is a batch in the log itself, so it is as durable as any other.
    """
    log.load()
    before = log.high_watermark if before == -1 else before
    if not 0 <= before <= log.high_watermark:
        raise OffsetOutOfRange(log.name, before, log.log_start_offset, log.high_watermark)
    if before > log.log_start_offset:
        batch = encode_batch(encode_log_start(before, now_ms), base_offset=log.end_offset,
                             leader_epoch=log.leader_epoch)
        log.append_internal(LOG_START, batch, parse_header(memoryview(batch)), now_ms)
        log.advance_start(before)
    return log.log_start_offset


def apply_retention(log: "Log", now_ms: int) -> int:
    """Drop what the settings allow; an active segment that must go is rolled first."""
    active = log.segments[-1]
    active.end_offset = log.end_offset
    log.state.producers.expire(now_ms, log.config.producer_expiration_ms)
    count = expired_count(log.segments, log.config, now_ms=now_ms,
                          log_start_offset=log.log_start_offset,
                          high_watermark=log.high_watermark)
    if count == len(log.segments):
        if active.base_offset == log.end_offset:
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
    first = Offset(log.segments[0].base_offset)
    if first > log.log_start_offset:
        log.advance_start(first)


def truncate(log: "Log", log_offset: LogOffset) -> None:
    """Cut at the batch that holds `log_offset`; the state becomes that of what is left."""
    if log_offset >= log.log_end:
        return
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
    if log.watcher is not None:
        log.watcher.truncating(log, LogOffset(cut.header.log_offset))
    log.flusher.drain()
    log.segments.cut(number, position)
    log.reload()

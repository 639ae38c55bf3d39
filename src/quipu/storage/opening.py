"""A log's life: found or begun, gone on with, closed.

    not loaded   closed cleanly before, and not looked at since: its offsets come from memory
    blank        there is no file.  A log that may be a replica stays so until it is told what to
                 begin with: the checkpoint of another node, or an append of its own
    loaded       the last segment is active
    failed       `log.failure` says why
    closed       for good

The functions behind the methods of `Log` with the same names.
Not here: what is on the disk (recovery.py), how it is cut (trimming.py).
"""

from typing import TYPE_CHECKING

from quipu.model.errors import Code, Kind, QuipuError, RequestError
from quipu.model.ids import LogOffset, Offset
from quipu.storage import rolling
from quipu.storage.config import LogConfig
from quipu.storage.place import CleanStop, Memory, Place
from quipu.storage.recovery import Recovered, recover
from quipu.storage.segment import Segment

if TYPE_CHECKING:
    from quipu.storage.log import Log


def recover_or_tell(place: Place, config: LogConfig, memory: Memory, now_ms: int) -> Recovered:
    """`recover`; whatever goes wrong is an error that a log can keep as its failure."""
    try:
        return recover(place, config, memory, now_ms)
    except QuipuError:
        raise
    except Exception as error:
        raise _cannot_open(place, error) from error


def _cannot_open(place: Place, error: Exception) -> QuipuError:
    return QuipuError(f"{place.name}: {place.directory} cannot be opened: {error!r}",
                      code=Code.KAFKA_STORAGE_ERROR, kind=Kind.CORRUPT)


def load(log: "Log", now_ms: int, found: Recovered | None = None) -> None:
    """Find the files, or make the first one; a replica's log without any stays blank.

    `found`: they were recovered already, off the loop (reopening.py).
    """
    if log.is_closed:
        raise RequestError(f"{log.name}: the log is closed", code=Code.NOT_LEADER_OR_FOLLOWER)
    if log.failure is not None:
        raise log.failure
    try:
        if found is None:
            found = recover(log.place, log.config, log.memory, now_ms)
        log.files.adopt(found.segments)
        log.raw_state = found.state
        log.end_offset, log.log_end = Offset(found.end_offset), LogOffset(found.log_end)
        log.committed_mark = LogOffset(min(log.memory.committed, log.log_end))
        log.flusher.reset()
        if found.segments:
            _adopt(log)
            log.flusher.recovered(log.memory.flushed if found.was_scanned else log.log_end)
        elif log.is_replica:
            log.is_blank = True
        else:
            _make_first(log, now_ms)
    except QuipuError as error:
        log.fail(error)
        raise
    except Exception as error:
        log.fail(_cannot_open(log.place, error))
        assert log.failure is not None
        raise log.failure from error


def _adopt(log: "Log") -> None:
    """Go on with the segments and the state that recovery found."""
    log.active = log.files[-1]
    log.unsynced = [log.active]
    adopt_state(log)
    log.active.set_limits(log.config)


def adopt_state(log: "Log") -> None:
    """Let the offsets follow from the state and from where the first segment begins."""
    state, first = log.raw_state, log.files[0]
    log.log_start_offset = state.log_start_offset = Offset(
        max(state.log_start_offset, first.base_offset))
    state.epochs.advance_start(first.base_log)
    log.leader_epoch = max(log.leader_epoch, state.epochs.latest)


def begin(log: "Log", now_ms: int) -> Segment:
    """The active segment; of a log without any, the first one, made here and now."""
    log.load()
    if log.active is None:
        _make_first(log, now_ms)
    assert log.active is not None
    return log.active


def _make_first(log: "Log", now_ms: int) -> None:
    rolling.make_directory(log)
    rolling.start_segment(log, now_ms)


def close(log: "Log") -> CleanStop | None:
    """Make everything durable and let go of the files; gives what to remember, if sound."""
    active = log.active
    if active is None:
        clean = None if log.failure or log.is_closed else log.memory.clean
        log.is_closed = True  # else an append that comes late would open it again
        return clean
    if log.is_dirty or len(log.unsynced) > 1:
        log.flush_now()
    active.complete(log.end_offset, log.log_end)
    active.write_index()
    clean = CleanStop(
        base_log=active.base_log, active_size=active.size, size_bytes=log.size_bytes,
        end_offset=log.end_offset, log_end=log.log_end,
        log_start_offset=log.log_start_offset, oldest_ms=log.files[0].newest_ms,
        epochs=log.raw_state.epochs.encode(), producers=log.raw_state.producers.encode())
    log.discard()
    return clean

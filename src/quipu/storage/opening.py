"""How a log is opened, begun and closed: the steps between the phases of its life (phases.py).

Each function first does the I/O, and then calls one transition of the state (log_state.py).
Not here: what is on the disk (recovery.py), how a log is cut (trimming.py).
"""

from quipu.model.errors import Code, QuipuError, RequestError
from quipu.model.ids import Epoch, LogOffset
from quipu.storage import rolling
from quipu.storage.derived.checkpoint import pack_tiered
from quipu.storage.log_directory import CleanShutdown
from quipu.storage.log_state import LogState
from quipu.storage.phases import LogPhase
from quipu.storage.recovery import Recovered, cannot_open, recover
from quipu.storage.segments import reading
from quipu.storage.segments.segment import Segment


def load(state: LogState) -> None:
    """Open the files, if that was put off until now; raises if the log cannot be used."""
    if state.active is not None or state.phase is LogPhase.EMPTY:
        return
    if state.phase is LogPhase.CLOSED:
        raise RequestError(f"{state.name}: the log is closed", code=Code.NOT_LEADER_OR_FOLLOWER)
    if state.failure is not None:
        raise state.failure
    open_files(state, state.opened_ms)
    assert state.phase in {LogPhase.OPEN, LogPhase.EMPTY}, (state.name, state.phase)


def open_files(state: LogState, now_ms: int, found: Recovered | None = None) -> None:
    """Find the files, or make the first one; a replica's log without any stays empty.

    `found`: they were recovered already, off the loop (reopening.py).  What goes wrong becomes the
    log's failure, and is raised.
    """
    assert state.phase is LogPhase.UNLOADED, state.phase
    try:
        if found is None:
            found = recover(state.directory, state.config, state.recovery, now_ms)
        state.loaded(found)
        if found.was_scanned:
            _sync_recovered(state)
        if state.active is None and not state.is_replica:
            rolling.start_segment(state, now_ms)
        state.opened()
    except QuipuError as error:
        state.failed(error)
        raise
    except Exception as error:
        failure = cannot_open(state.directory, error)
        state.failed(failure)
        raise failure from error


def _sync_recovered(state: LogState) -> None:
    """Have that synced which a scan has found and the node does not know to be durable."""
    flushed_log = LogOffset(state.recovery.flushed_log)
    if state.active is None:
        return
    if flushed_log >= state.log_end:
        state.flusher.name_unsure()
        return
    offset = reading.offset_at(state.segments, flushed_log)
    state.flusher.recovered(flushed_log, state.local_start_offset if offset is None else offset)


def begin(state: LogState, epoch: Epoch, now_ms: int) -> Segment:
    """The active segment; that of an empty log is started now, in `epoch` if it is one."""
    load(state)
    if state.active is None:
        assert state.phase is LogPhase.EMPTY, (state.name, state.phase)
        if epoch >= 0:
            state.led(epoch)
        rolling.start_segment(state, now_ms)
    return state.writable()[0]


def close(state: LogState) -> CleanShutdown | None:
    """Make everything durable and close the files; returns what to record, if all is well."""
    active, clean = state.active, None
    if active is not None:
        if state.flusher.is_dirty or len(state.flusher.unsynced) > 1:
            state.flusher.flush_now()
        assert not state.flusher.is_dirty, state.name  # storage.N2
        active.complete(state.end_offset, state.log_end)
        active.write_index()
        stated, start, local = (
            state.derived.log_start_offset, state.log_start_offset, state.local_start_offset)
        tiered = state.derived.tiered
        clean = CleanShutdown(
            base_log=active.base_log, active_size=active.size, size_bytes=state.size_bytes,
            end_offset=state.end_offset, log_end=state.log_end,
            log_start_offset=state.log_start_offset, oldest_ms=state.segments[0].newest_ms,
            epochs=state.derived.epochs.encode(), producers=state.derived.producers.encode(),
            stated_start_offset=-1 if stated == start else stated,
            local_start_offset=-1 if local == start else local,
            tiered=b"" if tiered.offset < 0 else pack_tiered(tiered))
    elif state.failure is None and state.phase is not LogPhase.CLOSED:
        clean = state.recovery.clean
    assert clean is None or clean.log_end == state.log_end, state.name  # storage.N2
    state.closed()  # else an append that comes late would open it again
    return clean

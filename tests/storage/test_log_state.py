"""The owner of a log's state: its invariants are checked, its phases are a table."""

from collections.abc import Callable

import pytest

from quipu.model.ids import LogOffset, Offset
from quipu.runtime.disks.disk import DiskError, Done, Wait, Work
from quipu.runtime.disks.sim_disk import SimDisk, outcome_of
from quipu.storage.config import LogConfig
from quipu.storage.log import Log
from quipu.storage.log_state import LogState
from quipu.storage.phases import LogPhase, require_step
from tests.storage.builders import SMALL, append, data_disk, open_log, read_all


def state_of(log: Log) -> LogState:
    return log._state


def end_before_start(state: LogState) -> None:
    state.log_start_offset = Offset(state.end_offset + 1)


def flushed_beyond_end(state: LogState) -> None:
    state.flusher.flushed_log = LogOffset(state.log_end + 1)


def flushed_records_beyond_end(state: LogState) -> None:
    state.flusher.flushed_offset = Offset(state.end_offset + 1)


def start_before_segments(state: LogState) -> None:
    state.segments[0].base_offset = state.log_start_offset + 1


def open_without_segment(state: LogState) -> None:
    state.active = None


def failed_and_open(state: LogState) -> None:
    state.failure = DiskError("gone")


def never_synced(state: LogState) -> None:
    state.flusher.unsynced.clear()
    state.flusher.unsynced.append(state.segments[0])


def without_checkpoint(state: LogState) -> None:
    state.log_end = LogOffset(state.segments[-1].base_log)
    state.flusher.flushed_log = LogOffset(0)


@pytest.mark.parametrize("break_it", [
    end_before_start, flushed_beyond_end, flushed_records_beyond_end, start_before_segments,
    open_without_segment, failed_and_open, never_synced, without_checkpoint,
])
def test_a_state_that_cannot_be_is_found(break_it: Callable[[LogState], None]) -> None:
    """storage.L1, storage.L3, storage.L5: each is checked after every transition."""
    log = open_log(data_disk(), SMALL)
    for number in range(20):
        append(log, [b"%d" % number * 30])
    assert len(log.segments) > 1
    state_of(log).invariants()
    break_it(state_of(log))
    with pytest.raises(AssertionError):
        state_of(log).invariants()


@pytest.mark.parametrize("name", ["end_offset", "log_end", "failure", "phase", "config"])
def test_the_state_cannot_be_assigned_from_outside(name: str) -> None:
    """storage.L1: a log shows its state, and only its owner changes it."""
    log = open_log(data_disk())
    with pytest.raises(AttributeError):
        setattr(log, name, getattr(log, name))


def test_only_the_steps_in_the_table_are_taken() -> None:
    """A closed log stays closed, and a failed one is not simply open again."""
    taken = set()
    for current in LogPhase:
        for target in LogPhase:
            try:
                require_step(current, target, "t-0")
            except AssertionError:
                continue
            taken.add((current, target))
    assert {target for current, target in taken if current is LogPhase.CLOSED} == {
        LogPhase.CLOSED}
    assert (LogPhase.FAILED, LogPhase.OPEN) not in taken
    assert (LogPhase.EMPTY, LogPhase.UNLOADED) not in taken


def test_only_the_last_segment_is_written_to() -> None:
    """storage.S2: what was completed keeps its bytes whatever is appended."""
    disk = data_disk()
    log = open_log(disk, SMALL)
    seen: dict[str, bytes] = {}
    for number in range(30):
        append(log, [b"%d" % number * 30])
        for path, data in seen.items():
            assert disk.read(path) == data
        seen = {segment.path: disk.read(segment.path) for segment in log.segments[:-1]}
    assert len(seen) > 3


class LateReports(SimDisk):
    """A disk whose threads are done at once, and whose reports come later, as with real threads."""

    def __init__(self) -> None:
        super().__init__()
        self.reports: list[Callable[[], None]] = []

    def submit(self, work: Work, done: Done) -> Wait:
        outcome = outcome_of(work)
        self.reports.append(lambda: done(outcome))
        return lambda: None


def test_a_sync_that_failed_in_a_thread_is_not_made_good_by_the_next() -> None:
    """storage.G3: the loop has not been notified of the failure when it flushes by itself."""
    disk = LateReports()
    disk.make_directory("data")
    log = open_log(disk, LogConfig())
    append(log, [b"a"])
    disk.sync_error = DiskError("gone")
    log.flusher.request()
    disk.sync_error = None  # the kernel forgets what it could not write
    with pytest.raises(DiskError, match="gone"):
        log.flusher.flush_now()
    assert log.phase is LogPhase.FAILED
    assert log.flusher.flushed_log == 0
    with pytest.raises(Exception, match="gone"):
        read_all(log)

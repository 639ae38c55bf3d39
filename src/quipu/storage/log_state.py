"""The state of one log, and the only code that changes it.

`LogState` holds where a log begins and ends, its segments, what it derives from its batches, and
the phase of its life.  All modules of this room may read it; it is changed by the transitions below
and by nothing else.  A change is computed first (entries, recovery, retention), then written to the
disk (rolling, opening, trimming), and then one transition is called.

    assumed, loaded, opened             recorded at a clean shutdown; found on the disk; in use
    segment_started                     rolled: the last segment is active
    appended, internal_appended,        batches are in the file: a client's, the node's own, those
        entry_appended                  of another node
    led, log_start_moved, front_dropped leader epoch, log start offset, first segment
    tier_moved                          what a remote tier has
    segments_replaced                   compacted: new files in place of complete segments
    unloaded, emptied                   cut, or to be begun with another checkpoint
    failed, forgiven, closed            out of service, tried again, for good

Invariants, checked by `invariants` after every transition; `appended`, which is one client's batch,
checks what it changes
    storage.L1  log_start_offset <= end_offset, flushed_offset <= end_offset, and flushed_log <=
        log_end; the first segment begins at or before local_start_offset, which is not below
        log_start_offset
    storage.L2  a batch gets its offsets when its bytes are in the file, all of them; a failed
        append leaves no trace, and its offsets go to the next batch
    storage.L3  every segment begins with a checkpoint, so the derived state (log start, leader
        epochs, producers) is that of the newest checkpoint plus the batches after it
    storage.L4  high_watermark is flushed_offset if acknowledgements wait for the disk, else
        end_offset: no client reads what a crash may take back after it was acknowledged
    storage.L5  after a failed sync, or damage found, `failure` is set for good and every call
        raises it; a log that cannot be opened for a reason that passes is opened again
    storage.L6  a remote tier has what lies between log_start_offset and local_start_offset: if it
        does not, the log starts where its first segment does

Not here: durability, which is the flusher's (flush.py); files (segments/).
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from quipu.model.errors import Code, ErrorKind, QuipuError, RequestError
from quipu.model.ids import NO_EPOCH, Epoch, LogOffset, Offset
from quipu.runtime.disks.disk import DiskError, File, TransientDiskError
from quipu.storage.appended import AppendedBatch, LogObserver
from quipu.storage.config import LogConfig
from quipu.storage.derived.checkpoint import DerivedState, Tiered
from quipu.storage.entries import EntryBatch
from quipu.storage.flush import Flusher, FlushReports
from quipu.storage.log_directory import (
    NO_RECOVERY_POINT,
    CleanShutdown,
    LogDirectory,
    RecoveryPoint,
)
from quipu.storage.phases import LogPhase, require_step
from quipu.storage.recovery import Recovered
from quipu.storage.segments.segment import Segment
from quipu.storage.segments.segment_list import SegmentList
from quipu.wire.record_batch import BatchHeader
from quipu.wire.scan_run import Run

if TYPE_CHECKING:
    from quipu.storage.log import Log

_NOT_SERVED: Final = frozenset({LogPhase.FAILED, LogPhase.CLOSED})
_new_tuple = tuple.__new__  # `AppendedBatch(...)` is one more call in Python

_log = logging.getLogger(__name__)


class LogState:
    """The state of one log; see the module."""

    __slots__ = ("_logged_failure", "_subject", "active", "committed_log", "config", "derived",
                 "directory", "end_offset", "failure", "flusher", "is_durable", "is_replica",
                 "leader_epoch", "local_start_offset", "log_end", "log_start_offset", "name",
                 "observer", "opened_ms", "phase", "recovery", "segments")

    def __init__(
        self, subject: "Log", directory: LogDirectory, config: LogConfig,
        recovery: RecoveryPoint, *, is_replica: bool, now_ms: int,
    ) -> None:
        """Begin as a log that is not loaded; `subject` is the log that observers get."""
        self.name = directory.name
        self.directory = directory
        self.config = config
        self.is_durable = config.is_durable  # does an acknowledgement wait for the disk?
        self.is_replica = is_replica  # may its first batch come from another node?
        self.opened_ms = now_ms
        self.phase = LogPhase.UNLOADED
        self.failure: QuipuError | None = None
        self.log_start_offset = Offset(0)
        self.local_start_offset = Offset(0)
        self.end_offset = Offset(0)
        self.log_end = LogOffset(0)
        self.leader_epoch = NO_EPOCH
        self.recovery = recovery  # what the node had recorded when the log was opened, or cut
        self.committed_log = LogOffset(recovery.committed_log)
        self.segments = SegmentList(directory)
        self.active: Segment | None = None  # the last segment, while the log is open
        self.derived = DerivedState()
        self.flusher = Flusher(directory.disk, self,
                               FlushReports(self._became_dirty, self._flush_ended))
        self.observer: LogObserver | None = None
        self._subject = subject
        self._logged_failure = ""  # the last one, as it was logged

    def invariants(self) -> None:
        """Check what holds after every transition."""
        flusher, active, segments = self.flusher, self.active, self.segments
        start, local_start = self.log_start_offset, self.local_start_offset
        assert 0 <= start <= local_start <= self.end_offset, self.name  # storage.L1
        assert flusher.flushed_offset <= self.end_offset, self.name  # storage.L1
        assert flusher.flushed_log <= self.log_end, self.name  # storage.L1
        assert self.leader_epoch >= NO_EPOCH, self.name
        assert self.committed_log >= 0, self.name
        assert (active is not None) == (self.phase is LogPhase.OPEN), self.name
        assert self.failure is None or self.phase in _NOT_SERVED, self.name  # storage.L5
        if active is not None:
            assert active is segments[-1], self.name
            assert active.file is not None, self.name
            assert flusher.unsynced[-1] is active, self.name  # else its bytes are never synced
            assert active.base_log < self.log_end, self.name  # storage.L3: its checkpoint is there
            first = segments[0].base_offset
            assert first <= local_start, self.name  # storage.L1
            tiered_end = self.derived.tiered.end_offset
            assert first <= max(start, tiered_end), self.name  # storage.L6
            assert self.derived.log_start_offset <= start, self.name
        elif self.phase is LogPhase.EMPTY:
            assert not segments, self.name

    # --- what follows from it ---------------------------------------------------------------

    @property
    def high_watermark(self) -> Offset:
        """The end of what clients may read of a log without replicas (storage.L4)."""
        return self.flusher.flushed_offset if self.is_durable else self.end_offset

    @property
    def size_bytes(self) -> int:
        """Bytes in all segments."""
        clean = self.recovery.clean
        if self.phase is LogPhase.UNLOADED and clean is not None:
            return clean.size_bytes
        return self.segments.complete_size + (0 if self.active is None else self.active.size)

    def writable(self) -> tuple[Segment, File]:
        """The active segment and its file; only while the log is open."""
        active = self.active
        assert active is not None, self.name
        assert active.file is not None, self.name
        return active, active.file

    # --- settings and the observer ----------------------------------------------------------

    def configured(self, config: LogConfig) -> None:
        """Take other settings."""
        self.config = config
        self.is_durable = config.is_durable
        if self.active is not None:
            self.active.set_limits(config)
        if self.flusher.is_dirty:
            self.flusher.request()  # a stricter flush.messages may be due already
        self.invariants()

    def observed_by(self, observer: LogObserver | None) -> None:
        """Report to `observer` from now on, and to no other."""
        self.observer = observer

    def committed(self, log_offset: LogOffset) -> None:
        """Every in-sync replica has what lies below `log_offset`."""
        if log_offset > self.committed_log:
            self.committed_log = log_offset
            if self.observer is not None:
                self.observer.committed(self._subject)

    def _became_dirty(self) -> None:
        if self.observer is not None:
            self.observer.dirtied(self._subject)

    def _flush_ended(self, error: QuipuError | None) -> None:
        if isinstance(error, TransientDiskError):
            _log.warning("%s: a flush is tried again: %s", self.name, error)
        elif error is not None:
            self.failed(QuipuError(f"{self.name}: cannot be made durable: {error}; restart the "
                                   "node once the disk is well", kind=ErrorKind.CORRUPT,
                                   code=Code.KAFKA_STORAGE_ERROR))
        elif self.observer is not None:
            self.observer.flushed(self._subject)

    def refused(self, error: DiskError) -> DiskError:
        """A write failed, and left no trace (storage.L2); returns the error, to be raised.

        What passes by itself does not fail the log.
        """
        if not isinstance(error, TransientDiskError):
            self.failed(error)
        if self.observer is not None:
            self.observer.refused(self._subject, error)
        return error

    def forget_beyond(self, log_end: LogOffset) -> None:
        """Have the node forget what it knew of batches from `log_end` on, durably (storage.M1)."""
        assert 0 <= log_end <= self.log_end, (self.name, log_end, self.log_end)
        if self.observer is not None:
            self.observer.truncating(self._subject, log_end)
        self.flusher.drain()
        if self.failure is not None:
            raise self.failure  # the sync that was under way has failed
        self.flusher.dismiss(RequestError(f"{self.name}: was cut at log offset {log_end}",
                                          code=Code.NOT_LEADER_OR_FOLLOWER))

    # --- loaded -----------------------------------------------------------------------------

    def assumed(self, clean: CleanShutdown) -> None:
        """The log is as it was closed; its files stay closed until it is used."""
        assert self.phase is LogPhase.UNLOADED, self.phase
        self.log_start_offset = self.local_start_offset = Offset(clean.log_start_offset)
        if clean.local_start_offset >= 0:
            self.local_start_offset = Offset(clean.local_start_offset)
        self.end_offset, self.log_end = Offset(clean.end_offset), LogOffset(clean.log_end)
        self.flusher.reset()
        assert self.active is None, self.name
        self.invariants()

    def loaded(self, found: Recovered) -> None:
        """The log is what recovery found; without segments it is empty."""
        assert self.phase is LogPhase.UNLOADED, self.phase
        self.segments.adopt(found.segments)
        self.derived = found.state
        self.end_offset, self.log_end = Offset(found.end_offset), LogOffset(found.log_end)
        self.committed_log = LogOffset(min(self.recovery.committed_log, self.log_end))
        if found.segments:
            active = found.segments[-1]
            active.set_limits(self.config)
            self.derived.tiered = self.derived.tiered._replace(log_end=self.log_end)
            self._place_start()
            self._forget_epochs()
            self.leader_epoch = max(self.leader_epoch, self.derived.epochs.latest)
            self.flusher.reset(active)
            self.active = active
            self._enter(LogPhase.OPEN)
        else:
            self.flusher.reset()
            self._enter(LogPhase.EMPTY)
        self.invariants()

    def opened(self) -> None:
        """The log is in use: what fails from now on is logged, even if it failed so before."""
        assert self.failure is None, self.name
        assert self.phase in {LogPhase.OPEN, LogPhase.EMPTY}, (self.name, self.phase)
        self._logged_failure = ""
        self.invariants()

    # --- appended ---------------------------------------------------------------------------

    def appended(
        self, active: Segment, header: BatchHeader, prefix: bytes, now_ms: int
    ) -> AppendedBatch:
        """A client's batch is in the file of `active` (storage.L2)."""
        base_offset, log_offset = self.end_offset, self.log_end
        delta = header.last_offset_delta
        assert delta >= 0, self.name
        assert active is self.active, self.name
        last_offset = base_offset + delta
        self.end_offset = Offset(last_offset + 1)
        self.log_end = log_end = LogOffset(log_offset + delta + 1)
        if header.max_timestamp > active.max_timestamp:  # noqa: PLR1730 max() takes longer
            active.max_timestamp = header.max_timestamp
        if header.producer_id >= 0:
            self.derived.producers.note(header, base_offset, now_ms)
        flusher = self.flusher
        if log_end >= flusher.due_at:
            flusher.appended(now_ms)
        assert flusher.flushed_log <= log_end, self.name  # storage.L1
        return _new_tuple(AppendedBatch, (base_offset, last_offset, log_offset, False, prefix))

    def internal_appended(self, count: int, now_ms: int) -> LogOffset:
        """An internal batch of `count` records is in the file; returns its log offset."""
        assert count > 0, count
        log_offset = self.log_end
        self.log_end = LogOffset(log_offset + count)
        self._end_moved(now_ms)
        return log_offset

    def entry_appended(
        self, parts: Sequence[Run | EntryBatch], position: int, now_ms: int
    ) -> None:
        """An entry of another node is in the file, from `position` on, as `parts`."""
        active, _ = self.writable()
        derived, log_end, is_plain = self.derived, self.log_end, True
        assert parts, self.name
        for part in parts:
            if isinstance(part, Run):
                active.index_run(part, shift=position)
                derived.replay_run(part, now_ms)
                self.end_offset, self.log_end = Offset(part.end_offset), LogOffset(part.log_end)
            else:
                header = part.header
                active.index_batch(header, position + part.position)
                derived.replay(header, part.data, now_ms)
                self.end_offset = Offset(header.next_offset)
                self.log_end = LogOffset(header.next_log_offset)
                is_plain = False
        if not is_plain:
            self._place_start()
        self.leader_epoch = derived.epochs.latest
        assert self.log_end > log_end, (self.name, log_end)
        assert self.local_start_offset <= self.end_offset, self.name  # storage.L1
        if self.log_end >= self.flusher.due_at:
            self.flusher.appended(now_ms)

    def segment_started(
        self, active: Segment, derived: DerivedState, leader_epoch: Epoch, now_ms: int
    ) -> None:
        """A segment was started at the log's end with a checkpoint of `derived` (storage.L3)."""
        assert active.base_log == self.log_end, (self.name, active.base_log, self.log_end)
        assert active.checkpoint_log_end > active.base_log, self.name  # storage.L3
        is_first = len(self.segments) == 1
        self.flusher.started(active, in_new_directory=is_first)  # storage.G1: before the end moves
        self.active = active
        self._enter(LogPhase.OPEN)
        self.log_end = LogOffset(active.checkpoint_log_end)
        self.derived, self.leader_epoch = derived, leader_epoch
        self._place_start()
        self._end_moved(now_ms)

    def _end_moved(self, now_ms: int) -> None:
        self.invariants()
        if self.log_end >= self.flusher.due_at:
            self.flusher.appended(now_ms)

    # --- leader epoch, log start, front -----------------------------------------------------

    def led(self, epoch: Epoch) -> None:
        """This node leads the log in `epoch`, from the next offset on."""
        if epoch != self.leader_epoch:
            self.derived.epochs.note(epoch, self.end_offset, self.log_end)
            self.leader_epoch = epoch
        assert self.leader_epoch == epoch, (self.name, epoch)

    def log_start_moved(self, offset: Offset) -> None:
        """A batch says that records below `offset` are deleted."""
        assert self.derived.log_start_offset <= offset, (self.name, offset)
        self.derived.log_start_offset = offset
        self._place_start()
        self.invariants()

    def tier_moved(self, tiered: Tiered) -> None:
        """A batch says what a remote tier has."""
        assert tiered.offset < self.end_offset, (self.name, tiered)
        assert tiered.log_end <= self.log_end, (self.name, tiered)
        self.derived.tiered = tiered
        self._place_start()
        self.invariants()

    def _place_start(self) -> None:
        """The log starts where its batches say, unless what follows is nowhere (storage.L6)."""
        derived = self.derived
        start, first = derived.log_start_offset, Offset(self.segments[0].base_offset)
        if start < first and derived.tiered.end_offset < first:
            start = first
        self.log_start_offset, self.local_start_offset = start, max(start, first)

    def front_dropped(self) -> None:
        """The first segments were removed."""
        assert self.segments, self.name
        self.flusher.dropped()
        self._place_start()
        self._forget_epochs()
        self.invariants()

    def _forget_epochs(self) -> None:
        """Forget epochs that no record needs (storage.E3).

        A replica that is catching up may not know yet what its tier has, and where the log starts.
        """
        derived = self.derived
        start = derived.log_start_offset if self.config.is_tiered else self.log_start_offset
        derived.epochs.advance_start(self.segments[0].base_log, start)

    def segments_replaced(self, number: int, count: int, segment: Segment) -> None:
        """A compacted segment has taken the place of `count` complete ones (storage.KS1)."""
        first, last = self.segments[number], self.segments[number + count - 1]
        assert first.base_log == segment.base_log, (self.name, segment.path)
        assert first.base_offset == segment.base_offset, (self.name, segment.path)
        assert (last.log_end, last.end_offset) == (segment.log_end, segment.end_offset), self.name
        assert segment.log_end <= self.flusher.flushed_log, self.name  # storage.KP1
        self.segments.replace(number, count, segment)
        self.invariants()

    # --- cut, restarted ---------------------------------------------------------------------

    def cut_planned(self, log_end: LogOffset) -> None:
        """Expect nothing at or after `log_end` when the log is loaded again."""
        assert log_end < self.log_end, (self.name, log_end, self.log_end)
        self.recovery = RecoveryPoint(min(log_end, self.flusher.flushed_log),
                                      committed_log=min(log_end, self.committed_log))

    def unloaded(self) -> None:
        """The files were closed and cut; the log must be loaded again."""
        self.flusher.release()
        self._enter(LogPhase.UNLOADED)
        self.leader_epoch = NO_EPOCH
        assert not self.segments, self.name
        assert not self.flusher.unsynced, self.name

    def emptied(self, log_end: int, end_offset: int) -> None:
        """All segments were removed; what comes next is at these offsets."""
        assert not self.segments, self.name
        assert log_end >= 0, (self.name, log_end)
        assert end_offset >= 0, (self.name, end_offset)
        self.recovery, self.committed_log = NO_RECOVERY_POINT, LogOffset(0)
        if self.failure is None:
            self._enter(LogPhase.EMPTY)
        self.derived, self.leader_epoch = DerivedState(), NO_EPOCH
        self.log_start_offset = self.local_start_offset = Offset(0)
        self.log_end, self.end_offset = LogOffset(log_end), Offset(end_offset)
        self.flusher.reset()
        self.invariants()

    # --- failed, closed ---------------------------------------------------------------------

    def failed(self, error: QuipuError) -> None:
        """Every call is refused from now on (storage.L5)."""
        if self.failure is None:
            if str(error) != self._logged_failure:  # one more try that fails as before is no news
                for_now = " for now" if isinstance(error, TransientDiskError) else ""
                _log.error("log %s is offline%s: %s", self.name, for_now, error)
            self.failure, self._logged_failure = error, str(error)
        if self.phase is not LogPhase.CLOSED:
            self._enter(LogPhase.FAILED)
        assert self.active is None, self.name
        assert self.phase in _NOT_SERVED, (self.name, self.phase)  # storage.L5
        self.flusher.fail(self.failure)

    def forgiven(self) -> None:
        """The log could not be opened for a reason that passes, and is tried again."""
        assert isinstance(self.failure, TransientDiskError), self.failure
        self.failure = None
        self._enter(LogPhase.UNLOADED)
        self.flusher.forgive()
        self.invariants()

    def closed(self, reason: QuipuError | None = None) -> None:
        """The files are closed for good; with `reason` that is why, from now on."""
        self.flusher.release()
        self._enter(LogPhase.CLOSED)
        self.failure = reason or self.failure
        self.segments.close()
        self.flusher.fail(RequestError(f"{self.name}: the log was closed",
                                       code=Code.NOT_LEADER_OR_FOLLOWER))
        self.invariants()

    def _enter(self, phase: LogPhase) -> None:
        require_step(self.phase, phase, self.name)
        self.phase = phase
        if phase is not LogPhase.OPEN:
            self.active = None

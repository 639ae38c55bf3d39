"""The log: an ordered run of typed batches in segment files.  Everything durable is in one.

Two offsets count its records (see the room's map): the log offset counts all of them; the client
offset counts those of data batches only, so that clients see neither internal batches nor holes.

`Log` is what other rooms use.  Its state has one owner, `LogState` (log_state.py), which also says
what always holds; here it can only be read.  Durability is the flusher's: `log.flusher`.

Start with `append`.  The longer methods are in modules of their own: opening, writing, rolling,
trimming; reading is in segments/.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any, Final

from quipu.model.batch_types import CHECKPOINT, DATA, BatchType, require_set
from quipu.model.bounds import EPOCH_MAX
from quipu.model.errors import OffsetOutOfRange, QuipuError, RecordsInTier
from quipu.model.ids import NO_EPOCH, Epoch, LogOffset, Offset
from quipu.model.tiered_log import TierableSegment
from quipu.runtime.disks.disk import DiskError, TransientDiskError
from quipu.storage import opening, rolling, tiering, trimming, writing
from quipu.storage.appended import (
    NO_LOG_OFFSET,
    AppendedBatch,
    LogObserver,
    LogPositions,
    Truncation,
)
from quipu.storage.compaction import switching
from quipu.storage.compaction.planning import CompactionPlan
from quipu.storage.compaction.worker import CompactedGroup, CompactionJob
from quipu.storage.config import LogConfig
from quipu.storage.derived.checkpoint import Tiered
from quipu.storage.derived.epochs import EpochHistory
from quipu.storage.derived.producers import ProducerStates
from quipu.storage.entries import EntryReader, LogEntry
from quipu.storage.flush import Flusher
from quipu.storage.log_directory import (
    NO_RECOVERY_POINT,
    CleanShutdown,
    LogDirectory,
    RecoveryPoint,
)
from quipu.storage.log_state import LogState
from quipu.storage.phases import LogPhase
from quipu.storage.recovery import Recovered, segment_bases
from quipu.storage.retention import may_expire
from quipu.storage.segments import reading, timestamps
from quipu.storage.segments.damage import Damage, take_mended
from quipu.storage.segments.reading import StoredBatch
from quipu.storage.segments.segment import Segment
from quipu.storage.segments.segment_list import SegmentList
from quipu.storage.segments.timestamps import Search
from quipu.wire.fast import stamp
from quipu.wire.record_batch import BatchHeader, Record, parse_header
from quipu.wire.stored_batch import PREFIX_SIZE

__all__ = ["AppendedBatch", "Log", "LogConfig", "LogEntry", "LogObserver", "LogPhase",
           "StoredBatch", "Truncation"]

LOG_BEGIN: Final = LogOffset(0)


def _of_state(name: str) -> Any:  # noqa: ANN401 the attribute's annotation says its type
    """An attribute of the state that can be read and not assigned; read without a Python call."""
    return property(attrgetter(f"_state.{name}"))


class Log:
    """One log.  Not for several threads: all calls come from the loop that owns it."""

    phase: LogPhase = _of_state("phase")
    failure: QuipuError | None = _of_state("failure")  # why it cannot be used, if so (storage.L5)
    log_start_offset: Offset = _of_state("log_start_offset")
    local_start_offset: Offset = _of_state("local_start_offset")  # see storage.L6
    end_offset: Offset = _of_state("end_offset")
    log_end: LogOffset = _of_state("log_end")
    leader_epoch: Epoch = _of_state("leader_epoch")
    high_watermark: Offset = _of_state("high_watermark")
    committed_log: LogOffset = _of_state("committed_log")  # see `note_committed`
    recovery: RecoveryPoint = _of_state("recovery")  # what the node had recorded of it
    size_bytes: int = _of_state("size_bytes")
    config: LogConfig = _of_state("config")
    is_durable: bool = _of_state("is_durable")  # does an acknowledgement wait for the disk?
    is_replica: bool = _of_state("is_replica")  # may its first batch come from another node?

    def __init__(
        self,
        directory: LogDirectory,
        config: LogConfig,
        *,
        recovery: RecoveryPoint = NO_RECOVERY_POINT,
        replica: bool = False,
        now_ms: int,
        failure: QuipuError | None = None,
        found: Recovered | None = None,
    ) -> None:
        """Open the log in `directory`, or make it; what goes wrong is kept in `failure`.

        With `replica` a log without files stays empty until its first append.  With `failure` its
        files are not touched: it cannot be served for that reason.  With `found` it goes on with
        what was recovered before, off the loop (reopening.py).
        """
        self.name = directory.name
        self.directory = directory
        self._state = state = LogState(self, directory, config, recovery, is_replica=replica,
                                       now_ms=now_ms)
        self.flusher: Flusher = state.flusher
        self._reader = EntryReader(state.segments)
        if failure is not None:
            state.failed(failure)
        elif recovery.clean is not None and recovery.is_current:
            state.assumed(recovery.clean)
        else:
            with suppress(QuipuError):  # kept in `failure`: one bad log does not stop the others
                opening.open_files(state, now_ms, found)

    # --- what it is -------------------------------------------------------------------------

    def configure(self, config: LogConfig) -> None:
        """Live by other settings from now on."""
        self._state.configured(config)

    def observe(self, observer: LogObserver | None) -> None:
        """Report to `observer` from now on, and to no other."""
        self._state.observed_by(observer)

    def load(self) -> None:
        """Open the files, if that was put off until now; raises if the log cannot be used."""
        opening.load(self._state)

    @property
    def segments(self) -> SegmentList:
        """The segments, oldest first; the last one is active.  None while the log is empty."""
        opening.load(self._state)
        return self._state.segments

    def complete_segments(self) -> list[Segment]:
        """All segments whose files are closed; a log is loaded for it only if it has any."""
        state, directory = self._state, self.directory
        if state.phase is LogPhase.UNLOADED and len(
                segment_bases(list(directory.disk.list(directory.path)))) > 1:
            opening.load(state)
        return [] if state.active is None else [
            segment for segment in state.segments if segment.file is None]

    def holds(self, segment: Segment) -> bool:
        """Is `segment` one of this log's still, not dropped or cut since it was looked up?"""
        return any(each is segment for each in self._state.segments)

    def take_mended(self, segment: Segment, damage: Damage, size: int) -> None:
        """Let a repaired copy of a complete segment be the segment; see `damage.take_mended`."""
        assert self.holds(segment), segment.path
        take_mended(self.directory.disk, segment, damage, size)
        self._state.segments.recount()

    @property
    def first_log(self) -> LogOffset:
        """The log offset of the first batch that is kept; the log's end if there is none."""
        segments = self._state.segments or self.segments
        return LogOffset(segments[0].base_log) if segments else self._state.log_end

    @property
    def epochs(self) -> EpochHistory:
        """The leader epochs of which there are batches."""
        opening.load(self._state)
        return self._state.derived.epochs

    @property
    def positions(self) -> LogPositions:
        """Where the log ends, always as it is now; for those who read it several times a batch."""
        return self._state

    @property
    def producers(self) -> ProducerStates:
        """The idempotent producers that are known."""
        opening.load(self._state)
        return self._state.derived.producers

    def epoch_end(self, epoch: Epoch) -> tuple[Epoch, Offset]:
        """The last epoch at or before `epoch` and where it ended; (-1, -1) if none is known."""
        return self.epochs.end(
            epoch, self.end_offset, start_offset=self.log_start_offset) or (NO_EPOCH, Offset(-1))

    # --- appending --------------------------------------------------------------------------

    def append(
        self, batch: memoryview, header: BatchHeader, *, epoch: Epoch, now_ms: int
    ) -> AppendedBatch:
        """Append one checked data batch; its offset and epoch are set in place.

        A batch that its producer sent before is not written again, and `duplicate` is set.
        Raises `RequestError` if it is out of sequence, `DiskError` if it could not be written.
        """
        state = self._state
        active = state.active
        if active is None:
            active = opening.begin(state, epoch, now_ms)
        if header.producer_id >= 0:
            producers = state.derived.producers
            seen = producers.check(header, self.name)
            if seen is not None:
                return AppendedBatch(seen, Offset(seen + header.last_offset_delta), NO_LOG_OFFSET,
                                     duplicate=True)
            config = state.config
            if producers.is_full(config.producers_max):
                producers.admit(header, self.name, limit=config.producers_max,
                                retry_ms=config.producer_retry_ms, now_ms=now_ms)
        if epoch != state.leader_epoch:
            state.led(epoch)
        size = len(batch) + PREFIX_SIZE
        file = active.file
        assert file is not None, self.name
        position = file.size
        if (position >= active.index_due or position + size > active.roll_size
                or now_ms >= active.roll_ms):
            active, file = rolling.make_room(state, size, now_ms)
            position = file.size
        prefix = stamp(batch, header, batch_type=DATA, log_offset=state.log_end,
                       base_offset=state.end_offset, leader_epoch=epoch)
        try:
            file.append((prefix, batch), size)
        except DiskError as error:
            raise state.refused(error) from error
        assert file.size == position + size, self.name  # storage.L2
        return state.appended(active, header, prefix, now_ms)

    def append_records(
        self, batch_type: BatchType, records: Sequence[Record], *, epoch: Epoch, now_ms: int
    ) -> AppendedBatch:
        """Append `records` as one batch of `batch_type`; those without a time get `now_ms`."""
        state = self._state
        require_set(batch_type, self.name, state.end_offset)
        assert batch_type != CHECKPOINT, "a checkpoint starts a segment: roll"
        assert records, "nothing to append"
        opening.begin(state, epoch, now_ms)
        log_end = state.log_end
        batch = writing.encode_records(
            records, base_offset=state.end_offset, leader_epoch=epoch, now_ms=now_ms)
        header = parse_header(memoryview(batch))
        if batch_type == DATA:
            return self.append(memoryview(batch), header, epoch=epoch, now_ms=now_ms)
        if epoch >= 0:
            state.led(epoch)
        log_offset = writing.append_internal(state, batch_type, batch, header, now_ms)
        assert log_offset >= log_end, (self.name, log_offset)  # more if a segment was begun
        assert state.log_end == log_offset + len(records), (self.name, log_offset)
        return AppendedBatch(state.end_offset, Offset(state.end_offset - 1), log_offset,
                             duplicate=False)

    def append_entry(
        self, stored: memoryview, now_ms: int, *, epoch_max: int = EPOCH_MAX
    ) -> None:
        """Append an entry that `read_entries` of another log returned, as it is.

        All of it is checked before any of it is written.  Raises `RequestError` if it is damaged,
        is not what comes next here, or is of an epoch above `epoch_max`, and `DiskError` if it
        could not be written.
        """
        writing.append_entry(self._state, stored, now_ms, epoch_max=epoch_max)

    def restart(
        self, stored: memoryview, now_ms: int, *, log_start: LogOffset, epoch_max: int = EPOCH_MAX
    ) -> None:
        """Drop everything and begin with a checkpoint of another node, which lies at `log_start`.

        Raises `RequestError`, and drops nothing, if `stored` is no such checkpoint.
        """
        trimming.restart(self._state, stored, now_ms, log_start=log_start, epoch_max=epoch_max)

    def roll(self, now_ms: int) -> None:
        """Complete the active segment and start the next; what is complete is made durable."""
        opening.begin(self._state, NO_EPOCH, now_ms)
        rolling.roll(self._state, now_ms)

    # --- a remote tier ----------------------------------------------------------------------

    @property
    def tiered(self) -> Tiered:
        """Up to where a remote tier has a copy, as the log's batches say."""
        opening.load(self._state)
        return self._state.derived.tiered

    @property
    def copy_start(self) -> LogOffset:
        """Where a copy for an empty replica begins; of a log that is not empty."""
        opening.load(self._state)
        return tiering.copy_start(self._state)

    def tierable_segments(self, stable_end: Offset, count_max: int) -> list[TierableSegment]:
        """Complete segments below `stable_end` that the tier is not known to have, in order."""
        return tiering.tierable(self._state, stable_end=stable_end, count_max=count_max)

    def open_segment(self, segment: TierableSegment) -> tiering.OpenedSegment:
        """The bytes of one of `tierable_segments`; raises if it is damaged, or not kept."""
        return tiering.open_segment(self._state, segment)

    def note_tiered(self, last_offset: Offset, now_ms: int, *, stable_end: Offset) -> LogOffset:
        """Append that the tier has a copy up to `last_offset`, which is below `stable_end`.

        Returns the end of what must be committed before a replica may rely on it.
        """
        return tiering.note_tiered(self._state, last_offset, now_ms, stable_end=stable_end)

    def forget_tier(self, now_ms: int) -> LogOffset:
        """Append that the tier has nothing; the log starts where its first segment does."""
        return tiering.forget_tier(self._state, now_ms)

    # --- getting shorter --------------------------------------------------------------------

    def delete_records(
        self, before: Offset, now_ms: int, *, high_watermark: Offset | None = None
    ) -> Offset:
        """Move the log start offset to `before`, to the high watermark for -1; returns it.

        The high watermark is the log's own if not given.
        """
        limit = self.high_watermark if high_watermark is None else high_watermark
        return trimming.delete_records(self._state, before, now_ms, high_watermark=limit)

    def apply_retention(
        self, now_ms: int, *, high_watermark: Offset | None = None,
        committed_log: LogOffset | None = None, may_roll: bool = True,
    ) -> int:
        """Remove segments by age, by size, or whose records were deleted; returns how many.

        Only below `high_watermark`, and by what is committed below `committed_log`; both are the
        log's own if not given.  A node that does not lead may not roll.
        """
        clean = self.recovery.clean if self.phase is LogPhase.UNLOADED else None
        if clean is not None and not may_expire(clean, self.config, now_ms):
            return 0  # no need to open its files
        limit = self.high_watermark if high_watermark is None else high_watermark
        return trimming.apply_retention(
            self._state, now_ms, high_watermark=limit, may_roll=may_roll,
            committed_log=self.log_end if committed_log is None else committed_log)

    def drop_segments_before(self, log_offset: LogOffset) -> int:
        """Remove complete segments that lie below `log_offset`; returns how many."""
        return trimming.drop_segments_before(self._state, log_offset)

    def truncate(self, log_offset: LogOffset, now_ms: int) -> Truncation | None:
        """Remove the batch that holds `log_offset` and all after it; durable on return.

        What was removed is kept beside the log; returns what it was, None if there was nothing.
        """
        return trimming.truncate(self._state, log_offset, now_ms)

    # --- compaction -------------------------------------------------------------------------

    def plan_compaction(
        self, *, committed_log: LogOffset, now_ms: int
    ) -> CompactionPlan | None:
        """What to compact, None if nothing is due; raises `CorruptLog` if that is damaged."""
        if len(self.complete_segments()) == 0:
            return None
        return switching.plan(self._state, committed_log=committed_log, now_ms=now_ms)

    def compaction_job(
        self, plan: CompactionPlan, *, now_ms: int, nonce: str, map_size_max: int
    ) -> CompactionJob:
        """The job that carries out `plan`, for `compaction.worker.compact`."""
        return switching.job_of(self._state, plan, now_ms=now_ms, nonce=nonce,
                                map_size_max=map_size_max)

    def take_compacted(self, job: CompactionJob, group: CompactedGroup) -> bool:
        """Replace segments by what a job wrote; False if they have changed since it began."""
        return switching.take(self._state, job, group)

    @property
    def compacted_end(self) -> LogOffset:
        """The log offset below which this node has compacted the log."""
        return switching.compacted_end(self._state) if self.complete_segments() else self.first_log

    @property
    def sync_floor(self) -> LogOffset:
        """The log offset below which no copy may end that this log continues; 0 if there is none.

        Compaction has removed tombstones below it, whose records such a copy may still have.
        """
        opening.load(self._state)
        return switching.sync_floor(self._state)

    # --- reading ----------------------------------------------------------------------------

    def read(
        self, offset: Offset, max_bytes: int, *, end: Offset, min_one: bool
    ) -> list[memoryview]:
        """Data batches from the one that holds `offset` up to `end`, whole, as buffers to send.

        At most `max_bytes`, but with `min_one` the first may be larger.  Raises
        `OffsetOutOfRange`, or `RecordsInTier` if only a remote tier has the offset.
        """
        state = self._state
        if state.active is None:
            opening.load(state)
        if not state.local_start_offset <= offset <= state.end_offset:
            if state.log_start_offset <= offset < state.local_start_offset:
                raise RecordsInTier(self.name, offset, state.log_start_offset, state.end_offset)
            raise OffsetOutOfRange(self.name, offset, state.log_start_offset, state.end_offset)
        if offset >= end or offset == state.end_offset:
            return []
        return reading.read(state.segments, offset, max_bytes, end=end, min_one=min_one)

    def read_entries(self, log_offset: LogOffset, max_bytes: int) -> list[LogEntry]:
        """What follows `log_offset`, where a batch must begin, for `append_entry` of a replica.

        At most `max_bytes`, but at least one batch if there is one.  Raises `RequestError` if
        there is nothing kept at `log_offset`, or no batch begins there.
        """
        opening.load(self._state)
        if log_offset == self._state.log_end:
            return []
        return self._reader.read(log_offset, max_bytes, log=self.name)

    def read_stored(self, log_offset: LogOffset = LOG_BEGIN) -> Iterator[StoredBatch]:
        """Every batch, of any type, from the one that holds `log_offset` on; checked."""
        return reading.read_stored(self.segments, log_offset)

    def search_timestamp(self, timestamp_ms: int) -> Search:
        """A search for the first record that is as new as `timestamp_ms`."""
        return timestamps.find_timestamp(self.segments, timestamp_ms,
                                         start_offset=self.log_start_offset)

    def search_newest(self) -> Search:
        """A search for the first of the newest records."""
        return timestamps.find_newest(self.segments, start_offset=self.log_start_offset)

    def offset_at(self, log_offset: LogOffset) -> Offset | None:
        """The client offset of the first record at or after `log_offset`; None if not kept."""
        if log_offset == self.log_end:
            return self.end_offset
        return reading.offset_at(self.segments, log_offset)

    # --- committed, failed, closed ----------------------------------------------------------

    def note_committed(self, log_offset: LogOffset) -> None:
        """Have the node record that every in-sync replica has what lies below `log_offset`.

        After a start `committed_log` is what was recorded, or less.
        """
        self._state.committed(log_offset)

    def fail(self, error: QuipuError) -> None:
        """Refuse every call from now on (storage.L5)."""
        self._state.failed(error)

    @property
    def may_retry(self) -> bool:
        """Could it not be opened for a reason that passes?"""
        return isinstance(self.failure, TransientDiskError) and self.phase is LogPhase.FAILED

    def retry(self, now_ms: int, found: Recovered | QuipuError | None = None) -> bool:
        """Open the log again if `may_retry`; returns whether it is open now.

        `found` is what was recovered off the loop (reopening.py), or why nothing was.
        """
        if not self.may_retry:
            return False
        self._state.forgiven()
        if isinstance(found, QuipuError):
            self._state.failed(found)
        else:
            with suppress(QuipuError):  # kept in `failure`
                opening.open_files(self._state, now_ms, found)
        assert self.phase is not LogPhase.UNLOADED, self.name
        return self.failure is None

    def close(self) -> CleanShutdown | None:
        """Make everything durable and close the files; returns what to record, if all is well."""
        return opening.close(self._state)

    def discard(self, reason: QuipuError | None = None) -> None:
        """Close the files as they are; `reason`, if given, is the log's failure from now on."""
        self._state.closed(reason)

"""The log: an ordered run of typed batches in segment files.  Everything durable is in one.

Two offsets count its records.  The log offset counts all of them; the client offset counts those
of data batches only, so that clients see neither internal batches nor holes where they lie.

Invariants
    L1  log_start_offset <= flushed_offset <= end_offset, and flushed_end <= log_end
    L2  a batch gets its offsets when its bytes are in the file, all of them; a failed append
        leaves no trace, and its offsets go to the next batch
    L3  every segment begins with a checkpoint, so the state (log start, leader epochs, producers)
        is that of the newest checkpoint plus the batches after it
    L4  high_watermark is flushed_offset if acknowledgements wait for the disk, else end_offset:
        nobody reads what a crash may take back from those who were promised it
    L5  after a failed sync, or damage found, `failure` is set for good and every call raises it; a
        log that cannot be opened for a reason that passes is tried again (`retry`)

A log that was closed cleanly is not looked at until it is used.  Opened with `replica`, one that
has no files yet stays blank until it is told what to begin with (opening.py).
Not here, though methods lead there: how a log is opened (opening), rolls (rolling), gets shorter
(trimming), is written to by the node itself (writing), is copied (entries) and read (reading).
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from quipu.model.batch_types import DATA, BatchType
from quipu.model.bounds import EPOCH_MAX
from quipu.model.errors import Code, Kind, OffsetOutOfRange, QuipuError, RequestError
from quipu.model.ids import NO_EPOCH, Epoch, LogOffset, Offset
from quipu.runtime.disk import Buffer, DiskError, File, TransientDiskError
from quipu.storage import entries, opening, reading, rolling, timestamps, trimming, writing
from quipu.storage.appended import NO_LOG_OFFSET, Appended, Cut, Watcher
from quipu.storage.checkpoint import LogState
from quipu.storage.config import LogConfig
from quipu.storage.entries import Entry, EntryReader
from quipu.storage.flush import FlushCallback, Flusher
from quipu.storage.place import NOTHING, CleanStop, Memory, Place
from quipu.storage.producers import ProducerInfo
from quipu.storage.reading import StoredBatch
from quipu.storage.recovery import Recovered, segment_bases
from quipu.storage.retention import may_expire
from quipu.storage.segment import Segment
from quipu.storage.segments import Segments
from quipu.storage.timestamps import Search, TimestampAndOffset
from quipu.wire.fast import stamp
from quipu.wire.record_batch import BatchHeader, Record
from quipu.wire.stored_batch import PREFIX_SIZE

__all__ = ["Appended", "Cut", "Entry", "Log", "LogConfig", "StoredBatch", "TimestampAndOffset",
           "Watcher"]

LOG_BEGIN: Final = LogOffset(0)
_log = logging.getLogger(__name__)


class Log:
    """One log.  Not for several threads: all calls come from the loop that owns it."""

    def __init__(
        self,
        place: Place,
        config: LogConfig,
        *,
        memory: Memory = NOTHING,
        replica: bool = False,
        now_ms: int,
        failure: QuipuError | None = None,
        found: Recovered | None = None,
    ) -> None:
        """With `failure` it is not even looked at: it cannot be served for that reason.  With
        `found` it goes on with what was recovered before (reopening.py).
        """
        self.name = place.name
        self.entry = place.entry
        self.topic_id = place.topic_id
        self.directory = place.directory
        self.place = place
        self.failure: QuipuError | None = None
        self._logged_failure = ""  # the last one, as it was logged
        self.log_start_offset = Offset(0)
        self.end_offset = Offset(0)
        self.log_end = LogOffset(0)
        self.committed_mark = LogOffset(memory.committed)  # see `note_committed`
        self.leader_epoch = NO_EPOCH
        self.watcher: Watcher | None = None
        self.is_replica = replica  # may it have to begin with what another node sends?
        self.is_blank = False
        self.is_closed = False
        self.is_directory_new = False
        # The rest is for the modules of this room.
        self.memory = memory
        self.files = Segments(place)  # the segments, as far as they are loaded
        self.active: Segment | None = None
        self.unsynced: list[Segment] = []
        self.raw_state = LogState()
        self.flusher = Flusher(place.disk, self)
        self._config = config
        self.is_durable = config.is_durable  # does an acknowledgement wait for the disk?
        self._reader = EntryReader(self.files)
        self._opened_ms = now_ms
        if failure is not None:
            self.fail(failure)
        elif memory.clean is not None and memory.is_current:
            self.log_start_offset = Offset(memory.clean.log_start_offset)
            self.end_offset = Offset(memory.clean.end_offset)
            self.log_end = LogOffset(memory.clean.log_end)
            self.files.complete_size = memory.clean.size_bytes
            self.flusher.reset()
        else:
            with suppress(QuipuError):  # kept in `failure`: one bad log does not stop the others
                opening.load(self, now_ms, found)

    def load(self) -> None:
        """Open the files, if that was put off until now."""
        if self.active is None and not self.is_blank:
            opening.load(self, self._opened_ms)

    # --- what it is -------------------------------------------------------------------------

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self.is_durable = config.is_durable
        if self.active is not None:
            self.active.set_limits(config)
        if self.flusher.is_dirty:
            self.flusher.request()  # a stricter flush.messages may be due already

    @property
    def high_watermark(self) -> Offset:
        return self.flusher.flushed_offset if self.is_durable else self.end_offset  # L4

    @property
    def size_bytes(self) -> int:
        active_size = self.active.size if self.active is not None else 0
        return self.files.complete_size + active_size

    @property
    def is_open(self) -> bool:
        """Has the log been used, or is it still as it was closed?"""
        return self.active is not None or self.failure is not None

    @property
    def segments(self) -> Segments:
        """The segments, oldest first; the last one is active.  None while it is blank."""
        self.load()
        return self.files

    def complete_segments(self) -> list[Segment]:
        """All but the active one; a log that was not looked at yet is opened if it has any."""
        if not self.is_open and not self.is_blank and (
                len(segment_bases(list(self.place.disk.list(self.directory)))) < 2):
            return []
        return [] if self.failure is not None else [
            segment for segment in self.segments if segment.file is None]

    @property
    def log_start_log_offset(self) -> LogOffset:
        segments = self.segments
        return LogOffset(segments[0].base_log) if segments else self.log_end

    def set_epoch(self, epoch: Epoch) -> None:
        """This node leads the log in `epoch`, from the next offset on."""
        if epoch != self.leader_epoch:
            self.state.epochs.note(epoch, self.end_offset, self.log_end)
            self.leader_epoch = epoch

    def epoch_end(self, epoch: Epoch) -> tuple[Epoch, Offset]:
        """The last epoch at or before `epoch` and where it ended; (-1, -1) if none is known."""
        return self.state.epochs.end(
            epoch, self.end_offset, start_offset=self.log_start_offset) or (NO_EPOCH, Offset(-1))

    def epochs_log(self) -> list[tuple[Epoch, LogOffset]]:
        """The epochs of which there are batches, oldest first, with their first log offsets."""
        return self.state.epochs.by_log_offset()

    def offset_at(self, log_offset: LogOffset) -> Offset | None:
        """The client offset of the first record at or after `log_offset`; None if not kept."""
        if log_offset == self.log_end:
            return self.end_offset
        return reading.offset_at(self.segments, log_offset)

    def producers(self) -> list[ProducerInfo]:
        return self.state.producers.infos()

    @property
    def state(self) -> LogState:
        """The state behind the offsets (L3)."""
        self.load()
        return self.raw_state

    # --- appending --------------------------------------------------------------------------

    def append(
        self, batch: memoryview, header: BatchHeader, *, epoch: Epoch, now_ms: int
    ) -> Appended:
        """Append one checked data batch; its offset and epoch are set in place.

        A batch that its producer sent before is not written again: `duplicate` tells.  Raises
        `RequestError` if it is out of sequence, `DiskError` if it could not be written.
        """
        active = self.active
        if active is None:
            active = writing.begin(self, epoch, now_ms)
        producer_id = header.producer_id
        if producer_id >= 0:
            producers = self.raw_state.producers
            seen = producers.check(header, self.name)
            if seen is not None:
                return Appended(seen, Offset(seen + header.last_offset_delta), NO_LOG_OFFSET,
                                duplicate=True)
            config = self._config
            if producers.is_full(config.producers_max):
                producers.admit(header, self.name, limit=config.producers_max,
                                retry_ms=config.producer_retry_ms, now_ms=now_ms)
        if epoch != self.leader_epoch:
            self.set_epoch(epoch)
        size = len(batch) + PREFIX_SIZE
        file = active.file
        assert file is not None
        position = file.size
        if (position >= active.index_due or position + size > active.roll_size
                or now_ms >= active.roll_ms):
            active, file = rolling.prepare(self, size, now_ms)
        base_offset, log_offset = self.end_offset, self.log_end
        prefix = stamp(batch, header, batch_type=DATA, log_offset=log_offset,
                       base_offset=base_offset, leader_epoch=epoch)
        try:
            file.append((prefix, batch), size)
        except DiskError as error:
            raise self.refused(error) from error
        delta = header.last_offset_delta
        last_offset = base_offset + delta
        self.end_offset = Offset(last_offset + 1)
        self.log_end = log_end = LogOffset(log_offset + delta + 1)
        if header.max_timestamp > active.max_timestamp:  # noqa: PLR1730 max() takes longer
            active.max_timestamp = header.max_timestamp
        if producer_id >= 0:
            self.raw_state.producers.note(header, base_offset, now_ms)
        if log_end >= self.flusher.due_at:
            self.flusher.appended(now_ms)
        return Appended(base_offset, Offset(last_offset), log_offset, duplicate=False,
                        prefix=prefix)

    def append_records(
        self, batch_type: BatchType, records: Sequence[Record], *, epoch: Epoch, now_ms: int
    ) -> Appended:
        """Append `records` as one batch of `batch_type`; those without a time get `now_ms`."""
        return writing.append_records(self, batch_type, records, epoch=epoch, now_ms=now_ms)

    def append_internal(
        self, batch_type: int, batch: bytearray, header: BatchHeader, now_ms: int
    ) -> LogOffset:
        """Write a batch that takes no client offsets; `batch` has its offset and epoch."""
        return writing.append_internal(self, batch_type, batch, header, now_ms)

    def append_stored(
        self, stored: memoryview, now_ms: int, *, epoch_max: int = EPOCH_MAX
    ) -> None:
        """Append an entry that `read_entries` of another log gave, as it is.

        All of it is checked before any of it is written.  Raises `RequestError` if it is damaged,
        is not what comes next here, or is of an epoch above `epoch_max`, and `DiskError` if it
        could not be written.
        """
        entries.append_entry(self, stored, now_ms, epoch_max=epoch_max)

    def restart(self, stored: memoryview, now_ms: int, *, epoch_max: int = EPOCH_MAX) -> None:
        """Drop everything and begin with a checkpoint of another node, wherever that starts."""
        trimming.restart(self, stored, now_ms, epoch_max=epoch_max)

    def write(self, file: File, buffers: Sequence[Buffer], size: int) -> None:
        """Append to the active segment's file, all or nothing."""
        try:
            file.append(buffers, size)
        except DiskError as error:
            raise self.refused(error) from error

    def refused(self, error: DiskError) -> DiskError:
        """A write failed and left no trace (L2); what passes by itself does not fail the log."""
        if not isinstance(error, TransientDiskError):
            self.fail(error)
        if self.watcher is not None:
            self.watcher.refused(self, error)
        return error

    # --- segments ---------------------------------------------------------------------------

    def writable(self) -> tuple[Segment, File]:
        """The active segment and its file."""
        active = self.active
        assert active is not None
        assert active.file is not None
        return active, active.file

    def roll(self, now_ms: int) -> None:
        """Complete the active segment and start the next; what is complete is made durable."""
        opening.begin(self, now_ms)
        rolling.roll(self, now_ms)

    def delete_records(
        self, before: Offset, now_ms: int, *, high_watermark: Offset | None = None
    ) -> Offset:
        """Records below `before` are gone for clients; gives the log start offset."""
        limit = self.high_watermark if high_watermark is None else high_watermark
        return trimming.delete_records(self, before, now_ms, high_watermark=limit)

    def apply_retention(
        self, now_ms: int, *, high_watermark: Offset | None = None, may_roll: bool = True
    ) -> int:
        """Remove segments by age, by size, or whose records were deleted; gives how many.

        Only below `high_watermark`, which is the log's own if not given.  Who does not lead may
        not roll.
        """
        clean = self.memory.clean if self.active is None else None
        if clean is not None and not may_expire(clean, self._config, now_ms):
            return 0  # no need to open its files
        limit = self.high_watermark if high_watermark is None else high_watermark
        return trimming.apply_retention(self, now_ms, high_watermark=limit, may_roll=may_roll)

    def drop_segments_before(self, log_offset: LogOffset) -> int:
        """Remove complete segments that lie below `log_offset`; gives how many."""
        return trimming.drop_segments_before(self, log_offset)

    def truncate(self, log_offset: LogOffset, now_ms: int) -> Cut | None:
        """Remove the batch that holds `log_offset` and all after it; durable on return.

        What was removed is kept beside the log; tells what it was, None if there was nothing.
        """
        return trimming.truncate(self, log_offset, now_ms)

    # --- reading ----------------------------------------------------------------------------

    def read(
        self, offset: Offset, max_bytes: int, *, end: Offset, min_one: bool
    ) -> list[memoryview]:
        """Data batches from the one that holds `offset` up to `end`, whole, as buffers to send.

        At most `max_bytes`, but with `min_one` the first may be larger.  Raises
        `OffsetOutOfRange`.
        """
        if self.active is None:
            self.load()
        if not self.log_start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(self.name, offset, self.log_start_offset, self.end_offset)
        if offset >= end or offset == self.end_offset:
            return []
        return reading.read(self.files, offset, max_bytes, end=end, min_one=min_one)

    def read_entries(self, log_offset: LogOffset, max_bytes: int) -> list[Entry]:
        """What follows `log_offset`, where a batch must begin, for `append_stored` of a replica.

        At most `max_bytes`, but at least one batch if there is one.  Raises `RequestError` if
        there is nothing kept at `log_offset`, or no batch begins there.
        """
        self.load()
        if log_offset == self.log_end:
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

    def find_timestamp(self, timestamp_ms: int) -> TimestampAndOffset | None:
        """The first record that is as new as `timestamp_ms`."""
        return timestamps.run(self.search_timestamp(timestamp_ms))

    def max_timestamp(self) -> TimestampAndOffset | None:
        """The first of the newest records."""
        return timestamps.run(self.search_newest())

    # --- durability -------------------------------------------------------------------------

    @property
    def flushed_offset(self) -> Offset:
        return self.flusher.flushed_offset

    @property
    def flushed_end(self) -> LogOffset:
        return self.flusher.flushed_end

    @property
    def is_dirty(self) -> bool:
        return self.flusher.is_dirty

    def note_committed(self, log_offset: LogOffset) -> None:
        """Every serving replica has what lies below: the node remembers it with what is flushed.

        After a start `committed_mark` is what was remembered, or less.
        """
        if log_offset > self.committed_mark:
            self.committed_mark = log_offset
            if self.watcher is not None:
                self.watcher.committed(self)

    def when_flushed(self, offset: Offset, callback: FlushCallback) -> None:
        """Call back when all below `offset` is durable: now, or after the next group commit."""
        assert offset <= self.end_offset, (offset, self.end_offset)
        is_flushed = offset <= self.flusher.flushed_offset
        self.flusher.when_flushed(0 if is_flushed else self.log_end, callback)

    def when_log_flushed(self, log_offset: LogOffset, callback: FlushCallback) -> None:
        """The same by log offset, which also counts internal batches."""
        self.flusher.when_flushed(log_offset, callback)

    async def flush(self) -> None:
        """Return when everything appended so far is durable."""
        await self.flusher.flush()

    def flush_due(self, now_ms: int) -> None:
        """Start a flush if flush.ms has passed since the first append that needs one."""
        self.flusher.flush_due(now_ms)

    def flush_now(self) -> None:
        """Block until everything is durable; for closing, and where there is no loop."""
        self.load()
        try:
            self.flusher.flush_now()
        except QuipuError as error:
            self.flush_ended(error)
            raise

    def dirtied(self) -> None:
        """The flusher's report: there is something to flush."""
        if self.watcher is not None:
            self.watcher.dirtied(self)

    def flush_ended(self, error: QuipuError | None) -> None:
        """The flusher's report: a sync ended."""
        if isinstance(error, TransientDiskError):
            _log.warning("%s: a flush is tried again: %s", self.name, error)
        elif error is not None:
            self.fail(QuipuError(f"{self.name}: cannot be made durable: {error}; restart the "
                                 "node once the disk is well", kind=Kind.CORRUPT,
                                 code=Code.KAFKA_STORAGE_ERROR))
        elif self.watcher is not None:
            self.watcher.flushed(self)

    def fail(self, error: QuipuError) -> None:
        """Refuse every call from now on (L5)."""
        if self.failure is None:
            if str(error) != self._logged_failure:  # a `retry` that fails as before is no news
                for_now = " for now" if isinstance(error, TransientDiskError) else ""
                _log.error("log %s is offline%s: %s", self.name, for_now, error)
            self.failure, self._logged_failure = error, str(error)
        self.active, self.is_blank = None, False
        self.flusher.fail(self.failure)

    @property
    def may_retry(self) -> bool:
        """Could it not be opened for a reason that passes?"""
        return isinstance(self.failure, TransientDiskError) and not self.is_closed

    def retry(self, now_ms: int, found: Recovered | QuipuError | None = None) -> bool:
        """Open the log anew if `may_retry`; True if it is open now.  `found`: see `__init__`."""
        if not self.may_retry:
            return False
        self.failure = None
        self.flusher.forgive()
        with suppress(QuipuError):  # kept in `failure`
            if isinstance(found, QuipuError):
                self.fail(found)
            else:
                opening.load(self, now_ms, found)
                self._logged_failure = ""
        return self.failure is None

    def close(self) -> CleanStop | None:
        """Make everything durable and let go of the files; gives what to remember, if sound."""
        return opening.close(self)

    def discard(self) -> None:
        """Let go of the files as they are."""
        self.flusher.drain()
        self.is_closed = True
        self.active, self.is_blank = None, False
        self.unsynced = []
        self.files.close()
        self.flusher.fail(RequestError(f"{self.name}: the log was closed",
                                        code=Code.NOT_LEADER_OR_FOLLOWER))

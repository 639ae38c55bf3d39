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
    L5  after a failed sync, or damage found, `failure` is set for good and every call raises it

A log that was closed cleanly is not looked at until it is used: `_active` is None until then.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from quipu.model.batch_types import CHECKPOINT, DATA, BatchType, require_set
from quipu.model.errors import Code, Kind, OffsetOutOfRange, QuipuError, RequestError
from quipu.model.ids import NO_EPOCH, Epoch, LogOffset, Offset
from quipu.runtime.disk import Buffer, DiskError, DiskFull, File
from quipu.storage import reading, trimming
from quipu.storage.appended import NO_LOG_OFFSET, Appended, Watcher
from quipu.storage.checkpoint import Checkpoint, LogState, encode_checkpoint
from quipu.storage.config import LogConfig
from quipu.storage.entries import append_entry
from quipu.storage.flush import FlushCallback, Flusher
from quipu.storage.place import NOTHING, CleanStop, Memory, Place
from quipu.storage.producers import ProducerInfo
from quipu.storage.reading import StoredBatch, TimestampAndOffset
from quipu.storage.recovery import recover
from quipu.storage.retention import may_expire
from quipu.storage.segment import Segment
from quipu.storage.segments import Segments
from quipu.wire.fast import stamp
from quipu.wire.record_batch import BatchHeader, Record, encode_batch, parse_header
from quipu.wire.stored_batch import PREFIX_SIZE, StoredHeader, pack_prefix

__all__ = ["Appended", "Log", "LogConfig", "StoredBatch", "TimestampAndOffset", "Watcher"]

LOG_BEGIN: Final = LogOffset(0)
_log = logging.getLogger(__name__)


class Log:
    """One log.  Not for several threads: all calls come from the loop that owns it."""

    def __init__(
        self, place: Place, config: LogConfig, *, memory: Memory = NOTHING, now_ms: int
    ) -> None:
        self.name = place.name
        self.topic_id = place.topic_id
        self.directory = place.directory
        self.failure: QuipuError | None = None
        self.log_start_offset = Offset(0)
        self.end_offset = Offset(0)
        self.log_end = LogOffset(0)
        self.leader_epoch = NO_EPOCH
        self.unsynced: list[Segment] = []
        self.watcher: Watcher | None = None
        self._config = config
        self._place = place
        self._memory = memory
        self._segments = Segments(place)
        self._active: Segment | None = None
        self._state = LogState()
        self.flusher = Flusher(place.disk, self)
        self._opened_ms = now_ms
        self._closed = False
        if memory.clean is not None and memory.is_current:
            self.log_start_offset = Offset(memory.clean.log_start_offset)
            self.end_offset = Offset(memory.clean.end_offset)
            self.log_end = LogOffset(memory.clean.log_end)
            self._segments.complete_size = memory.clean.size_bytes
            self.flusher.reset()
        else:
            with suppress(QuipuError):  # kept in `failure`: one bad log does not stop the others
                self._load(now_ms)

    def load(self) -> None:
        """Open the files, if that was put off until now."""
        if self._active is None:
            self._load(self._opened_ms)

    def _load(self, now_ms: int) -> Segment:
        """Find or make the files; gives the active segment."""
        if self._closed:
            raise RequestError(f"{self.name}: the log is closed",
                               code=Code.NOT_LEADER_OR_FOLLOWER)
        if self.failure is not None:
            raise self.failure
        try:
            found = recover(self._place, self._config, self._memory, now_ms)
            self._segments.adopt(found.segments)
            self._state = found.state
            self.end_offset, self.log_end = Offset(found.end_offset), LogOffset(found.log_end)
            self.flusher.reset()
            if found.segments:
                self._adopt()
                self.flusher.recovered(self._memory.flushed if found.was_scanned else self.log_end)
            else:
                self._place.disk.make_directory(self.directory)
                self._start_segment(now_ms)
        except QuipuError as error:
            self.fail(error)
            raise
        assert self._active is not None
        return self._active

    def _adopt(self) -> None:
        """Go on with the segments and the state that recovery found."""
        state = self._state
        self._active = self._segments[-1]
        self.unsynced = [self._active]
        self.log_start_offset = state.log_start_offset = Offset(
            max(state.log_start_offset, self._segments[0].base_offset))
        state.epochs.advance_start(self.log_start_offset)
        self.leader_epoch = max(self.leader_epoch, state.epochs.latest)
        self._active.set_limits(self._config)

    # --- what it is -------------------------------------------------------------------------

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        if self._active is not None:
            self._active.set_limits(config)
        if self.flusher.is_dirty:
            self.flusher.request()  # a stricter flush.messages may be due already

    @property
    def high_watermark(self) -> Offset:
        is_promised = self._config.flush_messages == 1
        return self.flusher.flushed_offset if is_promised else self.end_offset  # L4

    @property
    def size_bytes(self) -> int:
        active_size = self._active.size if self._active is not None else 0
        return self._segments.complete_size + active_size

    @property
    def is_open(self) -> bool:
        """Has the log been used, or is it still as it was closed?"""
        return self._active is not None or self.failure is not None

    @property
    def segments(self) -> Segments:
        """The segments, oldest first; the last one is active."""
        self.load()
        return self._segments

    @property
    def log_start_log_offset(self) -> LogOffset:
        return LogOffset(self.segments[0].base_log)

    def set_epoch(self, epoch: Epoch) -> None:
        """This node leads the log in `epoch`, from the next offset on."""
        if epoch != self.leader_epoch:
            self.state.epochs.note(epoch, self.end_offset)
            self.leader_epoch = epoch

    def epoch_end(self, epoch: Epoch) -> tuple[Epoch, Offset]:
        """The last epoch at or before `epoch` and where it ended; (-1, -1) if none is known."""
        return self.state.epochs.end(epoch, self.end_offset) or (NO_EPOCH, Offset(-1))

    def producers(self) -> list[ProducerInfo]:
        return self.state.producers.infos()

    @property
    def state(self) -> LogState:
        """The state behind the offsets (L3); for tests and tools."""
        self.load()
        return self._state

    # --- appending --------------------------------------------------------------------------

    def append(
        self, batch: memoryview, header: BatchHeader, *, epoch: Epoch, now_ms: int
    ) -> Appended:
        """Append one checked data batch; its offset and epoch are set in place.

        A batch that its producer sent before is not written again: `duplicate` tells.  Raises
        `RequestError` if it is out of sequence, `DiskError` if it could not be written.
        """
        active = self._active
        if active is None:
            active = self._load(now_ms)
        producer_id = header.producer_id
        if producer_id >= 0:
            seen = self._state.producers.check(header, self.name)
            if seen is not None:
                return Appended(seen, Offset(seen + header.last_offset_delta), NO_LOG_OFFSET,
                                duplicate=True)
        if epoch != self.leader_epoch:
            self.set_epoch(epoch)
        size = len(batch) + PREFIX_SIZE
        file = active.file
        assert file is not None
        position = file.size
        if (position >= active.index_due or position + size > active.roll_size
                or now_ms >= active.roll_ms):
            active, file = self._prepare(size, now_ms)
        base_offset, log_offset = self.end_offset, self.log_end
        prefix = stamp(batch, header, batch_type=DATA, log_offset=log_offset,
                       base_offset=base_offset, leader_epoch=epoch)
        try:
            file.append((prefix, batch), size)
        except DiskError as error:
            raise self._refused(error) from error
        delta = header.last_offset_delta
        last_offset = base_offset + delta
        self.end_offset = Offset(last_offset + 1)
        self.log_end = log_end = LogOffset(log_offset + delta + 1)
        if header.max_timestamp > active.max_timestamp:  # noqa: PLR1730 max() takes longer
            active.max_timestamp = header.max_timestamp
        if producer_id >= 0:
            self._state.producers.note(header, base_offset, now_ms)
        if log_end >= self.flusher.due_at:
            self.flusher.appended(now_ms)
        return Appended(base_offset, Offset(last_offset), log_offset, duplicate=False)

    def append_records(
        self, batch_type: BatchType, records: Sequence[Record], *, epoch: Epoch, now_ms: int
    ) -> Appended:
        """Append `records` as one batch of `batch_type`; those without a time get `now_ms`."""
        require_set(batch_type, self.name, self.end_offset)
        self.load()
        assert batch_type != CHECKPOINT, "a checkpoint starts a segment: roll"
        batch = encode_batch(
            [record if record.timestamp >= 0 else record._replace(timestamp=now_ms)
             for record in records],
            base_offset=self.end_offset, leader_epoch=epoch)
        view = memoryview(batch)
        header = parse_header(view)
        if batch_type == DATA:
            return self.append(view, header, epoch=epoch, now_ms=now_ms)
        if epoch != self.leader_epoch and epoch >= 0:
            self.set_epoch(epoch)
        log_offset = self.append_internal(batch_type, batch, header, now_ms)
        return Appended(self.end_offset, Offset(self.end_offset - 1), log_offset, duplicate=False)

    def append_internal(
        self, batch_type: int, batch: bytearray, header: BatchHeader, now_ms: int
    ) -> LogOffset:
        """Write a batch that takes no client offsets; `batch` has its offset and epoch."""
        _, file = self._prepare(len(batch) + PREFIX_SIZE, now_ms)
        log_offset = self.log_end
        self.write(file, pack_prefix(batch, batch_type=batch_type, log_offset=log_offset), batch)
        self.log_end = LogOffset(log_offset + header.last_offset_delta + 1)
        if self.log_end >= self.flusher.due_at:
            self.flusher.appended(now_ms)
        return log_offset

    def append_stored(self, stored: memoryview) -> None:
        """Append an entry that another log made: stored batches, by value, all of one type."""
        append_entry(self, stored)

    def replayed(self, header: StoredHeader, stored: memoryview) -> None:
        """A batch of another log is in the file: take it in as recovery would."""
        self.end_offset = Offset(header.next_offset)
        self.log_end = LogOffset(header.next_log_offset)
        self._state.replay(header, stored, self._opened_ms)
        self.leader_epoch = max(self.leader_epoch, self._state.epochs.latest)
        if self._state.log_start_offset > self.log_start_offset:
            self.advance_start(self._state.log_start_offset)
        if self.log_end >= self.flusher.due_at:
            self.flusher.appended(self._opened_ms)

    def write(self, file: File, prefix: Buffer, batch: Buffer = b"") -> None:
        """Append to the active segment's file, all or nothing."""
        try:
            file.append((prefix, batch), len(prefix) + len(batch))
        except DiskError as error:
            raise self._refused(error) from error

    def _refused(self, error: DiskError) -> DiskError:
        """A write failed and left no trace (L2); only a full disk may get better by itself."""
        if not isinstance(error, DiskFull):
            self.fail(error)
        return error

    # --- segments ---------------------------------------------------------------------------

    def _prepare(self, size: int, now_ms: int) -> tuple[Segment, File]:
        """Roll if the active segment is full or old, and index the batch that comes next."""
        active, file = self.writable()
        if size > self._config.segment_bytes + PREFIX_SIZE:
            raise RequestError(f"{self.name}: batch of {size} bytes exceeds segment.bytes = "
                               f"{self._config.segment_bytes}", code=Code.RECORD_LIST_TOO_LARGE)
        if file.size + size > active.roll_size or now_ms >= active.roll_ms:
            if self.log_end == active.first_end:  # nothing is in it yet
                active.roll_ms = now_ms + self._config.segment_ms
            else:
                self.roll(now_ms)
                active, file = self.writable()
        if (file.size >= active.index_due
                and not active.add_entry(self.end_offset, self.log_end, file.size)
                and self.log_end != active.first_end):
            self.roll(now_ms)
            return self.writable()
        return active, file

    def writable(self) -> tuple[Segment, File]:
        """The active segment and its file."""
        active = self._active
        assert active is not None
        assert active.file is not None
        return active, active.file

    def roll(self, now_ms: int) -> None:
        """Complete the active segment and start the next; what is complete is made durable."""
        self.load()
        if len(self.unsynced) > 1:
            self.flush_now()  # the one before the last must be sealed by now (S3)
        self._state.producers.expire(now_ms, self._config.producer_expiration_ms)
        self._start_segment(now_ms)
        self.flusher.request()

    def _start_segment(self, now_ms: int) -> None:
        checkpoint = Checkpoint(self.name, self.topic_id, self.flushed_end, self._state)
        batch = encode_batch(encode_checkpoint(checkpoint, now_ms), base_offset=self.end_offset,
                             leader_epoch=self.leader_epoch)
        prefix = pack_prefix(batch, batch_type=CHECKPOINT, log_offset=self.log_end)
        self.roll_to((prefix, batch), parse_header(memoryview(batch)))

    def roll_to(self, parts: Sequence[Buffer], header: BatchHeader | StoredHeader) -> None:
        """Start a segment with the checkpoint that `parts` are."""
        try:
            active = self._segments.start(self.log_end, self.end_offset, parts,
                                          created_ms=header.base_timestamp, config=self._config)
        except DiskError as error:
            raise self._refused(error) from error
        self.unsynced.append(active)  # before the end moves: see G1
        self._active = active
        self.log_end = LogOffset(self.log_end + header.last_offset_delta + 1)
        active.first_end = self.log_end
        if self.log_end >= self.flusher.due_at:
            self.flusher.appended(header.base_timestamp)

    def delete_records(self, before: Offset, now_ms: int) -> Offset:
        """Records below `before` are gone for clients; gives the log start offset."""
        return trimming.delete_records(self, before, now_ms)

    def apply_retention(self, now_ms: int) -> int:
        """Remove segments by age, by size, or whose records were deleted; gives how many."""
        clean = self._memory.clean if self._active is None else None
        if clean is not None and not may_expire(clean, self._config, now_ms):
            return 0  # no need to open its files
        return trimming.apply_retention(self, now_ms)

    def drop_segments_before(self, log_offset: LogOffset) -> int:
        """Remove complete segments that lie below `log_offset`; gives how many."""
        return trimming.drop_segments_before(self, log_offset)

    def truncate(self, log_offset: LogOffset) -> None:
        """Remove the batch that holds `log_offset` and all after it."""
        trimming.truncate(self, log_offset)

    def advance_start(self, offset: Offset) -> None:
        """Records below `offset` are no longer served."""
        self.log_start_offset = self._state.log_start_offset = offset
        self._state.epochs.advance_start(offset)

    def reload(self) -> None:
        """The files were changed: begin anew from them."""
        self.unsynced, self._active = [], None
        self.leader_epoch, self._memory = NO_EPOCH, NOTHING
        self.load()

    # --- reading ----------------------------------------------------------------------------

    def read(
        self, offset: Offset, max_bytes: int, *, end: Offset, min_one: bool
    ) -> list[memoryview]:
        """Data batches from the one that holds `offset` up to `end`, whole, as buffers to send.

        At most `max_bytes`, but with `min_one` the first may be larger.  Raises
        `OffsetOutOfRange`.
        """
        if self._active is None:
            self.load()
        if not self.log_start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(self.name, offset, self.log_start_offset, self.end_offset)
        if offset >= end or offset == self.end_offset:
            return []
        return reading.read(self._segments, offset, max_bytes, end=end, min_one=min_one)

    def read_stored(self, log_offset: LogOffset = LOG_BEGIN) -> Iterator[StoredBatch]:
        """Every batch, of any type, from the one that holds `log_offset` on; checked."""
        return reading.read_stored(self.segments, log_offset)

    def find_timestamp(self, timestamp_ms: int) -> TimestampAndOffset | None:
        """The first record that is as new as `timestamp_ms`."""
        return reading.find_timestamp(self.segments, timestamp_ms,
                                      start_offset=self.log_start_offset)

    def max_timestamp(self) -> TimestampAndOffset | None:
        """The first of the newest records."""
        newest = reading.max_timestamp(self.segments, start_offset=self.log_start_offset)
        return self.find_timestamp(newest) if newest >= 0 else None

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
        if error is not None:
            self.fail(QuipuError(f"{self.name}: cannot be made durable: {error}; restart the "
                                 "node once the disk is well", kind=Kind.CORRUPT,
                                 code=Code.KAFKA_STORAGE_ERROR))
        elif self.watcher is not None:
            self.watcher.flushed(self)

    def fail(self, error: QuipuError) -> None:
        """Refuse every call from now on (L5)."""
        if self.failure is None:
            _log.error("log %s is offline: %s", self.name, error)
            self.failure = error
        self._active = None
        self.flusher.fail(self.failure)

    def close(self) -> CleanStop | None:
        """Make everything durable and let go of the files; gives what to remember, if sound."""
        if self._active is None:
            return None if self.failure or self._closed else self._memory.clean
        if self.is_dirty or len(self.unsynced) > 1:
            self.flush_now()
        active, state = self._active, self._state
        active.complete(self.end_offset, self.log_end)
        active.write_index()
        clean = CleanStop(
            base_log=active.base_log, active_size=active.size, size_bytes=self.size_bytes,
            end_offset=self.end_offset, log_end=self.log_end,
            log_start_offset=self.log_start_offset, oldest_ms=self._segments[0].newest_ms,
            epochs=state.epochs.encode(), producers=state.producers.encode())
        self.discard()
        return clean

    def discard(self) -> None:
        """Let go of the files as they are."""
        self.flusher.drain()
        self._closed = True
        self._active = None
        self.unsynced = []
        self._segments.close()
        self.flusher.fail(RequestError(f"{self.name}: the log was closed",
                                        code=Code.NOT_LEADER_OR_FOLLOWER))

"""Group commit: one sync for every batch that waits for one.

While a sync runs in a thread of the disk, the loop goes on appending; when it ends, the next one
covers all that came meanwhile.  So under load the syncs follow each other without a pause and
each carries a group, and without load a batch waits for its own sync and no longer.

Invariants
    storage.G1  the flushed ends only move to ends that the log had before the sync began: the
        thread reads the ends first, then which files to sync, then syncs them
    storage.G2  callbacks run on the loop, in the order of their offsets, after the ends have moved
    storage.G3  after a failed sync the kernel may drop what it could not write and report success
        next time; so the first failure is final: the log fails, and so does every waiting callback
    storage.G4  what fails around a sync (a directory that cannot be opened for want of
        descriptors, an index without space) is tried again with the next `flush_due`; callbacks
        go on waiting

Flushes start when flush.messages records are unflushed, when flush.ms has passed (the data
directory calls `flush_due`), when a callback waits, at a roll, and when the log is closed.

The flusher owns what is known of durability: the flushed ends, and which files are not synced.
Not here: the ends of the log, and what becomes of a log whose sync failed (log.py).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from quipu.model.errors import QuipuError
from quipu.model.ids import LogOffset, Offset
from quipu.runtime.disks.disk import Disk, TransientDiskError, Wait
from quipu.storage.config import NEVER, LogConfig
from quipu.storage.log_directory import LogDirectory
from quipu.storage.segments.segment import Segment

FlushCallback = Callable[[Exception | None], None]
_log = logging.getLogger(__name__)


class Flushable(Protocol):
    """What the flusher reads of its log, some of it in a thread; it changes none of it."""

    directory: LogDirectory
    config: LogConfig
    end_offset: Offset
    log_end: LogOffset


class FlushReports(NamedTuple):
    """The callbacks of the flusher, called on the loop."""

    dirty: Callable[[], None]  # there is something to flush, and there was nothing
    ended: Callable[[QuipuError | None], None]  # a sync ended; the ends have moved if it succeeded


class Flusher:
    """The syncs of one log; at most one is under way."""

    __slots__ = ("_dirty_since_ms", "_disk", "_failure", "_is_directory_new", "_is_to_repeat",
                 "_log", "_new", "_report", "_sync_error", "_target", "_wait", "_waiters",
                 "_wanted", "due_at", "flushed_log", "flushed_offset", "unsynced")

    def __init__(self, disk: Disk, log: Flushable, report: FlushReports) -> None:
        self.flushed_offset = Offset(0)
        self.flushed_log = LogOffset(0)
        self.due_at = 0  # the log end at which `appended` must be called; 0 when all is flushed
        self.unsynced: list[Segment] = []  # complete ones that are not sealed, then the active one
        self._new: set[Segment] = set()  # of these, whose names may not be durable yet
        self._is_directory_new = False  # nor the name of the log's directory
        self._dirty_since_ms = 0
        self._failure: QuipuError | None = None
        self._sync_error: QuipuError | None = None  # of a file's sync, set by the thread
        self._is_to_repeat = False  # did a sync fail for a reason that passes (storage.G4)?
        self._disk = disk
        self._log = log
        self._report = report
        self._wait: Wait | None = None  # of the sync under way
        self._target = (Offset(0), LogOffset(0))  # the ends that it covers, set by its thread
        self._wanted = 0  # log end up to which a flush is requested
        self._waiters: deque[tuple[int, FlushCallback]] = deque()

    # --- which files there are, as the log reports -------------------------------------------

    def reset(self, active: Segment | None = None) -> None:
        """Take all that the log has now for durable, and `active` for its only open segment."""
        self.drain()
        self._target = self.flushed_offset, self.flushed_log = (
            self._log.end_offset, self._log.log_end)
        self._wanted = self.due_at = 0
        self.unsynced = [] if active is None else [active]
        self._new.clear()
        assert not self.is_dirty, self._target

    def recovered(self, flushed_log: LogOffset, flushed_offset: Offset) -> None:
        """Make durable what a scan found at or after these offsets: a crash came before its sync.

        If acknowledgements wait for the disk this blocks, so that readers never see the high
        watermark fall.
        """
        assert flushed_log < self._log.log_end, (flushed_log, self._log.log_end)
        assert flushed_offset <= self._log.end_offset, (flushed_offset, self._log.end_offset)
        self.flushed_log, self.flushed_offset = flushed_log, flushed_offset
        self._new.add(self.unsynced[-1])  # nor may the names of the files be durable
        self._is_directory_new = True
        if self._log.config.is_durable:
            self.drain()
            self._advance(self._sync())  # the opening of the log reports what is raised
        else:
            self.request()

    def name_unsure(self) -> None:
        """Sync the directory with the next sync: the active segment's file may have replaced
        another one (reopening.py) shortly before the process ended.
        """
        self._new.add(self.unsynced[-1])

    def started(self, segment: Segment, *, in_new_directory: bool) -> None:
        """Sync `segment` from now on; called before the log's ends move (storage.G1)."""
        assert segment.file is not None, segment.path
        assert not self.unsynced or self.unsynced[-1].base_log < segment.base_log, segment.path
        self._new.add(segment)
        self.unsynced.append(segment)
        self._is_directory_new = self._is_directory_new or in_new_directory

    def dropped(self) -> None:
        """Forget the segments whose files were closed because retention removed them."""
        self.unsynced = [segment for segment in self.unsynced if segment.file is not None]
        self._new.intersection_update(self.unsynced)
        assert self.unsynced, "the active segment stays"

    def release(self) -> None:
        """Forget all files, after the sync under way: they are about to be closed."""
        self.drain()
        self.unsynced = []
        self._new.clear()

    # --- when to flush -----------------------------------------------------------------------

    @property
    def is_dirty(self) -> bool:
        """Is there something in the log that is not durable yet?"""
        return self.flushed_log < self._log.log_end

    def appended(self, now_ms: int) -> None:
        """Note that the log's end has reached `due_at`: it was clean, or flush.messages is due."""
        flush_messages = self._log.config.flush_messages
        if self.due_at == 0:
            self._dirty_since_ms = now_ms
            self.due_at = min(self.flushed_log + flush_messages, NEVER)
            assert self.flushed_log < self._log.log_end, self.flushed_log  # else nothing is dirty
            self._report.dirty()
        if self._log.log_end >= self.due_at:
            self.due_at = min(self._log.log_end + flush_messages, NEVER)
            self.request()

    def flush_due(self, now_ms: int) -> None:
        """Start a flush if the oldest unflushed append is flush.ms old."""
        is_due = (now_ms - self._dirty_since_ms >= self._log.config.flush_ms
                  or self._is_to_repeat)
        if is_due and self.is_dirty and self._failure is None:
            self._dirty_since_ms = now_ms
            self._is_to_repeat = False
            self.request()

    def request(self) -> None:
        """Have everything up to now flushed; returns at once."""
        self._wanted = self._log.log_end
        if self._wait is None:
            self._start()

    def when_flushed(self, offset: Offset, callback: FlushCallback) -> None:
        """Call back once all records below client offset `offset` are durable, or cannot be."""
        assert offset <= self._log.end_offset, (offset, self._log.end_offset)
        is_flushed = offset <= self.flushed_offset
        self.when_log_flushed(LogOffset(0) if is_flushed else self._log.log_end, callback)

    def when_log_flushed(self, log_end: LogOffset, callback: FlushCallback) -> None:
        """Call back once everything below log offset `log_end` is durable, or cannot be."""
        assert log_end <= self._log.log_end or self._failure is not None, log_end
        if self._failure is not None or log_end <= self.flushed_log:
            callback(self._failure)
            return
        self._waiters.append((log_end, callback))
        self.request()

    async def flush(self) -> None:
        """Return when everything that is in the log now is durable."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.when_log_flushed(self._log.log_end, partial(_settle, future))
        await future

    def flush_now(self) -> None:
        """Block until everything is durable, after the sync under way; raises if it cannot be."""
        self.drain()
        if self._failure is not None:
            raise self._failure  # storage.G3
        try:
            sealed = self._sync()
        except QuipuError as error:
            self._report.ended(error)
            raise
        self._advance(sealed)
        assert not self.is_dirty, self._target

    def drain(self) -> None:
        """Block until no thread touches the log's files; the result of its sync is reported
        later.
        """
        if self._wait is not None:
            self._wait()

    # --- failures ----------------------------------------------------------------------------

    def forgive(self) -> None:
        """Forget the failure: the log is opened again."""
        self._failure = None

    def fail(self, error: QuipuError) -> None:
        """Fail every callback, those that wait now and those to come (storage.G3)."""
        self._failure = error
        self.dismiss(error)
        assert not self._waiters, error

    def dismiss(self, error: QuipuError) -> None:
        """Fail the callbacks that wait now: what they wait for will not come."""
        while self._waiters:
            self._waiters.popleft()[1](error)

    # --- one sync ----------------------------------------------------------------------------

    def _start(self) -> None:
        sealed: list[Segment] = []
        is_done = False

        def done(error: QuipuError | None) -> None:
            nonlocal is_done
            is_done = True
            self._wait = None
            self._finished(sealed, error)

        assert self._wait is None, "a sync is under way"
        wait = self._disk.submit(lambda: sealed.extend(self._sync()), done)
        if not is_done:
            self._wait = wait

    def _sync(self) -> list[Segment]:
        """In a thread: sync the unsynced files; returns the segments that can be sealed now."""
        log = self._log
        if self._sync_error is not None:
            raise self._sync_error  # storage.G3: the loop may not have been notified yet
        self._target = (log.end_offset, log.log_end)  # storage.G1: before looking at the files
        unsynced = tuple(self.unsynced)
        try:
            for segment in unsynced:
                assert segment.file is not None
                segment.file.sync()
        except QuipuError as error:
            self._sync_error = None if isinstance(error, TransientDiskError) else error
            raise
        new = self._new.intersection(unsynced)
        if new:
            self._disk.sync_directory(log.directory.path)
            if self._is_directory_new:
                self._disk.sync_directory(log.directory.path.rpartition("/")[0] or ".")
                self._is_directory_new = False
            self._new -= new
        sealed = []
        for segment in unsynced[:-1]:  # the last was active when we looked
            try:
                segment.write_index()
            except TransientDiskError as error:  # storage.G4: it is durable, and stays open so long
                _log.warning("%s stays without an index for now: %s", segment.path, error)
            else:
                sealed.append(segment)
        return sealed

    def _finished(self, sealed: list[Segment], error: QuipuError | None) -> None:
        if error is not None:
            self._is_to_repeat = isinstance(error, TransientDiskError)
            self._report.ended(error)
            return
        self._advance(sealed)
        if self._wanted > self.flushed_log and self._wait is None:
            self._start()

    def _advance(self, sealed: list[Segment]) -> None:
        """Move the flushed ends to where the sync began, then run callbacks (storage.G2)."""
        for segment in sealed:
            if segment in self.unsynced:
                self.unsynced.remove(segment)
                segment.close()
        assert self._target[1] <= self._log.log_end, (self._target, self._log.log_end)
        if self._target[1] > self.flushed_log:
            self.flushed_offset, self.flushed_log = self._target
            assert self.flushed_offset <= self._log.end_offset, self._target
        if not self.is_dirty:
            self.due_at = 0
        while self._waiters and self._waiters[0][0] <= self.flushed_log:
            self._waiters.popleft()[1](None)
        self._report.ended(None)


def _settle(future: asyncio.Future[None], error: Exception | None) -> None:
    if future.done():
        return  # it was cancelled
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(None)

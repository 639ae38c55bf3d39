"""Group commit: one sync for every batch that waits for one.

While a sync runs in a thread of the disk, the loop goes on appending; when it ends, the next one
covers all that came meanwhile.  So under load the syncs follow each other without a pause and
each carries a group, and without load a batch waits for its own sync and no longer.

Invariants
    G1  the flushed ends only move to ends that the log had before the sync began: the thread
        reads the ends first, then which files to sync, then syncs them
    G2  callbacks run on the loop, in the order of their offsets, after the ends have moved
    G3  after a failed sync the kernel may drop what it could not write and report success next
        time; so the first failure is final: the log is failed, and every waiter is told
    G4  what comes around a sync (a directory that cannot be opened for want of descriptors, an
        index without room) is tried again, with the next `flush_due`; whoever waits goes on waiting

Flushes start when flush.messages records are unflushed, when flush.ms has passed (the data
directory asks `flush_due`), when someone waits, at a roll, and at the end.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from quipu.model.errors import QuipuError
from quipu.model.ids import LogOffset, Offset
from quipu.runtime.disk import Disk, TransientDiskError, Wait
from quipu.storage.config import NEVER, LogConfig
from quipu.storage.segment import Segment

FlushCallback = Callable[[Exception | None], None]
_log = logging.getLogger(__name__)


class Flushable(Protocol):
    """What the flusher needs to know of its log."""

    directory: str
    log_start_offset: Offset
    end_offset: Offset
    log_end: LogOffset
    unsynced: list[Segment]  # complete ones that are not sealed yet, then the active one
    is_directory_new: bool  # its name may not be durable yet

    @property
    def config(self) -> LogConfig: ...
    def offset_at(self, log_offset: LogOffset) -> Offset | None: ...
    def dirtied(self) -> None:
        """There is something to flush; there was nothing."""
        ...

    def flush_ended(self, error: QuipuError | None) -> None:
        """A sync ended; the ends have moved if it went well."""
        ...


class Flusher:
    """The syncs of one log; at most one is under way."""

    __slots__ = ("_dirty_since_ms", "_disk", "_failure", "_is_to_repeat", "_log", "_target",
                 "_wait", "_waiters", "_wanted", "due_at", "flushed_end", "flushed_offset")

    def __init__(self, disk: Disk, log: Flushable) -> None:
        self.flushed_offset = Offset(0)
        self.flushed_end = LogOffset(0)
        self.due_at = 0  # the log end at which `appended` must be called; 0 when all is flushed
        self._dirty_since_ms = 0
        self._failure: QuipuError | None = None
        self._is_to_repeat = False  # did something pass by that is to be tried again (G4)?
        self._disk = disk
        self._log = log
        self._wait: Wait | None = None  # of the sync under way
        self._target = (Offset(0), LogOffset(0))  # the ends that it covers, set by its thread
        self._wanted = 0  # log end that someone wants flushed
        self._waiters: deque[tuple[int, FlushCallback]] = deque()

    def reset(self) -> None:
        """Everything that the log has now is durable; what was known before is void."""
        self.drain()
        self._target = self.flushed_offset, self.flushed_end = (
            self._log.end_offset, self._log.log_end)
        self._wanted = self.due_at = 0

    def recovered(self, flushed_end: int) -> None:
        """Only what lies below `flushed_end` is known to be durable: see to the rest."""
        if flushed_end >= self._log.log_end:
            return
        self.flushed_end = LogOffset(flushed_end)
        offset = self._log.offset_at(self.flushed_end)
        self.flushed_offset = self._log.log_start_offset if offset is None else offset
        self._log.unsynced[-1].is_new = True  # nor are the names of the files
        self._log.is_directory_new = True
        if self._log.config.is_durable:
            self.flush_now()  # readers must not see the end fall back
        else:
            self.request()

    @property
    def is_dirty(self) -> bool:
        return self.flushed_end < self._log.log_end

    def appended(self, now_ms: int) -> None:
        """The log was clean, or has as many unflushed records as flush.messages allows."""
        flush_messages = self._log.config.flush_messages
        if self.due_at == 0:
            self._dirty_since_ms = now_ms
            self.due_at = min(self.flushed_end + flush_messages, NEVER)
            self._log.dirtied()
        if self._log.log_end >= self.due_at:
            self.due_at = min(self._log.log_end + flush_messages, NEVER)
            self.request()

    def flush_due(self, now_ms: int) -> None:
        """Flush if there was something to flush for flush.ms."""
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

    def when_flushed(self, log_end: int, callback: FlushCallback) -> None:
        """Call back once everything below `log_end` is durable, or cannot be."""
        if self._failure is not None or log_end <= self.flushed_end:
            callback(self._failure)
            return
        self._waiters.append((log_end, callback))
        self.request()

    async def flush(self) -> None:
        """Return when everything so far is durable."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.when_flushed(self._log.log_end, partial(_settle, future))
        await future

    def flush_now(self) -> None:
        """Sync on this thread, after what is under way."""
        self.drain()
        self._advance(self._sync())

    def drain(self) -> None:
        """Block until no thread touches the log's files."""
        if self._wait is not None:
            self._wait()

    def forgive(self) -> None:
        """What failed works again: the log is opened anew."""
        self._failure = None

    def fail(self, error: QuipuError) -> None:
        """Tell every waiter, now and later (G3)."""
        self._failure = error
        self.dismiss(error)

    def dismiss(self, error: QuipuError) -> None:
        """Tell every waiter that what it waits for will not come."""
        while self._waiters:
            self._waiters.popleft()[1](error)

    def _start(self) -> None:
        sealed: list[Segment] = []
        is_done = False

        def done(error: QuipuError | None) -> None:
            nonlocal is_done
            is_done = True
            self._wait = None
            self._finished(sealed, error)

        wait = self._disk.submit(lambda: sealed.extend(self._sync()), done)
        if not is_done:
            self._wait = wait

    def _sync(self) -> list[Segment]:
        """In a thread: sync what is unsynced; gives the segments that are sealed now."""
        log = self._log
        self._target = (log.end_offset, log.log_end)  # G1: before looking at the files
        unsynced = tuple(log.unsynced)
        for segment in unsynced:
            assert segment.file is not None
            segment.file.sync()
        if any(segment.is_new for segment in unsynced):
            self._disk.sync_directory(log.directory)
            if log.is_directory_new:
                self._disk.sync_directory(log.directory.rpartition("/")[0] or ".")
                log.is_directory_new = False
            for segment in unsynced:
                segment.is_new = False
        sealed = []
        for segment in unsynced[:-1]:  # the last was active when we looked
            try:
                segment.write_index()
            except TransientDiskError as error:  # G4: it is durable, and stays open until then
                _log.warning("%s stays without an index for now: %s", segment.path, error)
            else:
                sealed.append(segment)
        return sealed

    def _finished(self, sealed: list[Segment], error: QuipuError | None) -> None:
        if error is not None:
            self._is_to_repeat = isinstance(error, TransientDiskError)
            self._log.flush_ended(error)
            return
        self._advance(sealed)
        if self._wanted > self.flushed_end and self._wait is None:
            self._start()

    def _advance(self, sealed: list[Segment]) -> None:
        log = self._log
        for segment in sealed:
            if segment in log.unsynced:
                log.unsynced.remove(segment)
                segment.close()
        if self._target[1] > self.flushed_end:
            self.flushed_offset, self.flushed_end = self._target
        if not self.is_dirty:
            self.due_at = 0
        while self._waiters and self._waiters[0][0] <= self.flushed_end:
            self._waiters.popleft()[1](None)
        log.flush_ended(None)


def _settle(future: asyncio.Future[None], error: Exception | None) -> None:
    if future.done():
        return  # whoever waited has gone
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(None)

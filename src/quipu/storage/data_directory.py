"""All logs of one node: one directory each, one lock, and what the node remembers of them.

    <data>/.lock                    held while a node runs on the directory
    <data>/.reserve                 room for what a node must write on a full disk (reserve.py)
    <data>/.directory-id            which directory this is (directory_id.py)
    <data>/__node-0/                the node's memory (node_log.py)
    <data>/<a log>/                 one log; what it is called is in directory_names.py

Invariants
    N1  one process per directory
    N2  a log is marked clean only when all its bytes are durable; the mark counts until its files
        say otherwise
    N3  flushed marks are written after the flush they tell of; committed marks never pass them
    N4  work per tick is by what changed, not by how many logs there are
    N5  a log that is deleted, or set aside, is durably forgotten before its directory is renamed,
        and nothing that is heard of it afterwards is remembered: the same partition may come back
        here, and then nothing is missing
    N6  to open or to delete a log raises nothing: a log that cannot be opened has a `failure`, and
        one that cannot be removed is left where it is
    N7  that all logs of a topic are to be removed is durable before the first of many is: a start
        that finds some of them removes them, and no others
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

from quipu.model.errors import CorruptLog, Kind, MalformedBytes, QuipuError
from quipu.model.ids import NO_NODE, ZERO_UUID, LogOffset, NodeId
from quipu.runtime.clock import Clock
from quipu.runtime.disk import (
    Disk,
    DiskError,
    DiskFull,
    Lock,
    NotFound,
    Space,
    TransientDiskError,
)
from quipu.storage import removal
from quipu.storage.config import LogConfig
from quipu.storage.directory_id import identify
from quipu.storage.directory_names import (
    DAMAGED_SUFFIX,
    DELETED_SUFFIX,
    directory_name,
    is_log,
    is_older,
    marked,
    older_name,
)
from quipu.storage.log import Log
from quipu.storage.node_log import NODE_LOG_CONFIG, NODE_LOG_NAME, NodeLog, Remembered
from quipu.storage.place import NOTHING, Memory, Place
from quipu.storage.recovery import Recovered, first_checkpoint, segment_bases
from quipu.storage.reopening import recover_off_loop, rewrite_off_loop
from quipu.storage.reserve import Reserve
from quipu.storage.segment import OpenSegments

LOCK_NAME: Final = ".lock"
STEP_LOGS: Final = 32  # looked at before others get their turn

_log = logging.getLogger(__name__)


class Prepared(NamedTuple):
    """A failed log that can be opened again: what was found of it, off the loop."""

    memory: Memory
    found: Recovered | QuipuError  # or why it cannot be

    def release(self) -> None:
        """Nobody goes on with it."""
        if isinstance(self.found, Recovered):
            self.found.release()


class DataDirectory:
    """The logs of one node."""

    def __init__(
        self, disk: Disk, path: str, clock: Clock, lock: Lock, *, node_id: NodeId = NO_NODE
    ) -> None:
        self.path = path
        self.disk = disk
        self.node_id = node_id
        self._clock = clock
        self._lock = lock
        self.opened = OpenSegments()  # shared by all logs
        self._logs: dict[str, Log] = {}  # by the name of their directory
        self._dirty: dict[Log, None] = {}  # have something to flush
        self._flushed: dict[Log, None] = {}  # have been flushed since the last `remember`
        # Directories of logs that are still to be removed, and whose they were.
        self._deleted: dict[str, UUID] = {}
        self._renamed = 0
        self.refusals = 0  # writes that the disk has refused
        self.refusal: DiskError | None = None  # the last one
        entries = self.disk.list(self.path)
        removal.remove_marked(disk, path, entries)
        self.reserve = Reserve(disk, path)
        self._node_log = self._open_node_log()
        removed = removal.finish(disk, path, self._node_log, entries)
        self._older = {name for name in entries if is_older(name)} - removed
        self._was_stopped = self._node_log.was_stopped
        # Logs all of which somebody has in memory, and how to have them written anew from there.
        self.rewrites: dict[Log, Callable[[], None]] = {
            self._node_log.log: self._node_log.rewrite}
        self.reserve.lend(self._node_log.started)

    @classmethod
    def open(
        cls, disk: Disk, path: str, clock: Clock, *, node_id: NodeId = NO_NODE
    ) -> "DataDirectory":
        """Take the directory, making it if need be; raises if another process has it (N1).

        `node_id` tells which checkpoints this node wrote, where logs have replicas.
        """
        path = path.rstrip("/")
        disk.make_directory(path)
        lock = disk.lock(f"{path}/{LOCK_NAME}")
        if lock is None:
            raise QuipuError(f"{path} is in use by another process: stop it, or choose another "
                             "directory with --dir", kind=Kind.INVALID)
        try:
            return cls(disk, path, clock, lock, node_id=node_id)
        except BaseException:
            lock.release()
            raise

    def _open_node_log(self) -> NodeLog:
        log = self._new_log(NODE_LOG_NAME, NODE_LOG_CONFIG, ZERO_UUID, NOTHING)
        try:
            if log.failure is not None:
                raise log.failure
            return NodeLog(log, self._clock)
        except (CorruptLog, MalformedBytes) as error:
            _log.error("the node's memory is damaged and is begun anew, every log will be "
                       "checked: %s", error)
        log.discard()
        self._rename_away(NODE_LOG_NAME, DAMAGED_SUFFIX)
        log = self._new_log(NODE_LOG_NAME, NODE_LOG_CONFIG, ZERO_UUID, NOTHING)
        if log.failure is not None:
            raise log.failure
        return NodeLog(log, self._clock)

    def _new_log(
        self,
        name: str,
        config: LogConfig,
        topic_id: UUID,
        memory: Memory,
        *,
        entry: str | None = None,
        replica: bool = False,
        failure: QuipuError | None = None,
        found: Recovered | None = None,
    ) -> Log:
        place = Place(disk=self.disk, directory=f"{self.path}/{entry or name}", name=name,
                      topic_id=topic_id, node_id=self.node_id, opened=self.opened)
        return Log(place, config, memory=memory, replica=replica, now_ms=self._clock.now_ms(),
                   failure=failure, found=found)

    # --- logs -------------------------------------------------------------------------------

    @property
    def was_clean(self) -> bool:
        """Did the node stop in order the last time?"""
        return self._was_stopped

    def identify(self, new_id: UUID) -> UUID:
        """The id of this directory, which is `new_id` if it has none yet; see directory_id.py."""
        is_used = any(not name.startswith(".") and name != NODE_LOG_NAME
                      for name in self.disk.list(self.path))
        return identify(self.disk, self.path, new_id, is_used=is_used)

    def space(self) -> Space:
        """Of the volume that it is on."""
        return self.disk.space(self.path)

    def names(self) -> list[str]:
        """The directories of logs that there are, without the node's own."""
        return [name for name in self.disk.list(self.path) if is_log(name)]

    def logs(self) -> list[Log]:
        """All that are open, the node's own too."""
        return [*self._logs.values(), self._node_log.log]

    def open_log(
        self, name: str, config: LogConfig, *, topic_id: UUID, replica: bool = False
    ) -> Log:
        """The log called `name` of the topic with this id, made if there is none.

        With `replica` a new one stays blank until its first append, which is a checkpoint of
        another node or whatever this node writes as the one that leads.
        A log that cannot be served is given too: its `failure` says why, and the others go on (N6).
        """
        entry, failure = directory_name(name, topic_id), None
        log = self._logs.get(entry) or self._logs.get(name)
        if log is not None and log.topic_id == topic_id:
            log.config = config
            return log
        try:
            if entry in self._deleted:
                self._make_way(entry)
            if self._is_in_older_directory(name, topic_id, entry):
                entry = name
        except QuipuError as error:
            failure = error
        known = self._node_log.logs.get(entry)
        memory = NOTHING
        if known is not None and topic_id in (known.topic_id, ZERO_UUID):
            memory = known.memory._replace(is_current=self._was_stopped)
        log = self._new_log(name, config, topic_id, memory, entry=entry, replica=replica,
                            failure=failure)
        log.watcher = self
        self._logs[entry] = log
        if log.is_dirty:
            self._dirty[log] = None
        return log

    def _make_way(self, entry: str) -> None:
        """Have the log removed that was deleted from where a new one is to be."""
        self._remove_logs()
        if entry in self._deleted:
            raise DiskFull(f"{self.path}/{entry}: no room to note that the log before is deleted")

    def _is_in_older_directory(self, name: str, topic_id: UUID, entry: str) -> bool:
        """Was this log made by a version that called directories by the names of topics?"""
        older = older_name(name)
        if older is None or older not in self._older:
            return False
        known = self._node_log.logs.get(older)
        if known is not None and self._was_stopped and known.memory.clean is not None:
            found = known.topic_id
        else:
            directory = f"{self.path}/{older}"
            try:
                bases = segment_bases(list(self.disk.list(directory)))
            except NotFound:
                return False
            first = first_checkpoint(self.disk, directory, bases)
            if first is not None:
                found = first.topic_id
            else:
                found = topic_id if known is None else known.topic_id
        if topic_id not in (found, ZERO_UUID):
            _log.warning("%s/%s holds the log of topic id %s, not of %s: it is left alone",
                         self.path, older, found, topic_id)
            self._older.discard(older)
            return False
        return not self.disk.exists(f"{self.path}/{entry}")

    @property
    def failure(self) -> QuipuError | None:
        """Why nothing can be remembered any more, if so: the disk as a whole is broken."""
        return self._node_log.failure

    async def prepare(self, log: Log) -> "Prepared":
        """Make a failed log ready for `open_again`; raises if the disk does not let it.

        Its mark is written anew, durably: if not even that works, `failure` says so.  It is the
        newest that is known: one who tries again knows no more of the log that failed first.
        """
        known = self._node_log.logs.get(log.entry)
        memory = NOTHING if known is None else known.memory._replace(is_current=False)
        flushed = max(memory.flushed, log.flushed_end)
        memory = memory._replace(
            flushed=flushed, committed=min(max(memory.committed, log.committed_mark), flushed))
        self._node_log.remember({log.entry: Remembered(log.topic_id, memory)}, durable=True)
        log.discard()
        await rewrite_off_loop(self.disk, log.directory)
        return Prepared(memory, await recover_off_loop(
            log.place, log.config, memory, self._clock.now_ms()))

    def open_again(self, log: Log, prepared: "Prepared", *, may_discard: bool) -> Log:
        """A log in the place of one that has failed; it may have failed too (N6).

        With `may_discard` others have all of it: if it is damaged it is set aside, and the log
        begins as a blank one.
        """
        again = self._reopen(log, *prepared)
        if again.failure is not None and again.failure.kind is Kind.CORRUPT and may_discard:
            _log.warning("%s is set aside, and copied from another node: %s", log.directory,
                         again.failure)
            again.discard()
            try:
                self._node_log.remember({log.entry: None}, durable=True)  # N5
                if self.disk.exists(log.directory):
                    self._rename_away(log.entry, DAMAGED_SUFFIX)
            except QuipuError as error:
                again.failure = error
            else:
                self._older.discard(log.entry)
                again = self._reopen(log, NOTHING, None)
        return again

    def _reopen(self, log: Log, memory: Memory, found: Recovered | QuipuError | None) -> Log:
        again = self._new_log(
            log.name, log.config, log.topic_id, memory, entry=log.entry, replica=log.is_replica,
            failure=found if isinstance(found, QuipuError) else None,
            found=None if isinstance(found, QuipuError) else found)
        log.watcher, again.watcher = None, self
        self._logs[log.entry] = again
        for marked_logs in (self._dirty, self._flushed):
            marked_logs.pop(log, None)
        if again.is_dirty:
            self._dirty[again] = None
        return again

    def delete_logs(self, logs: Iterable[Log]) -> None:
        """Forget logs at once; their files are removed in the background (N5, N6)."""
        for log in logs:
            log.watcher = None
            log.discard()
            self._dirty.pop(log, None)
            self._flushed.pop(log, None)
            if self._logs.get(log.entry) is log:
                del self._logs[log.entry]
            self._older.discard(log.entry)
            self._deleted[log.entry] = log.topic_id
        self._remove_logs()

    def _remove_logs(self) -> None:
        """Durably forget deleted logs, then remove them (N5).

        On a full disk the reserve is used, for it makes room; without one it is done with the
        next `remember`.
        """
        entries = list(self._deleted)
        known = dict.fromkeys(entry for entry in entries if entry in self._node_log.logs)
        removing = self._node_log.removing
        durable = any(self._deleted[entry] not in removing for entry in known)  # else N7 is enough
        try:
            if known:
                self.reserve.lend(lambda: self._node_log.remember(known, durable=durable))
        except TransientDiskError:
            return
        except QuipuError as error:
            _log.error("deleted logs cannot be forgotten, and stay in %s: %s", self.path, error)
            entries = []
        self._deleted.clear()
        for entry in entries:
            if self.disk.exists(f"{self.path}/{entry}"):
                try:
                    away = self._rename_away(entry, DELETED_SUFFIX)
                except QuipuError as error:
                    _log.error("a deleted log stays in %s: %s", self.path, error)
                    continue
                self.disk.submit(partial(self.disk.remove_tree, away), removal.tell)

    def begin_removal(self, topic_id: UUID) -> None:
        """The many logs of a deleted topic are about to be deleted (N7)."""
        try:
            self._node_log.begin_removal(topic_id)
        except QuipuError as error:
            _log.warning("topic id %s: if the node ends before all of its logs are removed, some "
                         "stay in %s: %s", topic_id, self.path, error)

    def end_removal(self, topic_id: UUID) -> None:
        """They all were; those that the disk did not let go are left to the next start."""
        if topic_id not in self._deleted.values():
            with suppress(QuipuError):  # then the next start finds nothing to remove
                self._node_log.end_removal(topic_id)

    def _rename_away(self, name: str, suffix: str) -> str:
        away = ""
        while not away or self.disk.exists(away):
            self._renamed += 1
            number = f"{self._clock.now_ms()}-{self._renamed}"
            away = f"{self.path}/{marked(name, number, suffix)}"
        self.disk.rename(f"{self.path}/{name}", away)
        return away

    # --- what the logs report -----------------------------------------------------------------

    def dirtied(self, log: Log) -> None:
        self._dirty[log] = None

    def flushed(self, log: Log) -> None:
        self._flushed[log] = None
        if not log.is_dirty:
            self._dirty.pop(log, None)

    def refused(self, log: Log, error: DiskError) -> None:
        del log
        self.refusals += 1
        self.refusal = error

    def committed(self, log: Log) -> None:
        self._flushed[log] = None

    def truncating(self, log: Log, log_end: LogOffset) -> None:
        self._flushed.pop(log, None)
        self._node_log.remember({log.entry: _remembered(log, log_end)}, durable=True)

    # --- in the background, and at the end --------------------------------------------------

    def flush_due(self, now_ms: int) -> Iterator[None]:
        """Start the flushes that flush.ms asks for, in steps of a few logs."""
        for number, log in enumerate(list(self._dirty), start=1):
            if log in self._dirty:  # else it is flushed, or deleted, since the first step
                log.flush_due(now_ms)
            if number % STEP_LOGS == 0:
                yield

    async def retry_failed(self) -> list[Log]:
        """Open the logs anew that could not be opened for a reason that passes; gives those."""
        opened = []
        for log in [log for log in self._logs.values() if log.may_retry]:
            now_ms = self._clock.now_ms()
            found = await recover_off_loop(log.place, log.config, log.memory, now_ms)
            if log.may_retry and self._logs.get(log.entry) is log:
                if log.retry(now_ms, found):
                    opened.append(log)
            elif isinstance(found, Recovered):
                found.release()
        return opened

    def remember(self, *, count_max: int | None = None) -> bool:
        """Write down how far the logs are flushed and committed, of those that were (N3, N4).

        Of `count_max` logs at most; gives whether there are more.
        """
        if self._deleted:
            self._remove_logs()
        if self._flushed:
            logs = list(islice(self._flushed, count_max))
            self._node_log.remember({log.entry: _remembered(log, log.log_end) for log in logs})
            for log in logs:
                self._flushed.pop(log, None)
        return bool(self._flushed)

    async def flush(self) -> None:
        """Return when everything in every log is durable, as far as it can be."""
        logs = [log for log in self._dirty if log.failure is None]
        for outcome in await asyncio.gather(*(log.flush() for log in logs),
                                            return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, QuipuError):
                raise outcome  # a log that cannot be flushed has said so itself

    def close(self) -> None:
        """Stop in order: everything durable, every log marked clean (N2)."""
        closed: dict[str, Remembered | None] = {}
        for name, log in self._logs.items():
            was_open = log.is_open
            try:
                clean = log.close()
            except QuipuError as error:
                _log.error("log %s could not be closed, it will be checked at the next start: "
                           "%s", name, error)
                clean = None
            if was_open and clean is not None:  # of a failed log, what was known stays true
                committed = min(log.committed_mark, clean.log_end)
                closed[name] = Remembered(
                    log.topic_id, Memory(clean.log_end, clean, committed=committed))
        try:
            self._node_log.remember(closed)
            self._node_log.stopped()
            self._node_log.close()
        except QuipuError as error:
            _log.error("that the node stops in order cannot be written down, every log will be "
                       "checked at the next start: %s", error)
            self._node_log.discard()
        self._logs.clear()
        self._lock.release()

    def abandon(self) -> None:
        """Let go of everything as it is, as a crash would; the next start checks the logs."""
        for log in self._logs.values():
            log.discard()
        self._logs.clear()
        self._node_log.discard()
        self._lock.release()


def _remembered(log: Log, log_end: int) -> Remembered:
    flushed = min(log_end, log.flushed_end)
    return Remembered(log.topic_id, Memory(flushed, committed=min(log.committed_mark, flushed)))

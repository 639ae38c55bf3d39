"""All logs of one node: one directory each, one lock, and what the node recorded of them.

    <data>/.lock                    held while a node runs on the directory
    <data>/.reserve                 room for what a node must write on a full disk (reserve.py)
    <data>/.directory-id            which directory this is (directory_id.py)
    <data>/__node-0/                what the node recorded of its logs (node_log.py)
    <data>/<a log>/                 one log; its directory's name is made by directory_names.py

Invariants
    storage.N1  one process per directory
    storage.N2  a log is recorded as cleanly shut down only when all its bytes are durable; the
        record counts until the log's files say otherwise
    storage.N3  flushed marks are written after the flush they record; committed marks never pass
        them
    storage.N4  work per tick is by what changed, not by how many logs there are
    storage.N5  a log that is deleted, or set aside, is durably forgotten before its directory is
        renamed, and nothing that it reports afterwards is recorded: the same partition may come
        back here, and then nothing is missing
    storage.N6  to open or to delete a log raises nothing: a log that cannot be opened has a
        `failure`, and one that cannot be removed is left where it is
    storage.N7  that all logs of a topic are to be removed is durable before the first of many is: a
        start that finds some of them removes them, and no others
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Final
from uuid import UUID

from quipu.model.errors import CorruptLog, ErrorKind, MalformedBytes, QuipuError
from quipu.model.ids import NO_NODE, ZERO_UUID, LogOffset, NodeId
from quipu.runtime.clock import Clock
from quipu.runtime.disks.disk import (
    Disk,
    DiskError,
    DiskFull,
    Lock,
    NotFound,
    Space,
    TransientDiskError,
)
from quipu.storage.config import LogConfig
from quipu.storage.directory import removal
from quipu.storage.directory.directory_id import identify
from quipu.storage.directory.directory_names import (
    DAMAGED_SUFFIX,
    DELETED_SUFFIX,
    NAME_SIZE_MAX,
    directory_name,
    is_log,
    is_older,
    marked,
    older_name,
)
from quipu.storage.directory.node_log import NODE_LOG_CONFIG, NODE_LOG_NAME, KnownLog, NodeLog
from quipu.storage.directory.reserve import Reserve
from quipu.storage.log import Log, LogPhase
from quipu.storage.log_directory import NO_RECOVERY_POINT, LogDirectory, RecoveryPoint
from quipu.storage.recovery import Recovered, first_checkpoint, segment_bases
from quipu.storage.reopening import PreparedLog, recover_off_loop, rewrite_off_loop
from quipu.storage.segments.segment import OpenSegments

LOCK_NAME: Final = ".lock"
STEP_LOGS: Final = 32  # looked at before others get their turn

_log = logging.getLogger(__name__)


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
        # Logs whose whole content is in memory too, and how it is written again from there.
        self.rewrites: dict[Log, Callable[[], None]] = {self._node_log.log: self._node_log.rewrite}
        self.reserve.lend(self._node_log.started)

    @classmethod
    def open(
        cls, disk: Disk, path: str, clock: Clock, *, node_id: NodeId = NO_NODE
    ) -> "DataDirectory":
        """Take the directory, making it if need be; raises if another process has it (storage.N1).

        `node_id` says which checkpoints this node wrote, where logs have replicas.
        """
        path = path.rstrip("/")
        disk.make_directory(path)
        lock = disk.lock(f"{path}/{LOCK_NAME}")
        if lock is None:
            raise QuipuError(f"{path} is in use by another process: stop it, or choose another "
                             "directory with --dir", kind=ErrorKind.INVALID)
        try:
            return cls(disk, path, clock, lock, node_id=node_id)
        except BaseException:
            lock.release()
            raise

    def _open_node_log(self) -> NodeLog:
        log = self._new_log(NODE_LOG_NAME, NODE_LOG_CONFIG, ZERO_UUID, NO_RECOVERY_POINT)
        try:
            if log.failure is not None:
                raise log.failure
            return NodeLog(log, self._clock)
        except (CorruptLog, MalformedBytes) as error:
            _log.error("the node log is damaged and is started again, every log will be "
                       "checked: %s", error)
        log.discard()
        self._rename_away(NODE_LOG_NAME, DAMAGED_SUFFIX)
        log = self._new_log(NODE_LOG_NAME, NODE_LOG_CONFIG, ZERO_UUID, NO_RECOVERY_POINT)
        if log.failure is not None:
            raise log.failure
        return NodeLog(log, self._clock)

    def _new_log(
        self,
        name: str,
        config: LogConfig,
        topic_id: UUID,
        recovery: RecoveryPoint,
        *,
        entry: str | None = None,
        replica: bool = False,
        failure: QuipuError | None = None,
        found: Recovered | None = None,
    ) -> Log:
        directory = LogDirectory(
            disk=self.disk, path=f"{self.path}/{entry or name}", name=name, topic_id=topic_id,
            node_id=self.node_id, open_segments=self.opened)
        return Log(directory, config, recovery=recovery, replica=replica,
                   now_ms=self._clock.now_ms(), failure=failure, found=found)

    # --- logs -------------------------------------------------------------------------------

    @property
    def was_clean(self) -> bool:
        """Was the node shut down cleanly the last time?"""
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

        With `replica` a new one stays empty until its first append: a checkpoint of another node,
        or a batch that this node writes as the leader.  A log that cannot be served is returned
        too: its `failure` says why (storage.N6).
        """
        entry, failure = directory_name(name, topic_id), None
        log = self._logs.get(entry) or self._logs.get(name)
        if log is not None and log.directory.topic_id == topic_id:
            log.configure(config)
            return log
        try:
            if entry in self._deleted:
                self._make_way(entry)
            if self._is_in_older_directory(name, topic_id, entry):
                entry = name
        except QuipuError as error:
            failure = error
        known = self._node_log.logs.get(entry)
        recovery = NO_RECOVERY_POINT
        if known is not None and topic_id in (known.topic_id, ZERO_UUID):
            recovery = known.recovery._replace(is_current=self._was_stopped)
        log = self._new_log(name, config, topic_id, recovery, entry=entry, replica=replica,
                            failure=failure)
        log.observe(self)
        self._logs[entry] = log
        if log.flusher.is_dirty:
            self._dirty[log] = None
        assert log.directory.entry == entry, (entry, log.directory.path)
        assert entry not in self._deleted or failure is not None, entry  # storage.N5
        return log

    def _make_way(self, entry: str) -> None:
        """Remove the deleted log whose directory has the name that a new one is to have."""
        assert entry not in self._logs, entry  # storage.N5
        self._remove_logs()
        if entry in self._deleted:
            raise DiskFull(f"{self.path}/{entry}: no room to note that the log before is deleted")

    def _is_in_older_directory(self, name: str, topic_id: UUID, entry: str) -> bool:
        """Was this log made by a version that named directories after topics alone?"""
        older = older_name(name)
        if older is None or older not in self._older:
            return False
        known = self._node_log.logs.get(older)
        if known is not None and self._was_stopped and known.recovery.clean is not None:
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
        """Why nothing can be recorded any more, if so: the disk as a whole is broken."""
        return self._node_log.failure

    async def prepare(self, log: Log) -> PreparedLog:
        """Make a failed log ready for `open_again`; raises if the disk does not allow it.

        Its mark is recorded again, durably: if not even that works, it becomes `failure`.  A log
        that was opened again, and failed again, may know less than what is recorded.
        """
        known = self._node_log.logs.get(log.directory.entry)
        recovery = NO_RECOVERY_POINT if known is None else known.recovery._replace(is_current=False)
        flushed = max(recovery.flushed_log, log.flusher.flushed_log)
        committed = max(recovery.committed_log, log.committed_log)
        recovery = recovery._replace(flushed_log=flushed, committed_log=min(committed, flushed))
        self._node_log.remember(
            {log.directory.entry: KnownLog(log.directory.topic_id, recovery)}, durable=True)
        log.discard()
        await rewrite_off_loop(self.disk, log.directory.path)
        return PreparedLog(recovery, await recover_off_loop(
            log.directory, log.config, recovery, self._clock.now_ms()))

    def open_again(self, log: Log, prepared: PreparedLog, *, may_discard: bool) -> Log:
        """A log in the place of one that has failed; it may have failed too (storage.N6).

        With `may_discard` other replicas have all of it: if it is damaged it is set aside, and the
        log begins as an empty one.
        """
        assert log.phase is LogPhase.CLOSED, log.name
        again = self._reopen(log, *prepared)
        if again.failure is not None and again.failure.kind is ErrorKind.CORRUPT and may_discard:
            _log.warning("%s is set aside, and copied from another node: %s", log.directory.path,
                         again.failure)
            again.discard()
            try:
                self._node_log.remember({log.directory.entry: None}, durable=True)  # storage.N5
                if self.disk.exists(log.directory.path):
                    self._rename_away(log.directory.entry, DAMAGED_SUFFIX)
            except QuipuError as error:
                again.discard(error)
            else:
                self._older.discard(log.directory.entry)
                again = self._reopen(log, NO_RECOVERY_POINT, None)
        return again

    def _reopen(
        self, log: Log, recovery: RecoveryPoint, found: Recovered | QuipuError | None
    ) -> Log:
        again = self._new_log(
            log.name, log.config, log.directory.topic_id, recovery,
            entry=log.directory.entry, replica=log.is_replica,
            failure=found if isinstance(found, QuipuError) else None,
            found=None if isinstance(found, QuipuError) else found)
        log.observe(None)
        again.observe(self)
        self._logs[log.directory.entry] = again
        for marked_logs in (self._dirty, self._flushed):
            marked_logs.pop(log, None)
        if again.flusher.is_dirty:
            self._dirty[again] = None
        assert log not in self._dirty, log.name  # storage.N5
        return again

    def delete_logs(self, logs: Iterable[Log]) -> None:
        """Forget logs at once, and remove their files in the background (storage.N5)."""
        for log in logs:
            log.observe(None)
            log.discard()
            assert log.phase is LogPhase.CLOSED, log.name
            self._dirty.pop(log, None)
            self._flushed.pop(log, None)
            if self._logs.get(log.directory.entry) is log:
                del self._logs[log.directory.entry]
            self._older.discard(log.directory.entry)
            self._deleted[log.directory.entry] = log.directory.topic_id
        self._remove_logs()

    def _remove_logs(self) -> None:
        """Durably forget deleted logs, then remove them (storage.N5).

        On a full disk the reserve is used, for it makes room; without one it is done with the
        next `remember`.
        """
        entries = list(self._deleted)
        known = dict.fromkeys(entry for entry in entries if entry in self._node_log.logs)
        removing = self._node_log.removing
        # What is recorded for storage.N7 is durable, and enough.
        durable = any(self._deleted[entry] not in removing for entry in known)
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
            assert entry not in self._node_log.logs, entry  # storage.N5
            if self.disk.exists(f"{self.path}/{entry}"):
                try:
                    away = self._rename_away(entry, DELETED_SUFFIX)
                except QuipuError as error:
                    _log.error("a deleted log stays in %s: %s", self.path, error)
                    continue
                self.disk.submit(partial(self.disk.remove_tree, away), removal.log_failure)

    def begin_removal(self, topic_id: UUID) -> None:
        """The many logs of a deleted topic are about to be deleted (storage.N7)."""
        try:
            self._node_log.begin_removal(topic_id)
        except QuipuError as error:
            _log.warning("topic id %s: if the node ends before all of its logs are removed, some "
                         "stay in %s: %s", topic_id, self.path, error)

    def end_removal(self, topic_id: UUID) -> None:
        """All logs of the topic are deleted; what the disk did not remove, the next start does."""
        if topic_id not in self._deleted.values():
            with suppress(QuipuError):  # then the next start finds nothing to remove
                self._node_log.end_removal(topic_id)

    def _rename_away(self, name: str, suffix: str) -> str:
        away = ""
        while not away or self.disk.exists(away):
            self._renamed += 1
            number = f"{self._clock.now_ms()}-{self._renamed}"
            away = f"{self.path}/{marked(name, number, suffix)}"
        assert len(away) - len(self.path) - 1 <= NAME_SIZE_MAX, away  # storage.Y1
        self.disk.rename(f"{self.path}/{name}", away)
        return away

    # --- what the logs report -----------------------------------------------------------------

    def dirtied(self, log: Log) -> None:
        self._dirty[log] = None

    def flushed(self, log: Log) -> None:
        self._flushed[log] = None
        if not log.flusher.is_dirty:
            self._dirty.pop(log, None)

    def refused(self, log: Log, error: DiskError) -> None:
        del log
        self.refusals += 1
        self.refusal = error

    def committed(self, log: Log) -> None:
        self._flushed[log] = None

    def truncating(self, log: Log, log_end: LogOffset) -> None:
        assert self._logs.get(log.directory.entry) is log, log.name  # storage.N5
        assert log_end <= log.log_end, (log.name, log_end)
        self._flushed.pop(log, None)
        self._node_log.remember({log.directory.entry: _known(log, log_end)}, durable=True)

    # --- in the background, and at the end --------------------------------------------------

    def flush_due(self, now_ms: int) -> Iterator[None]:
        """Start the flushes that are due by flush.ms, in steps of a few logs."""
        for number, log in enumerate(list(self._dirty), start=1):
            if log in self._dirty:  # else it is flushed, or deleted, since the first step
                log.flusher.flush_due(now_ms)
            if number % STEP_LOGS == 0:
                yield

    async def retry_failed(self) -> list[Log]:
        """Open again the logs whose reason not to be opened has passed; returns those."""
        opened = []
        for log in [log for log in self._logs.values() if log.may_retry]:
            now_ms = self._clock.now_ms()
            found = await recover_off_loop(log.directory, log.config, log.recovery, now_ms)
            if log.may_retry and self._logs.get(log.directory.entry) is log:
                if log.retry(now_ms, found):
                    opened.append(log)
            elif isinstance(found, Recovered):
                found.release()
        return opened

    def remember(self, *, count_max: int | None = None) -> bool:
        """Record how far logs are flushed and committed (storage.N3): those that were (storage.N4).

        Of `count_max` logs at most; returns whether there are more.
        """
        if self._deleted:
            self._remove_logs()
        if self._flushed:
            logs = list(islice(self._flushed, count_max))
            self._node_log.remember(
                {log.directory.entry: _known(log, log.log_end) for log in logs})
            for log in logs:
                self._flushed.pop(log, None)
        return bool(self._flushed)

    async def flush(self) -> None:
        """Return when everything in every log is durable, as far as it can be."""
        logs = [log for log in self._dirty if log.failure is None]
        for outcome in await asyncio.gather(*(log.flusher.flush() for log in logs),
                                            return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, QuipuError):
                raise outcome  # a log that cannot be flushed has reported it itself

    def close(self) -> None:
        """Shut down cleanly: everything durable, every log recorded as closed (storage.N2)."""
        closed: dict[str, KnownLog | None] = {}
        for name, log in self._logs.items():
            was_open = log.phase is LogPhase.OPEN
            try:
                clean = log.close()
            except QuipuError as error:
                _log.error("log %s could not be closed, it will be checked at the next start: "
                           "%s", name, error)
                clean = None
            if was_open and clean is not None:  # of a failed log, what was known stays true
                assert log.flusher.flushed_log == clean.log_end, name  # storage.N2
                committed = min(log.committed_log, clean.log_end)
                closed[name] = KnownLog(
                    log.directory.topic_id,
                    RecoveryPoint(clean.log_end, clean, committed_log=committed))
        try:
            self._node_log.remember(closed)
            self._node_log.stopped()
            self._node_log.close()
        except QuipuError as error:
            _log.error("the clean shutdown of the node cannot be recorded, every log will be "
                       "checked at the next start: %s", error)
            self._node_log.discard()
        self._logs.clear()
        self._lock.release()

    def abandon(self) -> None:
        """Close everything as it is, as a crash would; the next start checks the logs."""
        for log in self._logs.values():
            log.discard()
        self._logs.clear()
        self._node_log.discard()
        self._lock.release()


def _known(log: Log, log_end: int) -> KnownLog:
    flushed = min(log_end, log.flusher.flushed_log)
    assert flushed <= log.log_end, (log.name, flushed)
    committed = min(log.committed_log, flushed)
    return KnownLog(log.directory.topic_id, RecoveryPoint(flushed, committed_log=committed))

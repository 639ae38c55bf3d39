"""All logs of one node: one directory each, one lock, and what the node remembers of them.

    <data>/.lock                    held while a node runs on the directory
    <data>/.reserve                 room that is given up when a node must start on a full disk
    <data>/__node-0/                the node's memory (node_log.py)
    <data>/<topic>-<partition>/     a log
    <data>/<name>.<n>.deleted       a log on its way out; removed at the next start at the latest
    <data>/<name>.<n>.stray         a log of another topic of the same name; kept, never used

Invariants
    N1  one process per directory
    N2  a log is marked clean only when all its bytes are durable; the mark counts until its files
        say otherwise
    N3  flushed marks are written after the flush they tell of; committed marks never pass them
    N4  work per tick is by what changed, not by how many logs there are
"""

import asyncio
import logging
from contextlib import suppress
from typing import Final
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
from quipu.storage.config import LogConfig
from quipu.storage.log import Log
from quipu.storage.node_log import NODE_LOG_CONFIG, NODE_LOG_NAME, NodeLog, Remembered
from quipu.storage.place import NOTHING, Memory, Place
from quipu.storage.recovery import DELETED_SUFFIX, first_checkpoint, segment_bases
from quipu.storage.segment import OpenSegments

LOCK_NAME: Final = ".lock"
RESERVE_NAME: Final = ".reserve"
RESERVE_SIZE: Final = 1 << 20  # bytes: for the few that a start must write
RESERVE_ROOM_MIN: Final = 16 * RESERVE_SIZE  # bytes that must be free before it is made
STRAY_SUFFIX: Final = ".stray"
DAMAGED_SUFFIX: Final = ".damaged"
NAME_SIZE_MAX: Final = 255  # of a file, for most file systems

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
        self._logs: dict[str, Log] = {}
        self._dirty: dict[Log, None] = {}  # have something to flush
        self._flushed: dict[Log, None] = {}  # have been flushed since the last `remember`
        self._forgotten: dict[str, None] = {}  # names of deleted logs that are still to be noted
        self._renamed = 0
        self.refusals = 0  # writes that the disk has refused
        self.refusal: DiskError | None = None  # the last one
        self._remove_deleted()
        self._node_log = self._open_node_log()
        self._was_stopped = self._node_log.was_stopped
        try:
            self._node_log.started()
        except DiskFull:
            if not self._give_up_reserve():
                raise
            self._node_log.started()

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

    def _give_up_reserve(self) -> bool:
        """Make the room that was kept for a start on a full disk; False if there is none."""
        try:
            self.disk.remove(f"{self.path}/{RESERVE_NAME}")
        except NotFound:
            return False
        _log.error("%s: the disk is full: the node starts on what it had in reserve", self.path)
        return True

    def keep_reserve(self) -> None:
        """Keep some room for the next start, if there is plenty."""
        path = f"{self.path}/{RESERVE_NAME}"
        if not self.disk.exists(path) and self.space().usable >= RESERVE_ROOM_MIN:
            self.disk.write(path, bytes(RESERVE_SIZE))

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
        replica: bool = False,
    ) -> Log:
        place = Place(disk=self.disk, directory=f"{self.path}/{name}", name=name,
                      topic_id=topic_id, node_id=self.node_id, opened=self.opened)
        return Log(place, config, memory=memory, replica=replica, now_ms=self._clock.now_ms())

    # --- logs -------------------------------------------------------------------------------

    @property
    def was_clean(self) -> bool:
        """Did the node stop in order the last time?"""
        return self._was_stopped

    def space(self) -> Space:
        """Of the volume that it is on."""
        return self.disk.space(self.path)

    def names(self) -> list[str]:
        """The logs that there are, without the node's own."""
        return [name for name in self.disk.list(self.path)
                if not name.startswith(".") and name != NODE_LOG_NAME
                and not name.endswith((DELETED_SUFFIX, STRAY_SUFFIX, DAMAGED_SUFFIX))]

    def logs(self) -> list[Log]:
        """All that are open, the node's own too."""
        return [*self._logs.values(), self._node_log.log]

    def find(self, name: str) -> Log | None:
        """An open log."""
        return self._logs.get(name)

    def open_log(
        self, name: str, config: LogConfig, *, topic_id: UUID, replica: bool = False
    ) -> Log:
        """The log called `name`, made if there is none.

        With `replica` a new one stays blank until its first append, which is a checkpoint of
        another node or whatever this node writes as the one that leads.
        A log that cannot be served is given too: its `failure` says why, and the others go on.
        """
        log = self._logs.get(name)
        if log is not None:
            log.config = config
            return log
        _check_name(name)
        known = self._node_log.logs.get(name)
        memory = NOTHING
        if known is not None and topic_id in (known.topic_id, ZERO_UUID):
            memory = known.memory._replace(is_current=self._was_stopped)
        if not (memory.is_current and memory.clean is not None):
            self._make_way(name, topic_id)
        log = self._new_log(name, config, topic_id, memory, replica=replica)
        log.watcher = self
        self._logs[name] = log
        if log.is_dirty:
            self._dirty[log] = None
        return log

    def _make_way(self, name: str, topic_id: UUID) -> None:
        """Move a log of another topic aside: its topic was deleted, and the name is used again."""
        directory = f"{self.path}/{name}"
        try:
            bases = segment_bases(list(self.disk.list(directory)))
        except NotFound:
            return
        first = first_checkpoint(self.disk, directory, bases)
        if first is None or topic_id in (first.topic_id, ZERO_UUID):
            return
        _log.warning("%s holds the log of topic id %s, not of %s: it is moved aside", directory,
                     first.topic_id, topic_id)
        self._rename_away(name, STRAY_SUFFIX)

    def delete_log(self, name: str) -> None:
        """Forget a log at once; its files are removed in the background."""
        log = self._logs.pop(name, None)
        if log is not None:
            self._dirty.pop(log, None)
            self._flushed.pop(log, None)
            log.discard()
        self._forgotten[name] = None
        with suppress(TransientDiskError):  # it is noted with the next `remember`
            self._remember_forgotten()
        if self.disk.exists(f"{self.path}/{name}"):
            away = self._rename_away(name, DELETED_SUFFIX)
            self.disk.submit(lambda: self.disk.remove_tree(away), _tell)

    def _rename_away(self, name: str, suffix: str) -> str:
        self._renamed += 1
        number = f"{self._clock.now_ms()}-{self._renamed}"
        away = f"{self.path}/{name}.{number}{suffix}"
        self.disk.rename(f"{self.path}/{name}", away)
        return away

    def _remove_deleted(self) -> None:
        for name in self.disk.list(self.path):
            if name.endswith(DELETED_SUFFIX):
                self.disk.remove_tree(f"{self.path}/{name}")

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
        self._node_log.remember({log.name: _remembered(log, log_end)}, durable=True)

    # --- in the background, and at the end --------------------------------------------------

    def flush_due(self, now_ms: int) -> None:
        """Start the flushes that flush.ms asks for."""
        for log in list(self._dirty):
            log.flush_due(now_ms)

    def _remember_forgotten(self) -> None:
        if self._forgotten:
            self._node_log.remember(dict.fromkeys(
                name for name in self._forgotten if name not in self._logs))
            self._forgotten.clear()

    def retry_failed(self, now_ms: int) -> list[Log]:
        """Open the logs anew that could not be opened for a reason that passes; gives those."""
        return [log for log in list(self._logs.values())
                if log.failure is not None and log.retry(now_ms)]

    def remember(self) -> None:
        """Write down how far the logs are flushed and committed, of those that were (N3, N4)."""
        self._remember_forgotten()
        if self._flushed:
            self._node_log.remember({
                log.name: _remembered(log, log.log_end) for log in self._flushed})
            self._flushed.clear()

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
            _log.error("the stop could not be noted, all logs will be checked at the next start: "
                       "%s", error)
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


def _check_name(name: str) -> None:
    if (not name or "/" in name or "\0" in name or name.startswith(".") or name == NODE_LOG_NAME
            or len(name.encode()) > NAME_SIZE_MAX):
        raise QuipuError(f"{name!r} cannot be the name of a log", kind=Kind.INVALID)


def _tell(error: QuipuError | None) -> None:
    if error is not None:
        _log.warning("a deleted log could not be removed, the next start tries again: %s", error)

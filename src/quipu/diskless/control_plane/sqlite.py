"""A control plane in a SQLite file: the default of a single node.

A transaction per operation, synced before it returns (diskless.C2); statements run in threads, and
reads do not wait for writes (runtime/databases/sqlite.py).  Other processes of this machine may use
the file at the same time, but who watches is told of this node's commits only: a cluster needs
PostgreSQL.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar
from uuid import UUID

from quipu.diskless.control_plane import sqlite_adoption as adoption
from quipu.diskless.control_plane import sqlite_changes as changes
from quipu.diskless.control_plane import sqlite_fences as fences
from quipu.diskless.control_plane import sqlite_reads as reads
from quipu.diskless.control_plane.commit_plan import check_object
from quipu.diskless.control_plane.interface import (
    FIND_RUNS_MAX,
    LIMIT_MAX,
    MOVED_START,
    AdoptedLog,
    BatchOutcome,
    FindRequest,
    FoundRuns,
    Listener,
    ObjectState,
    ProducerState,
    Replacement,
    RetentionRule,
    TieringClaim,
)
from quipu.diskless.control_plane.listeners import Listeners
from quipu.diskless.control_plane.migrations import SELECT_VERSION, VERSIONS_TABLE, pending
from quipu.diskless.control_plane.migrations.sqlite import MIGRATIONS
from quipu.diskless.errors import (
    CommitOutcomeUnknown,
    ControlPlaneClosed,
    ControlPlaneUnavailable,
    UnusableControlPlane,
)
from quipu.diskless.values import BatchRun, Lineage, LogBounds, LogKey, NewObject
from quipu.model.ids import Offset
from quipu.runtime.databases.errors import DatabaseErrors
from quipu.runtime.databases.sqlite import SqliteFile, Work

_ERRORS: Final = DatabaseErrors(
    ControlPlaneUnavailable, CommitOutcomeUnknown, UnusableControlPlane, ControlPlaneClosed,
    closed_text="the control plane of diskless topics is closed",
    repair_text="restore the file from a backup, or rebuild it from the objects")
T = TypeVar("T")


class SqliteControlPlane:
    """A SQLite file, created with its tables if it does not exist."""

    def __init__(self, path: str) -> None:
        self._file = SqliteFile(path, _ERRORS, name="diskless control plane in SQLite")
        self._listeners = Listeners()

    async def open(self) -> None:
        await self._write(_migrate)

    async def close(self) -> None:
        self._listeners.clear()
        await self._file.close()

    async def bind(self, cluster_id: str) -> str:
        return await self._write(lambda c: fences.bind(c, cluster_id))

    # -- logs

    async def create_logs(self, topic_id: UUID, topic: str, partition_count: int) -> None:
        await self._write(lambda c: changes.create_logs(c, topic_id, topic, partition_count))

    async def delete_topic(self, topic_id: UUID, now_ms: int) -> None:
        await self._write(lambda c: changes.delete_topic(c, topic_id, now_ms))

    async def topics(self) -> dict[UUID, tuple[str, int]]:
        return await self._read(reads.topics)

    # -- writing

    async def commit(self, new: NewObject, now_ms: int) -> Sequence[BatchOutcome]:
        check_object(new)
        done = await self._write(lambda c: changes.commit(c, new, now_ms))
        self._notify(done.high_watermarks)
        return done.outcomes

    def _notify(self, noticed: Mapping[LogKey, Offset]) -> None:
        """Tell who watches, as soon as the loop runs again (diskless.C9)."""
        loop = asyncio.get_running_loop()
        for log, high_watermark in noticed.items():
            loop.call_soon(self._listeners.call, log, high_watermark)

    async def producers(self, log: LogKey) -> Sequence[ProducerState]:
        return await self._read(lambda c: reads.producers(c, log))

    async def expire_producers(self, before_ms: int, limit: int) -> int:
        return await self._write(lambda c: changes.expire_producers(c, before_ms, limit))

    # -- reading

    async def bounds(self, logs: Sequence[LogKey]) -> Sequence[LogBounds | None]:
        return await self._read(lambda c: reads.bounds(c, logs))

    async def find(
        self, requests: Sequence[FindRequest], *, runs_max: int = FIND_RUNS_MAX
    ) -> Sequence[FoundRuns]:
        return await self._read(lambda c: [reads.find(c, each, runs_max) for each in requests])

    async def find_timestamp(
        self, log: LogKey, timestamp_ms: int, *, from_offset: int = 0
    ) -> BatchRun | None:
        return await self._read(lambda c: reads.find_timestamp(c, log, timestamp_ms, from_offset))

    async def find_max_timestamp(self, log: LogKey, *, from_offset: int = 0) -> BatchRun | None:
        return await self._read(lambda c: reads.find_timestamp(c, log, None, from_offset))

    def watch(self, listener: Listener) -> Callable[[], None]:
        return self._listeners.add(listener)

    # -- removing

    async def delete_records(self, log: LogKey, before: Offset, now_ms: int) -> LogBounds | None:
        bounds = await self._write(lambda c: changes.delete_records(c, log, before, now_ms))
        self._notify({log: MOVED_START})
        return bounds

    async def retain(
        self, rules: Sequence[RetentionRule], now_ms: int, *, runs_max: int = FIND_RUNS_MAX
    ) -> Sequence[LogBounds | None]:
        moved: dict[LogKey, Offset] = {}
        found = await self._write(
            lambda c: [changes.retain(c, rule, now_ms, runs_max, moved) for rule in rules])
        self._notify(moved)
        return found

    # -- objects

    async def objects(self, *, after: str = "", limit: int = LIMIT_MAX) -> Sequence[ObjectState]:
        return await self._read(lambda c: reads.objects(c, after, limit))

    async def known_objects(self, keys: Sequence[str]) -> set[str]:
        return await self._read(lambda c: reads.known_objects(c, keys))

    async def deletable_objects(self, marked_before_ms: int, limit: int) -> Sequence[str]:
        return await self._read(lambda c: reads.deletable_objects(c, marked_before_ms, limit))

    async def forget_objects(self, keys: Sequence[str]) -> None:
        await self._write(lambda c: fences.forget_objects(c, keys))

    async def condemn_objects(self, keys: Sequence[str]) -> set[str]:
        return await self._write(lambda c: fences.condemn_objects(c, keys))

    async def identity(self) -> UUID:
        return await self._read(fences.identity)

    async def object_runs(self, key: str) -> Sequence[BatchRun]:
        return await self._read(lambda c: reads.object_runs(c, key))

    async def sparse_objects(
        self, *, live_size_max: int, live_share_max: float, committed_before_ms: int, limit: int
    ) -> Sequence[ObjectState]:
        values = (committed_before_ms, live_size_max, live_share_max, limit)
        return await self._read(lambda c: reads.sparse_objects(c, values))

    async def rewrite(
        self, new: NewObject, replacements: Sequence[Replacement], now_ms: int
    ) -> bool:
        assert not new.batches, "the runs have their offsets"
        assert all(each.key == new.key for each in replacements), "one object at a time"
        return await self._write(lambda c: changes.rewrite(c, new, replacements, now_ms))

    # -- the remote tier

    async def claim_tiering(
        self, log: LogKey, owner: str, now_ms: int, lease_ms: int
    ) -> TieringClaim | None:
        return await self._write(lambda c: changes.claim_tiering(c, log, owner, now_ms, lease_ms))

    async def aged_runs(
        self, log: LogKey, before_ms: int, *, limit: int = FIND_RUNS_MAX
    ) -> Sequence[BatchRun]:
        return await self._read(lambda c: reads.aged_runs(c, log, before_ms, limit))

    async def note_tiered(
        self, claim: TieringClaim, end_offset: Offset, now_ms: int
    ) -> LogBounds | None:
        return await self._write(lambda c: changes.note_tiered(c, claim, end_offset, now_ms))

    async def advance_log_start(
        self, log: LogKey, log_start: Offset, now_ms: int
    ) -> LogBounds | None:
        bounds = await self._write(lambda c: changes.advance_log_start(c, log, log_start, now_ms))
        self._notify({log: MOVED_START})
        return bounds

    # -- logs that were on disks

    async def adopt_log(self, adopted: AdoptedLog, now_ms: int) -> bool:
        return await self._write(lambda c: adoption.adopt_log(c, adopted, now_ms))

    async def lineages(self, logs: Sequence[LogKey]) -> Sequence[Lineage | None]:
        return await self._read(lambda c: adoption.lineages(c, logs))

    async def restore_lineage(self, log: LogKey, lineage: Lineage) -> None:
        await self._write(lambda c: adoption.restore_lineage(c, log, lineage))

    # -- rebuilding

    async def restore_objects(
        self, objects: Sequence[tuple[NewObject, Sequence[Offset]]], now_ms: int
    ) -> None:
        for new, _ in objects:
            check_object(new)
        await self._write(lambda c: changes.restore_objects(c, objects, now_ms))

    async def restore_bounds(
        self, log: LogKey, log_start: Offset, diskless_start: Offset, high_watermark: Offset
    ) -> None:
        raised = LogBounds(log_start, diskless_start, high_watermark, 0)
        await self._write(lambda c: changes.restore_bounds(c, log, raised))

    # -- in threads

    async def _read(self, work: Work[T]) -> T:
        return await self._file.read(work)

    async def _write(self, work: Work[T]) -> T:
        return await self._file.write(work)


def _migrate(connection: sqlite3.Connection) -> None:
    """Bring the schema up to date, within a transaction: of several processes, one does it."""
    connection.execute(VERSIONS_TABLE)
    found = connection.execute(SELECT_VERSION).fetchone()[0]
    for migration in pending(found, MIGRATIONS):
        for statement in migration.statements:
            connection.execute(statement)
        connection.execute("INSERT INTO diskless_versions (version) VALUES (?)",
                           (migration.version,))

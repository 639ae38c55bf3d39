"""A control plane in PostgreSQL, for the nodes of a cluster.

Every change is a call of a function in the database (migrations/functions.py): one transaction in
one round trip, so no lock is held while the network is waited for.  A commit of an object takes
the locks of its logs in one order, so commits of many writers take turns and none deadlocks.

Not here: connections and repetitions (postgres_pool.py), notifications (listening.py).
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from quipu.diskless.control_plane import postgres_values as values
from quipu.diskless.control_plane import statements
from quipu.diskless.control_plane.commit_plan import check_object, outcome_of
from quipu.diskless.control_plane.interface import (
    FIND_RUNS_MAX,
    LIMIT_MAX,
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
from quipu.diskless.control_plane.listening import CommitNotices
from quipu.diskless.control_plane.postgres_adoption import (
    LINEAGES,
    adoption,
    found_lineages,
    restoration,
)
from quipu.diskless.control_plane.postgres_pool import PostgresPool, Row
from quipu.diskless.control_plane.statements import located_run_of, object_of, run_of
from quipu.diskless.errors import FencedObject
from quipu.diskless.values import BatchRun, Lineage, LogBounds, LogKey, NewObject
from quipu.model.errors import Code
from quipu.model.ids import Offset, TimestampMs
from quipu.runtime.rng import Rng

if TYPE_CHECKING:
    from psycopg import AsyncConnection


class PostgresControlPlane:
    """Tables and functions in PostgreSQL, created if they do not exist."""

    def __init__(self, url: str, rng: Rng) -> None:
        """Raise `SettingError` if psycopg is missing, or the URL is wrong; nothing connects yet."""
        self._pool = PostgresPool(url, rng)
        self._listeners = Listeners()
        self._notices = CommitNotices(self._pool, self._listeners, rng)

    async def open(self) -> None:
        await self._pool.open()

    async def close(self) -> None:
        self._listeners.clear()
        await self._notices.close()
        await self._pool.close()

    async def bind(self, cluster_id: str) -> str:
        [(bound,)] = await self._pool.write(values.BIND, (cluster_id,))
        return str(bound)

    # -- logs

    async def create_logs(self, topic_id: UUID, topic: str, partition_count: int) -> None:
        await self._pool.write("SELECT diskless_create_logs_1(%s, %s, %s)",
                               (str(topic_id), topic, partition_count))

    async def delete_topic(self, topic_id: UUID, now_ms: int) -> None:
        await self._pool.write("SELECT diskless_delete_topic_1(%s, %s)", (str(topic_id), now_ms))

    async def topics(self) -> dict[UUID, tuple[str, int]]:
        rows = await self._read(statements.TOPICS)
        return {UUID(topic_id): (name, count) for topic_id, name, count in rows}

    # -- writing

    async def commit(self, new: NewObject, now_ms: int) -> Sequence[BatchOutcome]:
        check_object(new)
        try:
            [(numbers, log_starts, object_id)] = await self._pool.write(
                values.COMMIT, values.commit_arguments(new, now_ms))
        except FencedObject:  # diskless.C10
            return [BatchOutcome(Code.KAFKA_STORAGE_ERROR)] * len(new.batches)
        outcomes = [outcome_of(*pair) for pair in zip(numbers, log_starts, strict=True)]
        self._notices.committed(object_id, values.high_watermarks(new, outcomes))  # diskless.C9
        return outcomes

    async def producers(self, log: LogKey) -> Sequence[ProducerState]:
        rows = await self._pool.read(values.PRODUCERS, _key(log))
        return [ProducerState(*row) for row in rows]

    async def expire_producers(self, before_ms: int, limit: int) -> int:
        [(count,)] = await self._pool.write(values.EXPIRE_PRODUCERS, (before_ms, limit))
        return int(count)

    # -- reading

    async def bounds(self, logs: Sequence[LogKey]) -> Sequence[LogBounds | None]:
        rows = await self._pool.read(values.BOUNDS, _keys(logs))
        return [LogBounds(*row) if row[0] is not None else None for row in rows]

    async def find(
        self, requests: Sequence[FindRequest], *, runs_max: int = FIND_RUNS_MAX
    ) -> Sequence[FoundRuns]:
        rows = await self._pool.read(values.FIND, (
            *_keys([each.log for each in requests]), [each.offset for each in requests],
            [each.max_bytes for each in requests], runs_max))
        return values.found_runs(requests, rows)

    async def find_timestamp(
        self, log: LogKey, timestamp_ms: int, *, from_offset: int = 0
    ) -> BatchRun | None:
        rows = await self._pool.read(
            values.FIND_TIMESTAMP, (*_key(log), timestamp_ms, from_offset))
        return run_of(log, rows[0]) if rows else None

    async def find_max_timestamp(self, log: LogKey, *, from_offset: int = 0) -> BatchRun | None:
        rows = await self._pool.read(values.FIND_TIMESTAMP, (*_key(log), None, from_offset))
        return run_of(log, rows[0]) if rows else None

    def watch(self, listener: Listener) -> Callable[[], None]:
        self._notices.listen()
        return self._listeners.add(listener)

    # -- removing

    async def delete_records(self, log: LogKey, before: Offset, now_ms: int) -> LogBounds | None:
        return await self._move(log, values.DELETE_RECORDS, (before, now_ms))

    async def _move(
        self, log: LogKey, statement: str, arguments: tuple[object, ...]
    ) -> LogBounds | None:
        """Move the start of a log, and tell who watches it."""
        bounds = _bounds(await self._pool.write(
            values.AND_TELL.format(statement),
            (*_key(log), *arguments, self._notices.moved_payload(log))))
        self._notices.moved(log)
        return bounds

    async def retain(
        self, rules: Sequence[RetentionRule], now_ms: int, *, runs_max: int = FIND_RUNS_MAX
    ) -> Sequence[LogBounds | None]:
        """One look at all logs; then a transaction for each that has something to remove."""
        found: list[LogBounds | None] = [None] * len(rules)
        rows = await self._pool.read(values.LOOK_EXPIRED, (
            *_keys([rule.log for rule in rules]), [rule.retention_ms for rule in rules],
            [rule.retention_bytes for rule in rules], now_ms))
        for index, *bounds, is_expired in rows:
            rule, found[index - 1] = rules[index - 1], LogBounds(*bounds)
            if is_expired and runs_max > 0:
                found[index - 1] = await self._move(rule.log, values.RETAIN, (
                    rule.retention_ms, rule.retention_bytes, now_ms, runs_max))
        return found

    # -- objects

    async def objects(self, *, after: str = "", limit: int = LIMIT_MAX) -> Sequence[ObjectState]:
        return [object_of(row) for row in await self._read(statements.OBJECTS, after, limit)]

    async def known_objects(self, keys: Sequence[str]) -> set[str]:
        rows = await self._pool.read(
            "SELECT object_key FROM diskless_objects WHERE object_key = ANY(%s)", (list(keys),))
        return {row[0] for row in rows}

    async def deletable_objects(self, marked_before_ms: int, limit: int) -> Sequence[str]:
        rows = await self._read(statements.DELETABLE_OBJECTS, marked_before_ms, limit)
        return [row[0] for row in rows]

    async def forget_objects(self, keys: Sequence[str]) -> None:
        await self._pool.write(values.FORGET_OBJECTS, (list(keys),))

    async def condemn_objects(self, keys: Sequence[str]) -> set[str]:
        rows = await self._pool.write(values.CONDEMN_OBJECTS, (list(keys),))
        return {row[0] for row in rows}

    async def identity(self) -> UUID:
        [(text,)] = await self._pool.read(values.IDENTITY)
        return UUID(text)

    async def object_runs(self, key: str) -> Sequence[BatchRun]:
        return [located_run_of(row) for row in await self._read(statements.OBJECT_RUNS, key)]

    async def sparse_objects(
        self, *, live_size_max: int, live_share_max: float, committed_before_ms: int, limit: int
    ) -> Sequence[ObjectState]:
        rows = await self._read(statements.SPARSE_OBJECTS, committed_before_ms, live_size_max,
                                live_share_max, limit)
        return [object_of(row) for row in rows]

    async def rewrite(
        self, new: NewObject, replacements: Sequence[Replacement], now_ms: int
    ) -> bool:
        assert not new.batches, "the runs have their offsets"
        assert all(each.key == new.key for each in replacements), "one object at a time"
        arguments = values.rewrite_arguments(new, replacements, now_ms)
        try:
            [(is_done,)] = await self._pool.write(values.REWRITE, arguments)
        except FencedObject:  # diskless.C10
            return False
        return bool(is_done)

    # -- the remote tier

    async def claim_tiering(
        self, log: LogKey, owner: str, now_ms: int, lease_ms: int
    ) -> TieringClaim | None:
        until = TimestampMs(now_ms + lease_ms)
        rows = await self._pool.write(values.CLAIM, (owner, until, *_key(log), now_ms))
        return TieringClaim(log, rows[0][0], owner, until) if rows else None

    async def aged_runs(
        self, log: LogKey, before_ms: int, *, limit: int = FIND_RUNS_MAX
    ) -> Sequence[BatchRun]:
        rows = await self._pool.read("SELECT * FROM diskless_aged_1(%s, %s, %s, %s)",
                                     (*_key(log), before_ms, limit))
        return [run_of(log, row) for row in rows]

    async def note_tiered(
        self, claim: TieringClaim, end_offset: Offset, now_ms: int
    ) -> LogBounds | None:
        return _bounds(await self._pool.write(
            "SELECT * FROM diskless_note_tiered_1(%s, %s, %s, %s, %s, %s)",
            (*_key(claim.log), claim.epoch, claim.owner, end_offset, now_ms)))

    async def advance_log_start(
        self, log: LogKey, log_start: Offset, now_ms: int  # noqa: ARG002 of the protocol
    ) -> LogBounds | None:
        return await self._move(log, values.ADVANCE, (log_start,))

    # -- logs that were on disks

    async def adopt_log(self, adopted: AdoptedLog, now_ms: int) -> bool:
        return await self._pool.run(adoption(adopted, now_ms), is_write=True)

    async def lineages(self, logs: Sequence[LogKey]) -> Sequence[Lineage | None]:
        return found_lineages(await self._pool.read(LINEAGES, _keys(logs)))

    async def restore_lineage(self, log: LogKey, lineage: Lineage) -> None:
        await self._pool.run(restoration(log, lineage), is_write=True)

    # -- rebuilding

    async def restore_objects(
        self, objects: Sequence[tuple[NewObject, Sequence[Offset]]], now_ms: int
    ) -> None:
        """One transaction of several round trips; it locks all logs that the objects have."""
        for new, _ in objects:
            check_object(new)
        logs = sorted({batch.log for new, _ in objects for batch in new.batches})

        async def restore(connection: "AsyncConnection[Any]") -> None:
            unordered: set[int] = set()
            async with connection.transaction():
                await connection.execute(values.LOCK_LOGS, _keys(logs))
                rows = await connection.execute(values.FENCED, ([new.key for new, _ in objects],))
                fenced = {row[0] for row in await rows.fetchall()}  # diskless.C10
                for entered in objects:
                    if entered[0].key in fenced:
                        continue
                    cursor = await connection.execute(
                        values.RESTORE.encode(), values.restore_arguments(entered, now_ms))
                    row = await cursor.fetchone()
                    unordered.update(row[0] if row is not None else ())
                for log_id in sorted(unordered):
                    await connection.execute("SELECT diskless_renumber_1(%s)", (log_id,))

        await self._pool.run(restore, is_write=True)

    async def restore_bounds(
        self, log: LogKey, log_start: Offset, diskless_start: Offset, high_watermark: Offset
    ) -> None:
        await self._pool.write("SELECT diskless_restore_bounds_1(%s, %s, %s, %s, %s)",
                               (*_key(log), log_start, diskless_start, high_watermark))

    async def _read(self, statement: str, *arguments: object) -> list[Row]:
        return await self._pool.read(statement.replace("?", "%s"), arguments)


def _key(log: LogKey) -> tuple[str, int]:
    return str(log.topic_id), log.partition


def _keys(logs: Sequence[LogKey]) -> tuple[list[str], list[int]]:
    return [str(log.topic_id) for log in logs], [log.partition for log in logs]


def _bounds(rows: list[Row]) -> LogBounds | None:
    return LogBounds(*rows[0]) if rows else None

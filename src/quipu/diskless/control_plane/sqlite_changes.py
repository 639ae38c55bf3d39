"""The operations that change a control plane in SQLite, each within one transaction.

Functions over a connection, for the threads of sqlite.py.
"""

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from quipu.diskless.control_plane.commit_plan import (
    logs_of,
    plan_commit,
    plan_restore,
    producers_of,
    restored_outcomes,
    unpack_outcomes,
)
from quipu.diskless.control_plane.interface import (
    MOVED_START,
    BatchOutcome,
    Replacement,
    RetentionRule,
    TieringClaim,
)
from quipu.diskless.control_plane.retention import RunAge, end_of_expired
from quipu.diskless.control_plane.sqlite_fences import is_fenced, is_restorable
from quipu.diskless.control_plane.sqlite_tables import (
    add_object,
    add_runs,
    histories,
    log_row,
    log_rows,
    object_id_of,
    put_histories,
    raise_bounds,
    release,
    renumber,
)
from quipu.diskless.values import LogBounds, LogKey, NewObject
from quipu.model.errors import Code
from quipu.model.ids import Offset, TimestampMs


class Committed(NamedTuple):
    """What a commit returned, and what listeners are told."""

    outcomes: list[BatchOutcome]
    high_watermarks: dict[LogKey, Offset]


def create_logs(
    connection: sqlite3.Connection, topic_id: UUID, topic: str, partition_count: int
) -> None:
    row = connection.execute("SELECT deleted_ms FROM diskless_topics WHERE topic_id = ?",
                             (str(topic_id),)).fetchone()
    if row is not None and row[0] is not None:  # diskless.C8
        return
    connection.execute(
        "INSERT INTO diskless_topics (topic_id, name, partition_count) VALUES (?, ?, ?) "
        "ON CONFLICT (topic_id) DO UPDATE SET "
        "partition_count = max(partition_count, excluded.partition_count)",
        (str(topic_id), topic, partition_count))
    connection.executemany(
        "INSERT OR IGNORE INTO diskless_logs (topic_id, partition) VALUES (?, ?)",
        [(str(topic_id), partition) for partition in range(partition_count)])


def delete_topic(connection: sqlite3.Connection, topic_id: UUID, now_ms: int) -> None:
    key = (str(topic_id),)
    logs = "SELECT log_id FROM diskless_logs WHERE topic_id = ?"
    gone = connection.execute(
        "SELECT object_id, count(*), sum(size) FROM diskless_runs "  # noqa: S608 no values
        f"WHERE log_id IN ({logs}) GROUP BY object_id", key).fetchall()
    for object_id, run_count, size in gone:
        release(connection, object_id, run_count, size, now_ms)
    for table in ("diskless_runs", "diskless_producers", "diskless_claims"):
        connection.execute(
            f"DELETE FROM {table} WHERE log_id IN ({logs})", key)  # noqa: S608 no values
    connection.execute("DELETE FROM diskless_logs WHERE topic_id = ?", key)
    connection.execute(  # diskless.C8
        "INSERT INTO diskless_topics (topic_id, name, partition_count, deleted_ms) "
        "VALUES (?, '', 0, ?) ON CONFLICT (topic_id) DO UPDATE SET partition_count = 0, "
        "deleted_ms = coalesce(deleted_ms, excluded.deleted_ms)", (*key, now_ms))


def commit(connection: sqlite3.Connection, new: NewObject, now_ms: int) -> Committed:
    row = connection.execute("SELECT outcomes FROM diskless_objects WHERE object_key = ?",
                             (new.key,)).fetchone()
    if row is not None:  # diskless.C2
        return Committed(unpack_outcomes(row[0]), {})
    if is_fenced(connection, new.key):  # diskless.C10
        return Committed([BatchOutcome(Code.KAFKA_STORAGE_ERROR)] * len(new.batches), {})
    logs = log_rows(connection, logs_of(new))
    known = histories(connection, logs, producers_of(new))
    plan = plan_commit(new, {log: each.bounds for log, each in logs.items()}, known, now_ms)
    object_id = add_object(connection, new, plan.runs, plan.outcomes, now_ms)
    add_runs(connection, logs, plan.runs, object_id, now_ms)
    put_histories(connection, logs, plan.producers)
    return Committed(plan.outcomes, plan.high_watermarks)


def expire_producers(connection: sqlite3.Connection, before_ms: int, limit: int) -> int:
    return connection.execute(
        "DELETE FROM diskless_producers WHERE (log_id, producer_id) IN ("
        "SELECT log_id, producer_id FROM diskless_producers WHERE last_commit_ms < ? "
        "ORDER BY last_commit_ms LIMIT ?)", (before_ms, limit)).rowcount


def delete_records(
    connection: sqlite3.Connection, log: LogKey, before: Offset, now_ms: int
) -> LogBounds | None:
    row = log_row(connection, log)
    if row is None:
        return None
    start = row.bounds.high_watermark if before == -1 else before
    if not row.bounds.log_start_offset < start <= row.bounds.high_watermark:
        return row.bounds
    return raise_bounds(
        connection, row, row.bounds._replace(log_start_offset=start), now_ms)


def retain(
    connection: sqlite3.Connection, rule: RetentionRule, now_ms: int, runs_max: int,
    moved: dict[LogKey, Offset],
) -> LogBounds | None:
    """Remove the oldest runs; the log is added to `moved` if there are such."""
    row = log_row(connection, rule.log)
    if row is None:
        return None
    oldest = connection.execute(
        "SELECT end_offset, size, age_ms FROM diskless_runs WHERE log_id = ? AND end_offset > ? "
        "ORDER BY end_offset LIMIT ?", (row.log_id, row.bounds.diskless_start_offset, runs_max))
    end = end_of_expired(rule, row.bounds.size, (RunAge(*each) for each in oldest), now_ms)
    oldest.close()
    if end is None:
        return row.bounds
    moved[rule.log] = MOVED_START
    return raise_bounds(connection, row, row.bounds._replace(log_start_offset=end), now_ms)


def rewrite(
    connection: sqlite3.Connection, new: NewObject, replacements: Sequence[Replacement], now_ms: int
) -> bool:
    if object_id_of(connection, new.key) is not None:
        return True  # it was carried out before
    if is_fenced(connection, new.key):  # diskless.C10
        return False
    places: list[tuple[int, int, Replacement]] = []  # the log and the object of each old run
    for each in replacements:
        old = each.old
        row = connection.execute(
            "SELECT l.log_id, o.object_id FROM diskless_logs l "
            "JOIN diskless_runs r ON r.log_id = l.log_id "
            "JOIN diskless_objects o ON o.object_id = r.object_id "
            "WHERE l.topic_id = ? AND l.partition = ? AND r.end_offset = ? AND r.base_offset = ? "
            "AND o.object_key = ? AND r.position = ? AND r.size = ? AND r.batch_count = ? "
            "AND r.max_timestamp = ?",
            (str(old.log.topic_id), old.log.partition, old.end_offset, old.base_offset, old.key,
             old.position, old.size, old.batch_count, old.max_timestamp)).fetchone()
        if row is None:
            return False
        places.append((*row, each))
    object_id = add_object(connection, new, [each.old for each in replacements], [], now_ms)
    for log_id, old_object_id, each in places:
        connection.execute(
            "UPDATE diskless_runs SET object_id = ?, position = ? "
            "WHERE log_id = ? AND end_offset = ?",
            (object_id, each.position, log_id, each.old.end_offset))
        release(connection, old_object_id, 1, each.old.size, now_ms)
    return True


def claim_tiering(
    connection: sqlite3.Connection, log: LogKey, owner: str, now_ms: int, lease_ms: int
) -> TieringClaim | None:
    row = log_row(connection, log)
    if row is None:
        return None
    claimed = connection.execute(
        "INSERT INTO diskless_claims AS c (log_id, epoch, owner, until_ms) VALUES (?1, 1, ?2, ?3) "
        "ON CONFLICT (log_id) DO UPDATE SET owner = ?2, until_ms = ?3, "
        "epoch = epoch + (owner <> ?2) WHERE owner = ?2 OR until_ms <= ?4",
        (row.log_id, owner, now_ms + lease_ms, now_ms)).rowcount
    if claimed < 1:
        return None
    epoch = connection.execute("SELECT epoch FROM diskless_claims WHERE log_id = ?",
                               (row.log_id,)).fetchone()[0]
    return TieringClaim(log, epoch, owner, TimestampMs(now_ms + lease_ms))


def note_tiered(
    connection: sqlite3.Connection, claim: TieringClaim, end_offset: Offset, now_ms: int
) -> LogBounds | None:
    row = log_row(connection, claim.log)
    if row is None:
        return None
    held = connection.execute("SELECT epoch, owner FROM diskless_claims WHERE log_id = ?",
                              (row.log_id,)).fetchone()
    if held != (claim.epoch, claim.owner):
        return None
    end = min(end_offset, row.bounds.high_watermark)
    return raise_bounds(connection, row, row.bounds._replace(diskless_start_offset=end), now_ms)


def advance_log_start(
    connection: sqlite3.Connection, log: LogKey, log_start: Offset, now_ms: int
) -> LogBounds | None:
    row = log_row(connection, log)
    if row is None:
        return None
    start = min(log_start, row.bounds.diskless_start_offset)
    return raise_bounds(connection, row, row.bounds._replace(log_start_offset=start), now_ms)


def restore_objects(
    connection: sqlite3.Connection, objects: Sequence[tuple[NewObject, Sequence[Offset]]],
    now_ms: int,
) -> None:
    unordered: set[int] = set()  # logs that got runs out of order
    for new, offsets in objects:
        if not is_restorable(connection, new.key):  # diskless.C10
            continue
        logs = log_rows(connection, logs_of(new))
        ends = {log: _last_end(connection, row.log_id) for log, row in logs.items()}

        def is_free(log: LogKey, base: Offset, end: Offset) -> bool:
            row = logs.get(log)  # noqa: B023 used before the next object
            return row is not None and _is_free(
                connection, row.log_id, base, end, row.bounds.diskless_start_offset)

        plan = plan_restore((new, offsets), histories(connection, logs, producers_of(new)), now_ms,
                            is_free=is_free)
        object_id = add_object(connection, new, plan.runs, restored_outcomes(offsets), now_ms)
        add_runs(connection, logs, plan.runs, object_id, now_ms)
        for run in plan.runs:
            if run.base_offset < ends[run.log]:
                unordered.add(logs[run.log].log_id)
            ends[run.log] = max(ends[run.log], run.end_offset)
        put_histories(connection, logs, plan.producers)
    for log_id in sorted(unordered):
        renumber(connection, log_id)


def _last_end(connection: sqlite3.Connection, log_id: int) -> Offset:
    """The end of a log's last run; 0 without runs."""
    row = connection.execute("SELECT max(end_offset) FROM diskless_runs WHERE log_id = ?",
                             (log_id,)).fetchone()
    return Offset(row[0] or 0)


def _is_free(
    connection: sqlite3.Connection, log_id: int, base: Offset, end: Offset, diskless_start: Offset
) -> bool:
    """Whether no run has offsets from `base` to `end`, which are not all gone."""
    row = connection.execute(
        "SELECT base_offset FROM diskless_runs WHERE log_id = ? AND end_offset > ? "
        "ORDER BY end_offset LIMIT 1", (log_id, base)).fetchone()
    return end > diskless_start and (row is None or row[0] >= end)


def restore_bounds(connection: sqlite3.Connection, log: LogKey, raised: LogBounds) -> None:
    row = log_row(connection, log)
    if row is not None:
        raise_bounds(connection, row, raised, None)

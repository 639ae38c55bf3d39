"""The rows of a control plane in SQLite: what is read and written within one transaction.

Functions over a connection, for the threads of sqlite.py.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from struct import iter_unpack, pack
from typing import Final, NamedTuple

from quipu.diskless.control_plane.commit_plan import ProducerKey, age_ms, pack_outcomes
from quipu.diskless.control_plane.interface import BatchOutcome
from quipu.diskless.control_plane.sequences import ProducerHistory, SequencedBatch
from quipu.diskless.control_plane.statements import LOG
from quipu.diskless.control_plane.time_index import children, node_maxima
from quipu.diskless.values import BatchRun, LogBounds, LogKey, NewObject
from quipu.model.ids import Offset, ProducerId

_SEQUENCED: Final = "<iiq"  # base sequence, last sequence, base offset

_ADD_OBJECT: Final = (
    "INSERT INTO diskless_objects (object_key, uploader, size, live_size, run_count, committed_ms, "
    "marked_ms, outcomes) VALUES (?, ?, ?, ?, ?, ?, ?, ?)")
_ADD_RUN: Final = (
    "INSERT INTO diskless_runs (log_id, end_offset, base_offset, object_id, position, size, "
    "batch_count, max_timestamp, age_ms, run_number, node_max) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
# diskless.C7: without INDEXED BY, SQLite walks all runs of the log by the primary key.
_NODE: Final = ("SELECT node_max FROM diskless_runs INDEXED BY diskless_runs_number "
                "WHERE log_id = ? AND run_number = ?")
_GROW_LOG: Final = ("UPDATE diskless_logs SET high_watermark = max(high_watermark, ?), "
                    "size = size + ?, last_run = ? WHERE log_id = ?")
_PRODUCER: Final = ("SELECT epoch, batches, last_timestamp, last_commit_ms FROM diskless_producers "
                    "WHERE log_id = ? AND producer_id = ?")
_PUT_PRODUCER: Final = (
    "INSERT OR REPLACE INTO diskless_producers (log_id, producer_id, epoch, last_timestamp, "
    "last_commit_ms, batches) VALUES (?, ?, ?, ?, ?, ?)")
_GONE: Final = ("SELECT object_id, count(*), sum(size) FROM diskless_runs "
                "WHERE log_id = ? AND end_offset <= ? GROUP BY object_id")
_REMOVE_RUNS: Final = "DELETE FROM diskless_runs WHERE log_id = ? AND end_offset <= ?"
_RELEASE: Final = (
    "UPDATE diskless_objects SET run_count = run_count - ?1, live_size = live_size - ?2, "
    "marked_ms = CASE WHEN run_count = ?1 THEN coalesce(?3, committed_ms) ELSE marked_ms END "
    "WHERE object_id = ?4")
_SET_BOUNDS: Final = ("UPDATE diskless_logs SET log_start = ?, diskless_start = ?, "
                      "high_watermark = ?, size = size - ? WHERE log_id = ?")


class LogRow(NamedTuple):
    """A log as it is stored."""

    log_id: int
    bounds: LogBounds
    last_run: int  # the number of its newest run


def log_row(connection: sqlite3.Connection, log: LogKey) -> LogRow | None:
    row = connection.execute(LOG, (str(log.topic_id), log.partition)).fetchone()
    return None if row is None else LogRow(row[0], LogBounds(*row[1:5]), row[5])


def log_rows(connection: sqlite3.Connection, logs: Iterable[LogKey]) -> dict[LogKey, LogRow]:
    """Those of the logs that exist."""
    rows = {log: log_row(connection, log) for log in logs}
    return {log: row for log, row in rows.items() if row is not None}


def histories(
    connection: sqlite3.Connection, logs: Mapping[LogKey, LogRow], producers: Sequence[ProducerKey]
) -> dict[ProducerKey, ProducerHistory]:
    """What is known of producers; `logs` has the logs that exist."""
    found: dict[ProducerKey, ProducerHistory] = {}
    for log, producer_id in producers:
        if log not in logs:
            continue
        row = connection.execute(_PRODUCER, (logs[log].log_id, producer_id)).fetchone()
        if row is not None:
            batches = tuple(SequencedBatch(*each) for each in iter_unpack(_SEQUENCED, row[1]))
            found[log, producer_id] = ProducerHistory(row[0], batches, row[2], row[3])
    return found


def last_sequence(packed: bytes) -> int:
    """The last sequence number of a producer, from its stored batches."""
    *_, last = iter_unpack(_SEQUENCED, packed)
    return int(last[1])


def put_histories(
    connection: sqlite3.Connection, logs: Mapping[LogKey, LogRow],
    changed: Mapping[tuple[LogKey, ProducerId], ProducerHistory],
) -> None:
    connection.executemany(_PUT_PRODUCER, [
        (logs[log].log_id, producer_id, each.epoch, each.last_timestamp, each.last_commit_ms,
         b"".join(pack(_SEQUENCED, *batch) for batch in each.batches))
        for (log, producer_id), each in changed.items()])


def add_object(
    connection: sqlite3.Connection, new: NewObject, runs: Sequence[BatchRun],
    outcomes: Sequence[BatchOutcome], now_ms: int,
) -> int:
    """Enter an object that has these runs; without any it is marked at once (diskless.C6)."""
    cursor = connection.execute(_ADD_OBJECT, (
        new.key, new.uploader, new.size, sum(run.size for run in runs), len(runs), now_ms,
        None if runs else now_ms, pack_outcomes(outcomes)))
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def add_runs(
    connection: sqlite3.Connection, logs: Mapping[LogKey, LogRow], runs: Sequence[BatchRun],
    object_id: int, now_ms: int,
) -> None:
    """Append runs to their logs, which grow."""
    last_runs = {run.log: logs[run.log].last_run for run in runs}
    for run in runs:
        log_id = logs[run.log].log_id
        number = last_runs[run.log] = last_runs[run.log] + 1
        node = run.max_timestamp
        for child in children(number):
            row = connection.execute(_NODE, (log_id, child)).fetchone()
            node = max(node, row[0]) if row is not None else node  # it went: never asked for
        connection.execute(_ADD_RUN, (
            log_id, run.end_offset, run.base_offset, object_id, run.position, run.size,
            run.batch_count, run.max_timestamp, age_ms(run, now_ms), number, node))
        connection.execute(_GROW_LOG, (run.end_offset, run.size, number, log_id))


def renumber(connection: sqlite3.Connection, log_id: int) -> None:
    """Number the runs of a log anew, by their offsets."""
    rows = connection.execute("SELECT end_offset, max_timestamp FROM diskless_runs "
                              "WHERE log_id = ? ORDER BY end_offset", (log_id,)).fetchall()
    nodes = node_maxima([timestamp for _, timestamp in rows])
    connection.executemany(
        "UPDATE diskless_runs SET run_number = ?, node_max = ? WHERE log_id = ? "
        "AND end_offset = ?",
        [(number, node, log_id, end)
         for number, (node, (end, _)) in enumerate(zip(nodes, rows, strict=True), 1)])
    connection.execute("UPDATE diskless_logs SET last_run = ? WHERE log_id = ?",
                       (len(rows), log_id))


def raise_bounds(
    connection: sqlite3.Connection, row: LogRow, raised: LogBounds, now_ms: int | None
) -> LogBounds:
    """Move the bounds of a log up (diskless.C4); runs below the diskless start go (diskless.C5)."""
    bounds = row.bounds
    log_start = max(bounds.log_start_offset, raised.log_start_offset)
    diskless_start = max(bounds.diskless_start_offset, raised.diskless_start_offset, log_start)
    high_watermark = max(bounds.high_watermark, raised.high_watermark, diskless_start)
    gone = remove_runs(connection, row.log_id, diskless_start, now_ms)
    connection.execute(
        _SET_BOUNDS, (log_start, diskless_start, high_watermark, gone, row.log_id))
    return LogBounds(log_start, diskless_start, high_watermark, bounds.size - gone)


def remove_runs(
    connection: sqlite3.Connection, log_id: int, until: Offset, now_ms: int | None
) -> int:
    """Remove the runs that end at or before an offset; return their bytes."""
    gone = connection.execute(_GONE, (log_id, until)).fetchall()
    connection.execute(_REMOVE_RUNS, (log_id, until))
    for object_id, run_count, size in gone:
        release(connection, object_id, run_count, size, now_ms)
    return sum(size for *_, size in gone)


def release(
    connection: sqlite3.Connection, object_id: int, run_count: int, size: int, now_ms: int | None
) -> None:
    """diskless.C6: an object has lost runs, perhaps its last one."""
    connection.execute(_RELEASE, (run_count, size, now_ms, object_id))


def object_id_of(connection: sqlite3.Connection, key: str) -> int | None:
    row = connection.execute(
        "SELECT object_id FROM diskless_objects WHERE object_key = ?", (key,)).fetchone()
    return None if row is None else int(row[0])

"""The operations that only read a control plane in SQLite.

Functions over a connection, for the threads of sqlite.py.  Rows are fetched as they are needed.
"""

import sqlite3
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from quipu.diskless.control_plane.interface import (
    FindRequest,
    FoundRuns,
    ObjectState,
    ProducerState,
)
from quipu.diskless.control_plane.sqlite_tables import last_sequence, log_row
from quipu.diskless.control_plane.statements import (
    AGED_RUNS,
    DELETABLE_OBJECTS,
    OBJECT_RUNS,
    OBJECTS,
    RUN_OF_NUMBER,
    RUNS_FROM,
    SPARSE_OBJECTS,
    TOPICS,
    located_run_of,
    object_of,
    run_of,
)
from quipu.diskless.control_plane.time_index import first_at_least, maximum
from quipu.diskless.values import BatchRun, LogBounds, LogKey

_VARIABLES_MAX: Final = 500  # of one statement; SQLite's own limit is higher


def topics(connection: sqlite3.Connection) -> dict[UUID, tuple[str, int]]:
    return {UUID(topic_id): (name, count)
            for topic_id, name, count in connection.execute(TOPICS)}


def producers(connection: sqlite3.Connection, log: LogKey) -> list[ProducerState]:
    row = log_row(connection, log)
    if row is None:
        return []
    found = connection.execute(
        "SELECT producer_id, epoch, batches, last_timestamp FROM diskless_producers "
        "WHERE log_id = ? ORDER BY producer_id", (row.log_id,))
    return [ProducerState(producer_id, epoch, last_sequence(batches), timestamp)
            for producer_id, epoch, batches, timestamp in found]


def bounds(connection: sqlite3.Connection, logs: Sequence[LogKey]) -> list[LogBounds | None]:
    rows = [log_row(connection, log) for log in logs]
    return [None if row is None else row.bounds for row in rows]


def find(connection: sqlite3.Connection, request: FindRequest, runs_max: int) -> FoundRuns:
    row = log_row(connection, request.log)
    if row is None:
        return FoundRuns(None)
    runs, size = list[BatchRun](), 0
    if row.bounds.diskless_start_offset <= request.offset < row.bounds.high_watermark:
        cursor = connection.execute(RUNS_FROM, (row.log_id, request.offset, runs_max))
        for each in cursor:
            runs.append(run_of(request.log, each))
            size += runs[-1].size
            if size >= request.max_bytes:
                break
        cursor.close()
    return FoundRuns(row.bounds, tuple(runs))


def find_timestamp(
    connection: sqlite3.Connection, log: LogKey, timestamp: int | None, from_offset: int
) -> BatchRun | None:
    """The first run that is not before `timestamp`; None: before the largest one."""
    row = log_row(connection, log)
    if row is None:
        return None
    start = max(from_offset, row.bounds.diskless_start_offset)
    first = connection.execute(
        "SELECT run_number FROM diskless_runs WHERE log_id = ? AND end_offset > ? "
        "ORDER BY end_offset LIMIT 1", (row.log_id, start)).fetchone()
    if first is None:
        return None

    def largest(number: int, size: int) -> int:
        single, node = connection.execute(
            "SELECT max_timestamp, node_max FROM diskless_runs INDEXED BY diskless_runs_number "
            "WHERE log_id = ? AND run_number = ?", (row.log_id, number)).fetchone()
        return int(single if size == 1 else node)

    if timestamp is None:
        timestamp = maximum(first[0], row.last_run, largest)
        assert timestamp is not None, "there is a run"
    number = first_at_least(timestamp, first[0], row.last_run, largest)
    if number is None:
        return None
    return run_of(log, connection.execute(RUN_OF_NUMBER, (row.log_id, number)).fetchone())


def objects(connection: sqlite3.Connection, after: str, limit: int) -> list[ObjectState]:
    return [object_of(row) for row in connection.execute(OBJECTS, (after, limit))]


def known_objects(connection: sqlite3.Connection, keys: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for start in range(0, len(keys), _VARIABLES_MAX):
        some = keys[start:start + _VARIABLES_MAX]
        marks = ",".join("?" * len(some))
        found.update(row[0] for row in connection.execute(
            "SELECT object_key FROM diskless_objects "  # noqa: S608 only marks
            f"WHERE object_key IN ({marks})", some))
    return found


def deletable_objects(connection: sqlite3.Connection, before_ms: int, limit: int) -> list[str]:
    return [row[0] for row in connection.execute(DELETABLE_OBJECTS, (before_ms, limit))]


def object_runs(connection: sqlite3.Connection, key: str) -> list[BatchRun]:
    return [located_run_of(row) for row in connection.execute(OBJECT_RUNS, (key,))]


def sparse_objects(
    connection: sqlite3.Connection, values: tuple[int, int, float, int]
) -> list[ObjectState]:
    return [object_of(row) for row in connection.execute(SPARSE_OBJECTS, values)]


def aged_runs(
    connection: sqlite3.Connection, log: LogKey, before_ms: int, limit: int
) -> list[BatchRun]:
    row, aged = log_row(connection, log), list[BatchRun]()
    if row is None:
        return aged
    cursor = connection.execute(
        AGED_RUNS, (row.log_id, row.bounds.diskless_start_offset, limit))
    for *run, age in cursor:
        if age >= before_ms:
            break
        aged.append(run_of(log, tuple(run)))
    cursor.close()
    return aged

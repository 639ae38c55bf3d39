"""Queries that SQLite and PostgreSQL share, and how their rows become values.

Marks are SQLite's `?`; PostgreSQL's are made of them.
"""

from typing import Any, Final
from uuid import UUID

from quipu.diskless.control_plane.interface import ObjectState
from quipu.diskless.values import BatchRun, LogBounds, LogKey

Row = tuple[Any, ...]

TOPICS: Final = ("SELECT topic_id, name, partition_count FROM diskless_topics "
                 "WHERE deleted_ms IS NULL")
LOG: Final = ("SELECT log_id, log_start, diskless_start, high_watermark, size, last_run "
              "FROM diskless_logs WHERE topic_id = ? AND partition = ?")
RUN_COLUMNS: Final = ("r.base_offset, r.end_offset, o.object_key, r.position, r.size, "
                      "r.batch_count, r.max_timestamp")
_RUNS: Final = (f"SELECT {RUN_COLUMNS} FROM diskless_runs r "  # noqa: S608 no values
                "JOIN diskless_objects o ON o.object_id = r.object_id ")
RUNS_FROM: Final = (f"{_RUNS} WHERE r.log_id = ? AND r.end_offset > ? "
                    "ORDER BY r.end_offset LIMIT ?")
AGED_RUNS: Final = RUNS_FROM.replace("r.max_timestamp FROM", "r.max_timestamp, r.age_ms FROM")
RUN_OF_NUMBER: Final = (  # of SQLite alone, which walks the log without INDEXED BY (diskless.C7)
    _RUNS.replace("diskless_runs r", "diskless_runs r INDEXED BY diskless_runs_number")
    + "WHERE r.log_id = ? AND r.run_number = ?")
OBJECT_RUNS: Final = (f"SELECT l.topic_id, l.partition, {RUN_COLUMNS} "  # noqa: S608 no values
                      "FROM diskless_objects o JOIN diskless_runs r ON r.object_id = o.object_id "
                      "JOIN diskless_logs l ON l.log_id = r.log_id "
                      "WHERE o.object_key = ? ORDER BY r.position")
_OBJECTS: Final = ("SELECT object_key, uploader, size, live_size, run_count, committed_ms, "
                   "marked_ms FROM diskless_objects ")
OBJECTS: Final = f"{_OBJECTS} WHERE object_key > ? ORDER BY object_key LIMIT ?"
SPARSE_OBJECTS: Final = (
    f"{_OBJECTS} WHERE marked_ms IS NULL AND committed_ms < ? "
    "AND (live_size <= ? OR live_size <= size * ?) ORDER BY committed_ms, object_key LIMIT ?")
DELETABLE_OBJECTS: Final = ("SELECT object_key FROM diskless_objects WHERE marked_ms IS NOT NULL "
                            "AND marked_ms < ? ORDER BY marked_ms, object_key LIMIT ?")


def run_of(log: LogKey, row: Row) -> BatchRun:
    return BatchRun(log, *row)


def located_run_of(row: Row) -> BatchRun:
    """A run whose row begins with the topic and the partition."""
    return BatchRun(LogKey(UUID(row[0]), row[1]), *row[2:])


def bounds_of(row: Row) -> LogBounds:
    """The four numbers of a log, from a row that has them and nothing else."""
    return LogBounds(*row)


def object_of(row: Row) -> ObjectState:
    return ObjectState(*row)

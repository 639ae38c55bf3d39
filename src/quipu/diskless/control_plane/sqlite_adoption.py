"""Logs that were on disks, in a control plane in SQLite (diskless.C12).

Functions over a connection, for the threads of sqlite.py.
"""

import sqlite3
from collections.abc import Sequence
from typing import Final

from quipu.diskless.control_plane.adoption import (
    OWNER,
    AdoptionVerdict,
    LogBefore,
    decode_lineage,
    encode_lineage,
    histories_of,
    judge_adoption,
    lineage_of,
)
from quipu.diskless.control_plane.interface import AdoptedLog
from quipu.diskless.control_plane.sqlite_tables import log_row, put_histories
from quipu.diskless.values import Lineage, LogKey

_RAISE_CLAIM: Final = (
    "INSERT INTO diskless_claims (log_id, epoch, owner, until_ms) VALUES (?1, ?2, ?3, 0) "
    "ON CONFLICT (log_id) DO UPDATE SET epoch = max(epoch, ?2), owner = ?3, until_ms = 0")


def adopt_log(connection: sqlite3.Connection, adopted: AdoptedLog, now_ms: int) -> bool:
    log = adopted.log
    row = log_row(connection, log)
    (lineage,) = lineages(connection, [log])
    verdict = judge_adoption(
        None if row is None or lineage is None else LogBefore(row.bounds, lineage), adopted)
    if row is None or verdict is not AdoptionVerdict.ENTER:
        return verdict is AdoptionVerdict.KNOWN
    connection.execute(
        "UPDATE diskless_logs SET log_start = ?, diskless_start = ?, high_watermark = ?, "
        "lineage = ? WHERE log_id = ?",
        (adopted.log_start_offset, adopted.end_offset, adopted.end_offset,
         encode_lineage(lineage_of(adopted)), row.log_id))
    connection.execute("DELETE FROM diskless_producers WHERE log_id = ?", (row.log_id,))
    put_histories(connection, {log: row}, {
        (log, producer_id): history
        for producer_id, history in histories_of(adopted, now_ms).items()})
    connection.execute(_RAISE_CLAIM, (row.log_id, adopted.epoch, OWNER))
    return True


def restore_lineage(connection: sqlite3.Connection, log: LogKey, lineage: Lineage) -> None:
    row = log_row(connection, log)
    if row is not None and connection.execute(
            "UPDATE diskless_logs SET lineage = ? WHERE log_id = ? AND lineage IS NULL",
            (encode_lineage(lineage), row.log_id)).rowcount:
        connection.execute(_RAISE_CLAIM, (row.log_id, lineage[-1][0], OWNER))


def lineages(connection: sqlite3.Connection, logs: Sequence[LogKey]) -> list[Lineage | None]:
    rows = [connection.execute(
        "SELECT lineage FROM diskless_logs WHERE topic_id = ? AND partition = ?",
        (str(log.topic_id), log.partition)).fetchone() for log in logs]
    return [None if row is None else decode_lineage(row[0]) for row in rows]

"""Logs that were on disks, in a control plane in PostgreSQL (diskless.C12).

An adoption is a transaction of several round trips, which holds the lock of its log alone: nobody
commits to that log yet.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

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
from quipu.diskless.values import Lineage, LogBounds, LogKey
from quipu.runtime.databases.postgres import Work

if TYPE_CHECKING:
    from psycopg import AsyncConnection

_LOCK_LOG: Final = (
    "SELECT log_id, log_start, diskless_start, high_watermark, size, lineage "
    "FROM diskless_logs WHERE topic_id = %s AND partition = %s FOR UPDATE")
_SET_LOG: Final = (
    "UPDATE diskless_logs SET log_start = %s, diskless_start = %s, high_watermark = %s, "
    "lineage = %s WHERE log_id = %s")
_SET_LINEAGE: Final = (
    "UPDATE diskless_logs SET lineage = %s WHERE topic_id = %s AND partition = %s "
    "AND lineage IS NULL RETURNING log_id")
_FORGET_PRODUCERS: Final = "DELETE FROM diskless_producers WHERE log_id = %s"
_ADD_PRODUCER: Final = (
    "INSERT INTO diskless_producers (log_id, producer_id, epoch, last_timestamp, last_commit_ms, "
    "batches) VALUES (%s, %s, %s, %s, %s, %s)")
_RAISE_CLAIM: Final = (
    "INSERT INTO diskless_claims AS c (log_id, epoch, owner, until_ms) VALUES (%s, %s, %s, 0) "
    "ON CONFLICT (log_id) DO UPDATE SET epoch = greatest(c.epoch, excluded.epoch), "
    "owner = excluded.owner, until_ms = 0")
LINEAGES: Final = (
    "SELECT l.log_id IS NOT NULL, l.lineage "
    "FROM unnest(%s::text[], %s::int[]) WITH ORDINALITY AS w (topic_id, partition, i) "
    "LEFT JOIN diskless_logs l ON l.topic_id = w.topic_id AND l.partition = w.partition "
    "ORDER BY w.i")


def adoption(adopted: AdoptedLog, now_ms: int) -> Work[bool]:
    """What enters a log on a connection; returns whether it is entered."""
    key = str(adopted.log.topic_id), adopted.log.partition

    async def adopt(connection: "AsyncConnection[Any]") -> bool:
        async with connection.transaction():
            row = await (await connection.execute(_LOCK_LOG, key)).fetchone()
            verdict = judge_adoption(
                None if row is None else LogBefore(LogBounds(*row[1:5]), decode_lineage(row[5])),
                adopted)
            if row is None or verdict is not AdoptionVerdict.ENTER:
                return verdict is AdoptionVerdict.KNOWN
            log_id, end = row[0], adopted.end_offset
            await connection.execute(_SET_LOG, (
                adopted.log_start_offset, end, end, encode_lineage(lineage_of(adopted)), log_id))
            await connection.execute(_FORGET_PRODUCERS, (log_id,))
            async with connection.cursor() as cursor:
                await cursor.executemany(_ADD_PRODUCER, [
                    (log_id, producer_id, each.epoch, each.last_timestamp, each.last_commit_ms,
                     [number for batch in each.batches for number in batch])
                    for producer_id, each in histories_of(adopted, now_ms).items()])
            await connection.execute(_RAISE_CLAIM, (log_id, adopted.epoch, OWNER))
            return True

    return adopt


def restoration(log: LogKey, lineage: Lineage) -> Work[None]:
    """What gives a log its leader epochs back, on a connection."""

    async def restore(connection: "AsyncConnection[Any]") -> None:
        async with connection.transaction():
            row = await (await connection.execute(
                _SET_LINEAGE, (encode_lineage(lineage), str(log.topic_id), log.partition))
                ).fetchone()
            if row is not None:
                await connection.execute(_RAISE_CLAIM, (row[0], lineage[-1][0], OWNER))

    return restore


def found_lineages(rows: Sequence[tuple[Any, ...]]) -> list[Lineage | None]:
    return [decode_lineage(text) if is_known else None for is_known, text in rows]

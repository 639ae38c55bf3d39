"""Statements of a control plane in PostgreSQL, with the values that they take and return."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from quipu.diskless.control_plane.commit_plan import (
    logs_of,
    pack_numbers,
    producers_of,
    restored_outcomes,
)
from quipu.diskless.control_plane.interface import (
    BatchOutcome,
    FindRequest,
    FoundRuns,
    Replacement,
)
from quipu.diskless.control_plane.statements import Row, run_of
from quipu.diskless.values import BatchCoordinates, BatchRun, LogBounds, LogKey, NewObject
from quipu.model.errors import Code
from quipu.model.ids import Offset

COMMIT: Final = (
    "SELECT outcomes, log_starts, new_object "
    "FROM diskless_commit_1(%s, %s, %s, %s, %s::text[], %s::int[], "
    "%s::int[], %s::bigint[], %s::int[], %s::int[], %s::bigint[], %s::bigint[], %s::bigint[], "
    "%s::bigint[], %s::int[], %s::bigint[])")
RESTORE: Final = (
    "SELECT diskless_restore_1(%s, %s, %s, %s, %s, %s::int[], %s::int[], %s::bigint[], "
    "%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::int[], %s::bigint[], "
    "%s::bigint[], %s::bigint[], %s::bigint[])")
REWRITE: Final = (
    "SELECT diskless_rewrite_1(%s, %s, %s, %s, %s, %s::int[], %s, %s::bigint[], %s::bigint[], "
    "%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[])")
FIND: Final = ("SELECT * FROM diskless_find_1(%s, %s::int[], %s::bigint[], %s::bigint[], %s)")
FIND_TIMESTAMP: Final = "SELECT * FROM diskless_find_timestamp_1(%s, %s, %s::bigint, %s)"
LOOK_EXPIRED: Final = (
    "SELECT * FROM diskless_look_expired_1(%s, %s::int[], %s::bigint[], %s::bigint[], %s)")
RETAIN: Final = "SELECT * FROM diskless_retain_1(%s, %s, %s, %s, %s, %s)"
DELETE_RECORDS: Final = "SELECT * FROM diskless_delete_records_1(%s, %s, %s, %s)"
ADVANCE: Final = "SELECT * FROM diskless_advance_1(%s, %s, %s)"
# A statement like these, and the notification of other nodes, in one transaction: nobody hears of a
# log start that has not moved, or does not hear of one that has (diskless.C9).
AND_TELL: Final = (
    "SELECT b.b_log_start, b.b_diskless_start, b.b_mark, b.b_size FROM ({}) AS b, "
    "LATERAL (SELECT pg_notify(diskless_channel_1(), %s)) AS told")
BOUNDS: Final = (
    "SELECT l.log_start, l.diskless_start, l.high_watermark, l.size "
    "FROM unnest(%s::text[], %s::int[]) WITH ORDINALITY AS w (topic_id, partition, i) "
    "LEFT JOIN diskless_logs l ON l.topic_id = w.topic_id AND l.partition = w.partition "
    "ORDER BY w.i")
LOCK_LOGS: Final = (
    "SELECT 1 FROM unnest(%s::text[], %s::int[]) AS w (topic_id, partition) "
    "JOIN diskless_logs l ON l.topic_id = w.topic_id AND l.partition = w.partition "
    "ORDER BY l.log_id FOR UPDATE OF l")
PRODUCERS: Final = (
    "SELECT p.producer_id, p.epoch, p.batches[cardinality(p.batches) - 1], p.last_timestamp "
    "FROM diskless_logs l JOIN diskless_producers p ON p.log_id = l.log_id "
    "WHERE l.topic_id = %s AND l.partition = %s ORDER BY p.producer_id")
# Rows that a commit is changing are left alone: they are not idle any more.
EXPIRE_PRODUCERS: Final = (
    "WITH idle AS (SELECT log_id, producer_id FROM diskless_producers WHERE last_commit_ms < %s "
    "ORDER BY last_commit_ms LIMIT %s FOR UPDATE SKIP LOCKED), "
    "gone AS (DELETE FROM diskless_producers p USING idle WHERE p.log_id = idle.log_id "
    "AND p.producer_id = idle.producer_id RETURNING 1) SELECT count(*) FROM gone")
FORGET_OBJECTS: Final = "SELECT diskless_forget_1(%s)"
CONDEMN_OBJECTS: Final = "SELECT diskless_condemn_1(%s)"
IDENTITY: Final = "SELECT identity FROM diskless_identity"
BIND: Final = (  # a row that is there stays as it is, and is returned (diskless.C11)
    "INSERT INTO diskless_cluster AS c (number, cluster_id) VALUES (1, %s) "
    "ON CONFLICT (number) DO UPDATE SET cluster_id = c.cluster_id RETURNING c.cluster_id")
FENCED: Final = "SELECT k FROM unnest(%s::text[]) k WHERE diskless_is_fenced_1(k)"
CLAIM: Final = (
    "INSERT INTO diskless_claims AS c (log_id, epoch, owner, until_ms) "
    "SELECT log_id, 1, %s, %s FROM diskless_logs WHERE topic_id = %s AND partition = %s "
    "ON CONFLICT (log_id) DO UPDATE SET owner = excluded.owner, until_ms = excluded.until_ms, "
    "epoch = c.epoch + (c.owner <> excluded.owner)::int "
    "WHERE c.owner = excluded.owner OR c.until_ms <= %s RETURNING epoch")


def commit_arguments(new: NewObject, now_ms: int) -> tuple[object, ...]:
    """Logs and producers once each, sorted; batches refer to them by index, from 1 on."""
    logs, pairs = logs_of(new), producers_of(new)
    log_index = {log: index for index, log in enumerate(logs, 1)}
    pair_index: dict[tuple[LogKey, int], int] = {
        pair: index for index, pair in enumerate(pairs, 1)}
    columns = tuple(zip(*new.batches, strict=True)) or ((),) * len(BatchCoordinates._fields)
    batch_logs, *numbers, producers, epochs, sequences = columns
    return (
        new.key, new.uploader, new.size, now_ms,
        _array(log.topic_id for log in logs), _array(log.partition for log in logs),
        _array(log_index[log] for log, _ in pairs), _array(producer_id for _, producer_id in pairs),
        _array(map(log_index.__getitem__, batch_logs)),
        _array(pair_index.get(pair, 0) for pair in zip(batch_logs, producers, strict=True)),
        *map(_array, numbers), _array(epochs), _array(sequences))


def _array(values: Iterable[object]) -> str:
    """Numbers or UUIDs as PostgreSQL writes an array: psycopg's lists take ten times as long."""
    return f"{{{','.join(map(str, values))}}}"


def restore_arguments(
    entered: tuple[NewObject, Sequence[Offset]], now_ms: int
) -> tuple[object, ...]:
    new, offsets = entered
    logs, batches = logs_of(new), new.batches
    index = {log: index for index, log in enumerate(logs, 1)}
    outcomes = [pack_numbers(each) for each in restored_outcomes(offsets)]
    return (
        new.key, new.uploader, new.size, now_ms,
        [str(log.topic_id) for log in logs], [log.partition for log in logs],
        [index[each.log] for each in batches],
        [each.position for each in batches], [each.size for each in batches],
        [each.record_count for each in batches], [each.max_timestamp for each in batches],
        [each.producer_id for each in batches], [each.producer_epoch for each in batches],
        [each.base_sequence for each in batches], list(offsets),
        [number for number, _ in outcomes], [log_start for _, log_start in outcomes])


def rewrite_arguments(
    new: NewObject, replacements: Sequence[Replacement], now_ms: int
) -> tuple[object, ...]:
    olds = [each.old for each in replacements]
    return (
        new.key, new.uploader, new.size, now_ms,
        [str(old.log.topic_id) for old in olds], [old.log.partition for old in olds],
        [old.key for old in olds], [old.base_offset for old in olds],
        [old.end_offset for old in olds], [old.position for old in olds],
        [old.size for old in olds], [old.batch_count for old in olds],
        [old.max_timestamp for old in olds], [each.position for each in replacements])


def high_watermarks(
    new: NewObject, outcomes: Sequence[BatchOutcome]
) -> dict[LogKey, Offset]:
    """The high watermarks that a commit's accepted batches lead to."""
    marks: dict[LogKey, Offset] = {}
    for batch, outcome in zip(new.batches, outcomes, strict=True):
        if outcome.code == Code.NONE and not outcome.is_duplicate:
            marks[batch.log] = Offset(outcome.base_offset + batch.record_count)
    return marks


def found_runs(requests: Sequence[FindRequest], rows: Sequence[Row]) -> list[FoundRuns]:
    """What each request found: a row with the bounds, and one for each run."""
    bounds: dict[int, LogBounds] = {}
    runs: dict[int, list[BatchRun]] = {}
    for index, *values in rows:
        numbers: list[Any] = values
        if numbers[4] is None:
            bounds[index] = LogBounds(*numbers[:4])
        else:
            run = run_of(requests[index - 1].log, tuple(numbers[4:]))
            runs.setdefault(index, []).append(run)
    return [FoundRuns(bounds.get(index), tuple(runs.get(index, ())))
            for index in range(1, len(requests) + 1)]

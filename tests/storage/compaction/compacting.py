"""Compacted logs for the tests of this folder: keyed records, and passes in this process."""

from collections.abc import Sequence

from quipu.model.ids import Epoch, LogOffset
from quipu.storage.compaction.worker import CompactedGroup, PassEnd, compact
from quipu.storage.config import LogConfig
from quipu.storage.log import AppendedBatch, Log
from quipu.wire.record_batch import Record, decode_records, encode_batch, parse_header
from tests.storage.builders import NOW_MS, split

SECRET = b"sixteen bytes ok"
SMALL_SEGMENTS = LogConfig(
    segment_bytes=700, index_interval_bytes=100, compacts=True, delete_retention_ms=1000,
    min_cleanable_dirty_ratio=0.0)

Pair = tuple[bytes | None, bytes | None]


def append_pairs(
    log: Log, pairs: Sequence[Pair], *, now_ms: int = NOW_MS, compression: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1), epoch: int = 0,
) -> AppendedBatch:
    """Append one batch of records with these keys and values."""
    batch = memoryview(encode_batch(
        [Record(key, value, (("h", key),), timestamp=now_ms + number)
         for number, (key, value) in enumerate(pairs)], compression=compression,
        producer_id=producer[0], producer_epoch=producer[1], base_sequence=producer[2]))
    return log.append(batch, parse_header(batch), epoch=Epoch(epoch), now_ms=now_ms)


def flush(log: Log) -> None:
    """Make all of it durable, as if every replica had it."""
    log.flusher.flush_now()
    log.note_committed(log.log_end)


def run_pass(
    log: Log, *, now_ms: int = NOW_MS, map_size_max: int = 1 << 20,
    nonce: str = "n", take: int = 1 << 30,
) -> PassEnd | None:
    """One pass, of which the first `take` groups are taken; None if nothing is due."""
    plan = log.plan_compaction(committed_log=LogOffset(log.committed_log), now_ms=now_ms)
    if plan is None:
        return None
    job = log.compaction_job(plan, now_ms=now_ms, nonce=nonce, map_size_max=map_size_max)
    for found in compact(log.directory.disk, job, SECRET):
        if isinstance(found, PassEnd):
            return found
        assert isinstance(found, CompactedGroup)
        if take > 0:
            assert log.take_compacted(job, found)
        take -= 1
    raise AssertionError


def all_records(log: Log) -> list[Record]:
    """Every record that a client sees from the log start on."""
    found: list[Record] = []
    offset = log.log_start_offset
    while offset < log.end_offset:
        batches = split(log.read(offset, 1 << 20, end=log.end_offset, min_one=True))
        assert batches, f"nothing to read at {offset} of {log.end_offset}"
        for batch in batches:
            found += [record for record in decode_records(batch, size_max=1 << 24)
                      if record.offset >= offset]
            after = parse_header(batch).last_offset + 1
            assert after > offset
            offset = type(offset)(after)
    return found


def latest(records: Sequence[Record]) -> dict[bytes, bytes]:
    """The table that a reader of all of them builds."""
    table: dict[bytes, bytes] = {}
    for record in records:
        assert record.key is not None
        if record.value is None:
            table.pop(record.key, None)
        else:
            table[record.key] = record.value
    return table

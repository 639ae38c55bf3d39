"""Passes of compaction over real logs on a simulated disk."""

from dataclasses import replace

import pytest

from quipu.model.batch_types import CONFIGURATION
from quipu.model.errors import CorruptLog
from quipu.model.ids import Epoch, LogOffset
from quipu.storage.compaction.walk import ENTRY_SIZE
from quipu.storage.compaction.worker import CompactedGroup, compact
from quipu.storage.log import Log
from quipu.wire.compression import Compression
from quipu.wire.record_batch import Record, decode_records
from tests.storage.builders import NOW_MS, data_disk, open_log, segment_names
from tests.storage.compaction.compacting import (
    SECRET,
    SMALL_SEGMENTS,
    all_records,
    append_pairs,
    flush,
    latest,
    run_pass,
)


def a_log(*, rounds: int = 10, keys: int = 5, compression: int = 0) -> Log:
    log = open_log(data_disk(), SMALL_SEGMENTS)
    for number in range(rounds):
        append_pairs(log, [(b"k%d" % key, b"v%d" % number) for key in range(keys)],
                     compression=compression)
    log.roll(NOW_MS)
    append_pairs(log, [(b"active", b"1"), (b"active", b"2")])
    flush(log)
    return log


@pytest.mark.parametrize("codec", list(Compression))
def test_only_the_latest_record_of_each_key_stays(codec: Compression) -> None:
    """K5: older records of a key go, the latest stays as it was; the active segment is untouched.

    Shows storage.KR1 and storage.KR2: offsets, timestamps and headers are unchanged.
    """
    log = a_log(compression=codec)
    before = {record.offset: record for record in all_records(log)}
    end = run_pass(log)
    assert end is not None
    assert end.key_count == 5
    after = all_records(log)
    assert [(record.key, record.value) for record in after] == [
        *((b"k%d" % key, b"v9") for key in range(5)), (b"active", b"1"), (b"active", b"2")]
    assert all(before[record.offset] == record for record in after)
    assert run_pass(log) is None  # nothing is dirty


def test_a_compacted_log_opens_again_as_it_was() -> None:
    """K5: what a reader sees survives a restart, clean or not, and a lost index."""
    log = a_log()
    run_pass(log)
    seen, disk = all_records(log), log.directory.disk
    for name in segment_names(disk, ".index"):
        disk.remove(name)
    log.discard()
    again = open_log(disk, SMALL_SEGMENTS)
    assert all_records(again) == seen
    assert again.compacted_end > 0
    assert run_pass(again) is None


def test_small_segments_become_one() -> None:
    """K5: neighbours that fit in one segment are merged (storage.KP3)."""
    log = a_log(rounds=30)
    before = len(log.segments)
    log.configure(replace(SMALL_SEGMENTS, segment_bytes=3000))
    run_pass(log)
    append_pairs(log, [(b"k1", b"new")])
    log.roll(NOW_MS)
    append_pairs(log, [(b"active", b"3")])
    flush(log)
    run_pass(log)
    assert len(log.segments) < before / 2
    assert latest(all_records(log)) == {
        **{b"k%d" % key: b"v29" for key in range(5)}, b"k1": b"new", b"active": b"3"}


def test_a_tombstone_goes_after_its_time_and_not_before() -> None:
    """K5: a tombstone stays for delete.retention.ms after it was first cleaned, then it goes.

    Shows storage.KR3, and that no write is needed for it.
    """
    log = open_log(data_disk(), SMALL_SEGMENTS)
    append_pairs(log, [(b"a", b"1"), (b"b", b"1")])
    append_pairs(log, [(b"a", None)])
    log.roll(NOW_MS)
    append_pairs(log, [(b"c", b"1")])
    flush(log)
    first = [record for record in all_records(log) if record.value is None]
    run_pass(log, now_ms=NOW_MS + 5000)
    assert [record for record in all_records(log) if record.key == b"a"] == first
    assert run_pass(log, now_ms=NOW_MS + 5999) is None
    assert log.sync_floor == 0
    assert run_pass(log, now_ms=NOW_MS + 6000, nonce="m") is not None
    assert [record.key for record in all_records(log)] == [b"b", b"c"]
    assert log.sync_floor > 0
    assert run_pass(log, now_ms=NOW_MS + 99_000) is None


def test_keys_beyond_the_map_take_several_passes() -> None:
    """K5: distinct keys beyond the map's bound are compacted part by part (storage.KW1)."""
    log = open_log(data_disk(), SMALL_SEGMENTS)
    for number in range(2):
        for key in range(0, 600, 10):
            append_pairs(log, [(b"k%d" % each, b"v%d" % number) for each in range(key, key + 10)])
    log.roll(NOW_MS)
    append_pairs(log, [(b"active", b"1")])
    flush(log)
    passes = 0
    while run_pass(log, map_size_max=100 * ENTRY_SIZE, nonce=str(passes)) is not None:
        passes += 1
        assert passes < 100
    assert passes >= 2
    assert latest(all_records(log)) == {
        **{b"k%d" % key: b"v1" for key in range(600)}, b"active": b"1"}
    assert len(all_records(log)) < 1201


def test_what_cannot_be_read_and_what_is_no_data_stays() -> None:
    """K5: internal batches between data keep their places (storage.KR4)."""
    log = open_log(data_disk(), SMALL_SEGMENTS)
    append_pairs(log, [(b"a", b"1")])
    log.append_records(CONFIGURATION, [Record(b"c", b"kept")], epoch=Epoch(0), now_ms=NOW_MS)
    append_pairs(log, [(b"a", b"2")])
    log.roll(NOW_MS)
    append_pairs(log, [(b"z", b"1")])
    flush(log)
    run_pass(log)
    assert [record.value for record in all_records(log)] == [b"2", b"1"]
    kept = [batch for batch in log.read_stored() if batch.header.batch_type == CONFIGURATION]
    assert [record.value for record in decode_records(kept[0].batch, size_max=1000)] == [b"kept"]


def test_a_damaged_segment_is_not_compacted() -> None:
    """K5, T12: a pass ends at a damaged batch, and takes nothing for replaced (storage.KW3)."""
    log = a_log()
    path = log.segments[1].path
    disk = log.directory.disk
    data = bytearray(disk.read(path))
    data[-3] ^= 1
    disk.write(path, data)
    with pytest.raises(CorruptLog, match="damaged at position"):
        run_pass(log)
    assert len(all_offsets(log)) == len(log.segments)


def all_offsets(log: Log) -> list[int]:
    return [segment.base_log for segment in log.segments]


def test_a_segment_that_changed_meanwhile_is_not_replaced() -> None:
    """K5: retention removed it while the pass ran (storage.KS2); what readers hold stays valid.

    Shows storage.KS3, and storage.KW2: what is taken was read again and checked.
    """
    log = a_log()
    held = log.read(log.log_start_offset, 1 << 20, end=log.end_offset, min_one=True)
    before = [bytes(part) for part in held]
    plan = log.plan_compaction(committed_log=LogOffset(log.committed_log), now_ms=NOW_MS)
    assert plan is not None
    job = log.compaction_job(plan, now_ms=NOW_MS, nonce="n", map_size_max=1 << 20)
    groups = [each for each in compact(log.directory.disk, job, SECRET)
              if isinstance(each, CompactedGroup)]
    log.drop_segments_before(LogOffset(log.segments[1].base_log))
    assert not log.take_compacted(job, groups[0])
    assert all(log.take_compacted(job, group) for group in groups[1:])
    assert not [name for name in log.directory.disk.list(log.directory.path)
                if name.endswith(".new")]
    assert [bytes(part) for part in held] == before


def test_the_last_batch_of_a_producer_keeps_its_sequence() -> None:
    """K5, K2: a producer may go on, and may repeat its last batch, after its records are gone."""
    log = open_log(data_disk(), SMALL_SEGMENTS)
    append_pairs(log, [(b"a", b"1")], producer=(7, 0, 0))
    append_pairs(log, [(b"a", b"2")])
    log.roll(NOW_MS)
    append_pairs(log, [(b"z", b"1")])
    flush(log)
    run_pass(log)
    empty = [batch.header for batch in log.read_stored() if batch.header.producer_id == 7]
    assert [(header.count, header.base_sequence) for header in empty] == [(0, 0)]
    assert append_pairs(log, [(b"a", b"1")], producer=(7, 0, 0)).duplicate
    assert not append_pairs(log, [(b"a", b"3")], producer=(7, 0, 1)).duplicate


def test_a_batch_with_more_keys_than_the_map_is_compacted_all_the_same() -> None:
    """K5: the map grows for that batch alone; huge keys take no more than small ones."""
    log = open_log(data_disk(), replace(SMALL_SEGMENTS, segment_bytes=1 << 20))
    many = [(b"k%d" % key, b"1") for key in range(5000)]
    append_pairs(log, [(b"k7", b"old"), (b"h" * 100_000, b"old")])
    append_pairs(log, many)
    append_pairs(log, [(b"h" * 100_000, b"new")])
    log.roll(NOW_MS)
    append_pairs(log, [(b"active", b"1")])
    flush(log)
    passes = 0
    while run_pass(log, map_size_max=1, nonce=str(passes)) is not None:
        passes += 1
        assert passes < 10
    assert len(all_records(log)) == 5002
    assert latest(all_records(log)) == {
        **dict(many), b"h" * 100_000: b"new", b"active": b"1"}

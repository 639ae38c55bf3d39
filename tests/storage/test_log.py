"""Appending and reading: offsets, zero-width batches, segments, limits, failures."""

from pathlib import Path

import pytest

from quipu.model.batch_types import CHECKPOINT, CONFIGURATION, DATA, UNSET, UnsetBatchType
from quipu.model.errors import Code, OffsetOutOfRange, QuipuError, RequestError
from quipu.model.ids import Epoch, LogOffset, Offset
from quipu.runtime.disks.disk import DiskError, DiskFull, RealDisk
from quipu.storage.config import LogConfig
from quipu.storage.log import Log
from quipu.wire.record_batch import Record, decode_records, encode_batch, parse_header
from quipu.wire.stored_batch import pack_prefix
from tests.storage.builders import (
    NOW_MS,
    SMALL,
    append,
    data_disk,
    find_timestamp,
    newest_record,
    open_log,
    read_all,
    segment_names,
    split,
)

E0 = Epoch(0)


def internal(log: Log, count: int = 1) -> None:
    epoch = Epoch(max(0, log.leader_epoch))
    log.append_records(CONFIGURATION, [Record(None, b"internal")] * count, epoch=epoch,
                       now_ms=NOW_MS)


def read(log: Log, offset: int, max_bytes: int = 1 << 20, *, min_one: bool = True) -> list[int]:
    """First offsets of the batches that a read gives."""
    buffers = log.read(Offset(offset), max_bytes, end=log.end_offset, min_one=min_one)
    return [parse_header(batch).base_offset for batch in split(buffers)]


def test_the_first_record_of_a_log_is_offset_0() -> None:
    """T5, V1: although the segment begins with a checkpoint."""
    log = open_log(data_disk())
    assert log.log_end > 0
    assert append(log, [b"a", b"b"])[:2] == (0, 1)
    assert (log.log_start_offset, log.end_offset) == (0, 2)


def test_the_batch_is_stored_with_its_offset_and_epoch_and_is_else_untouched() -> None:
    """T1: the client's checksum survives from produce to fetch."""
    log = open_log(data_disk())
    append(log, [b"first"])
    sent = encode_batch([Record(b"k", b"v", (("h", b"x"),), 5)])
    view = memoryview(bytearray(sent))
    log.append(view, parse_header(view), epoch=Epoch(3), now_ms=NOW_MS)
    (_, stored) = split(log.read(Offset(0), 1 << 20, end=log.end_offset, min_one=True))
    header = parse_header(stored)
    assert (header.base_offset, header.leader_epoch) == (1, 3)
    assert bytes(stored[16:]) == bytes(sent[16:])


@pytest.mark.parametrize("where", ["start", "middle", "end", "everywhere"])
@pytest.mark.parametrize("run", [1, 40])
def test_internal_batches_take_no_client_offsets(where: str, run: int) -> None:
    """T5: wherever they lie, also in runs across segments; lag reaches 0 behind them."""
    log = open_log(data_disk())
    want = []
    for number in range(6):
        if where == "everywhere" or (number, where) in ((0, "start"), (3, "middle")):
            for _ in range(run):
                internal(log)
        assert append(log, [b"%d" % number]).base_offset == number
        want.append((number, b"%d" % number))
    if where in ("end", "everywhere"):
        for _ in range(run):
            internal(log)
    assert read_all(log) == want
    assert log.end_offset == 6
    assert log.high_watermark == 6
    assert read(log, 6) == []
    for number in range(6):
        assert read(log, number)[0] == number
    if run == 40:
        assert len(log.segments) > 3


def test_a_log_of_internal_batches_only_is_empty_for_clients() -> None:
    """T5: whatever a node writes for itself, a consumer is at the end at once."""
    log = open_log(data_disk())
    for _ in range(50):
        internal(log, 3)
    assert (log.log_start_offset, log.end_offset) == (0, 0)
    assert read(log, 0) == []
    assert find_timestamp(log, 0) is None
    assert newest_record(log) is None
    with pytest.raises(OffsetOutOfRange):
        read(log, 1)


def test_reads_begin_with_the_batch_that_holds_the_offset() -> None:
    """K2: clients drop what they did not ask for."""
    log = open_log(data_disk(), LogConfig())
    append(log, [b"a"] * 5)
    append(log, [b"b"] * 5)
    assert read(log, 3) == [0, 5]
    assert read(log, 5) == [5]
    assert read(log, 9) == [5]


def test_reads_are_limited_by_bytes_and_by_the_end() -> None:
    """K2: whole batches; at least one with `min_one`, however large."""
    log = open_log(data_disk(), LogConfig())
    for _ in range(4):
        append(log, [b"x" * 1000])
    (batch, *_) = split(log.read(Offset(0), 1 << 20, end=log.end_offset, min_one=True))
    size = len(batch)
    assert read(log, 0, 2 * size) == [0, 1]
    assert read(log, 0, 2 * size + 1) == [0, 1]
    assert read(log, 0, 2 * size - 1) == [0]
    assert read(log, 0, 10) == [0]
    assert read(log, 0, 10, min_one=False) == []
    assert [parse_header(each).base_offset for each in split(
        log.read(Offset(0), 1 << 20, end=Offset(2), min_one=True))] == [0, 1]
    assert log.read(Offset(2), 1 << 20, end=Offset(2), min_one=True) == []


def test_one_read_goes_on_across_segments() -> None:
    """V1, K2: a fetch of many bytes gets them, wherever segments end."""
    log = open_log(data_disk())
    for number in range(30):
        append(log, [b"%02d" % number * 40])
        internal(log)
    assert len(log.segments) > 5
    assert read(log, 0) == list(range(30))
    assert read(log, 7) == list(range(7, 30))
    (batch,) = split(log.read(Offset(3), 1, end=log.end_offset, min_one=True))
    assert read(log, 3, 9 * len(batch)) == list(range(3, 12))
    assert [parse_header(each).base_offset for each in split(
        log.read(Offset(3), 1 << 20, end=Offset(20), min_one=True))] == list(range(3, 20))


@pytest.mark.parametrize("offset", [-1, 5, 100])
def test_reads_outside_the_log_are_refused(offset: int) -> None:
    """K2: OFFSET_OUT_OF_RANGE; the end itself is where a consumer waits."""
    log = open_log(data_disk())
    append(log, [b"x"] * 4)
    assert read(log, 4) == []
    with pytest.raises(OffsetOutOfRange) as caught:
        read(log, offset)
    assert caught.value.code is Code.OFFSET_OUT_OF_RANGE


def test_what_was_read_stays_as_it_was() -> None:
    """V1: slices outlive appends, rolls, truncation and deletion of their segment."""
    # Shows storage.S4.
    log = open_log(data_disk())
    for number in range(30):
        append(log, [b"%03d" % number * 20])
    held = [log.read(Offset(offset), 400, end=log.end_offset, min_one=True)
            for offset in range(30)]
    before = [[bytes(buffer) for buffer in buffers] for buffers in held]
    log.truncate(LogOffset(log.log_end - 8), NOW_MS)
    log.delete_records(Offset(15), NOW_MS)
    assert log.apply_retention(NOW_MS) > 0
    append(log, [b"other" * 30])
    assert [[bytes(buffer) for buffer in buffers] for buffers in held] == before


def test_segments_are_named_by_their_first_log_offset_and_begin_with_a_checkpoint() -> None:
    """V1, T7: each file describes itself."""
    # Shows storage.L3.
    disk = data_disk()
    log = open_log(disk)
    for _ in range(20):
        append(log, [b"x" * 50])
    starts = [stored.header.log_offset for stored in log.read_stored()
              if stored.header.batch_type == CHECKPOINT]
    assert segment_names(disk) == [f"data/t-0/{start:020d}.log" for start in starts]
    assert len(starts) == len(log.segments) > 2
    assert all(stored.position == 0 for stored in log.read_stored()
               if stored.header.batch_type == CHECKPOINT)


def test_a_segment_rolls_by_size() -> None:
    """V1: none but an oversized batch's exceeds segment.bytes."""
    log = open_log(data_disk(), LogConfig(segment_bytes=1000))
    for _ in range(20):
        append(log, [b"x" * 100])
    assert len(log.segments) > 3
    assert all(segment.size <= 1000 for segment in log.segments)
    append(log, [b"x" * 920])
    assert log.segments[-1].size > 1000  # with its checkpoint
    with pytest.raises(RequestError) as caught:
        append(log, [b"x" * 1000])
    assert caught.value.code is Code.RECORD_LIST_TOO_LARGE


def test_a_segment_rolls_by_age() -> None:
    """V1: segment.ms after it was begun, at the next append; an empty one does not."""
    log = open_log(data_disk(), LogConfig(segment_ms=1000))
    append(log, [b"x"], now_ms=NOW_MS + 1500)
    assert len(log.segments) == 1
    append(log, [b"x"], now_ms=NOW_MS + 2499)
    assert len(log.segments) == 1
    append(log, [b"x"], now_ms=NOW_MS + 2500)
    assert len(log.segments) == 2


def test_a_segment_rolls_when_its_index_is_full() -> None:
    """V1: by index size."""
    log = open_log(data_disk(), LogConfig(index_interval_bytes=1, index_max_bytes=100))
    for number in range(20):
        append(log, [b"x"])
        assert read(log, number) == [number]
    assert len(log.segments) == 5


def test_a_segment_rolls_before_its_offsets_outgrow_the_index() -> None:
    """V1: a batch may claim two thousand million records; the next but one needs a new segment."""
    log = open_log(data_disk(), LogConfig(index_interval_bytes=1))
    batch = encode_batch([Record(None, b"v", timestamp=1)])
    header = parse_header(memoryview(batch))._replace(
        last_offset_delta=2**31 - 1, count=2**31 - 1)
    for _ in range(4):
        log.append(memoryview(batch), header, epoch=E0, now_ms=NOW_MS)
    assert log.end_offset == 4 * 2**31
    assert len(log.segments) == 2


def test_a_change_of_settings_counts_for_the_active_segment() -> None:
    """K5: segment.bytes may be altered while the log is used."""
    log = open_log(data_disk(), LogConfig())
    for _ in range(10):
        append(log, [b"x" * 100])
    log.configure(LogConfig(segment_bytes=500))
    append(log, [b"x" * 100])
    assert len(log.segments) == 2


# --- types ------------------------------------------------------------------------------------


def test_type_0_never_reaches_the_disk() -> None:
    """T2: append and replicate refuse it, naming log and offset."""
    log = open_log(data_disk())
    append(log, [b"a"])
    size = log.size_bytes
    with pytest.raises(UnsetBatchType, match="t-0: batch at offset 1"):
        log.append_records(UNSET, [Record(None, b"x")], epoch=E0, now_ms=NOW_MS)
    batch = encode_batch([Record(None, b"x", timestamp=1)], base_offset=1)
    stored = bytearray(pack_prefix(batch, batch_type=DATA, log_offset=log.log_end) + batch)
    stored[4] = 0
    stored[:4] = __import__("crc32c").crc32c(bytes(stored[4:37])).to_bytes(4, "big")
    with pytest.raises(UnsetBatchType, match="t-0: batch at offset 1"):
        log.append_entry(memoryview(stored), NOW_MS)
    assert log.size_bytes == size


def stored_bytes(log: Log) -> list[bytes]:
    return [bytes(batch.data) for batch in log.read_stored()]


def test_a_copy_by_entries_is_the_same_byte_for_byte() -> None:
    """T6, T7: replication and tools go through the same log."""
    source_disk, target_disk = data_disk(), data_disk()
    source = open_log(source_disk)
    for number in range(30):
        append(source, [b"%d" % number], producer=(5, 0, number), epoch=number // 10)
        if number % 4 == 0:
            internal(source, 2)
    source.delete_records(Offset(7), NOW_MS)
    target = open_log(target_disk)
    batches = stored_bytes(source)
    for batch in batches[1:]:  # the first checkpoint is its own
        target.append_entry(memoryview(batch), NOW_MS)
    assert read_all(target) == read_all(source)
    assert stored_bytes(target)[1:] == batches[1:]
    assert segment_names(target_disk) == segment_names(source_disk)
    assert target.log_start_offset == 7
    assert target.producers.infos()[0].last_sequence == (
        source.producers.infos()[0].last_sequence)
    assert target.epoch_end(Epoch(1)) == source.epoch_end(Epoch(1)) == (1, 20)


def test_an_entry_is_refused_whole() -> None:
    """T6: types do not mix, offsets follow, bytes are intact; else nothing of it is written."""
    # Shows storage.T1.
    source, target = open_log(data_disk(), LogConfig()), open_log(data_disk(), LogConfig())
    append(source, [b"a"])
    internal(source)
    append(source, [b"b"])
    _, first, inner, last = stored_bytes(source)
    before = stored_bytes(target)
    damaged = bytearray(first)
    damaged[-1] ^= 1
    for entry, code in (
        (first + inner, Code.INVALID_RECORD),
        (first + last, Code.OFFSET_OUT_OF_RANGE),
        (inner, Code.OFFSET_OUT_OF_RANGE),
        (bytes(damaged), Code.CORRUPT_MESSAGE),
        (first + inner[:50], Code.CORRUPT_MESSAGE),
    ):
        with pytest.raises(RequestError) as caught:
            target.append_entry(memoryview(entry), NOW_MS)
        assert caught.value.code is code
        assert stored_bytes(target) == before
    target.append_entry(memoryview(first), NOW_MS)
    assert read_all(target) == [(0, b"a")]


# --- failures -----------------------------------------------------------------------------------


def test_a_full_disk_refuses_the_batch_and_leaves_no_trace() -> None:
    """V12: nothing is acknowledged; reads go on; with room again the offset is given anew."""
    # Shows storage.L2.
    disk = data_disk()
    log = open_log(disk)
    append(log, [b"a"])
    disk.capacity = 50
    with pytest.raises(DiskFull):
        append(log, [b"b" * 100], producer=(1, 0, 0))
    assert log.failure is None
    assert read_all(log) == [(0, b"a")]
    disk.capacity = None
    assert append(log, [b"c"], producer=(1, 0, 0))[:2] == (1, 1)
    assert read_all(open_log(disk)) == [(0, b"a"), (1, b"c")]


def test_a_full_disk_at_a_roll_leaves_the_old_segment_active() -> None:
    """V1, V12: no half segment stays behind."""
    disk = data_disk()
    log = open_log(disk)
    append(log, [b"a" * 500])
    disk.capacity = 50
    with pytest.raises(DiskFull):
        append(log, [b"b" * 500])
    assert len(segment_names(disk)) == 1
    disk.capacity = None
    append(log, [b"b" * 500])
    assert [value[:1] for _, value in read_all(log)] == [b"a", b"b"]
    assert len(log.segments) == 2


def test_any_other_failed_write_takes_the_log_offline() -> None:
    """V12, V17: an input/output error does not get better by itself."""
    # Shows storage.L5.
    log = open_log(data_disk())
    append(log, [b"a"])

    def fail(*_: object) -> None:
        raise DiskError("input/output error")

    file = log.segments[-1].file
    assert file is not None
    file.append = fail  # type: ignore[method-assign]
    with pytest.raises(DiskError):
        append(log, [b"b"])
    assert log.failure is not None
    with pytest.raises(DiskError):
        append(log, [b"b"])


def test_a_closed_log_says_so() -> None:
    """V13: a late request gets an error that a client retries elsewhere."""
    log = open_log(data_disk())
    append(log, [b"a"])
    log.close()
    with pytest.raises(QuipuError, match="closed"):
        append(log, [b"b"])
    assert log.close() is None


# --- epochs and truncation ----------------------------------------------------------------------


def test_an_older_epoch_is_fenced() -> None:
    """V1: batches of a deposed leader are refused."""
    log = open_log(data_disk())
    append(log, [b"a"], epoch=4)
    with pytest.raises(RequestError) as caught:
        append(log, [b"b"], epoch=3)
    assert caught.value.code is Code.FENCED_LEADER_EPOCH
    assert log.leader_epoch == 4


def test_epochs_are_known_across_rolls_and_restarts() -> None:
    """V13, K2: where each leader's reign ended."""
    disk = data_disk()
    log = open_log(disk)
    for epoch in range(5):
        append(log, [b"x" * 200] * 2, epoch=epoch)
    for _ in range(2):
        assert [log.epoch_end(Epoch(epoch)) for epoch in range(6)] == [
            (0, 2), (1, 4), (2, 6), (3, 8), (4, 10), (-1, -1)]
        log = open_log(disk)


@pytest.mark.parametrize("keep", range(1, 20))
def test_truncation_takes_state_and_offsets_back(keep: int) -> None:
    """V1, V13: as if the batches after the cut had never been, across segments and restarts."""
    disk = data_disk()
    log, ends = open_log(disk), []
    for number in range(20):
        append(log, [b"%d" % number * 30], producer=(1, 0, number), epoch=number // 7)
        ends.append(log.log_end)
    log.truncate(ends[keep - 1], NOW_MS)
    for _ in range(2):
        assert log.failure is None
        assert read_all(log) == [(number, b"%d" % number * 30) for number in range(keep)]
        assert log.producers.infos()[0].last_sequence == keep - 1
        assert log.leader_epoch == (keep - 1) // 7
        log = open_log(disk)
    assert append(log, [b"new"], producer=(1, 0, keep), epoch=9).base_offset == keep


def test_truncation_within_a_batch_removes_the_whole_batch() -> None:
    """V1: batches are never split."""
    log = open_log(data_disk())
    append(log, [b"a"])
    appended = append(log, [b"b"] * 5)
    log.truncate(LogOffset(appended.log_offset + 3), NOW_MS)
    assert read_all(log) == [(0, b"a")]
    log.truncate(LogOffset(100), NOW_MS)
    assert read_all(log) == [(0, b"a")]


def test_a_log_cannot_be_cut_before_its_first_checkpoint() -> None:
    """V1: every segment begins with one."""
    log = open_log(data_disk(), SMALL)
    append(log, [b"a"])
    with pytest.raises(RequestError):
        log.truncate(LogOffset(0), NOW_MS)
    assert read_all(log) == [(0, b"a")]


def test_the_smallest_settings_that_kafka_takes_work() -> None:
    """K5: a segment per batch, an index entry per segment, a flush at every turn."""
    config = LogConfig(segment_bytes=100, segment_ms=1, index_interval_bytes=0, index_max_bytes=4,
                       flush_ms=0)
    log = open_log(data_disk(), config)
    for number in range(5):
        append(log, [b"%d" % number], now_ms=NOW_MS + number)
        log.flusher.flush_due(NOW_MS + number)
        assert not log.flusher.is_dirty
    assert read_all(log) == [(number, b"%d" % number) for number in range(5)]
    assert len(log.segments) == 5
    for wrong in ({"segment_bytes": 0}, {"segment_ms": 0}, {"flush_messages": 0}):
        with pytest.raises(ValueError, match=r"must be|outside"):
            LogConfig(**wrong)


# --- on a real disk -----------------------------------------------------------------------------


def test_a_real_file_is_read_by_map_and_by_copy_as_it_grows(tmp_path: Path) -> None:
    """V1: at the tail and far behind it; slices outlive what happens to the log."""
    config = LogConfig(segment_bytes=1 << 20)
    log = open_log(RealDisk(), config, directory=str(tmp_path / "t-0"))
    held: list[tuple[int, list[memoryview]]] = []
    for number in range(200):
        append(log, [b"%05d" % number * 4_000])
        for offset in {number, number // 2, 0}:
            buffers = log.read(Offset(offset), 100_000, end=log.end_offset, min_one=True)
            assert parse_header(buffers[0]).base_offset == offset
            held.append((offset, buffers))
    assert len(log.segments) > 3
    log.truncate(LogOffset(log.log_end - 20), NOW_MS)
    log.delete_records(Offset(150), NOW_MS)
    assert log.apply_retention(NOW_MS) > 1
    append(log, [b"other" * 4_000])
    for offset, buffers in held:
        assert parse_header(buffers[0]).base_offset == offset
        (record, *_) = decode_records(split(buffers)[0], size_max=1 << 20)
        assert record.value == b"%05d" % offset * 4_000
    log.close()

"""What a log is after a crash, a power loss, a clean stop, or damage: case by case."""

import logging
from collections.abc import Callable
from typing import NamedTuple

import pytest

from quipu.model.batch_types import CONFIGURATION, DATA
from quipu.model.errors import CorruptLog
from quipu.model.ids import Epoch, LogOffset
from quipu.runtime.disks.sim_disk import SimDisk
from quipu.runtime.rng import SeededRng
from quipu.storage.config import LogConfig
from quipu.storage.log import Log
from quipu.storage.log_directory import RecoveryPoint
from quipu.wire.record_batch import Record, encode_batch
from quipu.wire.stored_batch import STORED_HEADER, StoredHeader, pack_prefix, parse_stored
from tests.storage.builders import (
    DIRECTORY,
    NOW_MS,
    SMALL,
    append,
    data_disk,
    open_log,
    read_all,
    segment_names,
)

ONE_SEGMENT = LogConfig(index_interval_bytes=100)


def crashed(disk: SimDisk, log: Log) -> None:
    """The process is gone; nothing of what it wrote is lost."""
    for segment in log.segments:
        assert segment.path in disk._names


def three_batches() -> tuple[SimDisk, str, list[int]]:
    """A log of three batches in one segment; its disk, its file, and where the batches lie."""
    disk = data_disk()
    log = open_log(disk, ONE_SEGMENT)
    positions = []
    for value in (b"one", b"two", b"three"):
        positions.append(log.segments[-1].size)
        append(log, [value] * 2)
    log.flusher.flush_now()
    return disk, log.segments[-1].path, [*positions, log.segments[-1].size]


def test_a_tail_torn_at_any_byte_is_cut_at_the_last_whole_batch() -> None:
    """T12: whatever part of the last batch was written, the batches before it are all there."""
    whole, path, positions = three_batches()
    data = whole.read(path)
    for size in range(positions[2], positions[3]):
        disk = data_disk()
        disk.make_directory(DIRECTORY)
        disk.set_data(path, data[:size])
        log = open_log(disk, ONE_SEGMENT)
        assert read_all(log) == [(0, b"one"), (1, b"one"), (2, b"two"), (3, b"two")], size
        torn = segment_names(disk, f".torn-{NOW_MS}")
        assert len(torn) == (1 if size > positions[2] else 0)
        if torn:
            assert disk.read(torn[0]) == data[positions[2] : size]
        assert append(log, [b"next"]).base_offset == 4


@pytest.mark.parametrize("field", StoredHeader._fields)
def test_a_flipped_bit_in_any_header_field_of_an_unflushed_batch_is_a_torn_tail(
    field: str,
) -> None:
    """T8, T12: every field is covered by a checksum, so no bit can flip unnoticed."""
    whole, path, positions = three_batches()
    data = whole.read(path)
    start, end = field_range(field)
    for byte in range(start, end):
        for bit in (0x01, 0x80):
            disk = data_disk()
            disk.make_directory(DIRECTORY)
            damaged = bytearray(data)
            damaged[positions[1] + byte] ^= bit
            disk.set_data(path, bytes(damaged))
            log = open_log(disk, ONE_SEGMENT)
            assert read_all(log) == [(0, b"one"), (1, b"one")]


def field_range(field: str) -> tuple[int, int]:
    """Where in a stored batch a field of its header lies."""
    sizes = {"B": 1, "b": 1, "H": 2, "h": 2, "I": 4, "i": 4, "q": 8}
    start = 0
    for name, code in zip(StoredHeader._fields, STORED_HEADER.format.removeprefix(">"),
                          strict=True):
        if name == field:
            return start, start + sizes[code]
        start += sizes[code]
    raise AssertionError(field)


def test_a_flipped_bit_in_a_record_is_found() -> None:
    """T12: bodies are checked too, not only headers."""
    disk, path, positions = three_batches()
    disk.flip(path, positions[3] - 3)
    log = open_log(disk, ONE_SEGMENT)
    assert log.end_offset == 4


@pytest.mark.parametrize("batch", [0, 1, 2])
def test_damage_below_the_flushed_mark_takes_the_log_offline_and_cuts_nothing(
    batch: int, caplog: pytest.LogCaptureFixture
) -> None:
    """T12: what was durable is never cut silently; the file stays as it is."""
    disk, path, positions = three_batches()
    disk.flip(path, positions[batch] + 70)
    before = disk.read(path)
    log_end = 3 + 6  # the checkpoint's three records, then two per batch
    log = open_log(disk, ONE_SEGMENT, RecoveryPoint(flushed_log=log_end))
    assert isinstance(log.failure, CorruptLog)
    assert disk.read(path) == before
    assert segment_names(disk, f".torn-{NOW_MS}") == []
    assert f"position {positions[batch]}" in str(log.failure)
    assert "offline" in caplog.text
    with pytest.raises(CorruptLog):
        append(log, [b"x"])
    with pytest.raises(CorruptLog):
        log.read(0, 100, end=0, min_one=True)


@pytest.mark.parametrize("records", [1, 2, 3])
def test_of_the_last_durable_batch_nothing_is_cut_whatever_of_it_is_left(records: int) -> None:
    """T12: the mark lies right behind it, and the batch may be of one record.  Flipped in any
    byte, or ended within, it is damage; the same bytes one record above the mark are torn.
    """
    disk = data_disk()
    log = open_log(disk, ONE_SEGMENT)
    append(log, [b"one"])
    log.flusher.flush_now()
    path, start, mark = log.segments[-1].path, log.segments[-1].size, log.log_end
    append(log, [b"last"] * records)
    log.flusher.flush_now()
    data, end = disk.read(path), log.log_end
    damaged = [data[:size] for size in range(start, len(data))]
    damaged += [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
                for at in range(start, len(data))]
    for each in damaged:
        durable = data_disk()
        durable.make_directory(DIRECTORY)
        durable.set_data(path, each)
        log = open_log(durable, ONE_SEGMENT, RecoveryPoint(flushed_log=end))
        assert isinstance(log.failure, CorruptLog)
        assert durable.read(path) == each
        assert segment_names(durable, f".torn-{NOW_MS}") == []
        torn = data_disk()
        torn.make_directory(DIRECTORY)
        torn.set_data(path, each)
        log = open_log(torn, ONE_SEGMENT, RecoveryPoint(flushed_log=mark))
        assert log.failure is None
        assert torn.read(path) == data[:start]


def test_damage_after_the_mark_in_the_same_segment_is_cut() -> None:
    """T12: the mark divides: what lies at or after it was never acknowledged."""
    disk, path, positions = three_batches()
    disk.flip(path, positions[2] + 70)
    log = open_log(disk, ONE_SEGMENT, RecoveryPoint(flushed_log=3 + 4))
    assert log.failure is None
    assert log.end_offset == 4


def test_a_log_that_ends_before_its_mark_is_offline() -> None:
    """T12: a file cut at the end of a batch looks whole, but the mark knows better."""
    disk, path, positions = three_batches()
    disk.set_data(path, disk.read(path)[: positions[2]])
    log = open_log(disk, ONE_SEGMENT, RecoveryPoint(flushed_log=3 + 6))
    assert isinstance(log.failure, CorruptLog)
    assert "were durable" in str(log.failure)


def test_a_log_whose_files_are_all_gone_is_offline() -> None:
    """T12: an empty directory is a new log only if nothing was ever durable in it."""
    log = open_log(data_disk(), ONE_SEGMENT, RecoveryPoint(flushed_log=9))
    assert isinstance(log.failure, CorruptLog)
    assert "gone" in str(log.failure)


class Damage(NamedTuple):
    why: str
    change: Callable[[bytes], bytes]


TAILS = [
    Damage("zeros where the file grew before its data came", lambda data: data + bytes(4096)),
    Damage("garbage", lambda data: data + b"\xff\x00garbage" * 50),
    Damage("half a header", lambda data: data + data[:40]),
    Damage("an old batch again", lambda data: data + data[-100:]),
]


@pytest.mark.parametrize("damage", TAILS, ids=lambda damage: damage.why)
def test_what_follows_the_last_batch_is_cut_and_kept_aside(
    damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    """T12: the log goes on after its last good batch, and says what it cut."""
    disk, path, _ = three_batches()
    data = disk.read(path)
    disk.set_data(path, damage.change(data))
    log = open_log(disk, ONE_SEGMENT, RecoveryPoint(flushed_log=9))
    assert log.failure is None
    assert log.end_offset == 6
    (torn,) = segment_names(disk, f".torn-{NOW_MS}")
    assert disk.read(torn) == damage.change(data)[len(data) :]
    assert "torn tail" in caplog.text


@pytest.mark.parametrize("size", [0, 1, 40, 100])
def test_a_new_segment_without_its_checkpoint_is_set_aside(size: int) -> None:
    """T12, V1: a crash in the middle of a roll; the segment before it is active again."""
    disk = data_disk()
    log = open_log(disk)
    append(log, [b"kept"])
    log.roll(NOW_MS)
    path = log.segments[-1].path
    disk.set_data(path, disk.read(path)[:size])
    log = open_log(disk)
    assert read_all(log) == [(0, b"kept")]
    assert len(log.segments) == 1
    assert segment_names(disk, ".index") == []
    assert append(log, [b"next"]).base_offset == 1


@pytest.mark.parametrize("size", [0, 40])
def test_a_log_whose_first_checkpoint_was_torn_begins_anew(size: int) -> None:
    """T12: the crash came before anything was promised."""
    disk = data_disk()
    log = open_log(disk)
    path = log.segments[0].path
    disk.set_data(path, disk.read(path)[:size])
    log = open_log(disk)
    assert log.failure is None
    assert append(log, [b"first"]).base_offset == 0


def many_segments() -> tuple[SimDisk, list[str], list[tuple[int, bytes]]]:
    disk = data_disk()
    log = open_log(disk)
    for number in range(40):
        append(log, [b"%d" % number] * 2)
    log.flusher.flush_now()
    paths = [segment.path for segment in log.segments]
    assert len(paths) >= 4
    return disk, paths, read_all(log)


def test_a_missing_segment_in_the_middle_takes_the_log_offline() -> None:
    """V1, T12: a gap is damage, wherever it is."""
    # Shows storage.S1.
    disk, paths, _ = many_segments()
    for path in paths[1:-1]:
        other, _, _ = many_segments()
        other.remove(path)
        log = open_log(other)
        assert isinstance(log.failure, CorruptLog), path
        assert "missing" in str(log.failure)
    assert open_log(disk).failure is None


def test_missing_first_segments_are_what_retention_leaves() -> None:
    """V1, K5: the log starts at the first segment that there is, and its state is complete."""
    disk, paths, want = many_segments()
    disk.remove(paths[0])
    log = open_log(disk)
    assert log.failure is None
    start = log.log_start_offset
    assert start > 0
    assert read_all(log) == [item for item in want if item[0] >= start]
    assert log.epoch_end(Epoch(0)) == (0, 80)


INDEX_DAMAGE = [
    Damage("truncated", lambda data: data[:-7]),
    Damage("empty", lambda _: b""),
    Damage("garbage", lambda data: b"\xa5" * len(data)),
    Damage("a flipped bit in the header", lambda data: data[:20] + b"\xff" + data[21:]),
    Damage("a flipped bit in an entry", lambda data: data[:-3] + b"\xff" + data[-2:]),
    Damage("zeros", lambda data: bytes(len(data))),
]


@pytest.mark.parametrize("damage", INDEX_DAMAGE, ids=lambda damage: damage.why)
def test_a_wrong_index_is_rebuilt(damage: Damage) -> None:
    """V1, T12: an index is a cache; reads are right with any, and the file is as before."""
    disk, paths, want = many_segments()
    for path in segment_names(disk, ".index"):
        good = disk.read(path)
        disk.set_data(path, damage.change(good))
        log = open_log(disk)
        assert read_all(log, max_bytes=200) == want
        assert disk.read(path) == good
    assert len(paths) >= 4


def test_a_missing_index_is_rebuilt() -> None:
    """V1: the same for one that is gone."""
    disk, _, want = many_segments()
    for path in segment_names(disk, ".index"):
        disk.remove(path)
    log = open_log(disk)
    assert read_all(log, max_bytes=200) == want
    assert len(segment_names(disk, ".index")) == len(log.segments) - 1


def test_an_index_of_another_segment_is_found_out() -> None:
    """V1: sound in itself, but about other batches."""
    disk, _, want = many_segments()
    first, second, *_ = segment_names(disk, ".index")
    disk.set_data(second, disk.read(first))
    assert read_all(open_log(disk), max_bytes=200) == want


def test_a_bad_batch_in_a_complete_segment_is_damage_without_any_memory() -> None:
    """T12: the checkpoints in the log carry the flushed mark past the loss of the node log."""
    disk, paths, _ = many_segments()
    disk.flip(paths[0], 300)
    for path in segment_names(disk, ".index"):
        disk.remove(path)
    log = open_log(disk)
    assert isinstance(log.failure, CorruptLog)


def test_a_checkpoint_that_cannot_be_read_takes_the_log_offline() -> None:
    """T12: intact bytes that make no sense are no torn tail."""
    disk = data_disk()
    log = open_log(disk)
    path = log.segments[0].path
    header = parse_stored(memoryview(disk.read(path)))
    batch = encode_batch([Record(b"log", b"short", timestamp=1)], base_offset=0)
    disk.set_data(path, pack_prefix(batch, batch_type=header.batch_type, log_offset=0) + batch)
    log = open_log(disk)
    assert isinstance(log.failure, CorruptLog)


def test_a_segment_that_does_not_begin_with_a_checkpoint_is_refused() -> None:
    """T12: every segment begins with one."""
    disk = data_disk()
    path = open_log(disk).segments[0].path
    batch = encode_batch([Record(None, b"v", timestamp=1)])
    disk.set_data(path, pack_prefix(batch, batch_type=DATA, log_offset=0) + batch)
    assert "checkpoint" in str(open_log(disk).failure)


@pytest.mark.parametrize(("batch_type", "layout"), [(0, 1), (1, 2)])
def test_what_an_intact_checksum_keeps_is_never_cut(batch_type: int, layout: int) -> None:
    """T2, T11, T12: type 0 and a later layout are refused loudly; no byte is changed."""
    disk, path, _ = three_batches()
    batch = encode_batch([Record(None, b"v", timestamp=1)], base_offset=6)
    prefix = bytearray(pack_prefix(batch, batch_type=1, log_offset=9))
    prefix[4], prefix[5] = batch_type, layout
    crc = __import__("crc32c").crc32c(bytes(prefix[4:]) + bytes(batch[:21]))
    prefix[:4] = crc.to_bytes(4, "big")
    data = disk.read(path) + bytes(prefix) + bytes(batch)
    disk.set_data(path, data)
    log = open_log(disk, ONE_SEGMENT)
    assert isinstance(log.failure, CorruptLog)
    assert "log offset 9" in str(log.failure)
    assert "t-0" in str(log.failure)
    assert disk.read(path) == data


def test_unknown_types_are_kept_and_hidden() -> None:
    """T5, T11: a batch of a type of a later version takes no client offset and breaks nothing."""
    disk, path, _ = three_batches()
    batch = encode_batch([Record(None, b"v", timestamp=1)] * 2, base_offset=6)
    disk.set_data(path, disk.read(path) + pack_prefix(batch, batch_type=200, log_offset=9) + batch)
    log = open_log(disk, ONE_SEGMENT)
    assert (log.end_offset, log.log_end) == (6, 11)
    assert append(log, [b"after"]).base_offset == 6
    assert read_all(log)[-1] == (6, b"after")
    assert [stored.header.batch_type for stored in log.read_stored()] == [5, 1, 1, 1, 200, 1]


def test_a_clean_stop_is_followed_by_no_scan() -> None:
    """T12: not a byte of a segment is read; offsets are known before any file is opened."""
    disk, _, want = many_segments()
    log = open_log(disk)
    log.append_records(CONFIGURATION, [Record(None, b"c")], epoch=Epoch(0), now_ms=NOW_MS)
    clean = log.close()
    assert clean is not None
    disk.bytes_read.clear()
    log = open_log(disk, SMALL, RecoveryPoint(clean.log_end, clean, is_current=True))
    assert log.end_offset == 80
    assert not disk.bytes_read
    append(log, [b"more"])
    assert sum(size for path, size in disk.bytes_read.items() if path.endswith(".log")) == 0
    assert read_all(log) == [*want, (80, b"more")]


def test_a_log_that_changed_after_its_clean_stop_is_scanned() -> None:
    """T12: the mark of a clean stop counts only as long as the files agree with it."""
    disk = data_disk()
    log = open_log(disk)
    append(log, [b"a"])
    clean = log.close()
    assert clean is not None
    log = open_log(disk, SMALL, RecoveryPoint(clean.log_end, clean, is_current=True))
    append(log, [b"b"])
    crashed(disk, log)
    log = open_log(disk, SMALL, RecoveryPoint(clean.log_end, clean))
    assert read_all(log) == [(0, b"a"), (1, b"b")]


def test_unfinished_and_deleted_files_are_removed(caplog: pytest.LogCaptureFixture) -> None:
    """T12: what a crash left half done is tidied up."""
    # Shows storage.S7.
    disk, paths, want = many_segments()
    disk.set_data(paths[0] + ".new", b"half")
    disk.set_data(f"{DIRECTORY}/{0:020d}.log.deleted", b"gone")
    with caplog.at_level(logging.WARNING):
        assert read_all(open_log(disk)) == want
    assert segment_names(disk, ".new") == []
    assert segment_names(disk, ".deleted") == []


def test_an_index_does_not_outlive_the_moment_when_its_segment_is_written_again() -> None:
    """T12: it would vouch for bytes that are not durable yet."""
    # Shows storage.S3.
    disk, _, _ = many_segments()
    log = open_log(disk)
    clean = log.close()
    assert clean is not None
    assert disk.exists(log._state.segments[-1].index_path)
    log = open_log(disk, SMALL, RecoveryPoint(clean.log_end, clean, is_current=True))
    active = log.segments[-1]
    assert not disk.exists(active.index_path)


@pytest.mark.parametrize("seed", range(20))
def test_a_truncation_is_durable_when_it_returns(seed: int) -> None:
    """V13, T12: no crash brings back what was cut."""
    disk = data_disk()
    log = open_log(disk)
    for number in range(20):
        append(log, [b"%d" % number * 20])
    log.flusher.flush_now()
    ends = [batch.header.next_log_offset for batch in log.read_stored()
            if batch.header.batch_type == DATA]
    disk.is_deferred = True
    log.truncate(LogOffset(ends[5]), NOW_MS)
    disk.crash(SeededRng(seed))
    assert [offset for offset, _ in read_all(open_log(disk))] == [0, 1, 2, 3, 4, 5]

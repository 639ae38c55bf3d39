"""What goes by age, by size and by DeleteRecords, and what stays."""

from typing import NamedTuple

import pytest

from quipu.model.batch_types import CONFIGURATION
from quipu.model.errors import OffsetOutOfRange
from quipu.model.ids import Epoch, Offset
from quipu.runtime.disks.sim_disk import SimDisk
from quipu.storage.config import LogConfig
from quipu.storage.log import Log
from quipu.storage.log_directory import RecoveryPoint
from quipu.storage.phases import LogPhase
from quipu.storage.segments.segment import OpenSegments, Segment
from quipu.wire.record_batch import Record
from tests.storage.builders import NOW_MS, append, data_disk, open_log, read_all, segment_names


def filled(config: LogConfig) -> tuple[SimDisk, Log]:
    """Ten segments of one record each, a second apart."""
    disk = data_disk()
    log = open_log(disk, config)
    for number in range(10):
        if number:
            log.roll(NOW_MS + number * 1000)
        append(log, [b"%d" % number], now_ms=NOW_MS + number * 1000)
    return disk, log


class Case(NamedTuple):
    why: str
    config: LogConfig
    now_s: float  # since the first record
    start: int


CASES = [
    Case("nothing is old", LogConfig(retention_ms=60_000), 10, 0),
    Case("older than retention.ms", LogConfig(retention_ms=5_000), 10, 5),
    Case("exactly as old is kept", LogConfig(retention_ms=5_000), 5, 0),
    Case("all is old: the active one is rolled, then goes", LogConfig(retention_ms=5_000), 99, 10),
    Case("age is off", LogConfig(retention_ms=-1), 10**9, 0),
    Case("size is off", LogConfig(retention_bytes=-1), 10, 0),
    Case("larger than retention.bytes", LogConfig(retention_bytes=700), 10, 7),
    Case("never below retention.bytes", LogConfig(retention_bytes=10**6), 10, 0),
    Case("whichever takes more", LogConfig(retention_ms=3_000, retention_bytes=700), 10, 7),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.why)
def test_retention(case: Case) -> None:
    """K5: whole segments, oldest first; the rest reads as before, also after a restart."""
    disk, log = filled(case.config)
    removed = log.apply_retention(NOW_MS + int(case.now_s * 1000))
    assert removed == case.start
    want = [(number, b"%d" % number) for number in range(case.start, 10)]
    for _ in range(2):
        assert (log.log_start_offset, log.end_offset) == (case.start, 10)
        assert read_all(log) == want
        log = open_log(disk, case.config)
    assert len(segment_names(disk)) == max(1, 10 - case.start)
    assert segment_names(disk, ".deleted") == []
    if case.start:
        with pytest.raises(OffsetOutOfRange):
            log.read(Offset(case.start - 1), 100, end=log.end_offset, min_one=True)


def test_nothing_above_the_high_watermark_goes() -> None:
    """K5, V12: what is not durable yet, where that is promised, is not deleted either."""
    disk = data_disk()
    log = open_log(disk, LogConfig(flush_messages=1, retention_ms=1))
    disk.is_deferred = True
    append(log, [b"a"])
    assert log.high_watermark == 0
    assert log.apply_retention(NOW_MS + 10**6) == 0
    disk.run_pending()
    disk.is_deferred = False
    assert log.apply_retention(NOW_MS + 10**6) == 1


def test_an_empty_active_segment_is_not_rolled_for_ever() -> None:
    """K5: an idle log of old age stays one file."""
    disk = data_disk()
    log = open_log(disk, LogConfig(retention_ms=1))
    append(log, [b"a"])
    for minute in range(1, 5):
        log.apply_retention(NOW_MS + minute * 60_000)
    assert len(segment_names(disk)) == 1
    assert (log.log_start_offset, log.end_offset) == (1, 1)


def test_segments_of_internal_batches_age_by_when_they_were_begun() -> None:
    """K5: they have no timestamp that clients set."""
    log = open_log(data_disk(), LogConfig(retention_ms=5_000))
    for second in range(6):
        log.append_records(CONFIGURATION, [Record(None, b"c")], epoch=Epoch(0), now_ms=NOW_MS)
        log.roll(NOW_MS + second * 1000)
    assert log.apply_retention(NOW_MS + 4_000) == 0
    assert log.apply_retention(NOW_MS + 7_500) == 4
    assert log.end_offset == 0


def test_deleted_records_stay_deleted_and_their_segments_go() -> None:
    """K5: DeleteRecords, through restarts; the segment that holds the start stays."""
    disk, log = filled(LogConfig())
    assert log.delete_records(Offset(4), NOW_MS) == 4
    assert log.delete_records(Offset(2), NOW_MS) == 4
    assert log.apply_retention(NOW_MS) == 4
    for _ in range(2):
        assert [offset for offset, _ in read_all(log)] == [4, 5, 6, 7, 8, 9]
        log = open_log(disk)
    assert log.delete_records(Offset(-1), NOW_MS) == 10
    assert read_all(log) == []
    for offset in (11, -2):
        with pytest.raises(OffsetOutOfRange):
            log.delete_records(Offset(offset), NOW_MS)
    assert append(open_log(disk), [b"x"]).base_offset == 10


def test_segments_below_a_log_offset_can_be_dropped() -> None:
    """T7: what a snapshot has replaced."""
    disk, log = filled(LogConfig())
    base = log.segments[6].base_log
    assert log.drop_segments_before(base) == 6
    assert log.first_log == base
    assert open_log(disk).log_start_offset == 6


def test_a_log_at_rest_is_not_opened_for_nothing() -> None:
    """K5, V13: retention looks at what is remembered first."""
    disk, log = filled(LogConfig(retention_ms=5_000))
    clean = log.close()
    assert clean is not None
    recovery = RecoveryPoint(clean.log_end, clean, is_current=True)
    log = open_log(disk, LogConfig(retention_ms=5_000), recovery)
    assert log.apply_retention(NOW_MS + 5_000) == 0
    assert log.phase is LogPhase.UNLOADED
    assert log.apply_retention(NOW_MS + 5_001) == 1
    assert log.phase is LogPhase.OPEN


def test_only_so_many_segments_stay_mapped() -> None:
    """V1: the least recently read are let go of, and come back when they are read."""
    opened = OpenSegments(count_max=3)
    disk, log = filled(LogConfig())
    segments = [Segment(disk, opened, segment.path, segment.base_log)
                for segment in log.segments[:-1]]
    for segment in segments:
        assert segment.load_summary(disk.size(segment.path))
        segment.window(0, 10)
        assert len(opened) <= 3
    assert [segment._view is not None for segment in segments] == [False] * 6 + [True] * 3
    assert segments[0].find_offset(0) == 0
    assert segments[0]._view is not None
    assert segments[6]._view is None

"""A log whose first records are only in a remote tier."""

from typing import NamedTuple
from uuid import UUID

import pytest

from quipu.model.batch_types import TIERED
from quipu.model.errors import CorruptLog, OffsetOutOfRange, QuipuError, RecordsInTier
from quipu.model.ids import NO_EPOCH, LogOffset, NodeId, Offset
from quipu.runtime.clock import ManualClock
from quipu.runtime.disks.sim_disk import SimDisk
from quipu.runtime.rng import SeededRng
from quipu.storage.config import LogConfig
from quipu.storage.derived.checkpoint import Tiered, encode_tiered
from quipu.storage.directory.data_directory import DataDirectory
from quipu.storage.log import Log
from quipu.storage.log_directory import RecoveryPoint
from quipu.storage.segments.index import ENTRY_SIZE
from tests.storage.builders import NOW_MS, append, data_disk, open_log, read_all, segment_names
from tests.storage.replicas import feed, replica

KEEP_NONE = LogConfig(is_tiered=True, local_retention_ms=0, retention_ms=-1)
TEN_SECONDS = NOW_MS + 10_000


def filled(
    config: LogConfig = KEEP_NONE, disk: SimDisk | None = None, *, epochs: tuple[int, ...] = (),
) -> tuple[SimDisk, Log]:
    """Ten segments of one record each, a second apart; each in its epoch, if any are given."""
    disk = disk or data_disk()
    log = open_log(disk, config)
    for number in range(10):
        if number:
            log.roll(NOW_MS + number * 1000)
        append(log, [b"%d" % number], now_ms=NOW_MS + number * 1000,
               epoch=epochs[number] if epochs else 0, producer=(7, 0, number))
    return disk, log


def tier(log: Log, last_offset: int) -> None:
    """The tier has everything up to `last_offset`, and that is durable and committed."""
    log.note_tiered(Offset(last_offset), NOW_MS, stable_end=log.high_watermark)
    log.flusher.flush_now()
    log.note_committed(log.log_end)


def bounds(log: Log) -> tuple[int, int, int, int]:
    """Log start, local start, tiered end, end."""
    return (log.log_start_offset, log.local_start_offset, log.tiered.end_offset, log.end_offset)


def begun_at(log: Log, start: LogOffset) -> Log:
    """A replica that begins with the checkpoint at `start`."""
    copy = replica(data_disk(), NodeId(2), KEEP_NONE)
    copy.restart(log.read_entries(start, 1)[0].data, NOW_MS, log_start=start)
    return copy


class Case(NamedTuple):
    why: str
    config: LogConfig
    tiered: int  # the last offset that the tier has
    start: int  # where the log starts then
    local: int  # where it starts locally


TOTAL = LogConfig(is_tiered=True, local_retention_ms=5_000, retention_ms=5_000)
CASES = [
    Case("nothing is copied: nothing goes", KEEP_NONE, -1, 0, 0),
    Case("what is copied goes", KEEP_NONE, 4, 0, 5),
    Case("all but the active one is copied", KEEP_NONE, 8, 0, 9),
    Case("copied, and not old enough", TOTAL, 8, 0, 5),
    Case("old enough, and not copied", TOTAL, 2, 0, 3),
    Case("old, and retention.ms does not count", LogConfig(
        is_tiered=True, local_retention_ms=-1, retention_ms=0), 8, 0, 0),
    Case("by size", LogConfig(is_tiered=True, local_retention_bytes=900, retention_ms=-1), 8, 0, 7),
    Case("copied, but the topic has no tier any more", LogConfig(retention_ms=-1), 8, 0, 0),
    Case("without copies, as without a tier", LogConfig(
        is_tiered=True, is_copied=False, local_retention_ms=5_000), 2, 5, 5),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.why)
def test_local_retention(case: Case) -> None:
    """R13: only what the tier has goes locally, and the log start stays.  Shows storage.L6."""
    disk, log = filled(case.config)
    if case.tiered >= 0:
        tier(log, case.tiered)
    assert log.apply_retention(TEN_SECONDS) == case.local
    for _ in range(2):
        assert bounds(log) == (case.start, case.local, case.tiered + 1, 10)
        for offset in range(case.start, case.local):
            with pytest.raises(RecordsInTier):
                log.read(Offset(offset), 100, end=log.end_offset, min_one=True)
        if case.start:
            with pytest.raises(OffsetOutOfRange) as gone:
                log.read(Offset(case.start - 1), 100, end=log.end_offset, min_one=True)
            assert not isinstance(gone.value, RecordsInTier)
        assert log.read(Offset(case.local), 100, end=log.end_offset, min_one=True)
        log = open_log(disk, case.config)
    assert len(segment_names(disk)) == 10 - case.local


def test_a_log_at_rest_knows_its_bounds() -> None:
    """R13, V13: after a clean stop no file is opened for them."""
    disk, log = filled()
    tier(log, 4)
    log.apply_retention(TEN_SECONDS)
    clean = log.close()
    assert clean is not None
    log = open_log(disk, KEEP_NONE, RecoveryPoint(clean.log_end, clean, is_current=True))
    disk.bytes_read.clear()
    assert (log.log_start_offset, log.local_start_offset) == (0, 5)
    assert not disk.bytes_read
    assert bounds(log) == (0, 5, 5, 10)
    assert log.apply_retention(TEN_SECONDS) == 0


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_node_s_logs_keep_their_bounds(is_clean: bool) -> None:
    """R13, V13: through the node's own log after a clean stop, and from the files after a crash."""
    disk = SimDisk()
    directory = DataDirectory.open(disk, "data", ManualClock(NOW_MS))
    logs = [directory.open_log(f"t-{number}", KEEP_NONE, topic_id=UUID(int=1))
            for number in range(3)]
    for number, log in enumerate(logs):
        for value in range(4):
            append(log, [b"%d" % value])
            log.roll(NOW_MS)
        if number:
            tier(log, number)
            assert log.apply_retention(TEN_SECONDS) == number + 1
    logs[2].delete_records(Offset(1), NOW_MS)
    for log in logs:
        log.flusher.flush_now()
    directory.close() if is_clean else disk.crash(SeededRng(1))
    directory = DataDirectory.open(disk, "data", ManualClock(NOW_MS))
    logs = [directory.open_log(f"t-{number}", KEEP_NONE, topic_id=UUID(int=1))
            for number in range(3)]
    assert [(log.log_start_offset, log.local_start_offset) for log in logs] == [
        (0, 0), (0, 2), (1, 3)]
    assert [bounds(log) for log in logs] == [(0, 0, 0, 4), (0, 2, 2, 4), (1, 3, 3, 4)]


def test_nothing_goes_before_it_is_committed_and_on_disk() -> None:
    """R13: storage.W1: a crash, or another leader, may take back that there is a copy."""
    _, log = filled()
    before = log.log_end
    log.note_tiered(Offset(8), NOW_MS, stable_end=log.high_watermark)
    assert log.apply_retention(TEN_SECONDS, committed_log=before) == 0
    log.flusher.flush_now()
    assert log.apply_retention(TEN_SECONDS, committed_log=before) == 0
    assert log.apply_retention(TEN_SECONDS, committed_log=log.log_end) == 9


def test_what_is_not_on_disk_yet_is_flushed_for_the_next_time() -> None:
    """R13: storage.W1: also if the settings flush nothing by themselves."""
    disk = data_disk()
    _, log = filled(LogConfig(is_tiered=True, local_retention_ms=0, flush_ms=2**62), disk)
    log.flusher.flush_now()
    disk.is_deferred = True
    log.note_tiered(Offset(8), NOW_MS, stable_end=log.high_watermark)
    assert log.apply_retention(TEN_SECONDS) == 0
    disk.run_pending()
    disk.is_deferred = False
    assert log.apply_retention(TEN_SECONDS) == 9


@pytest.mark.parametrize("seed", range(40))
def test_a_crash_loses_no_record_that_the_log_says_it_has(seed: int) -> None:
    """R13, V13: at any point, what lies below the local start was copied.  Shows storage.W1."""
    disk = data_disk()
    disk.is_deferred = seed % 2 == 0
    _, log = filled(disk=disk)
    rng, copied = SeededRng(seed), 0

    def one_of(count: int) -> int:
        return int(rng.random() * count)

    for step in range(6):
        copied = min(8, copied + one_of(4))
        log.note_tiered(Offset(copied), NOW_MS, stable_end=log.high_watermark)
        if one_of(2):
            disk.run_pending()
        log.apply_retention(TEN_SECONDS)
        if one_of(3) == 0:
            append(log, [b"more %d" % step])
        if step == seed % 6:
            break
    disk.crash(rng)
    log = open_log(disk, KEEP_NONE)
    assert log.failure is None, log.failure
    assert log.log_start_offset == 0
    assert log.local_start_offset <= log.tiered.end_offset <= copied + 1
    assert log.end_offset >= 10 or disk.is_deferred


def test_deleted_records_go_from_both_tiers() -> None:
    """R13, K5: DeleteRecords below, at and beyond the local start."""
    disk, log = filled()
    tier(log, 4)
    log.apply_retention(TEN_SECONDS)
    assert log.delete_records(Offset(3), NOW_MS) == 3
    assert bounds(log) == (3, 5, 5, 10)
    assert log.delete_records(Offset(1), NOW_MS) == 3
    assert log.delete_records(Offset(7), NOW_MS) == 7
    assert bounds(log) == (7, 7, 5, 10)
    assert log.apply_retention(NOW_MS) == 2
    for _ in range(2):
        assert bounds(log) == (7, 7, 5, 10)
        assert [offset for offset, _ in read_all(log)] == [7, 8, 9]
        log = open_log(disk, KEEP_NONE)


def test_segments_to_copy_are_complete_and_stable() -> None:
    """R13: from what the tier has, or the log start, up to the last stable offset."""
    _, log = filled(epochs=(0, 0, 0, 2, 2, 2, 2, 5, 5, 5))
    log.flusher.flush_now()

    def found(stable_end: int = 10, count_max: int = 100) -> list[int]:
        return [segment.base_offset for segment in log.tierable_segments(
            Offset(stable_end), count_max)]

    assert found() == list(range(9))  # the active one is not complete
    assert found(stable_end=4) == [0, 1, 2, 3]
    assert found(count_max=2) == [0, 1]
    tier(log, 3)
    assert found() == [4, 5, 6, 7, 8]
    log.delete_records(Offset(6), NOW_MS)
    assert found() == [6, 7, 8]
    segment = log.tierable_segments(Offset(10), 1)[0]
    assert (segment.end_offset, segment.leader_epochs) == (7, ((2, 6, segment.base_log),))
    assert segment.max_timestamp == NOW_MS + 6000


def test_a_segment_that_is_copied_stays_readable() -> None:
    """R13: the bytes, the index and the producers; also if the log drops the file meanwhile."""
    _, log = filled()
    log.flusher.flush_now()
    segment = log.tierable_segments(Offset(10), 1)[0]
    source = log.open_segment(segment)
    source.check()
    log.delete_records(Offset(9), NOW_MS)
    assert log.apply_retention(NOW_MS) == 9
    source.check()
    assert (len(source.data), len(source.index) % ENTRY_SIZE) == (segment.size, 0)
    assert source.index
    assert source.producers
    with pytest.raises(QuipuError):
        log.open_segment(segment)
    source.release()
    source.release()


def test_a_damaged_segment_is_not_copied() -> None:
    """R13, V12: a copy would outlive the undamaged ones of other nodes."""
    disk, log = filled()
    log.flusher.flush_now()
    segment = log.tierable_segments(Offset(10), 1)[0]
    path = segment_names(disk)[0]
    data = bytearray(disk.read(path))
    data[-1] ^= 1
    disk.write(path, bytes(data))
    with pytest.raises(CorruptLog):
        log.open_segment(segment).check()


def test_offsets_that_cannot_be_tiered_are_refused() -> None:
    """R13: what is not stable may still be cut; what is known is not recorded again."""
    _, log = filled()
    for offset in (-1, 8, 99):
        with pytest.raises(OffsetOutOfRange):
            log.note_tiered(Offset(offset), NOW_MS, stable_end=Offset(8))
    log.note_tiered(Offset(5), NOW_MS, stable_end=Offset(8))
    log_end = log.log_end
    for offset in (5, 2):
        assert log.note_tiered(Offset(offset), NOW_MS, stable_end=Offset(8)) == log_end
    assert log.log_end == log_end


def test_epochs_of_records_in_the_tier_are_kept() -> None:
    """R13: segments are found by them; those below the log start are forgotten."""
    disk, log = filled(epochs=(0, 0, 1, 1, 2, 2, 3, 3, 4, 4))
    tier(log, 8)
    log.apply_retention(TEN_SECONDS)
    for _ in range(2):
        assert [log.epochs.at(offset) for offset in range(10)] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
        assert log.epoch_end(log.epochs.at(3)) == (1, 4)
        log = open_log(disk, KEEP_NONE)
    log.delete_records(Offset(5), NOW_MS)
    log = open_log(disk, KEEP_NONE)
    assert [entry.epoch for entry in log.epochs.entries()] == [2, 3, 4]


def test_a_tier_that_is_given_up_ends_at_the_local_start() -> None:
    """R13: on every replica at its own; and old copies are not believed when it comes back."""
    disk, log = filled()
    tier(log, 4)
    log.apply_retention(TEN_SECONDS)
    log.forget_tier(NOW_MS)
    for _ in range(2):
        assert bounds(log) == (5, 5, 0, 10)
        assert log.apply_retention(TEN_SECONDS) == 0
        log = open_log(disk, KEEP_NONE)
    log_end = log.log_end
    assert log.forget_tier(NOW_MS) == log_end


def test_the_log_start_is_stated_before_the_tier_counts() -> None:
    """R13: storage.W2: else a replica without the first segments would start before the tier."""
    _, log = filled(LogConfig(retention_ms=5_000))
    assert log.apply_retention(TEN_SECONDS) == 5
    log.configure(KEEP_NONE)
    tier(log, 7)
    copy = begun_at(log, log.copy_start)
    feed(log, copy)
    assert bounds(copy) == (5, 8, 8, 10)


def test_a_replica_begins_where_the_tier_ends() -> None:
    """R13: with the last segment below which everything is copied; its bounds become the same.

    Also if it is closed, or crashes, before it knows of the tier; it forgets no epoch then.
    """
    _, log = filled(epochs=(0, 0, 1, 1, 2, 2, 3, 3, 4, 4))
    assert log.copy_start == log.first_log
    log.note_tiered(Offset(4), NOW_MS, stable_end=log.high_watermark)
    assert log.copy_start == log.first_log  # not committed yet
    tier(log, 6)
    assert log.offset_at(log.copy_start) == 7
    copy = begun_at(log, log.copy_start)
    assert bounds(copy) == (7, 7, 0, 7)  # it does not know of the tier yet
    copy = replica(copy.directory.disk, NodeId(2), KEEP_NONE)
    clean = copy.close()
    assert clean is not None
    copy = replica(copy.directory.disk, NodeId(2), KEEP_NONE,
                   RecoveryPoint(clean.log_end, clean, is_current=True))
    feed(log, copy)
    assert bounds(copy) == (0, 7, 7, 10)
    assert copy.epochs.entries() == log.epochs.entries()
    assert [entry.epoch for entry in copy.epochs.entries()] == [0, 1, 2, 3, 4]
    assert [info.last_sequence for info in copy.producers.infos()] == [9]
    log.configure(LogConfig())
    assert log.copy_start == log.first_log


def test_copies_are_checked_like_any_batch() -> None:
    """R13, T1: a TIERED batch beyond the end of the log is refused, and nothing is written."""
    _, log = filled()
    copy = replica(data_disk(), NodeId(2), KEEP_NONE)
    feed(log, copy)
    log_end = copy.log_end
    log.append_records(TIERED, encode_tiered(Tiered(Offset(99), NO_EPOCH), NOW_MS),
                       epoch=log.leader_epoch, now_ms=NOW_MS)
    entry = log.read_entries(LogOffset(log_end), 1 << 20)[0]
    with pytest.raises(QuipuError, match="tiered up to 99"):
        copy.append_entry(memoryview(bytes(entry.data)), NOW_MS)
    assert copy.log_end == log_end

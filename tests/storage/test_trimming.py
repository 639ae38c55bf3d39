"""What makes a log shorter: cuts that are kept, restarts, retention on a replica."""

import pytest

from quipu.model.batch_types import CONFIGURATION
from quipu.model.errors import RequestError
from quipu.model.ids import Epoch, LogOffset, Offset
from quipu.runtime.disks.disk import DiskFull
from quipu.runtime.rng import SeededRng
from quipu.storage.config import LogConfig
from quipu.storage.log_directory import RecoveryPoint
from quipu.storage.phases import LogPhase
from tests.storage.builders import (
    DIRECTORY,
    NOW_MS,
    append,
    data_disk,
    read_all,
    segment_names,
)
from tests.storage.replicas import E2, HEAD, TAIL, UNKNOWN, feed, internal, mixed, replica

# --- beginning anew -----------------------------------------------------------------------------


def test_a_restart_begins_wherever_the_source_does() -> None:
    """V7, V16: a node that lags behind what retention left drops all it has."""
    source, target_disk = mixed(data_disk()), data_disk()
    target = replica(target_disk, TAIL)
    feed(source, target)
    target.note_committed(target.log_end)
    target.flusher.flush_now()
    internal(source, UNKNOWN, epoch=E2)
    source.roll(NOW_MS)
    source.drop_segments_before(source.log_end)
    for _ in range(5):
        append(source, [b"new"], epoch=2)
    (first,) = source.read_entries(source.first_log, 1)
    target.restart(first.data, NOW_MS, log_start=source.first_log)
    assert target.committed_log == 0
    feed(source, target)
    assert read_all(target) == read_all(source)
    assert target.log_start_offset == source.log_start_offset
    assert target.offset_at(target.first_log) == source.log_start_offset
    assert segment_names(target_disk)[0] == (
        f"{DIRECTORY}/{source.first_log:020d}.log")
    again = replica(target_disk, TAIL, recovery=RecoveryPoint(target.flusher.flushed_log))
    assert read_all(again) == read_all(source)


def test_a_restart_elsewhere_than_announced_drops_nothing() -> None:
    """V14, K8: chain.I3 is about the offset that a peer names, so its checkpoint must lie there."""
    source, target = mixed(data_disk()), replica(data_disk(), TAIL)
    feed(source, target)
    whole = read_all(target)
    (first,) = source.read_entries(source.first_log, 1)
    for log_start in (source.first_log + 1, source.log_end):
        with pytest.raises(RequestError, match=f"begin anew at log offset {log_start} "):
            target.restart(first.data, NOW_MS, log_start=LogOffset(log_start))
        assert read_all(target) == whole


def test_a_restart_without_room_leaves_a_blank_log() -> None:
    """V16: it begins once there is room."""
    source, disk = mixed(data_disk()), data_disk()
    target = replica(disk, TAIL)
    feed(source, target)
    (first,) = source.read_entries(LogOffset(0), 1)
    disk.capacity = 0
    with pytest.raises(DiskFull):
        target.restart(first.data, NOW_MS, log_start=source.first_log)
    assert target.phase is LogPhase.EMPTY
    assert (target.log_end, target.end_offset) == (0, 0)
    disk.capacity = None
    feed(source, target)
    assert read_all(target) == read_all(source)


def test_a_crash_at_any_point_of_a_restart_is_survived() -> None:
    """V16, T12: what is left is a part of the old log, nothing, or the new one."""
    # Shows storage.S6.
    for seed in range(60):
        source, disk = mixed(data_disk()), data_disk()
        target = replica(disk, TAIL)
        feed(source, target)
        target.flusher.flush_now()
        whole = read_all(target)
        source.roll(NOW_MS)
        source.drop_segments_before(source.log_end)
        (first,) = source.read_entries(source.first_log, 1)
        disk.is_deferred = True
        target.restart(first.data, NOW_MS, log_start=source.first_log)
        disk.crash(SeededRng(seed))
        again = replica(disk, TAIL)  # the mark was taken back before anything was dropped
        assert again.failure is None, (seed, again.failure)
        assert not read_all(again) or read_all(again) == whole[-len(read_all(again)) :]


# --- cutting --------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [4, 9, 20, 25])
def test_what_is_cut_is_kept_beside_the_log(keep: int, caplog: pytest.LogCaptureFixture) -> None:
    """V14: every byte of it, and the caller gets a description of it."""
    # Shows storage.M2.
    disk = data_disk()
    log = mixed(disk)
    log.flusher.flush_now()
    batches = list(log.read_stored())
    before = b"".join(disk.read(name) for name in segment_names(disk))
    ends = log.log_end, log.end_offset
    cut = log.truncate(LogOffset(batches[keep].header.log_offset), NOW_MS)
    assert cut is not None
    assert (cut.log_offset, cut.offset) == batches[keep].header[4:6]
    assert (cut.log_end, cut.end_offset) == ends
    kept = b"".join(disk.read(path) for path in cut.kept)
    left = b"".join(disk.read(name) for name in segment_names(disk))
    assert left + kept == before
    assert len(kept) == cut.size_bytes
    assert all(path.endswith(f".cut-{NOW_MS}") for path in cut.kept)
    assert cut.kept[0] in caplog.text
    assert log.flusher.flushed_log <= log.log_end == cut.log_offset
    assert log.truncate(log.log_end, NOW_MS) is None


def test_two_cuts_at_one_time_are_two_files() -> None:
    """V14: the second does not take the place of the first."""
    disk = data_disk()
    log = replica(disk, HEAD, LogConfig())
    for _ in range(2):
        append(log, [b"same"], epoch=1)
        log.truncate(LogOffset(3), NOW_MS)
    assert len(segment_names(disk, f".cut-{NOW_MS}")) == 1
    assert len(segment_names(disk, f".cut-{NOW_MS + 1}")) == 1


def test_callbacks_for_what_is_cut_get_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """V14, V15: an acknowledgement must not be forgotten."""
    disk = data_disk()
    log = replica(disk, HEAD, LogConfig())
    append(log, [b"a"], epoch=1)
    kept = log.log_end
    log.flusher.flush_now()
    append(log, [b"b"], epoch=1)
    outcomes: list[Exception | None] = []
    monkeypatch.setattr(disk, "submit", lambda *_: lambda: None)  # a sync that does not begin
    log.flusher.when_log_flushed(log.log_end, outcomes.append)
    log.truncate(kept, NOW_MS)
    assert isinstance(outcomes[0], RequestError)
    assert read_all(log) == [(0, b"a")]


def test_a_replica_is_cut_and_fed_again() -> None:
    """V14: with other records under a new epoch, and ends the same as its source."""
    source_disk, target_disk = data_disk(), data_disk()
    source, target = mixed(source_disk), replica(target_disk, TAIL)
    feed(source, target)
    common = source.epochs.by_log_offset()[1][1]
    source.truncate(common, NOW_MS)
    internal(source, CONFIGURATION, epoch=Epoch(5))
    for _ in range(20):
        append(source, [b"other"], epoch=5)
    target.truncate(common, NOW_MS)
    feed(source, target)
    assert target.epochs.by_log_offset() == source.epochs.by_log_offset() == [(1, 0), (5, common)]
    for name in segment_names(source_disk):
        assert target_disk.read(name) == source_disk.read(name)


def test_retention_of_a_replica_never_rolls() -> None:
    """V10: it drops what it may, and writes nothing."""
    # Shows storage.R2.
    config = LogConfig(segment_bytes=700, retention_ms=1000)
    source, target = mixed(data_disk(), config), replica(data_disk(), TAIL, config)
    feed(source, target)
    later = NOW_MS + 10_000
    assert target.apply_retention(later, high_watermark=Offset(0), may_roll=False) == 0
    count = target.apply_retention(later, high_watermark=target.end_offset, may_roll=False)
    assert count == len(source.segments) - 1
    assert len(target.segments) == 1
    assert target.log_end == source.log_end
    append(source, [b"more"], epoch=2)
    feed(source, target)
    assert read_all(target) == read_all(source)[-len(read_all(target)) :]

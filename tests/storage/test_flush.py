"""Group commit: who waits for what, how many syncs it takes, and what a failed one means."""

import asyncio
from pathlib import Path

import pytest

from quipu.model.batch_types import CONFIGURATION
from quipu.model.errors import Code, QuipuError
from quipu.model.ids import Epoch, LogOffset, Offset
from quipu.runtime.disks.disk import DiskError, RealDisk
from quipu.runtime.disks.sim_disk import SimDisk
from quipu.storage.config import NEVER, LogConfig
from quipu.storage.log import Log
from quipu.wire.record_batch import Record
from tests.looped import looped
from tests.storage.builders import NOW_MS, append, data_disk, open_log, read_all

DURABLE = LogConfig(flush_messages=1)


class Waiter:
    """Records the callbacks, in order."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[int, Exception | None]] = []

    def wait(self, log: Log, offset: int) -> None:
        log.flusher.when_flushed(
            Offset(offset), lambda error: self.outcomes.append((offset, error)))


def deferred(config: LogConfig) -> tuple[SimDisk, Log, str]:
    """A log whose syncs wait until the test runs them."""
    disk = data_disk()
    log = open_log(disk, config)
    log.flusher.flush_now()
    disk.is_deferred = True
    path = log.segments[-1].path
    disk.sync_counts.clear()
    return disk, log, path


def test_one_sync_covers_every_batch_that_waits() -> None:
    """V17: and acknowledgements come in order, after it."""
    # Shows storage.G2.
    disk, log, path = deferred(DURABLE)
    waiter = Waiter()
    for number in range(10):
        append(log, [b"x"])
        waiter.wait(log, number + 1)
    assert (log.end_offset, log.high_watermark, waiter.outcomes) == (10, 0, [])
    assert disk.run_pending() == 1
    assert waiter.outcomes == [(number, None) for number in range(1, 11)]
    assert log.high_watermark == 10
    assert disk.sync_counts[path] == 1


def test_batches_that_come_during_a_sync_are_covered_by_the_next() -> None:
    """V17: a sync vouches only for what was in the file before it began."""
    # Shows storage.G1.
    disk, log, path = deferred(DURABLE)
    waiter = Waiter()
    append(log, [b"a"])
    waiter.wait(log, 1)
    file = log.segments[-1].file
    assert file is not None
    sync = file.sync

    def sync_and_append() -> None:
        sync()
        file.sync = sync  # type: ignore[method-assign]
        append(log, [b"b"])
        waiter.wait(log, 2)

    file.sync = sync_and_append  # type: ignore[method-assign]
    disk.run_pending()
    assert waiter.outcomes == [(1, None)]
    assert (log.flusher.flushed_offset, log.end_offset) == (1, 2)
    disk.run_pending()
    assert waiter.outcomes == [(1, None), (2, None)]
    assert disk.sync_counts[path] == 2


def test_a_callback_for_flushed_records_runs_at_once() -> None:
    """V17: no sync for nothing."""
    disk, log, path = deferred(DURABLE)
    append(log, [b"a"])
    disk.run_pending()
    waiter = Waiter()
    waiter.wait(log, 1)
    assert waiter.outcomes == [(1, None)]
    assert disk.sync_counts[path] == 1


def test_internal_batches_are_waited_for_by_log_offset() -> None:
    """T7, V17: they take no client offset, but are as durable as any."""
    disk, log, _ = deferred(LogConfig())
    outcomes: list[Exception | None] = []
    log.append_records(CONFIGURATION, [Record(None, b"c")], epoch=Epoch(0), now_ms=NOW_MS)
    log.flusher.when_log_flushed(log.log_end, outcomes.append)
    assert outcomes == []
    disk.run_pending()
    assert outcomes == [None]


@pytest.mark.parametrize(("flush_messages", "syncs"), [(1, 12), (5, 2), (NEVER, 0)])
def test_flush_messages_says_after_how_many_records(flush_messages: int, syncs: int) -> None:
    """V17: without a loop each sync is done at once."""
    disk = data_disk()
    log = open_log(disk, LogConfig(flush_messages=flush_messages))
    log.flusher.flush_now()
    disk.sync_counts.clear()
    for _ in range(12):
        append(log, [b"x"])
    assert disk.sync_counts[log.segments[-1].path] == syncs
    assert log.high_watermark == 12


def test_flush_ms_says_how_long_a_record_may_wait() -> None:
    """V17: counted from the first append since the last flush; none when nothing is new."""
    log = open_log(data_disk(), LogConfig(flush_ms=1000))
    log.flusher.flush_now()
    append(log, [b"x"], now_ms=NOW_MS)
    append(log, [b"x"], now_ms=NOW_MS + 900)
    log.flusher.flush_due(NOW_MS + 999)
    assert log.flusher.is_dirty
    log.flusher.flush_due(NOW_MS + 1000)
    assert not log.flusher.is_dirty
    assert log.flusher.flushed_offset == 2


def test_the_high_watermark_follows_the_promise() -> None:
    """V12, V17: what acks wait for is what readers see; a change of settings moves it."""
    # Shows storage.L4.
    disk, log, _ = deferred(LogConfig())
    append(log, [b"x"])
    assert log.high_watermark == 1
    log.configure(DURABLE)
    assert log.high_watermark == 0
    disk.run_pending()
    assert log.high_watermark == 1


def test_a_failed_sync_is_final() -> None:
    """V17: the log is offline, every callback fails; a later sync that works is no help."""
    # Shows storage.G3.
    disk, log, _ = deferred(DURABLE)
    waiter = Waiter()
    append(log, [b"a"])
    waiter.wait(log, 1)
    disk.sync_error = DiskError("input/output error")
    disk.run_pending()
    ((_, error),) = waiter.outcomes
    assert isinstance(error, QuipuError)
    assert error.code is Code.KAFKA_STORAGE_ERROR
    disk.sync_error = None
    with pytest.raises(QuipuError, match="cannot be made durable"):
        append(log, [b"b"])
    waiter.wait(log, 1)
    assert waiter.outcomes[-1][1] is not None
    log.flusher.flush_due(NOW_MS + 10**6)
    assert disk.run_pending() == 0
    assert log.flusher.flushed_offset == 0


def test_a_rolled_segment_is_sealed_after_its_sync() -> None:
    """V1, T12: its index appears only once it is durable, and no more than one may wait."""
    # Shows storage.R1.
    disk, log, _ = deferred(LogConfig())
    append(log, [b"a"])
    log.roll(NOW_MS)
    first = log.segments[0]
    assert not disk.exists(first.index_path)
    assert len(log.flusher.unsynced) == 2
    log.roll(NOW_MS)
    assert disk.exists(first.index_path)
    append(log, [b"b"])
    disk.run_pending()
    assert disk.exists(log.segments[1].index_path)
    assert log.flusher.unsynced == [log.segments[-1]]
    assert read_all(log) == [(0, b"a"), (1, b"b")]


def test_truncation_takes_back_what_was_flushed() -> None:
    """V13, V17: a sync under way does not vouch for batches that are gone."""
    disk, log, _ = deferred(LogConfig())
    append(log, [b"a"])
    kept = log.log_end
    append(log, [b"b"])
    log.flusher.request()
    log.truncate(LogOffset(kept), NOW_MS)  # blocks until the thread is through with the old file
    disk.run_pending()
    assert (log.flusher.flushed_log, log.flusher.flushed_offset) == (kept, 1)
    append(log, [b"c" * 50])
    assert log.flusher.is_dirty


@looped
async def test_real_syncs_run_beside_the_loop_and_in_parallel(tmp_path: Path) -> None:
    """V17: many logs, many appends; every promise is kept, on the loop."""
    disk = RealDisk()
    logs = [open_log(disk, DURABLE, directory=str(tmp_path / f"t-{number}"))
            for number in range(8)]
    outcomes: list[tuple[int, int]] = []
    loop = asyncio.get_running_loop()

    def flushed(number: int, offset: int) -> None:
        assert asyncio.get_running_loop() is loop
        assert logs[number].flusher.flushed_offset >= offset
        outcomes.append((number, offset))

    for turn in range(20):
        for number, log in enumerate(logs):
            append(log, [b"x" * 100])
            log.flusher.when_flushed(
                log.end_offset, lambda error, n=number, o=turn + 1: flushed(n, o))
        await asyncio.sleep(0)
    await asyncio.gather(*(log.flusher.flush() for log in logs))
    assert sorted(outcomes) == [(number, offset) for number in range(8) for offset in range(1, 21)]
    for log in logs:
        assert log.flusher.flushed_log == log.log_end
        log.close()
    disk.close()


@looped
async def test_flush_raises_what_went_wrong(tmp_path: Path) -> None:
    """V17: an awaited flush fails with the log, and so does every later one."""
    disk, log, _ = deferred(LogConfig())
    append(log, [b"a"])
    disk.sync_error = DiskError("gone")
    disk.is_deferred = False
    for _ in range(2):
        with pytest.raises(QuipuError, match="gone"):
            await log.flusher.flush()


@looped
async def test_a_log_closes_while_a_sync_is_under_way(tmp_path: Path) -> None:
    """V13: closing waits for the thread that uses its file."""
    disk = RealDisk()
    log = open_log(disk, DURABLE, directory=str(tmp_path / "t-0"))
    for _ in range(50):
        append(log, [b"x" * 10_000])
    clean = log.close()
    assert clean is not None
    assert clean.log_end == log.log_end
    await asyncio.sleep(0.05)
    assert log.failure is None
    disk.close()

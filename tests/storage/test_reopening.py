"""Logs that are opened again while their node serves: what takes long is not done on the loop."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from quipu.model.errors import CorruptLog
from quipu.runtime.clock import ManualClock
from quipu.runtime.disks.disk import DiskBusy, DiskError, RealDisk
from quipu.runtime.rng import SystemRng
from quipu.storage.config import LogConfig
from quipu.storage.directory.data_directory import DataDirectory
from quipu.storage.log import Log
from quipu.storage.log_directory import RecoveryPoint
from quipu.storage.phases import LogPhase
from quipu.storage.reopening import rewrite_unsealed
from quipu.storage.segments.segment import Segment
from tests.looped import looped
from tests.storage.builders import DIRECTORY, NOW_MS, append, data_disk, open_log, read_all

ID = UUID(int=1)
WAIT_SECONDS_MAX = 60.0  # for a loop that does not turn: then the test fails
Opened = tuple[DataDirectory, Log]


def a_log(disk: RealDisk, tmp_path: Path, count: int = 50) -> Opened:
    directory = DataDirectory.open(disk, str(tmp_path / "data"), ManualClock(NOW_MS))
    log = directory.open_log("t-0", LogConfig(), topic_id=ID, replica=True)
    for number in range(count):
        append(log, [b"%d" % number])
    return directory, log


class SlowScans:
    """Scans of segments that go on only when the loop has turned."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._loop_turned = threading.Event()
        scan: Callable[..., Any] = Segment.scan
        loop = asyncio.get_running_loop()

        def slow(segment: Segment, *args: object) -> object:
            self.count += 1
            loop.call_soon_threadsafe(self._loop_turned.set)
            assert self._loop_turned.wait(WAIT_SECONDS_MAX), "the loop waits for the scan"
            return scan(segment, *args)

        patch.setattr(Segment, "scan", slow)


@looped
async def test_a_failed_log_is_scanned_off_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K8, V13: others are served while the active segment of a failed log is checked."""
    disk = RealDisk()
    directory, log = a_log(disk, tmp_path)
    expected = read_all(log)
    log.flusher.flush_now()
    log.fail(DiskError("a sync failed"))
    scans = SlowScans(monkeypatch)

    again = directory.open_again(log, await directory.prepare(log), may_discard=False)

    assert scans.count == 1
    assert again.failure is None
    assert read_all(again) == expected
    assert append(again, [b"next"]).base_offset == 50
    assert len(directory.opened) == 0 or all(
        segment in directory.opened._segments for segment in again.segments if segment._view)
    directory.close()
    disk.close()


@looped
async def test_a_log_that_could_not_be_opened_is_scanned_off_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K8: nor when it is tried again because what was missing may be there now."""
    disk = RealDisk()
    directory, log = a_log(disk, tmp_path)
    expected = read_all(log)
    directory.abandon()
    directory = DataDirectory.open(disk, str(tmp_path / "data"), ManualClock(NOW_MS))
    with monkeypatch.context() as busy:
        def refuse(*_args: object, **_named: object) -> None:
            raise DiskBusy("no descriptors")

        busy.setattr(Segment, "scan", refuse)
        log = directory.open_log("t-0", LogConfig(), topic_id=ID, replica=True)
        log._state.failure = DiskBusy("no descriptors")  # as it is, not as the scan found it
    scans = SlowScans(monkeypatch)

    assert await directory.retry_failed() == [log]

    assert scans.count == 1
    assert read_all(log) == expected
    directory.close()
    disk.close()


@looped
async def test_what_is_found_and_not_wanted_is_let_go(tmp_path: Path) -> None:
    """K8: no descriptor stays with a log that is not opened after all; damage is reported."""
    disk = RealDisk()
    directory, log = a_log(disk, tmp_path)
    log.flusher.flush_now()
    log.fail(DiskError("a sync failed"))
    files = len(disk.files)
    prepared = await directory.prepare(log)
    assert len(disk.files) == files
    prepared.release()
    assert len(disk.files) == files - 1

    (path,) = Path(log.directory.path).glob("*.log")
    path.write_bytes(path.read_bytes()[:-30])
    prepared = await directory.prepare(log)
    assert isinstance(prepared.found, CorruptLog)
    again = directory.open_again(log, prepared, may_discard=False)
    assert again.failure is prepared.found
    again = directory.open_again(again, await directory.prepare(again), may_discard=True)
    assert again.failure is None
    assert again.phase is LogPhase.EMPTY
    directory.close()
    disk.close()


def test_a_file_that_took_the_place_of_another_keeps_what_is_flushed_after_a_restart() -> None:
    """V13: a sync of the directory failed, the process was killed, another one appends."""
    disk, durable = data_disk(), LogConfig(flush_messages=1)
    log = open_log(disk, durable)
    append(log, [b"first"])
    log.flusher.flush_now()
    disk.sync_error, disk.sync_error_in = DiskError("a sync failed"), DIRECTORY
    with pytest.raises(DiskError):
        rewrite_unsealed(disk, DIRECTORY)  # the new file has its name, which is not durable
    disk.sync_error = None
    known = RecoveryPoint(flushed_log=log.flusher.flushed_log)
    disk.kill()

    log = open_log(disk, durable, known)
    append(log, [b"second"])
    log.flusher.flush_now()
    expected = read_all(log)
    disk.crash(SystemRng())

    assert read_all(open_log(disk, durable, known)) == expected

"""Segments as open files: how many of a log's are open at a time."""

from pathlib import Path

from quipu.runtime.disks.disk import RealDisk
from quipu.storage.log import Log
from quipu.storage.log_directory import LogDirectory, RecoveryPoint
from quipu.storage.segments.segment import OpenSegments
from tests.storage.builders import NOW_MS, SMALL, append, read_all


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_files_are_let_go_of(tmp_path: Path) -> None:
    """V1: a log of many segments keeps few of them open, and a closed one none."""
    before = open_files()
    disk = RealDisk()
    directory = LogDirectory(disk=disk, path=str(tmp_path / "t-0"), name="t-0",
                             open_segments=OpenSegments(4))
    log = Log(directory, SMALL, now_ms=NOW_MS)
    for number in range(100):
        append(log, [b"%d" % number * 30])
    assert len(log.segments) > 20
    for _ in range(2):
        assert len(read_all(log)) == 100
        assert open_files() <= before + 2 * 4 + 2  # maps of segments and of their indexes
    clean = log.close()
    assert open_files() == before
    recovery = RecoveryPoint(log.log_end, clean, is_current=True)
    log = Log(directory, SMALL, recovery=recovery, now_ms=NOW_MS)
    assert log.end_offset == 100
    assert open_files() == before
    assert len(read_all(log)) == 100
    log.discard()
    assert open_files() == before

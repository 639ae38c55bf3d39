"""All logs of a node: lock, memory, clean and unclean stops, deletion."""

import asyncio
from pathlib import Path
from uuid import UUID

import pytest

from quipu.model.errors import CorruptLog, QuipuError
from quipu.model.ids import LogOffset
from quipu.runtime.clock import ManualClock
from quipu.runtime.disk import RealDisk
from quipu.runtime.rng import SeededRng
from quipu.runtime.sim_disk import SimDisk
from quipu.storage import node_log
from quipu.storage.config import LogConfig
from quipu.storage.data_directory import DataDirectory
from quipu.storage.log import Log
from tests.looped import looped
from tests.storage.builders import NOW_MS, append, read_all

ID = UUID(int=1)
OTHER_ID = UUID(int=2)
CONFIG = LogConfig()


def open_directory(disk: SimDisk) -> DataDirectory:
    return DataDirectory.open(disk, "data", ManualClock(NOW_MS))


def open_logs(directory: DataDirectory, count: int, config: LogConfig = CONFIG) -> list[Log]:
    return [directory.open_log(f"t-{number}", config, topic_id=ID) for number in range(count)]


def log_bytes_read(disk: SimDisk) -> int:
    return sum(size for path, size in disk.bytes_read.items()
               if path.endswith(".log") and "__node" not in path)


def test_a_directory_belongs_to_one_process(tmp_path: Path) -> None:
    """V13: the second one is told what to do; a stopped one lets go."""
    disk, path = RealDisk(), str(tmp_path / "data")
    directory = DataDirectory.open(disk, path, ManualClock())
    with pytest.raises(QuipuError, match="in use by another process"):
        DataDirectory.open(disk, path, ManualClock())
    directory.close()
    DataDirectory.open(disk, path, ManualClock()).close()


def test_a_clean_stop_is_remembered() -> None:
    """T12, V13: offsets and state are there without a look at any segment."""
    disk = SimDisk()
    directory = open_directory(disk)
    assert not directory.was_clean
    for number, log in enumerate(open_logs(directory, 5)):
        for sequence in range(number):
            append(log, [b"%d" % number], producer=(number, 0, sequence), epoch=3)
    directory.close()

    disk.bytes_read.clear()
    directory = open_directory(disk)
    assert directory.was_clean
    logs = open_logs(directory, 5)
    assert [log.end_offset for log in logs] == [0, 1, 2, 3, 4]
    assert not any(log.is_open for log in logs)
    assert log_bytes_read(disk) == 0
    assert append(logs[4], [b"4"], producer=(4, 0, 3), epoch=3).duplicate
    assert logs[4].leader_epoch == 3
    assert log_bytes_read(disk) == 0
    directory.close()
    assert [log.end_offset for log in open_logs(open_directory(disk), 5)] == [0, 1, 2, 3, 4]


def test_an_unclean_stop_checks_only_logs_that_were_used() -> None:
    """T12: a log that rests since a clean stop is still as it was closed."""
    disk = SimDisk()
    directory = open_directory(disk)
    for log in open_logs(directory, 4):
        append(log, [b"x"])
    directory.close()
    directory = open_directory(disk)
    append(open_logs(directory, 4)[2], [b"y"])
    directory.abandon()

    directory = open_directory(disk)
    assert not directory.was_clean
    disk.bytes_read.clear()
    logs = open_logs(directory, 4)
    assert [log.end_offset for log in logs] == [1, 1, 2, 1]
    assert {path.split("/")[1] for path in disk.bytes_read if path.endswith(".log")
            and disk.bytes_read[path] > 300} == {"t-2"}


def test_marks_tell_damage_from_a_torn_tail() -> None:
    """T12: `remember` after a flush makes the difference."""
    for is_remembered in (False, True):
        disk = SimDisk()
        directory = open_directory(disk)
        (log,) = open_logs(directory, 1)
        append(log, [b"a"])
        append(log, [b"b"])
        log.flush_now()
        if is_remembered:
            directory.remember()
        path = log.segments[0].path
        directory.abandon()
        disk.flip(path, disk.size(path) - 2)
        (log,) = open_logs(open_directory(disk), 1)
        if is_remembered:
            assert isinstance(log.failure, CorruptLog)
        else:
            assert read_all(log) == [(0, b"a")]


def test_one_bad_log_does_not_stop_the_others_and_stays_bad() -> None:
    """T12: nothing is cut, also after the node has stopped and started in order."""
    disk = SimDisk()
    directory = open_directory(disk)
    for log in open_logs(directory, 3):
        append(log, [b"x" * 50])
    directory.close()
    directory = open_directory(disk)
    logs = open_logs(directory, 3)
    append(logs[1], [b"y"])
    logs[1].flush_now()
    directory.remember()
    path = logs[1].segments[0].path
    directory.abandon()
    disk.flip(path, 250)
    for _ in range(3):
        directory = open_directory(disk)
        logs = open_logs(directory, 3)
        assert [isinstance(log.failure, CorruptLog) for log in logs] == [False, True, False]
        append(logs[0], [b"z"])
        directory.close()


def test_remember_writes_only_what_changed() -> None:
    """T12: its cost does not grow with the number of logs."""
    disk = SimDisk()
    directory = open_directory(disk)
    logs = open_logs(directory, 50)
    for log in logs:
        append(log, [b"x"])
        log.flush_now()
    directory.remember()
    node = directory._node_log.log
    size = node.size_bytes
    directory.remember()
    assert node.size_bytes == size
    append(logs[7], [b"y"])
    logs[7].flush_now()
    directory.remember()
    assert 0 < node.size_bytes - size < 200


def test_flush_due_looks_only_at_what_is_dirty() -> None:
    """V17: and the interval counts per log."""
    disk = SimDisk()
    directory = open_directory(disk)
    logs = open_logs(directory, 3)
    for log in logs:
        log.flush_now()
    append(logs[0], [b"x"], now_ms=NOW_MS)
    append(logs[1], [b"x"], now_ms=NOW_MS + 500)
    directory.flush_due(NOW_MS + 1000)
    assert [log.is_dirty for log in logs] == [False, True, False]
    assert list(directory._dirty) == [logs[1]]
    directory.flush_due(NOW_MS + 1500)
    assert not directory._dirty


@looped
async def test_flush_makes_everything_durable(tmp_path: Path) -> None:
    """V17, K10: before a stop; a log that cannot be flushed does not hold up the rest."""
    directory = DataDirectory.open(RealDisk(), str(tmp_path), ManualClock(NOW_MS))
    logs = open_logs(directory, 5)
    for log in logs:
        append(log, [b"x"])
    logs[3].fail(CorruptLog("for a test"))
    await directory.flush()
    assert [log.is_dirty for log in logs] == [False, False, False, True, False]
    directory.close()


def test_the_node_log_shrinks(monkeypatch: pytest.MonkeyPatch) -> None:
    """T7: it is bounded by what it must remember, and a restart finds all of that."""
    monkeypatch.setattr(node_log, "SIZE_MIN", 5_000)
    disk = SimDisk()
    directory = open_directory(disk)
    logs = open_logs(directory, 10)
    for turn in range(100):
        for log in logs:
            append(log, [b"x"], now_ms=NOW_MS + turn)
            log.flush_now()
        directory.remember()
    assert directory._node_log.log.size_bytes < 25_000
    assert directory._node_log.log.log_start_log_offset > 0
    directory.abandon()
    known = open_directory(disk)._node_log.logs
    assert {name: item.memory.flushed for name, item in known.items()} == {
        log.name: log.log_end for log in logs}


def test_a_damaged_node_log_costs_a_check_and_no_data(caplog: pytest.LogCaptureFixture) -> None:
    """T12: it is set aside, and every log is scanned."""
    disk = SimDisk()
    directory = open_directory(disk)
    append(open_logs(directory, 1)[0], [b"a"])
    directory.close()
    path = f"data/__node-0/{0:020d}.log"
    data = bytearray(disk.read(path))
    data[5] = 9  # a layout of a later version, under a checksum that holds
    data[:4] = __import__("crc32c").crc32c(bytes(data[4:37])).to_bytes(4, "big")
    disk.set_data(path, bytes(data))
    directory = open_directory(disk)
    assert "begun anew" in caplog.text
    assert read_all(open_logs(directory, 1)[0]) == [(0, b"a")]
    assert any(name.endswith(".damaged") for name in disk.list("data"))
    assert directory.names() == ["t-0"]


def test_a_deleted_log_is_gone_at_once_and_its_name_is_free() -> None:
    """K5: files go in the background, or at the next start."""
    disk = SimDisk()
    directory = open_directory(disk)
    (log,) = open_logs(directory, 1)
    append(log, [b"a"])
    log.flush_now()
    directory.remember()
    disk.is_deferred = True
    directory.delete_log("t-0")
    directory.delete_log("never-was")
    assert directory.names() == []
    assert directory.find("t-0") is None
    with pytest.raises(QuipuError):
        append(log, [b"b"])
    again = directory.open_log("t-0", CONFIG, topic_id=OTHER_ID)
    assert again.failure is None
    assert append(again, [b"new"]).base_offset == 0
    assert any(name.endswith(".deleted") for name in disk.list("data"))
    directory.abandon()
    directory = open_directory(disk)
    assert not any(name.endswith(".deleted") for name in disk.list("data"))
    again = directory.open_log("t-0", CONFIG, topic_id=OTHER_ID)
    assert read_all(again) == [(0, b"new")]


@pytest.mark.parametrize("is_clean", [True, False])
def test_the_log_of_another_topic_of_that_name_is_moved_aside(
    is_clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """K5: a crash came between the deletion of a topic and that of its files; nothing is lost."""
    disk = SimDisk()
    directory = open_directory(disk)
    append(open_logs(directory, 1)[0], [b"old"])
    directory.close() if is_clean else directory.abandon()
    log = open_directory(disk).open_log("t-0", CONFIG, topic_id=OTHER_ID)
    assert log.failure is None
    assert log.end_offset == 0
    assert "moved aside" in caplog.text
    (stray,) = [name for name in disk.list("data") if name.endswith(".stray")]
    assert any(name.endswith(".log") for name in disk.list(f"data/{stray}"))


def test_truncation_lowers_the_mark_durably() -> None:
    """T12, V13: what is appended after a cut may be torn without being called damage."""
    disk = SimDisk()
    directory = open_directory(disk)
    (log,) = open_logs(directory, 1)
    append(log, [b"a"])
    kept = log.log_end
    for _ in range(5):
        append(log, [b"b"])
    log.flush_now()
    directory.remember()
    log.truncate(LogOffset(kept), NOW_MS)
    append(log, [b"c" * 400])
    path = log.segments[0].path
    size = disk.size(path)
    disk.crash(SeededRng(0))
    disk.set_data(path, disk.read(path)[: size - 10])
    (log,) = open_logs(open_directory(disk), 1)
    assert log.failure is None
    assert read_all(log) == [(0, b"a")]


@pytest.mark.parametrize("name", ["", "a/b", ".hidden", "__node-0", "x" * 300, "a\0b"])
def test_names_that_cannot_be_are_refused(name: str) -> None:
    """K8: a name is one entry in the directory."""
    with pytest.raises(QuipuError):
        open_directory(SimDisk()).open_log(name, CONFIG, topic_id=ID)


def test_a_log_is_opened_once() -> None:
    """V13: asking again gives the same log, by its new settings."""
    directory = open_directory(SimDisk())
    log = directory.open_log("t-0", CONFIG, topic_id=ID)
    config = LogConfig(segment_bytes=1000)
    assert directory.open_log("t-0", config, topic_id=ID) is log
    assert log.config is config


def test_power_loss_at_any_moment_loses_nothing_that_was_flushed() -> None:
    """T12, V17: the whole directory, names and all, under many crashes."""
    for seed in range(40):
        disk = SimDisk()
        rng = SeededRng(seed)
        flushed: dict[str, int] = {}
        for _ in range(4):
            directory = open_directory(disk)
            for log in open_logs(directory, 3, LogConfig(segment_bytes=800)):
                assert log.failure is None, (seed, log.failure)
                assert log.end_offset >= flushed.get(log.name, 0), seed
                for _ in range(int(rng.random() * 12)):
                    append(log, [b"x" * int(rng.random() * 90)])
                if rng.random() < 0.7:
                    log.flush_now()
                    flushed[log.name] = log.end_offset
                if rng.random() < 0.5:
                    directory.remember()
            if rng.random() < 0.3:
                directory.close()
                flushed = {log.name: log.end_offset for log in open_logs(open_directory(disk), 3)}
            disk.crash(rng)


def test_the_loop_is_not_needed() -> None:
    """V17: tools and tests use the same directory without one."""
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()
    disk = SimDisk()
    directory = open_directory(disk)
    append(open_logs(directory, 1, LogConfig(flush_messages=1))[0], [b"x"])
    directory.close()

"""All logs of a node: lock, memory, clean and unclean stops, deletion."""

import asyncio
from pathlib import Path
from uuid import UUID

import pytest

from quipu.model.errors import CorruptLog, QuipuError
from quipu.model.ids import LogOffset
from quipu.runtime.clock import ManualClock
from quipu.runtime.disks.disk import RealDisk
from quipu.runtime.disks.sim_disk import SimDisk
from quipu.runtime.rng import SeededRng
from quipu.storage.config import LogConfig
from quipu.storage.directory import node_log
from quipu.storage.directory.data_directory import DataDirectory
from quipu.storage.directory.directory_names import NAME_SIZE_MAX, directory_name, is_log, marked
from quipu.storage.directory.node_log import NodeLog
from quipu.storage.log import Log
from quipu.storage.log_directory import LogDirectory
from quipu.storage.phases import LogPhase
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
    """V13: the error of the second one says what to do; a stopped one releases the lock."""
    # Shows storage.N1.
    disk, path = RealDisk(), str(tmp_path / "data")
    directory = DataDirectory.open(disk, path, ManualClock())
    with pytest.raises(QuipuError, match="in use by another process"):
        DataDirectory.open(disk, path, ManualClock())
    directory.close()
    DataDirectory.open(disk, path, ManualClock()).close()


def test_a_clean_stop_is_remembered() -> None:
    """T12, V13: offsets and state are there without a look at any segment."""
    # Shows storage.N2.
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
    assert all(log.phase is LogPhase.UNLOADED for log in logs)
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
            and disk.bytes_read[path] > 300} == {directory_name("t-2", ID)}


def test_marks_distinguish_damage_from_a_torn_tail() -> None:
    """T12: `remember` after a flush makes the difference."""
    for is_remembered in (False, True):
        disk = SimDisk()
        directory = open_directory(disk)
        (log,) = open_logs(directory, 1)
        append(log, [b"a"])
        append(log, [b"b"])
        log.flusher.flush_now()
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
    # Shows storage.N6.
    disk = SimDisk()
    directory = open_directory(disk)
    for log in open_logs(directory, 3):
        append(log, [b"x" * 50])
    directory.close()
    directory = open_directory(disk)
    logs = open_logs(directory, 3)
    append(logs[1], [b"y"])
    logs[1].flusher.flush_now()
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
    # Shows storage.N4.
    disk = SimDisk()
    directory = open_directory(disk)
    logs = open_logs(directory, 50)
    for log in logs:
        append(log, [b"x"])
        log.flusher.flush_now()
    directory.remember()
    node = directory._node_log.log
    size = node.size_bytes
    directory.remember()
    assert node.size_bytes == size
    append(logs[7], [b"y"])
    logs[7].flusher.flush_now()
    directory.remember()
    assert 0 < node.size_bytes - size < 200


def test_flush_due_looks_only_at_what_is_dirty() -> None:
    """V17: and the interval counts per log."""
    disk = SimDisk()
    directory = open_directory(disk)
    logs = open_logs(directory, 3)
    for log in logs:
        log.flusher.flush_now()
    append(logs[0], [b"x"], now_ms=NOW_MS)
    append(logs[1], [b"x"], now_ms=NOW_MS + 500)
    list(directory.flush_due(NOW_MS + 1000))
    assert [log.flusher.is_dirty for log in logs] == [False, True, False]
    assert list(directory._dirty) == [logs[1]]
    list(directory.flush_due(NOW_MS + 1500))
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
    assert [log.flusher.is_dirty for log in logs] == [False, False, False, True, False]
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
            log.flusher.flush_now()
        directory.remember()
    assert directory._node_log.log.size_bytes < 25_000
    assert directory._node_log.log.first_log > 0
    directory.abandon()
    known = open_directory(disk)._node_log.logs
    assert {name: item.recovery.flushed_log for name, item in known.items()} == {
        log.directory.entry: log.log_end for log in logs}


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
    assert "started again" in caplog.text
    assert read_all(open_logs(directory, 1)[0]) == [(0, b"a")]
    assert any(name.endswith(".damaged") for name in disk.list("data"))
    assert directory.names() == [directory_name("t-0", ID)]


def test_a_deleted_log_is_gone_at_once_and_its_name_is_free() -> None:
    """K5: files go in the background, or at the next start."""
    disk = SimDisk()
    directory = open_directory(disk)
    (log,) = open_logs(directory, 1)
    append(log, [b"a"])
    log.flusher.flush_now()
    directory.remember()
    disk.is_deferred = True
    directory.delete_logs([log])
    assert directory.names() == []
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
def test_a_topic_that_is_created_again_has_a_directory_of_its_own(is_clean: bool) -> None:
    """K5, V13: a crash came between the deletion of a topic and that of its files; nothing is
    lost, and nothing of the old topic is seen in the new one.
    """
    # Shows storage.Y2.
    disk = SimDisk()
    directory = open_directory(disk)
    append(open_logs(directory, 1)[0], [b"old"])
    directory.close() if is_clean else directory.abandon()
    directory = open_directory(disk)
    log = directory.open_log("t-0", CONFIG, topic_id=OTHER_ID)
    assert log.failure is None
    assert log.end_offset == 0
    append(log, [b"new"])
    assert read_all(open_logs(directory, 1)[0]) == [(0, b"old")]
    assert read_all(log) == [(0, b"new")]


def test_truncation_lowers_the_mark_durably() -> None:
    """T12, V13: what is appended after a cut may be torn without being called damage."""
    # Shows storage.M1.
    disk = SimDisk()
    directory = open_directory(disk)
    (log,) = open_logs(directory, 1)
    append(log, [b"a"])
    kept = log.log_end
    for _ in range(5):
        append(log, [b"b"])
    log.flusher.flush_now()
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


def as_version_0_3_0(disk: SimDisk, log: Log) -> None:
    """Let a closed log lie where version 0.3.0 would have put it, and be remembered like that."""
    disk.rename(log.directory.path, f"data/{log.name}")
    path = f"data/__node-0/{0:020d}.log"
    directory = LogDirectory(disk=disk, path="data/__node-0", name="__node-0")
    log_of_node = Log(directory, node_log.NODE_LOG_CONFIG, now_ms=NOW_MS)
    own = NodeLog(log_of_node, ManualClock(NOW_MS))
    known = own.logs[log.directory.entry]
    own.remember({log.directory.entry: None, log.name: known}, durable=True)
    if own.was_stopped:
        own.stopped()
    own.close()
    assert disk.exists(path)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("name", ["t-0", "a.b-c_d-12", "n" * 249 + "-7"])
def test_directories_of_version_0_3_0_are_opened_as_before(name: str, is_clean: bool) -> None:
    """T12, V13: where they are, with what was remembered of them, again and again; and when such a
    log is deleted its directory is marked under a name that the file system takes.
    """
    # Shows storage.Y3.
    disk = SimDisk()
    directory = open_directory(disk)
    log = directory.open_log(name, CONFIG, topic_id=ID)
    append(log, [b"a"])
    log.flusher.flush_now()
    directory.remember()
    directory.close() if is_clean else directory.abandon()
    as_version_0_3_0(disk, log)
    for number in range(3):
        directory = open_directory(disk)
        log = directory.open_log(name, CONFIG, topic_id=ID, replica=True)
        assert log.directory.entry == name
        assert log.failure is None
        assert log.end_offset == number + 1
        append(log, [b"b"])
        other = directory.open_log(name, CONFIG, topic_id=OTHER_ID, replica=True)
        assert (other.end_offset, other.phase) == (0, LogPhase.EMPTY)
        directory.close() if is_clean else directory.abandon()
    directory = open_directory(disk)
    log = directory.open_log(name, CONFIG, topic_id=ID, replica=True)
    assert len(read_all(log)) == 4
    disk.is_deferred = True
    directory.delete_logs([log])
    (away,) = [entry for entry in disk.list("data") if entry.endswith(".deleted")]
    assert len(away) <= NAME_SIZE_MAX
    again = directory.open_log(name, CONFIG, topic_id=ID, replica=True)
    assert (again.failure, again.phase) == (None, LogPhase.EMPTY)
    assert again.directory.entry == directory_name(name, ID)


def test_files_that_are_gone_are_missed_in_an_older_directory_too() -> None:
    """T12: what was remembered of a log of version 0.3.0 still counts."""
    disk = SimDisk()
    directory = open_directory(disk)
    log = directory.open_log("t-0", CONFIG, topic_id=ID)
    append(log, [b"a"])
    directory.close()
    as_version_0_3_0(disk, log)
    disk.remove(f"data/t-0/{0:020d}.log")
    log = open_directory(disk).open_log("t-0", CONFIG, topic_id=ID, replica=True)
    with pytest.raises(CorruptLog, match="all segments are gone"):
        log.load()


IMPOSSIBLE = ["", "-0", ".", "..", "../../x-0", "a/b-0", ".x-0", ".lock-0", "__node-0-0", "a\0b-0",
              "x" * 100_000 + "-0", "\ud800-1", "\U0001f9f6-3", "t-99999999999999", "t-\u0663", "t",
              "n" * 249 + "-99999", "t-0.1-1.deleted", f"t-0.{ID.hex}-0", "-", "a b-0", "..-0"]


def test_whatever_a_topic_is_called_its_log_has_a_directory() -> None:
    """K8: bounded, visible, one entry of the data directory, and another one for each log."""
    # Shows storage.Y1.
    names = {directory_name(name, UUID(int=number)) for number, name in enumerate(IMPOSSIBLE, 1)}
    assert len(names) == len(IMPOSSIBLE)
    for name in names:
        assert is_log(name), name
        assert "/" not in name
        assert not name.startswith(".")
        assert len(marked(name, "1767225600000-999999", ".deleted").encode()) <= NAME_SIZE_MAX
    assert not any(map(is_log, ["__node-0", "__cluster-0", ".lock", "t-0.1-1.deleted",
                                "t-0.1-1.stray", "__node-0.1-1.damaged", "lost+found"]))


@pytest.mark.parametrize("name", [name for name in IMPOSSIBLE if "\ud800" not in name])
def test_a_log_of_any_name_is_written_closed_opened_and_deleted(tmp_path: Path, name: str) -> None:
    """K8, V13: on a real file system; metadata is UTF-8, so half of a character is in no name."""
    disk, path = RealDisk(), str(tmp_path / "data")
    for _ in range(2):
        directory = DataDirectory.open(disk, path, ManualClock(NOW_MS))
        log = directory.open_log(name, CONFIG, topic_id=ID)
        assert log.failure is None
        append(log, [b"a"])
        directory.close()
    directory = DataDirectory.open(disk, path, ManualClock(NOW_MS))
    log = directory.open_log(name, CONFIG, topic_id=ID)
    assert len(read_all(log)) == 2
    directory.delete_logs([log])
    assert directory.names() == []
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["data"]
    directory.close()


def test_a_directory_that_cannot_be_opened_fails_one_log(tmp_path: Path) -> None:
    """K8, V13: a file is in its place; every other log is served, and a stop is in order."""
    disk, path = RealDisk(), tmp_path / "data"
    path.mkdir()
    (path / directory_name("t-0", ID)).write_bytes(b"no directory")
    (path / "u-0").write_bytes(b"nor this")
    directory = DataDirectory.open(disk, str(path), ManualClock(NOW_MS))
    for name in ("t-0", "u-0"):
        log = directory.open_log(name, CONFIG, topic_id=ID)
        assert log.failure is not None
        with pytest.raises(QuipuError):
            append(log, [b"x"])
    good = directory.open_log("t-1", CONFIG, topic_id=ID)
    append(good, [b"x"])
    directory.close()
    directory = DataDirectory.open(disk, str(path), ManualClock(NOW_MS))
    assert directory.was_clean
    assert read_all(directory.open_log("t-1", CONFIG, topic_id=ID)) == [(0, b"x")]
    directory.close()


@pytest.mark.parametrize("crashes", [False, True])
def test_a_log_that_was_removed_is_forgotten_for_good(crashes: bool) -> None:
    """V13: the same partition comes back here, as if it had never been; also if a sync of it ended
    after its removal, and after a crash at any moment.
    """
    # Shows storage.N5.
    disk = SimDisk()
    directory = open_directory(disk)
    (log,) = open_logs(directory, 1)
    append(log, [b"a"])
    log.flusher.flush_now()
    directory.remember()
    append(log, [b"b"])
    disk.is_deferred = True  # a sync is under way
    log.flusher.request()
    directory.delete_logs([log])
    disk.is_deferred = False
    disk.run_pending()
    log._state._flush_ended(None)
    log.note_committed(LogOffset(100))
    directory.remember()
    if crashes:
        disk.crash(SeededRng(1))
        directory = open_directory(disk)
    again = directory.open_log("t-0", CONFIG, topic_id=ID, replica=True)
    assert again.failure is None
    directory.close()
    again = open_directory(disk).open_log("t-0", CONFIG, topic_id=ID, replica=True)
    assert again.failure is None


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
                    log.flusher.flush_now()
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

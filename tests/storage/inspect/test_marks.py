"""Logs that a node wrote, damaged, repaired, and opened by a node again."""

from pathlib import Path
from uuid import UUID

import pytest

from quipu.cli.main import main
from quipu.model.errors import CorruptLog
from quipu.model.ids import Epoch
from quipu.runtime.clock import ManualClock
from quipu.runtime.disks.disk import RealDisk
from quipu.storage.config import LogConfig
from quipu.storage.directory.data_directory import DataDirectory
from quipu.storage.directory.directory_names import directory_name
from quipu.storage.inspect.examine import Examination
from quipu.storage.inspect.files import find_logs
from quipu.storage.inspect.marks import flushed_marks
from quipu.storage.log import Log
from quipu.wire.record_batch import Record, check_batch, encode_batch

TOPIC_ID = UUID(int=7)
NAME = "orders-0"
ENTRY = directory_name(NAME, TOPIC_ID)
CONFIG = LogConfig(segment_bytes=1_200, index_interval_bytes=200)
BATCHES = 40
RECORDS = 3  # in each batch


def open_directory(path: Path) -> tuple[DataDirectory, Log]:
    directory = DataDirectory.open(RealDisk(), str(path), ManualClock(1_767_225_600_000))
    return directory, directory.open_log(NAME, CONFIG, topic_id=TOPIC_ID)


def append(log: Log, count: int = 1) -> int:
    """Append data batches; gives the offset of the last one."""
    offset = -1
    for _ in range(count):
        batch = memoryview(encode_batch(
            [Record(b"k", b"value", (), 1_767_225_600_000)] * RECORDS))
        header = check_batch(batch, size_max=10_000)
        offset = log.append(batch, header, epoch=Epoch(0), now_ms=1_767_225_600_000).base_offset
    return offset


def written(path: Path, *, clean: bool) -> list[Path]:
    """A log of several segments; gives their files.  All of it is durable, and remembered."""
    directory, log = open_directory(path)
    append(log, BATCHES)
    log.flusher.flush_now()
    directory.remember()
    if clean:
        directory.close()
    else:
        directory.abandon()
    files = sorted((path / ENTRY).glob("*.log"))
    assert len(files) > 3
    return files


def damage(file: Path) -> None:
    """Flip a bit in the last batch of a segment, and take its index away."""
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    file.with_suffix(".index").unlink(missing_ok=True)


def end_of(path: Path) -> int:
    (log,) = find_logs(RealDisk(), str(path / NAME))
    examination = Examination(RealDisk(), log)
    assert all(not f.is_fault for seen in examination for f in seen.findings)
    assert examination.summary.end_offset is not None
    return examination.summary.end_offset


def test_the_marks_read_are_those_that_a_node_wrote(tmp_path: Path) -> None:
    """T12: up to where each log was durable."""
    written(tmp_path, clean=True)

    (log,) = find_logs(RealDisk(), str(tmp_path / NAME))
    examination = Examination(RealDisk(), log)
    list(examination)

    assert flushed_marks(RealDisk(), str(tmp_path)) == {ENTRY: examination.summary.end_log_offset}
    assert flushed_marks(RealDisk(), str(tmp_path / "nowhere")) == {}


def test_what_a_node_writes_is_found_sound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """T9: checkpoints, data, indexes and the node's own memory, after a clean stop."""
    written(tmp_path, clean=True)

    assert main(["log", "show", str(tmp_path), "--records"]) == 0
    out = capsys.readouterr().out
    assert f"log={ENTRY}  event=closed" in out
    assert "!" not in out


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "crash"])
@pytest.mark.parametrize("number", [0, 1, -2, -1])
def test_a_repaired_log_opens_and_goes_on(tmp_path: Path, number: int, clean: bool) -> None:
    """T10, T12: damage below the mark is refused by the node, cut by the operator, and over."""
    files = written(tmp_path, clean=clean)
    damage(files[number])
    directory, log = open_directory(tmp_path)
    with pytest.raises(CorruptLog):
        append(log)
    directory.abandon()

    assert main(["log", "repair", str(tmp_path / NAME), "--yes"]) == 0

    end = end_of(tmp_path)
    directory, log = open_directory(tmp_path)
    assert log.failure is None
    assert append(log) == end
    assert log.end_offset == end + RECORDS
    directory.close()
    assert end_of(tmp_path) == end + RECORDS
    assert sorted((tmp_path / ENTRY).glob("*.cut-*"))


def test_a_repair_leaves_other_logs_as_they_are(tmp_path: Path) -> None:
    """T10: the node still knows that it stopped in order, and what the others hold."""
    files = written(tmp_path, clean=True)
    directory, _ = open_directory(tmp_path)
    other = directory.open_log("other-0", CONFIG, topic_id=UUID(int=8))
    append(other, 2)
    directory.close()
    before = flushed_marks(RealDisk(), str(tmp_path))
    damage(files[-1])

    assert main(["log", "repair", str(tmp_path / NAME), "--yes"]) == 0

    after = flushed_marks(RealDisk(), str(tmp_path))
    other_entry = directory_name("other-0", UUID(int=8))
    assert after[other_entry] == before[other_entry]
    assert after[ENTRY] < before[ENTRY]
    directory, log = open_directory(tmp_path)
    assert directory.was_clean
    assert log.failure is None
    assert directory.open_log("other-0", CONFIG, topic_id=UUID(int=8)).end_offset == 2 * RECORDS
    directory.close()


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "crash"])
def test_a_log_whose_last_files_are_gone_can_be_taken_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], clean: bool
) -> None:
    """T10, T12: sound, but shorter than it was: shown, refused by the node, accepted by repair."""
    files = written(tmp_path, clean=clean)
    for file in files[-2:]:
        file.unlink()
        file.with_suffix(".index").unlink(missing_ok=True)
    assert main(["log", "show", str(tmp_path / NAME), "--summary"]) == 1
    assert "were durable" in capsys.readouterr().out
    directory, log = open_directory(tmp_path)
    with pytest.raises(CorruptLog):
        append(log)
    directory.abandon()

    assert main(["log", "repair", str(tmp_path / NAME)]) == 1
    assert "would expect no more than that" in capsys.readouterr().out
    assert main(["log", "repair", str(tmp_path / NAME), "--yes"]) == 0

    end = end_of(tmp_path)
    directory, log = open_directory(tmp_path)
    assert append(log) == end
    directory.close()
    assert main(["log", "show", str(tmp_path)]) == 0


def test_a_running_node_is_not_disturbed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """T9, T10: its logs may be looked at while it writes; repair is refused."""
    directory, log = open_directory(tmp_path)
    append(log, BATCHES)

    assert main(["log", "show", str(tmp_path / NAME)]) == 0
    assert main(["log", "repair", str(tmp_path / NAME), "--yes"]) == 1

    assert "a node is running" in capsys.readouterr().err
    append(log)
    directory.close()


def test_a_damaged_memory_of_the_node_needs_no_repair(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """T10: the node begins it anew; a repair of a log works without it."""
    files = written(tmp_path, clean=True)
    (recovery,) = (tmp_path / "__node-0").glob("*.log")
    data = bytearray(recovery.read_bytes())
    data[8] ^= 1
    recovery.write_bytes(data)
    damage(files[1])

    assert main(["log", "repair", str(tmp_path), "--yes"]) == 1
    assert "starts its node log again" in capsys.readouterr().err

    end = end_of(tmp_path)
    directory, log = open_directory(tmp_path)
    assert append(log) == end
    directory.close()

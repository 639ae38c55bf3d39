"""`quipu log export`: what it prints, and how it ends."""

import json
from pathlib import Path

import pytest

from quipu.cli.main import main
from quipu.runtime.disks.disk import RealDisk
from quipu.storage.inspect.files import LOCK_NAME
from quipu.wire.record_batch import Record
from tests.storage.inspect.build import START_MS, LogBuilder, flip


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["log", "export", *words])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name in ("orders-0", "orders-1"):
        log = LogBuilder(name)
        for number in range(4):
            log.append([Record(b"k", b"some value", (), START_MS + number)])
        log.write(tmp_path / "data")
    return tmp_path / "data"


def test_a_data_directory_is_exported(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """K1: a directory for each partition, and a line for each."""
    out = tmp_path / "new" / "out"
    code, shown, _ = run(capsys, str(data), "--to", str(out))
    assert code == 0
    assert "orders-0: offsets [0, 4), 4 records in 1 segment, 316 bytes, to " in shown
    assert sorted(path.name for path in out.iterdir()) == ["orders-0", "orders-1"]
    code, _, errors = run(capsys, str(data), "--to", str(out))
    assert code == 1
    assert "is not written over" in errors


def test_json_says_what_was_written(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """K1: one object for each partition; ranges hold whole batches."""
    code, shown, _ = run(capsys, str(data / "orders-0"), "--to", str(tmp_path / "out"), "--json",
                         "--from-offset", "1", "--to-time", str(START_MS + 3))
    assert code == 0
    assert json.loads(shown) == {
        "kind": "export", "log": "orders-0", "directory": str(tmp_path / "out" / "orders-0"),
        "segments": 1, "batches": 2, "records": 2, "bytes": 158, "start_offset": 1,
        "end_offset": 3, "damaged_batches": 0, "faults": 0}


def test_damage_is_told_and_exits_1(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """K8: what is sound is exported all the same."""
    (path,) = (data / "orders-0").glob("*.log")
    flip(path, path.read_bytes().index(b"some value"))
    code, shown, errors = run(capsys, str(data), "--to", str(tmp_path / "out"))
    assert code == 1
    assert "! orders-0:" in errors
    assert "orders-0: damaged batches left out: 1" in shown
    assert "orders-0: offsets [1, 4)" in shown


def test_a_running_node_needs_force(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """K8: retention and compaction could take files away meanwhile."""
    (data / LOCK_NAME).touch()
    lock = RealDisk().lock(str(data / LOCK_NAME))
    assert lock is not None
    code, _, errors = run(capsys, str(data), "--to", str(tmp_path / "out"))
    assert code == 1
    assert "a node is running" in errors
    assert "--force" in errors
    assert run(capsys, str(data), "--to", str(tmp_path / "out"), "--force")[0] == 0
    lock.release()


def test_wrong_usage_exits_2(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """K1: no target, no log, no time."""
    assert run(capsys, str(data))[0] == 2
    assert run(capsys, str(tmp_path / "nothing"), "--to", str(tmp_path / "out"))[0] == 2
    assert run(capsys, str(data), "--to", str(tmp_path / "out"), "--from-time", "noon")[0] == 2
    assert not (tmp_path / "out").exists()

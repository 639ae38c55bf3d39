"""`quipu log` as a person runs it."""

import json
from pathlib import Path
from typing import Any

import pytest

from quipu.cli.main import main
from quipu.model.batch_types import CONTROLLER
from quipu.runtime.disks.disk import RealDisk
from quipu.wire.record_batch import Record
from tests.storage.inspect.build import START_MS, LogBuilder, flip, three_segments

FIRST, SECOND, THIRD = (f"{first:020d}.log" for first in (0, 9, 18))


class Run:
    """One call of the command: its exit code and what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *words: object) -> None:
        self.code = main(["log", *map(str, words)])
        captured = capsys.readouterr()
        self.out, self.err = captured.out, captured.err

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in self.objects if each["kind"] == kind]


def test_show_prints_every_batch_and_a_summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """T9: type, both offsets, epoch, size, time and checksum state in a row each; exit code 0."""
    path = three_segments().write(tmp_path)

    run = Run(capsys, "show", path)

    assert run.code == 0
    lines = run.out.splitlines()
    assert lines[1].split() == [
        "OFFSET",
        "LOG",
        "OFFSET",
        "TYPE",
        "EPOCH",
        "RECORDS",
        "SIZE",
        "CODEC",
        "PRODUCER",
        "TIME",
        "(UTC)",
        "POSITION",
        "CHECKSUM",
    ]
    row = lines[3].split()
    assert row == [
        "0",
        "3",
        "data",
        "1",
        "2",
        str(len(three_segments().segments[0][1])),
        "none",
        "-",
        "2026-01-01T00:00:00.001",
        "168",
        "ok",
    ]
    assert sum(" data " in line for line in lines) == 9
    assert "[0, 18)" in lines[-1]
    assert "[0, 27)" in lines[-1]


def test_show_as_json_has_every_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """T9: JSON lines, one object per batch, and a summary."""
    path = three_segments().write(tmp_path)

    run = Run(capsys, "show", path, "--json")

    batches = run.of("batch")
    assert len(batches) == 12
    assert batches[1] == {
        "kind": "batch",
        "log": "orders-0",
        "file": FIRST,
        "position": 168,
        "size": len(three_segments().segments[0][1]),
        "type": 1,
        "type_name": "data",
        "offset": 0,
        "last_offset": 1,
        "log_offset": 3,
        "last_log_offset": 4,
        "epoch": 1,
        "records": 2,
        "compression": "none",
        "timestamp_type": "create_time",
        "base_timestamp": START_MS,
        "max_timestamp": START_MS + 1,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "transactional": False,
        "control": False,
        "crc": batches[1]["crc"],
        "checksum": "ok",
        "findings": [],
    }
    (summary,) = run.of("summary")
    assert (summary["batches"], summary["records"], summary["faults"]) == (12, 27, 0)


def test_show_goes_on_after_damage_and_exits_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """T9: damage is told where it is; everything behind it is shown."""
    builder = three_segments()
    path = builder.write(tmp_path)
    flip(path / SECOND, len(builder.segments[9][0]) + 8)

    run = Run(capsys, "show", path)

    assert run.code == 1
    assert "! orders-0: 00000000000000000009.log: damage: bad header checksum" in run.out
    assert "! orders-0: lost: log offsets 12 to 13, offsets 6 to 7" in run.out
    assert sum(" data " in line for line in run.out.splitlines()) == 8
    assert Run(capsys, "show", path, "--json").of("damage")[0]["position"] == 168


def test_show_flags_a_bad_checksum_in_its_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """T9: the state of the checksum, read or not."""
    builder = three_segments()
    path = builder.write(tmp_path)
    flip(path / SECOND, len(builder.segments[9][0]) + 80)

    assert [b["checksum"] for b in Run(capsys, "show", path, "--json").of("batch")].count(
        "BAD"
    ) == 1
    headers = Run(capsys, "show", path, "--json", "--headers-only")
    assert headers.code == 0
    assert {b["checksum"] for b in headers.of("batch")} == {"not read"}


def test_show_prints_records_in_a_range(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """T9: records decoded; only those of the range."""
    path = three_segments().write(tmp_path)

    run = Run(
        capsys,
        "show",
        path,
        "--records",
        "--json",
        "--type",
        "data",
        "--from-offset",
        7,
        "--to-offset",
        10,
    )

    assert [(r["offset"], r["key"]) for r in run.of("record")] == [
        (7, "key 7"),
        (8, "key 8"),
        (9, "key 9"),
    ]
    text = Run(capsys, "show", path, "--records", "--from-offset", 7, "--to-offset", 8).out
    assert "offset=7  timestamp=1767225600007  key=key 7  value=value 7" in text


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("2026-01-01T00:00:00.007Z", "2026-01-01T00:00:00.010Z"),
        ("1767225600007", "1767225600010"),
        ("2026-01-01T00:00:00.007", "2026-01-01T01:00:00.010+01:00"),
    ],
)
def test_show_takes_a_time_range(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], start: str, end: str
) -> None:
    """T9: ISO 8601, UTC unless it says otherwise, or milliseconds."""
    path = three_segments().write(tmp_path)

    run = Run(capsys, "show", path, "--json", "--type", "1", "--from-time", start, "--to-time", end)

    assert [batch["offset"] for batch in run.of("batch")] == [6, 8]


def test_show_summary_is_one_row_per_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """T9: a whole data directory at a glance; faults are told all the same."""
    three_segments().write(tmp_path)
    other = LogBuilder("orders-1").write(tmp_path)
    run = Run(capsys, "show", tmp_path, "--summary")
    assert run.code == 0
    assert [line.split()[0] for line in run.out.splitlines() if line] == [
        "LOG",
        "orders-0",
        "orders-1",
    ]

    flip(other / FIRST, 80)
    run = Run(capsys, "show", tmp_path, "--summary")

    assert run.code == 1
    assert "! orders-1: bad body checksum" in run.out


def test_show_reports_an_unknown_type(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """T11: named, shown, and no fault."""
    builder = LogBuilder()
    builder.append([Record(b"k", b"v", (), START_MS)], batch_type=99)

    run = Run(capsys, "show", builder.write(tmp_path), "--records")

    assert run.code == 0
    assert "unknown(99)" in run.out
    assert "* orders-0: unknown type: unknown(99); kept and hidden from clients" in run.out
    assert "key=k  value=v" in run.out


def test_show_tells_controller_commands_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """T9: what the controller can decode; a newer record is shown as it is, with the reason."""
    from quipu.controller.records import ClusterCreated, encode_record

    builder = LogBuilder("__cluster-0")
    builder.append(
        [
            Record(None, encode_record(ClusterCreated(cluster_id="knots"))),
            Record(None, b"\x7f\xff\x00\x00"),
        ],
        batch_type=CONTROLLER,
    )

    run = Run(capsys, "show", builder.write(tmp_path), "--records", "--json")

    told = run.of("record")
    assert told[1]["command"] == "ClusterCreated(cluster_id='knots')"
    assert told[2]["value_hex"] == "7fff0000"
    assert "newer" in told[2]["note"]
    assert run.code == 0


@pytest.mark.parametrize(
    "words",
    [
        ["show"],
        ["show", "{}/missing"],
        ["show", "{}", "--type", "nonsense"],
        ["show", "{}", "--from-time", "yesterday"],
        ["show", "{}", "--from-offset", "-1"],
        ["diff", "{}"],
        ["repair"],
        ["repair", "{}/missing"],
        ["cut", "{}"],
    ],
)
def test_wrong_usage_exits_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """T9, T10: and says what to write instead, on standard error."""
    three_segments().write(tmp_path)

    run = Run(capsys, *(word.format(tmp_path) for word in words))

    assert run.code == 2
    assert run.err
    assert not run.out


def test_diff_of_equal_logs_exits_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """T10: two data directories, log by log; what a node keeps for itself is left out."""
    for name in ("a", "b"):
        three_segments().write(tmp_path / name)
        LogBuilder("orders-1").write(tmp_path / name)
        for private in ("__node-0", "__cluster-0"):
            LogBuilder(private, epoch=1 if name == "a" else 2).write(tmp_path / name)

    run = Run(capsys, "diff", tmp_path / "a", tmp_path / "b")

    assert run.code == 0
    assert run.out.splitlines()[0].startswith("orders-0: the same: 12 batches, ")
    assert run.out.splitlines()[1].startswith("orders-1: the same: 1 batch, ")
    assert "__node" not in run.out
    assert "__cluster" not in run.out


def test_diff_names_the_first_offset_and_exits_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """T10: both offsets, what differs, as text and as JSON."""
    a = three_segments().write(tmp_path / "a")
    b = three_segments().write(tmp_path / "b")
    (b / THIRD).unlink()
    LogBuilder("orders-7").write(tmp_path / "a")

    run = Run(capsys, "diff", a, b)
    assert run.code == 1
    assert "orders-0: differs at offset 12, log offset 18, after 8 batches" in run.out
    assert "missing in B" in run.out
    run = Run(capsys, "diff", tmp_path / "a", b.parent, "--json")
    assert run.code == 1
    (comparison,) = run.of("comparison")
    assert (comparison["offset"], comparison["log_offset"]) == (12, 18)


def test_repair_without_yes_only_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """T10: a dry run says what would be lost and changes nothing; exit code 1: it is needed."""
    builder = three_segments()
    path = builder.write(tmp_path)
    flip(path / SECOND, len(builder.segments[9][0]) + 8)
    before = {file.name: file.read_bytes() for file in path.iterdir()}

    run = Run(capsys, "repair", path)

    assert run.code == 1
    assert "would be cut at position 168" in run.out
    assert "would be lost: offsets 6 to 17; batches: 6, records: 13, bytes: " in run.out
    assert "nothing was changed" in run.out
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


def test_repair_with_yes_cuts_and_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """T10: afterwards the log is whole, and shorter."""
    builder = three_segments()
    path = builder.write(tmp_path)
    flip(path / SECOND, len(builder.segments[9][0]) + 8)

    run = Run(capsys, "repair", tmp_path, "--yes", "--json")

    (done,) = run.of("repair")
    assert run.code == 0
    assert done["done"]
    assert (done["end_offset"], done["lost_offset_end"], done["lost_records"]) == (6, 18, 13)
    assert len(done["kept"]) == 2
    assert all(Path(kept).exists() for kept in done["kept"])
    assert Run(capsys, "show", path).code == 0
    assert Run(capsys, "repair", path).out == "orders-0: nothing to repair\n"


def test_repair_refuses_while_a_node_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """T10: the lock of the data directory decides."""
    path = three_segments().write(tmp_path)
    flip(path / SECOND, 8)
    lock = RealDisk().lock(str(tmp_path / ".lock"))
    assert lock is not None

    run = Run(capsys, "repair", path, "--yes")

    lock.release()
    assert run.code == 1
    assert "a node is running" in run.err

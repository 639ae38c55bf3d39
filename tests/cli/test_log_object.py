"""`quipu log show` of an object of diskless topics, as a person runs it."""

import json
from pathlib import Path
from typing import Any

import pytest

from quipu.cli.main import main
from quipu.diskless.objects.receipts import LogNote, Receipt
from quipu.diskless.values import LogKey
from quipu.model.ids import Offset
from tests.diskless.objects.builders import NAME, TOPIC, batch_of, object_of, stored

A, B = LogKey(TOPIC, 0), LogKey(TOPIC, 1)
START_MS = 1_767_225_600_000


def object_file(folder: Path, flip: int | None = None) -> Path:
    encoded = object_of(
        [batch_of(B, b"one", b"two", timestamp=START_MS, compression=1),
         batch_of(A, b"three", producer=(7, 1, 40), timestamp=START_MS + 5000, base_offset=12)],
        receipts=[Receipt(NAME._replace(sequence=6), (5, -1, -11))],
        notes=[LogNote(A, Offset(1), Offset(13))])
    data = bytearray(stored(encoded))
    if flip is not None:
        data[flip] ^= 0xFF
    path = folder / NAME.key.rpartition("/")[2]
    path.write_bytes(data)
    return path


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    code = main(["log", "show", *map(str, words)])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_every_batch_of_an_object_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """D4: partition, records, producer, time and checksum state; receipts; exit code 0."""
    code, out = run(capsys, object_file(tmp_path))
    assert code == 0
    lines = out.splitlines()
    assert lines[2].split() == [
        f"{TOPIC}-0", "12", "1", lines[2].split()[3], "none", "7/1/40", "2026-01-01T00:00:05.000",
        "16", "ok"]
    assert lines[3].split()[:3] == [f"{TOPIC}-1", "-", "2"]
    assert "gzip" in lines[3]
    assert "5, refused, duplicate of 9" in out
    assert f"note: {TOPIC}-0 has offsets 1 to 13" in out
    assert "2 batches, 3 records, 0 faults; 2 partitions; written by node 2" in lines[-1]


def test_records_of_an_object_are_decoded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """D4: decompressed; with offsets where the footer has them."""
    code, out = run(capsys, object_file(tmp_path), "--records", "--json")
    assert code == 0
    found = objects(out)
    records = [each for each in found if each["kind"] == "record"]
    assert [(each.get("offset"), each["value"]) for each in records] == [
        (12, "three"), (None, "one"), (None, "two")]
    kinds = [each["kind"] for each in found]
    assert kinds == ["batch", "record", "batch", "record", "record", "receipt", "note", "summary"]
    assert found[0]["topic_id"] == str(TOPIC)
    assert found[0]["checksum"] == "ok"
    assert found[-1]["sequence"] == 7


@pytest.mark.parametrize(("flip", "text"), [
    (16 + 65, "has a bad checksum"), (16 + 20, "has a bad checksum"), (16 + 9, "damaged header"),
    (-40, "footer: "), (0, "footer: "), (-1, "footer: ")])
def test_damage_of_an_object_is_flagged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flip: int, text: str
) -> None:
    """D4: a batch or the footer; the rest is shown; the exit code is 1."""
    path = object_file(tmp_path, flip=flip)
    code, out = run(capsys, path, "--records")
    assert code == 1
    assert f"! {path.name}: " in out
    assert text in out
    assert "value=two" in out
    assert run(capsys, path, "--summary")[0] == 1
    code, out = run(capsys, path, "--json")
    assert code == 1
    assert objects(out)[-1]["faults"] == 1
    assert any(each.get("fault") or each.get("findings") for each in objects(out))


def test_selections_of_an_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """D4: by time; offsets are refused, as its batches have none."""
    path = object_file(tmp_path)
    code, out = run(capsys, path, "--from-time", START_MS + 4000, "--headers-only")
    assert code == 0
    assert f"{TOPIC}-0" in out
    assert f"{TOPIC}-1" not in out
    assert "not read" in out
    code, out = run(capsys, path, "--from-offset", 3)
    assert code == 2
    assert "select by time only" in out


def test_an_object_of_a_later_version_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """D4: it is not damage."""
    path = object_file(tmp_path, flip=9)
    code, out = run(capsys, path)
    assert code == 2
    assert "update this node" in out

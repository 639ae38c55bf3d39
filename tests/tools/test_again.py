"""Which failed tests `make again` runs once more."""

import json
from pathlib import Path

from tools.again import FAILED_MAX, read_failed, why_not


def test_a_few_failed_tests_are_run_again(tmp_path: Path) -> None:
    path = tmp_path / "lastfailed"
    path.write_text(json.dumps({"tests/b.py::test_b[x]": True, "tests/a.py::test_a": True}))
    failed = read_failed(path)
    assert failed == ["tests/a.py::test_a", "tests/b.py::test_b[x]"]
    assert why_not(failed) is None


def test_many_failures_broken_files_and_a_run_that_did_not_end_stay_red(tmp_path: Path) -> None:
    assert why_not(read_failed(tmp_path / "none")) is not None
    assert why_not([f"tests/a.py::test_{number}" for number in range(FAILED_MAX + 1)]) is not None
    assert why_not(["tests/a.py"]) is not None

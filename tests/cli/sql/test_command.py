"""`quipu sql` as a person types it; what needs Spark is in tests/pipeline/spark."""

import subprocess
import sys
from pathlib import Path

import pytest

from quipu.cli.main import main
from quipu.cli.sql import command as sql
from tests.harness.command import run_quipu

BROKEN = """SHOW SOURCES;
CREATE SOURCE s FROM KAFKA BROKER 'b:1' TOPIC 't'
  FORMAT TEXT ENVELOPE UPSET"""


def test_a_mistake_in_the_last_statement_is_told_before_anything_is_done(tmp_path: Path) -> None:
    """I19: one error with line, column, the text underlined, and what to write instead."""
    result = run_quipu("sql", "-e", BROKEN, "--state", str(tmp_path / "state"))

    assert (result.code, result.out) == (1, "")
    assert result.err == (
        'quipu: line 3, column 24: Expected NONE, DEBEZIUM, UPSERT, or MATERIALIZE, '
        'found identifier "UPSET"\n'
        "      FORMAT TEXT ENVELOPE UPSET\n"
        "                           ^^^^^\n"
        "hint: did you mean UPSERT?\n"
    )
    assert not (tmp_path / "state").exists()


def test_a_script_comes_from_a_file_or_from_standard_input(tmp_path: Path) -> None:
    """I19: whatever it comes from, errors point into it."""
    script = tmp_path / "views.sql"
    script.write_text("SELEKT 1;")
    for words, stdin in ((("-f", str(script)), ""), (("-f", "-"), "SELEKT 1"), ((), "SELEKT 1")):
        result = run_quipu("sql", *words, stdin=stdin)
        assert result.code == 1
        assert "line 1, column 1" in result.err
        assert "did you mean SELECT?" in result.err


WRONG = [
    (["-e", "SELECT 1", "-f", "x"], 2, "give -e or -f, not both"),
    (["-e", "SELECT 1", "--set", "spark"], 2, "write KEY=VALUE"),
    (["-e", "SELECT 1", "--wait", "-1"], 2, "--wait"),
    (["-f", "nowhere.sql"], 1, "cannot read nowhere.sql: No such file or directory"),
    (["-e", "SELECT 1", "--state", "/dev/null/x"], 1, "cannot use /dev/null/x: Not a directory"),
    (["--nonsense"], 2, "--nonsense"),
]


@pytest.mark.parametrize(("words", "code", "message"), WRONG, ids=[" ".join(c[0]) for c in WRONG])
def test_wrong_usage_gets_one_clear_message(
    words: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """K8: exit code 2 for wrong usage, 1 for what fails."""
    assert main(["sql", *words]) == code
    assert message in capsys.readouterr().err


def test_help_needs_neither_spark_nor_arrow() -> None:
    """K8: other commands, and help, do not pay for Spark."""
    code = ("import sys; from quipu.cli.main import main; main(['sql', '--help']); "
            "main(['bench', 'sql', '--help']); main(['--help']); "
            "sys.exit(len({'pyspark', 'pyarrow', 'prompt_toolkit', 'numpy'} & set(sys.modules)))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "--bootstrap" in done.stdout


def test_what_is_missing_is_named_with_the_way_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """K8: Spark is an extra; without it the message says how to install it."""
    monkeypatch.setattr(sql, "EXTRA", ("pyspark", "no_such_module"))
    assert main(["sql", "-e", "SELECT 1", "--state", str(tmp_path)]) == 1
    assert "needs no_such_module: install them with pip install 'quipu[sql]'" in (
        capsys.readouterr().err)

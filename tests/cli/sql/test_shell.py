"""The shell's pieces, typed into through prompt_toolkit's pipe, with an engine without Spark."""

import _thread
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from quipu.cli.sql.completion import SqlCompleter, is_finished
from quipu.cli.sql.engine import ViewProgress
from quipu.cli.sql.runner import EngineRunner, Interrupted
from quipu.cli.sql.shell import Shell
from tests.cli.sql.fake_engine import FakeEngine

CTRL_C, CTRL_D, ENTER = "\x03", "\x04", "\r"


def typed(text: str, engine: FakeEngine, folder: Path) -> None:
    """Run a shell on what somebody types; it ends with Ctrl-D."""
    with create_pipe_input() as pipe, EngineRunner(engine) as runner:
        pipe.send_text(text + CTRL_D)
        Shell(runner, folder, terminal=(pipe, DummyOutput())).run()


def test_a_statement_takes_as_many_lines_as_it_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """I13: Enter goes on until there is a semicolon; the answer is a table."""
    engine = FakeEngine()
    typed(f"select *{ENTER}from orders where x = ';'{ENTER};{ENTER}", engine, tmp_path)

    assert engine.ran == ["select *\nfrom orders where x = ';'"]
    captured = capsys.readouterr()
    assert captured.out == "id  name\n--  ----\n 1  ada\n 2  NULL\n"
    assert "(2 rows)" in captured.err


def test_several_statements_on_a_line_are_carried_out_in_order(tmp_path: Path) -> None:
    engine = FakeEngine()
    typed(f"show sources; show views;{ENTER}", engine, tmp_path)

    assert engine.ran == ["SHOW SOURCES", "SHOW VIEWS"]


def test_a_mistake_is_underlined_and_the_shell_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """I19: one error with line, column, the text underlined, and what to write instead."""
    engine = FakeEngine()
    typed(f"show sorces;{ENTER}show views;{ENTER}", engine, tmp_path)

    told = capsys.readouterr().err
    assert "line 1, column 6" in told
    assert "show sorces;\n         ^^^^^^\n" in told
    assert "did you mean SOURCES?" in told
    assert engine.ran == ["SHOW VIEWS"]


def test_ctrl_c_at_the_prompt_forgets_the_line_only(tmp_path: Path) -> None:
    engine = FakeEngine()
    typed(f"drop source orders{CTRL_C}show views;{ENTER}", engine, tmp_path)

    assert engine.ran == ["SHOW VIEWS"]


def test_passwords_are_not_kept_in_the_history(tmp_path: Path) -> None:
    """I19: what was typed is there for the next time, without its secrets."""
    statement = "create connection c to kafka (broker 'b:1', sasl password = 'hunter2');"
    typed(statement + ENTER, FakeEngine(), tmp_path)

    kept = (tmp_path / "history").read_text()
    assert "create connection c to kafka" in kept
    assert "hunter2" not in kept


def test_the_shells_own_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    r"""I20: \progress tells rows, rates and lag; \d and \? tell the rest."""
    engine = FakeEngine()
    engine.reports = [ViewProgress("totals", "orders", "running", 10, 5.0, 3, 0, None)]
    typed(f"\\?{ENTER}\\d{ENTER}\\d orders{ENTER}\\progress{ENTER}\\timing{ENTER}"
          f"show views;{ENTER}\\nonsense{ENTER}\\q{ENTER}show sinks;{ENTER}", engine, tmp_path)

    captured = capsys.readouterr()
    assert "\\timing" in captured.err
    assert 'view    "Totals"' in captured.out
    assert "totals  orders  running" in captured.out
    assert engine.ran == ["SHOW COLUMNS FROM orders", "SHOW VIEWS"]  # and nothing after \q
    assert "timing is on" in captured.err
    assert " s\n" in captured.err
    assert "there is no \\nonsense" in captured.err


def completions(text: str) -> list[str]:
    engine = FakeEngine()
    completer = SqlCompleter(engine.names, engine.columns)
    return [each.text for each in completer.get_completions(Document(text), CompleteEvent())]


def test_words_names_and_columns_are_completed() -> None:
    """I13: the grammar's words, what the catalog holds, and columns of what a query names."""
    assert completions("CREATE MATERIALIZED ") == ["SOURCE", "VIEW"]
    assert completions("SELECT * FROM o") == ["orders", "ORDER BY", "ON", "OR"]
    assert completions("SELECT am FROM orders WHERE am") == ["amount"]
    assert '"Totals"' in completions("SUBSCRIBE TO ")
    assert completions("\\d o") == ["orders"]
    assert completions("\\t") == ["\\timing"]
    assert completions("\\timing x") == []


def test_a_completion_takes_the_place_of_what_was_begun() -> None:
    engine = FakeEngine()
    completer = SqlCompleter(engine.names, engine.columns)
    (found,) = completer.get_completions(Document("show sou"), CompleteEvent())

    assert (found.text, found.start_position) == ("SOURCES", -3)


FINISHED = [("", True), ("\\d x", True), ("select 1", False), ("select 1;", True),
            ("select ';'", False), ("select 1; select 2", False), ("-- a remark", True),
            ("/* ; ", False), ("create source s (a", False)]


@pytest.mark.parametrize(("text", "finished"), FINISHED)
def test_enter_knows_what_is_finished(text: str, finished: bool) -> None:
    assert is_finished(text) is finished


# --- waiting


def test_ctrl_c_ends_the_statement_and_not_the_shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """I13: the statement is cancelled, waited for, and the next one runs."""
    engine = FakeEngine()
    engine.holds = True
    with EngineRunner(engine) as runner:
        shell = Shell(runner, tmp_path)
        threading.Timer(0.3, _thread.interrupt_main).start()
        shell.handle("select 1;")
        assert engine.cancelled.is_set()
        assert "cancelled" in capsys.readouterr().err

        engine.holds = False
        shell.handle("show views;")
    assert engine.ran == ["select 1", "SHOW VIEWS"]


def test_subscribing_shows_changes_until_ctrl_c(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """I13: a view's changes are followed; Ctrl-C comes back to the prompt."""
    engine = FakeEngine()
    threading.Timer(0.3, _thread.interrupt_main).start()
    with EngineRunner(engine) as runner:
        Shell(runner, tmp_path).handle("subscribe to orders;")

    captured = capsys.readouterr()
    assert captured.out == "diff  id  name\n----  --  ----\n   1   1  ada\n"
    assert "cancelled" in captured.err
    assert engine.cancelled.is_set()


def test_what_work_raises_is_raised_where_it_is_waited_for() -> None:
    def fail() -> int:
        raise ValueError("no")

    def items() -> Iterator[int]:
        yield 1
        raise ValueError("no more")

    with EngineRunner(FakeEngine()) as runner:
        with pytest.raises(ValueError, match="no"):
            runner.wait_for(fail, str)
        taken = runner.follow(items(), 0)
        assert next(taken) == 1
        with pytest.raises(ValueError, match="no more"):
            assert set(taken) == {0}


def test_an_interrupt_waits_for_the_work_to_end() -> None:
    over = threading.Event()
    engine = FakeEngine()

    def work() -> None:
        engine.cancelled.wait(10)
        time.sleep(0.2)
        over.set()

    threading.Timer(0.2, _thread.interrupt_main).start()
    with EngineRunner(engine) as runner, pytest.raises(Interrupted):
        runner.wait_for(work, str)
    assert over.is_set()


def test_work_that_cannot_be_ended_is_left_to_itself() -> None:
    """I13: Ctrl-C is answered within a second, and the next statement does not wait either."""
    answered = threading.Event()
    threading.Timer(0.2, _thread.interrupt_main).start()
    begun = time.monotonic()
    with EngineRunner(FakeEngine()) as runner:
        with pytest.raises(Interrupted):
            runner.wait_for(lambda: answered.wait(10), str)
        assert runner.wait_for(lambda: 7, str) == 7
        assert time.monotonic() - begun < 0.2 + 1.0
        answered.set()


def test_a_status_that_takes_long_delays_nothing() -> None:
    """I13, I20: brokers may take long to tell the lag; Ctrl-C and the answer do not wait."""
    answered = threading.Event()
    begun = time.monotonic()
    with EngineRunner(FakeEngine()) as runner:
        runner.wait_for(lambda: time.sleep(0.6), lambda: str(answered.wait(10)))
        assert time.monotonic() - begun < 2
        answered.set()

"""Rows as `quipu sql` shows them."""

import datetime as dt
import io
import json
import threading
from decimal import Decimal

import pytest

from quipu.cli.sql.engine import ViewProgress
from quipu.cli.sql.output import Heading, Writer, blocks_of, cell, plain
from quipu.cli.sql.progress import line, row, summary, wait_until_current
from quipu.cli.sql.runner import EngineRunner
from quipu.cli.sql.serve import report_progress, serve
from quipu.cli.sql.status_line import StatusLine
from tests.cli.sql.fake_engine import FakeEngine

HEADINGS = [Heading("Id", is_number=True), Heading("id")]


class Terminal(io.StringIO):
    """What a terminal was sent."""

    def isatty(self) -> bool:
        return True


def shown(*blocks: list[tuple[object, ...]], as_json: bool = False) -> str:
    out = io.StringIO()
    Writer(HEADINGS, as_json=as_json, out=out).write_all(blocks)
    return out.getvalue()


def test_a_table_keeps_names_as_they_are_and_tells_null_from_empty(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """I3: case matters in names; numbers stand at the right."""
    assert shown([(7, "a"), (12, None)], [(3, "")]) == (
        "Id  id\n"
        "--  ----\n"
        " 7  a\n"
        "12  NULL\n"
        " 3\n"
    )
    assert capsys.readouterr().err == "(3 rows)\n"


def test_a_table_without_rows_has_its_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown() == "Id  id\n--  --\n"
    assert capsys.readouterr().err == "(0 rows)\n"


def test_wide_letters_and_lines_within_a_value_do_not_break_a_table() -> None:
    lines = shown([(1, "結び目"), (2, "a\nb\x1b[2J")]).splitlines()

    assert lines[1] == "--  -----------"
    assert lines[3] == " 2  a\\nb\\x1b[2J"


def test_a_terminal_gets_the_first_rows_and_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    out = io.StringIO()
    writer = Writer(HEADINGS, as_json=False, out=out, rows_max=2)
    writer.write_all(blocks_of(((number, "x") for number in range(5)), 2))

    assert out.getvalue().count("\n") == 4
    assert "the first 2 rows; write LIMIT" in capsys.readouterr().err


def test_json_has_every_row_and_every_name() -> None:
    """Two columns of one name get two names; a JSON object has none twice."""
    out = io.StringIO()
    Writer([Heading("id"), Heading("id"), Heading("id_2")], as_json=True, out=out).write_all(
        [[(1, 2, 3)], [(4, 5, 6)]])

    assert [json.loads(each) for each in out.getvalue().splitlines()] == [
        {"id": 1, "id_2": 2, "id_2_2": 3}, {"id": 4, "id_2": 5, "id_2_2": 6}]


UTC = dt.UTC
VALUES = [
    (None, "NULL", None),
    (True, "true", True),
    (1.5, "1.5", 1.5),
    (float("nan"), "nan", "nan"),
    (b"\x00\xff", "\\x00ff", "AP8="),
    (dt.datetime(2026, 1, 31, 12, tzinfo=UTC), "2026-01-31T12:00:00+00:00",
     "2026-01-31T12:00:00+00:00"),
    (dt.date(2026, 1, 31), "2026-01-31", "2026-01-31"),
    (Decimal("1.10"), "1.10", "1.10"),
    ([{"k": b"v"}], '[{"k": "dg=="}]', [{"k": "dg=="}]),
    ({"a": [1, None]}, '{"a": [1, null]}', {"a": [1, None]}),
]


@pytest.mark.parametrize(("value", "text", "as_json"), VALUES, ids=[str(c[0]) for c in VALUES])
def test_a_value(value: object, text: str, as_json: object) -> None:
    """I2: types are told apart; decimals lose no digit, bytes no bit."""
    assert cell(value) == text
    assert plain(value) == as_json


def test_a_long_value_is_cut_in_a_table_only() -> None:
    assert cell("x" * 500) == "x" * 119 + "…"
    assert plain("x" * 500) == "x" * 500


ORDERS = ViewProgress("totals", "orders", "running", 12_000, 3_400.4, 7, 0, None)
PEOPLE = ViewProgress("totals", "people", "waiting", 0, 0.0, None, 2, "no broker\nanswers")


def test_progress_is_a_row_a_line_and_a_sum() -> None:
    """I20: messages, rates and lag; a lag that nobody knows is not called zero."""
    assert row(ORDERS)["messages/s"] == 3400
    assert line(ORDERS) == "totals from orders: running, 12,000 messages, 3,400/s, lag 7\n"
    assert line(PEOPLE) == ("totals from people: waiting, 0 messages, 0/s, lag unknown, "
                            "2 dead letters, no broker\\nanswers\n")
    assert summary([ORDERS]) == "totals: 3,400 messages/s, lag 7"
    assert summary([ORDERS, PEOPLE]).endswith("lag unknown; failing: totals")
    assert summary([]) == "there are no views or sinks yet"


def test_progress_goes_to_a_log_a_terminal_and_a_program() -> None:
    """I20: one line per source of a view in each of them."""
    log, terminal, program = io.StringIO(), Terminal(), io.StringIO()

    assert report_progress([ORDERS, PEOPLE], as_json=False, out=log) == 2
    assert report_progress([ORDERS, PEOPLE], as_json=False, out=terminal) == 3
    report_progress([ORDERS], as_json=True, out=program)

    assert terminal.getvalue().splitlines()[1].split()[:3] == ["totals", "orders", "running"]
    assert json.loads(program.getvalue())["lag"] == 7


def test_serving_tells_of_progress_until_it_is_stopped() -> None:
    """I20: the line that says it is ready, and then how far everything is."""
    engine, out, stopping = FakeEngine(), io.StringIO(), threading.Event()
    engine.reports = [ORDERS]
    threading.Timer(0.25, stopping.set).start()
    serve(engine, every_seconds=0.1, as_json=False, stopping=stopping, out=out)

    first, second, *_ = out.getvalue().splitlines()
    assert first == "quipu sql ready"
    assert second.startswith("totals from orders: running")


def test_waiting_for_views_shows_how_far_they_are() -> None:
    """I20: on a terminal; the line is gone afterwards."""
    terminal = Terminal()
    engine = FakeEngine()
    engine.reports = [ORDERS]

    with EngineRunner(engine, StatusLine(terminal)) as runner:
        assert wait_until_current(runner, 10)
        assert "lag 7" in terminal.getvalue()
        assert terminal.getvalue().endswith("\r\x1b[2K")

        engine.catches_up = False
        assert not wait_until_current(runner, 2)

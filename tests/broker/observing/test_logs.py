"""Log lines: one event, one line, fields that machines can read."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from quipu.broker.observing import logs


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """A stream for log lines; the root logger is as before afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_text_lines_have_time_level_room_message_and_fields(stream: io.StringIO) -> None:
    """K9: structured logs that a person can read."""
    logs.configure(level="info", form="text", stream=stream)

    logging.getLogger("quipu.storage.log").info(
        "segment rolled at %d", 417, extra={"log": "orders-0", "why": "too old"}
    )

    time, rest = stream.getvalue().split(" ", 1)
    assert time.endswith("Z")
    assert rest == 'INFO    storage.log segment rolled at 417 log=orders-0 why="too old"\n'


def test_json_lines_keep_the_types_of_fields(stream: io.StringIO) -> None:
    """K9: structured logs for machines."""
    logs.configure(level="info", form="json", stream=stream)

    logging.getLogger("quipu.broker").warning("full", extra={"size": 7, "who": b"x"})

    event = json.loads(stream.getvalue())
    assert event.pop("time")
    assert event == {
        "level": "warning", "logger": "broker", "message": "full", "size": 7, "who": "b'x'",
    }  # fmt: skip


def test_an_exception_stays_within_its_json_line(stream: io.StringIO) -> None:
    """K9: a traceback is a field, not thirty lines that belong to nothing."""
    logs.configure(level="info", form="json", stream=stream)

    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        logging.getLogger("quipu").exception("failed")

    (line,) = stream.getvalue().splitlines()
    assert "ZeroDivisionError" in json.loads(line)["exception"]


@pytest.mark.parametrize("form", logs.FORMATS)
def test_a_client_cannot_forge_a_line(form: str, stream: io.StringIO) -> None:
    """K8: a client id with line breaks or terminal codes stays inside its line."""
    logs.configure(level="info", form=form, stream=stream)
    evil = "x\n2026-01-01T00:00:00.000Z INFO forged \x1b[2J"

    logging.getLogger("quipu").info("client %s", evil, extra={"client": evil})

    text = stream.getvalue()
    assert text.count("\n") == 1
    assert "\x1b" not in text


def test_levels_leave_out_what_is_below(stream: io.StringIO) -> None:
    """K9: `logging.level` decides what is worth a line."""
    logs.configure(level="warning", form="text", stream=stream)

    logging.getLogger("quipu").info("small talk")
    logging.getLogger("quipu").warning("the disk is full")

    assert "small talk" not in stream.getvalue()
    assert "the disk is full" in stream.getvalue()


def test_a_wrong_placeholder_costs_no_line(stream: io.StringIO) -> None:
    """K9: a mistake in a log call is shown, not raised."""
    logs.configure(level="info", form="text", stream=stream)

    logging.getLogger("quipu").info("%d of %d", *["one"])

    assert "%d of %d ('one',)" in stream.getvalue()

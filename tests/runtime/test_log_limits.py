"""Log lines that a remote party causes: how many, how long, and in whose name."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quipu.runtime.clock import ManualClock
from quipu.runtime.log_limits import BURST, KINDS_MAX, LINE_SIZE_MAX, LimitedLog, one_line


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def lines() -> Lines:
    return Lines()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def limited(lines: Lines, clock: ManualClock) -> LimitedLog:
    logger = logging.Logger("limited")  # noqa: LOG001 a logger of this test alone
    logger.addHandler(lines)
    return LimitedLog(logger, clock.monotonic)


def test_a_flood_is_a_few_lines_and_a_count(
    limited: LimitedLog, lines: Lines, clock: ManualClock
) -> None:
    """K8: runtime.L1; of a million bad requests the log has the first ones, and how many there
    were.
    """
    for index in range(100_000):
        limited.warning("bad request", "closing connection of %s: request %d", "10.0.0.1", index)

    assert len(lines.lines) == BURST
    assert limited.left_out == 100_000 - BURST
    clock.advance_ms(1000)
    limited.warning("bad request", "closing connection of %s", "10.0.0.1")
    assert lines.lines[-1] == ("closing connection of 10.0.0.1 (bad request: "
                               f"{100_000 - BURST} more were left out of the log)")


def test_what_was_left_out_is_reported_when_the_flood_is_over(
    limited: LimitedLog, lines: Lines, clock: ManualClock
) -> None:
    for _ in range(BURST + 7):
        limited.warning("bad request", "no")
    limited.report()
    assert len(lines.lines) == BURST

    clock.advance_ms(60_000)
    limited.report()
    limited.report()

    assert lines.lines[BURST:] == ["bad request: 7 more were left out of the log"]


def test_one_kind_does_not_silence_another(limited: LimitedLog, lines: Lines) -> None:
    for _ in range(1000):
        limited.warning("bad request", "no")

    limited.warning("refused connection", "yes")

    assert lines.lines[-1] == "yes"


def test_kinds_are_bounded(limited: LimitedLog, lines: Lines) -> None:
    """A caller that makes kinds of what was sent is a mistake, and still bounded."""
    for index in range(10_000):
        limited.warning(f"kind {index}", "no")

    assert len(lines.lines) <= KINDS_MAX + BURST


def test_a_line_is_short_and_cheap_whatever_was_sent(limited: LimitedLog, lines: Lines) -> None:
    limited.warning("name", "no such topic: %r", "x" * 50_000_000)
    limited.warning("name", "no such topic: %s", "\x1b" * 50_000_000)

    assert all(len(line) <= LINE_SIZE_MAX for line in lines.lines)
    assert lines.lines[0].endswith("...")


def test_nobody_forges_a_line(limited: LimitedLog, lines: Lines) -> None:
    limited.warning("name", "group %s", "a\n2026-01-31T12:00:00.123Z INFO broker stopped\x1b[2J")

    assert lines.lines == ["group a\\n2026-01-31T12:00:00.123Z INFO broker stopped\\x1b[2J"]


@given(st.text(st.characters(exclude_categories=()), max_size=2 * LINE_SIZE_MAX))
def test_a_line_is_printable_and_bounded(text: str) -> None:
    """runtime.L3: runtime.L2: lone surrogates, separators, overrides of direction: whatever text
    there is.
    """
    line = one_line(text)

    assert line.isprintable()
    assert len(line) <= LINE_SIZE_MAX
    if text.isprintable() and len(text) <= LINE_SIZE_MAX:
        assert line == text

"""What a command says while it waits, and when."""

import threading
from itertools import pairwise

import pytest

from quipu.cli.waiting import REPEAT_SECONDS_MAX, WaitReporter, watching


class Waits:
    """A reporter with a clock and a reason of the test's, and what it has told when."""

    def __init__(self) -> None:
        self.now = 100.0
        self.why: str | None = "no leader"
        self.asked = 0
        self.told: list[tuple[float, str]] = []
        self.reporter = WaitReporter(
            self._ask, clock=lambda: self.now,
            tell=lambda text: self.told.append((self.now - 100, text)))

    def _ask(self) -> str | None:
        self.asked += 1
        return self.why

    def wait(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            self.reporter.waited()


def test_the_reason_is_told_after_three_seconds_and_then_sparingly() -> None:
    """K9: nothing before; then after pauses that double, up to a minute; and the end of it."""
    waits = Waits()
    waits.wait(2.8)
    assert (waits.told, waits.asked) == ([], 0)
    waits.wait(300)
    times = [at for at, _ in waits.told]
    assert times[0] == pytest.approx(3, abs=0.3)
    assert waits.told[0][1] == "waiting for 3 s: no leader"
    assert [round(later - earlier) for earlier, later in pairwise(times)] == [
        6, 12, 24, 48, *[REPEAT_SECONDS_MAX] * 3]
    waits.reporter.progressed()
    assert waits.told[-1][1] == "going on after 303 s"


def test_who_goes_on_in_time_hears_nothing() -> None:
    """K9: each record that arrives begins the wait anew; nobody asks why."""
    waits = Waits()
    for _ in range(20):
        waits.wait(2)
        waits.reporter.progressed()
    assert (waits.told, waits.asked) == ([], 0)


def test_a_reader_at_the_end_is_not_told_that_it_waits() -> None:
    """K9: without a reason there is nothing to tell; that a reason is gone is told."""
    waits = Waits()
    waits.why = None
    waits.wait(20)
    assert waits.told == []
    waits.why = "no leader"
    waits.wait(4)
    assert waits.told[-1][1].endswith("no leader")
    waits.why = None
    waits.wait(10)
    assert [text.partition(" after")[0] for _, text in waits.told[1:]] == ["going on"]


def test_control_characters_of_a_reason_are_escaped() -> None:
    """K8: a broker's words cannot steer a terminal."""
    waits = Waits()
    waits.why = "\x1b[2J"
    waits.wait(4)
    assert "\x1b" not in waits.told[0][1]


def test_somebody_looks_while_the_command_waits_for_input() -> None:
    """K9: the reason is also told to who has typed a line and waits."""
    looked = threading.Event()
    with watching(looked.set):
        assert looked.wait(10)

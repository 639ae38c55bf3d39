"""What clients were told, and whether it can all be true."""

from collections.abc import Callable

import pytest

from quipu.sim.history import History
from quipu.sim.world import Violation

T0 = ("t", 0)


def sent(*values: bytes) -> History:
    history = History()
    for value in values:
        history.sent(value)
    return history


def two_values(history: History) -> None:
    history.acked(T0, 5, b"a")
    history.acked(T0, 5, b"b")


def two_places(history: History) -> None:
    history.acked(T0, 5, b"a")
    history.read("r", T0, 6, b"a")


def from_nowhere(history: History) -> None:
    history.read("r", T0, 0, b"z")


def refused_and_read(history: History) -> None:
    history.refused(b"a")
    history.read("r", T0, 0, b"a")


def backwards(history: History) -> None:
    history.read("r", T0, 0, b"a")
    history.read("r", T0, 0, b"a")


def skipped(history: History) -> None:
    history.read("r", T0, 0, b"a")
    history.read("r", T0, 2, b"b")


def lost(history: History) -> None:
    history.acked(T0, 0, b"a")
    history.missing(T0, ["r"])


def created_twice(history: History) -> None:
    history.created("t", "1")
    history.created("t", "2")


def reordered(history: History) -> None:
    history.in_order("p")
    for value in (b"p-0", b"p-1", b"p-2"):
        history.sent(value)
    history.read("r", T0, 0, b"p-0")
    history.read("r", T0, 1, b"p-2")


@pytest.mark.parametrize(("name", "story"), [
    ("inconsistent-offsets", two_values), ("duplicate", two_places),
    ("phantom-read", from_nowhere), ("aborted-read", refused_and_read),
    ("nonmonotonic-poll", backwards), ("poll-skip", skipped), ("lost-write", lost),
    ("twice-created", created_twice), ("reordered", reordered),
])
def test_a_broken_promise_is_named(name: str, story: Callable[[History], None]) -> None:
    with pytest.raises(Violation, match=name):
        story(sent(b"a", b"b"))


def test_a_good_history_is_good() -> None:
    history = sent(b"a", b"b", b"c")
    history.acked(T0, 0, b"a")
    history.read("r", T0, 0, b"a")
    history.read("r", T0, 1, b"b")  # its answer was lost
    history.refused(b"c")
    history.missing(T0, ["r"])
    assert history.end(T0) == 2

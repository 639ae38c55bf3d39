"""The checker of responses finds every kind of contradiction."""

from collections.abc import Callable

import pytest

from quipu.sim.workloads.history import ClientHistory
from quipu.sim.world import Violation

T0 = ("t", 0)


def sent(*values: bytes) -> ClientHistory:
    history = ClientHistory()
    for value in values:
        history.sent(value)
    return history


def two_values(history: ClientHistory) -> None:
    history.acked(T0, 5, b"a")
    history.acked(T0, 5, b"b")


def two_places(history: ClientHistory) -> None:
    history.acked(T0, 5, b"a")
    history.read("r", T0, 6, b"a")


def from_nowhere(history: ClientHistory) -> None:
    history.read("r", T0, 0, b"z")


def refused_and_read(history: ClientHistory) -> None:
    history.refused(b"a")
    history.read("r", T0, 0, b"a")


def backwards(history: ClientHistory) -> None:
    history.read("r", T0, 0, b"a")
    history.read("r", T0, 0, b"a")


def skipped(history: ClientHistory) -> None:
    history.read("r", T0, 0, b"a")
    history.read("r", T0, 2, b"b")


def lost(history: ClientHistory) -> None:
    history.acked(T0, 0, b"a")
    history.missing(T0, ["r"])


def created_twice(history: ClientHistory) -> None:
    history.created("t", "1")
    history.created("t", "2")


def reordered(history: ClientHistory) -> None:
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
def test_a_broken_promise_is_named(name: str, story: Callable[[ClientHistory], None]) -> None:
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


def test_a_reader_whose_records_were_deleted_goes_on_after_them() -> None:
    """What it skips is neither lost nor out of order; what follows is checked as before."""
    history = sent(b"p-0", b"p-5", b"p-6", b"p-8")
    history.in_order("p")
    history.read("r", T0, 0, b"p-0")
    history.skipped("r", T0, 9)
    history.read("r", T0, 9, b"p-5")
    history.read("r", T0, 10, b"p-6")
    with pytest.raises(Violation, match="reordered"):
        history.read("r", T0, 11, b"p-8")

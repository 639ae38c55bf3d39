"""ENVELOPE MATERIALIZE against a naive reading of its rules, over deliveries of every kind."""

import os
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pipeline.envelopes.message_maker import Pair
from tests.pipeline.tables.source_table import SourceTable
from tests.pipeline.tables.test_change_sources import materialize, progress, updates

TIME_MAX = 6


class Update(NamedTuple):
    """One more, or one less, of a row at a time."""

    number: int
    name: str
    time: int
    diff: int


class Span(NamedTuple):
    """Progress over [lower, upper)."""

    lower: int
    upper: int


Message = list[Update] | Span


@pytest.fixture(autouse=True, scope="module")
def unflushed() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for flush in ("fsync", "fdatasync"):
            patch.setattr(os, flush, lambda _descriptor: None)
        yield


def history_of(states: list[dict[int, str]]) -> list[Update]:
    """The updates from one state of a table (number: name) to the next, a time each."""
    found: list[Update] = []
    before: dict[int, str] = {}
    for time, after in enumerate(states):
        found += [Update(*row, time, -1) for row in before.items() - after.items()]
        found += [Update(*row, time, 1) for row in after.items() - before.items()]
        before = after
    return found


@st.composite
def deliveries(draw: st.DrawFn) -> tuple[list[Update], list[list[Message]]]:
    """A history, and messages about it: in batches, in any order, some of them twice."""
    states = draw(st.lists(st.dictionaries(st.integers(0, 3), st.sampled_from("abc")),
                           min_size=TIME_MAX, max_size=TIME_MAX))
    history = history_of(states)
    messages: list[Message] = []
    left = list(draw(st.permutations(history)))
    while left:
        size = draw(st.integers(1, len(left)))
        messages.append(left[:size])
        left = left[size:]
    cuts = sorted({0, TIME_MAX, *draw(st.lists(st.integers(0, TIME_MAX), max_size=3))})
    messages += [Span(*both) for both in pairwise(cuts)]
    messages += draw(st.lists(st.sampled_from(messages), max_size=4))
    messages = list(draw(st.permutations(messages)))
    batches = []
    while messages:
        size = draw(st.integers(1, len(messages)))
        batches.append(messages[:size])
        messages = messages[size:]
    return history, batches


def encoded(message: Message, history: list[Update]) -> Pair:
    if isinstance(message, Span):
        counts = Counter(f"t{each.time}" for each in history
                         if message.lower <= each.time < message.upper)
        return progress(message.lower, message.upper, **counts)
    return updates(*message)


def seen(history: list[Update], delivered: list[Message]) -> list[tuple[int, str]]:
    """The rows at the first time that is not closed yet."""
    here = {each for message in delivered if not isinstance(message, Span) for each in message}
    spans = [message for message in delivered if isinstance(message, Span)]
    closed = 0
    while any(span.lower <= closed < span.upper for span in spans) and all(
        each in here for each in history if each.time == closed
    ):
        closed += 1
    counts: Counter[tuple[int, str]] = Counter()
    for each in history:
        if each.time < closed:
            counts[each.number, each.name] += each.diff
    return sorted(counts.elements())


@pytest.mark.parametrize("identity", [(), ("id",)], ids=["counted", "by key"])
@settings(max_examples=30)
@given(deliveries())
def test_times_are_seen_whole_and_in_order(
    identity: tuple[str, ...], those: tuple[list[Update], list[list[Message]]],
) -> None:
    """I8: whatever the order, the cuts and the repetitions of messages."""
    history, batches = those
    delivered: list[Message] = []
    with TemporaryDirectory() as place:
        table = SourceTable(Path(place), materialize(identity=identity))
        for batch in batches:
            before = Counter(table.rows())
            delivered += batch
            table.feed(*(encoded(message, history) for message in batch))
            assert table.rows() == table.snapshot() == seen(history, delivered)
            changed = Counter({row[:-1]: row[-1] for row in table.changes()})
            after = Counter(table.rows())
            after.subtract(before)
            assert changed == Counter({row: count for row, count in after.items() if count})

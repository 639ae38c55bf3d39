"""Folding, over fingerprints that share halves, against dicts."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quipu.pipeline.envelopes.events import Action
from quipu.pipeline.tables import _sorted_pure, fingerprint_search
from quipu.pipeline.tables.merging import (
    Entries,
    find,
    fold_counts,
    fold_latest,
    lookup,
    merge_runs,
    winners,
)

# few numbers, so that halves meet, and large ones, so that both twins' ways are used
HALF = st.sampled_from([0, 1, 2, 2**63, 2**64 - 1])
PAIR = st.tuples(HALF, HALF)
Pair = tuple[int, int]


def halves(pairs: list[Pair]) -> tuple[Any, Any]:
    return (np.array([pair[0] for pair in pairs], np.uint64),
            np.array([pair[1] for pair in pairs], np.uint64))


def run_of(given_entries: dict[Pair, tuple[int, Action]]) -> Entries:
    """Entries by fingerprint: a pointer and an action."""
    pairs = sorted(given_entries)
    return Entries(
        *halves(pairs), np.array([given_entries[pair][0] for pair in pairs], np.int64),
        np.array([given_entries[pair][1] for pair in pairs], np.uint8))


RUN = st.dictionaries(PAIR, st.tuples(
    st.integers(0, 99), st.sampled_from([Action.ROW, Action.DELETE, Action.ERROR])))


@pytest.mark.parametrize("twin", [fingerprint_search, _sorted_pure], ids=["served", "numpy"])
@given(st.lists(PAIR, max_size=30), st.lists(PAIR, unique=True, max_size=20))
def test_sorting_and_finding(twin: Any, pairs: list[Pair], run: list[Pair]) -> None:
    first, second = halves(pairs)
    order = twin.sort_pairs(first, second)
    assert order.tolist() == sorted(range(len(pairs)), key=lambda row: pairs[row])

    run.sort()
    for rows in (order, np.arange(len(pairs))):  # sorted, and not
        at, hit, miss = twin.find_pairs(*halves(run), first, second, rows)
        there = [row for row in rows.tolist() if pairs[row] in run]
        assert hit.tolist() == there
        assert at.tolist() == [run.index(pairs[row]) for row in there]
        assert miss.tolist() == [row for row in rows.tolist() if pairs[row] not in run]


@given(st.integers(0, 3000), st.integers(0, 2**32))
def test_both_twins_agree_on_many_numbers(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 2**64, count, np.uint64) << np.uint64(seed % 60)
    second = rng.integers(0, 3, count, np.uint64)

    order = fingerprint_search.sort_pairs(first, second)
    assert (order == _sorted_pure.sort_pairs(first, second)).all()


@given(st.lists(st.tuples(PAIR, st.integers(0, 2), st.integers(0, 2)), max_size=30))
def test_of_several_events_one_wins(events: list[tuple[Pair, int, int]]) -> None:
    first, second = halves([event[0] for event in events])
    last = {pair: row for row, (pair, *_) in enumerate(events)}
    assert winners(first, second).tolist() == [last[pair] for pair in sorted(last)]

    greatest: dict[Pair, int] = {}
    for row, (pair, *rank) in enumerate(events):
        if pair not in greatest or rank >= list(events[greatest[pair]][1:]):
            greatest[pair] = row
    priority = tuple(np.array([event[place] for event in events], np.int64) for place in (1, 2))
    assert winners(first, second, priority).tolist() == [greatest[pair]
                                                         for pair in sorted(greatest)]


@given(st.lists(RUN, min_size=1, max_size=4), st.booleans(), st.booleans())
def test_the_newest_run_holds(runs: Any, bottom: bool, keep_deletes: bool) -> None:
    """pipeline.T2."""
    holds: dict[Pair, tuple[int, Action]] = {}
    for run in reversed(runs):
        holds |= run
    asked = sorted({*holds, (5, 5)})
    found = lookup([run_of(run) for run in runs], *halves(asked), 0)
    assert list(zip(found.pointer.tolist(), found.action.tolist(), strict=True)) == [
        holds.get(pair, (-1, Action.DELETE)) for pair in asked]

    merged = merge_runs([run_of(run) for run in runs], bottom=bottom, keep_deletes=keep_deletes)
    kept = [pair for pair in sorted(holds)
            if holds[pair][1] is not Action.DELETE or not bottom or keep_deletes]
    assert list(zip(merged.first.tolist(), merged.second.tolist(), strict=True)) == kept
    assert merged.pointer.tolist() == [holds[pair][0] for pair in kept]
    assert find(merged, *halves(kept)).tolist() == list(range(len(kept)))


def test_what_changes_nothing_is_left_out() -> None:
    """A delete of something unknown, or deleted already; a count that comes and goes."""
    runs = [run_of({(1, 1): (7, Action.ROW), (2, 2): (-1, Action.DELETE)})]
    pairs = halves([(0, 0), (1, 1), (2, 2)])
    fold = fold_latest(runs, *pairs, np.full(3, Action.DELETE, np.uint8))
    assert fold.entries.first.tolist() == [1]
    assert (fold.before.tolist(), fold.released.tolist()) == ([7], [7])
    assert (fold.rows_added, fold.errors_added) == (-1, 0)

    counted = fold_counts([], *halves([(3, 3), (4, 4), (3, 3)]), np.array([2, 1, -2], np.int64))
    assert counted.entries.first.tolist() == [4]
    assert (counted.entries.extra[0].tolist(), counted.rows_added) == ([1], 1)


def test_nothing_is_folded_to_nothing() -> None:
    none = halves([])
    assert len(fold_latest([], *none, np.zeros(0, np.uint8)).entries) == 0
    assert len(fold_counts([], *none, np.zeros(0, np.int64)).entries) == 0

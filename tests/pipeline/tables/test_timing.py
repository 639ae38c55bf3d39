"""Progress: which times are closed."""

import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from quipu.pipeline.tables.timing import TimeProgress, by_time, first_of_each


def messages(*spans: tuple[int, int | None, dict[int, int]]) -> list[bytes]:
    return [json.dumps({"lower": lower, "upper": upper, "counts": list(counts.items())}).encode()
            for lower, upper, counts in spans]


def times(*given_times: int) -> np.ndarray:  # type: ignore[type-arg] # of int64
    return np.array(given_times, np.int64)


def test_a_time_is_closed_when_it_is_covered_and_complete() -> None:
    progress = TimeProgress().with_messages(messages((0, 5, {3: 2, 4: 1})))
    assert progress.advanced(times()).closed == 3
    assert progress.advanced(times(3)).closed == 3
    assert progress.advanced(times(3, 3)).closed == 4
    done = progress.advanced(times(3, 3, 4))
    assert (done.closed, done.spans) == (5, ())


def test_spans_may_come_in_any_order_and_twice() -> None:
    progress = TimeProgress().with_messages(messages((5, 9, {}))).advanced(times())
    assert progress.closed == 0
    more = messages((2, 5, {}), (0, 2, {}), (0, 2, {}))
    progress = progress.with_messages(more).advanced(times())
    assert (progress.closed, progress.spans) == (9, ())
    assert progress.with_messages(messages((0, 2, {}))).advanced(times()).spans == ()


def test_the_end_of_time_closes_everything() -> None:
    progress = TimeProgress().with_messages(messages((0, None, {7: 1}))).advanced(times(7))
    assert progress.closed > 10**18


def test_lost_messages_make_numbers_meaningless() -> None:
    progress = TimeProgress().with_messages([*messages((0, 5, {3: 2})), b'{"lost": 1}'])
    assert progress.advanced(times(3)).closed == 5


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.dictionaries(
    st.integers(0, 9), st.integers(0, 2)))), st.lists(st.integers(0, 9)))
def test_progress_survives_its_text(
    spans: list[tuple[int, int, dict[int, int]]], waiting: list[int],
) -> None:
    progress = TimeProgress().with_messages(messages(*spans)).advanced(times(*waiting))
    assert TimeProgress.from_json(progress.to_json()) == progress
    assert TimeProgress.from_json("") == TimeProgress()


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(-1, 1),
                          st.integers(0, 2)), max_size=20))
def test_repetitions_are_dropped(events: list[tuple[int, int, int, int]]) -> None:
    first, second = (np.array([e[i] for e in events], np.uint64) for i in (0, 1))
    diff, time = (np.array([e[i] for e in events], np.int64) for i in (2, 3))
    kept = first_of_each(first, second, diff, time).tolist()

    assert [events[row] for row in kept] == list(dict.fromkeys(events))
    order = by_time(time, diff).tolist()
    assert [events[row][:1:-1] for row in order] == sorted(e[:1:-1] for e in events)

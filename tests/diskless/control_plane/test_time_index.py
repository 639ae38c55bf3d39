"""The tree that finds the first run at or after a time."""

from hypothesis import given
from hypothesis import strategies as st

from quipu.diskless.control_plane.time_index import (
    children,
    first_at_least,
    maximum,
    node_maxima,
)


def test_a_node_is_made_of_its_children_and_its_own_run() -> None:
    """D2: diskless.C7: as in a Fenwick tree."""
    assert [children(number) for number in (1, 2, 3, 4, 6, 8, 12)] == [
        [], [1], [], [3, 2], [5], [7, 6, 4], [11, 10]]
    assert node_maxima([5, 1, 7, 2, 9, 3]) == [5, 5, 7, 7, 9, 9]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=70), st.integers(0, 69), st.integers(0, 10))
def test_the_first_run_is_found_and_no_run_before_is_looked_at(
    timestamps: list[int], gone: int, timestamp: int
) -> None:
    """D2: diskless.C7: whatever the order of timestamps, and whatever was removed."""
    first, last, nodes = gone + 1, len(timestamps), node_maxima(timestamps)

    def largest(number: int, size: int) -> int:
        assert first <= number - size + 1 <= number <= last
        return timestamps[number - 1] if size == 1 else nodes[number - 1]

    kept = range(first, last + 1)
    assert first_at_least(timestamp, first, last, largest) == next(
        (number for number in kept if timestamps[number - 1] >= timestamp), None)
    assert maximum(first, last, largest) == max(timestamps[gone:], default=None)


def test_a_search_looks_at_few_runs_however_long_the_log_is() -> None:
    """D2: diskless.C7: the worst place to begin, and nothing found."""
    looked = 0

    def largest(number: int, size: int) -> int:
        nonlocal looked
        looked += 1
        return 0

    assert first_at_least(1, 2, 1 << 20, largest) is None
    assert looked <= 20 * 20

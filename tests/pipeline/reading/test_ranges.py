"""Positions, shares of a limit, shares of tasks: laws over random cases."""

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.client.ranges import Range
from quipu.model.ids import TopicPartition
from quipu.pipeline.reading import positions
from quipu.pipeline.reading.positions import BadPositions, Positions, Reached
from quipu.pipeline.reading.ranges import TASK_OFFSETS_MIN, Sharing, limited, shared_out

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b-1", "c.x"]), st.integers(0, 30))
offsets = st.integers(0, 10**6) | st.integers(0, 2**63 - 1)
somewhere = st.dictionaries(partitions, offsets, max_size=8)
ranges = st.dictionaries(
    partitions, st.tuples(st.integers(0, 50), st.integers(0, 3 * TASK_OFFSETS_MIN)), max_size=8
).map(lambda found: [Range(*key, first, first + size) for key, (first, size) in found.items()])


@settings(max_examples=50)
@given(somewhere)
def test_positions_survive_json(given_positions: Positions) -> None:
    text = positions.to_text(given_positions)
    assert positions.from_text(text) == given_positions
    assert positions.to_text(dict(reversed(given_positions.items()))) == text
    assert positions.to_json(given_positions) == json.loads(text)


def test_positions_are_sorted_by_number() -> None:
    found = {TopicPartition("t", number): number for number in (10, 9, 2)}
    assert list(positions.to_json(found)["t"]) == ["2", "9", "10"]


@pytest.mark.parametrize("text", [
    "", "[", "5", "null", '{"t": 5}', '{"": {"0": 1}}', '{"t": {"0": "1"}}', '{"t": {"-1": 1}}',
    '{"t": {"0": 99999999999999999999}}', '{"t": {"0": NaN}}', "[" * 100_000,
])
def test_what_are_no_positions(text: str) -> None:
    with pytest.raises(BadPositions):
        positions.from_text(text)


def test_positions_are_not_read_without_end() -> None:
    with pytest.raises(BadPositions, match="characters of JSON; at most"):
        positions.parsed(" " * (positions.JSON_SIZE_MAX + 1))


def test_between_and_behind() -> None:
    a, b, c = (TopicPartition("t", number) for number in range(3))
    assert positions.ranges_between(
        Reached({a: 1, b: 5, c: 7}, {}), Reached({a: 4, b: 5, c: 2}, {})) == [Range("t", 0, 1, 4)]
    assert positions.ranges_between(Reached({}, {}), Reached({a: 4}, {})) == []
    assert positions.lag({a: 1, c: 7}, {a: 4, b: 5, c: 2}) == 8


@settings(max_examples=60)
@given(somewhere, st.integers(1, 10**6), st.data())
def test_a_limit_is_shared_by_size(latest: Positions, limit: int, data: st.DataObject) -> None:
    """Nobody goes back or beyond what there is, nobody who has anything gets nothing."""
    start = {each: data.draw(st.integers(0, end)) for each, end in latest.items()}
    end = limited(start, latest, limit)
    assert end.keys() == latest.keys()
    taken = {each: end[each] - start[each] for each in end}
    left = {each: latest[each] - start[each] for each in end}
    assert all((0 < taken[each] <= left[each]) if left[each] else taken[each] == 0 for each in end)
    assert sum(taken.values()) <= limit + len(end)
    if sum(left.values()) <= limit:
        assert taken == left


@settings(max_examples=60)
@given(ranges, st.integers(1, 8), st.none() | st.integers(1, 50),
       st.none() | st.integers(1000, 10**6))
def test_tasks_cover_everything_once(
    wanted: list[Range], cores: int, least: int | None, most: int | None
) -> None:
    """I12: as many tasks as cores, more if asked for; equal shares; nothing twice."""
    tasks = shared_out(wanted, Sharing(cores, least, most))
    total = positions.total(wanted)
    for task in tasks:
        names = [each.topic_partition for each in task]
        assert len(set(names)) == len(names)
        assert all(each.size for each in task)
    for each in wanted:
        cuts = [cut for task in tasks for cut in task if cut[:2] == each[:2]]
        edges = [each.first, *(cut.end for cut in cuts)] if each.size else []
        assert [(cut.first, cut.end) for cut in cuts] == list(pairwise(edges))
        assert not cuts or cuts[-1].end == each.end
    sizes = [positions.total(task) for task in tasks]
    assert max(sizes, default=0) - min(sizes, default=0) <= 1
    assert len(tasks) >= min(least or 0, total)
    assert max(sizes, default=0) <= (most or total)
    if least is None and most is None:
        assert len(tasks) == min(cores, -(-total // TASK_OFFSETS_MIN))

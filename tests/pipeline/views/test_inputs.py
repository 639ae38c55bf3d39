"""What the tasks of a batch read: all of it, once, in parts of about equal size."""

from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from quipu.client.ranges import Range
from quipu.pipeline.execution.pruning import PrunedSource
from quipu.pipeline.formats.specs import Text
from quipu.pipeline.source import PlannedSource, Start, TopicLocation
from quipu.pipeline.views.inputs import SourceInput, ViewInputs, balanced

RANGES = st.builds(lambda first, size: Range("t", 0, first, first + size),
                   st.integers(0, 1_000), st.integers(1, 1_000))
TASKS = st.lists(st.tuples(st.integers(0, 3), st.lists(
    RANGES, min_size=1, max_size=3).map(tuple)), max_size=12)


@given(TASKS, st.integers(1, 8))
def test_tasks_read_everything_once_and_are_of_about_equal_size(
    tasks: list[tuple[int, tuple[Range, ...]]], cores: int,
) -> None:
    """I13: at most one task for each core, whatever the number of sources."""
    found = balanced(tasks, cores)
    assert len(found) == min(cores, len(tasks))
    assert Counter((each.source, each.ranges) for task in found for each in task) == Counter(tasks)
    sizes = [sum(each.size for each in task) for task in found]
    largest = max((sum(each.size for each in ranges) for _, ranges in tasks), default=0)
    assert not sizes or max(sizes) - min(sizes) <= largest


def test_inputs_travel_as_an_option_of_a_source() -> None:
    """I13: as text, and back."""
    source = PlannedSource("s", TopicLocation("localhost:1", ("t",)), Start(), Text(), ())
    inputs = ViewInputs((SourceInput(PrunedSource(source), Path("x"), 4),), Path("versions"), 10)
    assert ViewInputs.from_text(inputs.to_text()) == inputs
    assert inputs.to_text().isascii()

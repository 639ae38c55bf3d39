"""What a view reads: its sources, where their rows go, and what each task of a batch reads.

A view has one streaming query, whatever the number of its sources: one process looks for new
messages, and one set of tasks, about as many as there are cores, reads them (`plan_tasks`).
All of it is plain data: it travels to tasks, and as an option of a Spark source.
"""

import base64
import logging
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from quipu.client.errors import DataLost
from quipu.client.ranges import Range
from quipu.pipeline.execution.pruning import PrunedSource, read_options
from quipu.pipeline.reading.positions import Reached
from quipu.pipeline.reading.ranges import Task
from quipu.pipeline.reading.stream import tasks_between

_log = logging.getLogger(__name__)
BATCH_OFFSETS_MAX = 1_000_000  # that one batch takes of one source


@dataclass(frozen=True)
class SourceInput:
    """One source of a view, and the folder of its table."""

    source: PrunedSource
    directory: Path
    buckets: int = 0  # of its table by key; 0: it has none, and its rows are only appended

    @property
    def rows(self) -> Path:
        """The folder with the rows of a source whose rows are only appended."""
        return self.directory / "rows"

    @property
    def dead(self) -> Path:
        """The folder with the dead letters."""
        return self.directory / "dead"


@dataclass(frozen=True)
class ViewInputs:
    """The sources of a view, in the order of their numbers."""

    sources: tuple[SourceInput, ...]
    versions: Path  # the folder of the view's versions: they say how large messages are
    batch_offsets_max: int = BATCH_OFFSETS_MAX

    def to_text(self) -> str:
        """The inputs as an option of a Spark source; only `from_text` reads it back."""
        return base64.b64encode(pickle.dumps(self)).decode()

    @classmethod
    def from_text(cls, text: str) -> "ViewInputs":
        found = pickle.loads(base64.b64decode(text))  # noqa: S301 written by `to_text`
        assert isinstance(found, cls), type(found)
        return found


@dataclass(frozen=True)
class InputRanges:
    """The ranges of offsets that one task reads of one source."""

    source: int
    ranges: tuple[Range, ...]

    @property
    def size(self) -> int:
        return sum(each.size for each in self.ranges)


TaskInput = tuple[InputRanges, ...]  # all that one task reads


def positions_to_json(positions: Sequence[Reached]) -> dict[str, object]:
    """The positions in every source, as Spark's checkpoint keeps them."""
    return {str(number): reached.to_json() for number, reached in enumerate(positions)}


def positions_from_json(given: Mapping[str, object]) -> list[Reached]:
    """The positions that `positions_to_json` wrote."""
    return [Reached.from_json(given[str(number)]) for number in range(len(given))]


def plan_tasks(
    inputs: ViewInputs, start: Sequence[Reached], end: Sequence[Reached], cores: int,
) -> list[TaskInput]:
    """What each task of a batch reads, of all messages between two positions."""
    return balanced([
        (number, task)
        for number, (each, first, last) in enumerate(
            zip(inputs.sources, start, end, strict=True))
        for task in tasks_between(first, last, read_options(each.source.source), cores)
    ], cores)


def balanced(tasks: Sequence[tuple[int, Task]], cores: int) -> list[TaskInput]:
    """Tasks of single sources combined to at most `cores` tasks of about equal size.

    The largest is assigned first, to the task that has least.
    """
    assert cores > 0, cores
    parts = sorted((InputRanges(number, task) for number, task in tasks),
                   key=lambda each: -each.size)
    combined: list[list[InputRanges]] = [[] for _ in range(min(cores, len(parts)))]
    sizes = [0] * len(combined)
    for part in parts:
        least = sizes.index(min(sizes))
        combined[least].append(part)
        sizes[least] += part.size
    assert sum(map(len, combined)) == len(parts), (combined, parts)  # every range is read once
    return [tuple(each) for each in combined]


def warn_recreated(loss: DataLost) -> None:
    """Log that a topic was created anew, where the source's settings say that this is no error."""
    _log.warning("%s", loss)

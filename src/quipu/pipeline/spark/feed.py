"""What a view reads: its sources, and where their rows go.  Plain data, for options and tasks.

A view has one stream, whatever the number of its sources: one process looks for new messages, and
one set of tasks, about as many as there are cores, reads them (`shares_between`).
"""

import base64
import logging
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from quipu.client.errors import DataLost
from quipu.client.ranges import Range
from quipu.pipeline.reading.positions import Reached
from quipu.pipeline.reading.ranges import Task
from quipu.pipeline.reading.stream import tasks_between
from quipu.pipeline.spark.pruning import Pruned, options_of

_log = logging.getLogger(__name__)
BATCH_OFFSETS_MAX = 1_000_000  # that one batch takes of one source


@dataclass(frozen=True)
class Tributary:
    """One source of a feed."""

    source: Pruned
    directory: Path  # of its table
    buckets: int = 0  # of its table; 0: it only grows, and its rows are written by who reads them

    @property
    def rows(self) -> Path:
        """Where the rows of a source that only grows are."""
        return self.directory / "rows"

    @property
    def dead(self) -> Path:
        """Where dead letters are."""
        return self.directory / "dead"


@dataclass(frozen=True)
class Feed:
    """See above."""

    tributaries: tuple[Tributary, ...]
    versions: Path  # of the view: they tell how large messages are
    batch_offsets_max: int = BATCH_OFFSETS_MAX

    def to_text(self) -> str:
        """As an option of a Spark source; only our own code reads it back."""
        return base64.b64encode(pickle.dumps(self)).decode()

    @classmethod
    def from_text(cls, text: str) -> "Feed":
        feed = pickle.loads(base64.b64decode(text))  # noqa: S301 written by `to_text`
        assert isinstance(feed, cls), type(feed)
        return feed


@dataclass(frozen=True)
class Share:
    """What one task reads of one source."""

    tributary: int
    ranges: tuple[Range, ...]

    @property
    def size(self) -> int:
        return sum(each.size for each in self.ranges)


def places_to_json(places: Sequence[Reached]) -> dict[str, object]:
    """How far every source was read, as Spark's checkpoint keeps it."""
    return {str(number): reached.to_json() for number, reached in enumerate(places)}


def places_from_json(given: Mapping[str, object]) -> list[Reached]:
    """What `places_to_json` wrote."""
    return [Reached.from_json(given[str(number)]) for number in range(len(given))]


def shares_between(
    feed: Feed, start: Sequence[Reached], end: Sequence[Reached], cores: int,
) -> list[tuple[Share, ...]]:
    """What each task of a batch reads, of what lies between two places."""
    return put_together([
        (number, task)
        for number, (tributary, first, last) in enumerate(
            zip(feed.tributaries, start, end, strict=True))
        for task in tasks_between(first, last, options_of(tributary.source.source), cores)
    ], cores)


def take_note(loss: DataLost) -> None:
    """What is no error to a source's settings: its topic was created anew."""
    _log.warning("%s", loss)


def put_together(tasks: Sequence[tuple[int, Task]], cores: int) -> list[tuple[Share, ...]]:
    """Tasks of several sources as at most `cores` tasks of about equal size.

    The largest goes first, to whoever has least.
    """
    shares = sorted((Share(number, task) for number, task in tasks), key=lambda each: -each.size)
    bins: list[list[Share]] = [[] for _ in range(min(cores, len(shares)))]
    loads = [0] * len(bins)
    for share in shares:
        least = loads.index(min(loads))
        bins[least].append(share)
        loads[least] += share.size
    return [tuple(each) for each in bins]

"""How far views are: rows, rates and lag, for each of their sources."""

import time
from collections import deque
from typing import NamedTuple

from quipu.client.errors import ClientError
from quipu.pipeline.reading.positions import lag
from quipu.pipeline.spark.objects import Objects, Running
from quipu.pipeline.spark.versions import Version
from quipu.pipeline.tables.contract import UnknownVersion

RATE_SECONDS = 10.0
ASK_MS = 2_000  # how long a broker is waited for


class Progress(NamedTuple):
    """One source of one view."""

    view: str
    source: str
    messages: int  # read since the view was created
    dead_letters: int
    rows: int | None  # that the source has in the view's tables
    lag: int | None  # messages still to be read; None if the broker cannot be asked
    rate: float  # messages a second, of late
    version: int
    state: str
    error: str | None


class Rates:
    """Messages a second, from what was seen before."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], deque[tuple[float, int]]] = {}

    def of(self, view: str, source: str, messages: int) -> float:
        """The rate over the last seconds."""
        now = time.monotonic()
        seen = self._seen.setdefault((view, source), deque())
        seen.append((now, messages))
        while len(seen) > 2 and seen[1][0] < now - RATE_SECONDS:
            seen.popleft()
        first_time, first = seen[0]
        return (messages - first) / (now - first_time) if now > first_time else 0.0


def progress(objects: Objects, rates: Rates) -> list[Progress]:
    """Of everything that is kept up to date."""
    kept = {**objects.running, **objects.private}
    return [each for name, running in kept.items() for each in _of_view(
        objects, rates, name, running)]


def _of_view(objects: Objects, rates: Rates, name: str, running: Running) -> list[Progress]:
    view, keeper = running.view, running.keeper
    version = view.latest()
    found = []
    for number, source in enumerate(view.names):
        counts = version.counts[number] if version.counts else None
        messages = counts.messages if counts else 0
        behind, trouble = _lag(objects, running, number, version)
        found.append(Progress(
            name, source, messages, counts.dead if counts else 0,
            _rows(running, number, version), behind, round(rates.of(name, source, messages), 1),
            version.number, keeper.state.value, keeper.error or trouble,
        ))
    return found


def _rows(running: Running, number: int, version: Version) -> int | None:
    view = running.view
    if number not in view.shapes:
        return version.grown[number].rows if number in version.grown else 0
    try:
        return view.table(number, version.number).manifest.rows
    except UnknownVersion:  # cleaned away in this very moment
        return None


def _lag(
    objects: Objects, running: Running, number: int, version: Version,
) -> tuple[int | None, str | None]:
    """How many messages are to be read, or why that is not known."""
    view = running.view
    try:
        ends = objects.ends(view.plan.sources[view.names[number]], ASK_MS)
    except ClientError as error:
        return None, str(error)
    return lag(version.places[number] if version.places else {}, ends), None

"""How far views are: rows, rates and lag, for each of their sources.

A view whose broker cannot be asked is waiting, whether or not its stream has noticed yet: streams
are more patient than people.
"""

import time
from collections import deque
from typing import NamedTuple

from quipu.client.errors import ClientError, ConnectionFailed
from quipu.pipeline.reading.positions import NOWHERE, Reached, lag
from quipu.pipeline.source import Source
from quipu.pipeline.spark.objects import Objects, Running
from quipu.pipeline.spark.running import State
from quipu.pipeline.spark.versions import Version
from quipu.pipeline.sql.secrecy import mask_addresses
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


class _Ends:
    """Where topics end now.  A broker that has not answered once is not asked again."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._silent: dict[str, str] = {}

    def of(self, source: Source) -> Reached | str:
        """Where a source ends, or why that is not known."""
        bootstrap = source.place.bootstrap
        if bootstrap not in self._silent:
            try:
                return self._objects.ends(source, ASK_MS)
            except ConnectionFailed as error:
                self._silent[bootstrap] = str(error)
            except ClientError as error:
                return str(error)
        return self._silent[bootstrap]


def progress(objects: Objects, rates: Rates) -> list[Progress]:
    """Of everything that is kept up to date."""
    kept = {**objects.running, **objects.private}
    ends = _Ends(objects)
    return [each for name, running in kept.items() for each in _of_view(
        ends, rates, name, running)]


def _of_view(ends: _Ends, rates: Rates, name: str, running: Running) -> list[Progress]:
    view, keeper = running.view, running.keeper
    version = view.latest()
    found = []
    for number, source in enumerate(view.names):
        counts = version.counts[number] if version.counts else None
        messages = counts.messages if counts else 0
        end = ends.of(view.plan.sources[source])
        trouble = end if isinstance(end, str) else None
        behind = None if isinstance(end, str) else lag(
            (version.places[number] if version.places else NOWHERE).positions, end.positions)
        state = keeper.state
        if trouble and state is State.RUNNING:
            state = State.WAITING
        found.append(Progress(
            name, source, messages, counts.dead if counts else 0,
            _rows(running, number, version), behind, round(rates.of(name, source, messages), 1),
            version.number, state.value, mask_addresses(keeper.error or trouble or "") or None,
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

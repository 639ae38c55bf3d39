"""SHOW PROGRESS: messages, rates and lag of views, for each of their sources.

A view whose broker does not respond is shown as waiting, also before its streaming query fails,
which takes long.
"""

import time
from collections import deque
from typing import NamedTuple

from quipu.client.errors import ClientError, ConnectionFailed
from quipu.pipeline.reading.positions import NOWHERE, Reached, lag
from quipu.pipeline.source import PlannedSource
from quipu.pipeline.spark.session.supervisor import RunState
from quipu.pipeline.spark.statements.live_catalog import LiveCatalog, MaintainedView
from quipu.pipeline.sql.secrets import mask_addresses
from quipu.pipeline.tables.contract import UnknownVersion
from quipu.pipeline.views.versions import Version

RATE_SECONDS = 10.0
ASK_MS = 2_000  # time for a broker to respond


class SourceProgress(NamedTuple):
    """The progress of a view with one of its sources; a row of SHOW PROGRESS."""

    view: str
    source: str
    messages: int  # read since the view was created
    dead_letters: int
    rows: int | None  # of the source in the view's tables
    lag: int | None  # messages still to be read; None if the broker does not respond
    rate: float  # messages a second, recently
    version: int
    state: str
    error: str | None


class Rates:
    """Messages a second of each source, from the counts of the last `RATE_SECONDS`."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], deque[tuple[float, int]]] = {}

    def of(self, view: str, source: str, messages: int) -> float:
        """The rate of a source of which this many messages have been read."""
        now = time.monotonic()
        seen = self._seen.setdefault((view, source), deque())
        seen.append((now, messages))
        while len(seen) > 2 and seen[1][0] < now - RATE_SECONDS:
            seen.popleft()
        first_time, first = seen[0]
        return (messages - first) / (now - first_time) if now > first_time else 0.0


class _Ends:
    """The ends of topics; a broker that did not respond is not asked again."""

    def __init__(self, live: LiveCatalog) -> None:
        self._live = live
        self._silent: dict[str, str] = {}

    def of(self, source: PlannedSource) -> Reached | str:
        """The ends of a source's topics, or why they are not known."""
        bootstrap = source.location.bootstrap
        if bootstrap not in self._silent:
            try:
                return self._live.ends(source, ASK_MS)
            except ConnectionFailed as error:
                self._silent[bootstrap] = str(error)
            except ClientError as error:
                return str(error)
        return self._silent[bootstrap]


def progress(live: LiveCatalog, rates: Rates) -> list[SourceProgress]:
    """The progress of every source of every view that is maintained."""
    views = {**live.maintained, **live.sink_views}
    ends = _Ends(live)
    return [each for name, maintained in views.items() for each in _of_view(
        ends, rates, name, maintained)]


def _of_view(
    ends: _Ends, rates: Rates, name: str, maintained: MaintainedView,
) -> list[SourceProgress]:
    view, supervisor = maintained.view, maintained.supervisor
    version = view.files.latest()
    found = []
    for number, source in enumerate(view.names):
        counts = version.counts[number] if version.counts else None
        messages = counts.messages if counts else 0
        end = ends.of(view.plan.sources[source])
        trouble = end if isinstance(end, str) else None
        behind = None if isinstance(end, str) else lag(
            (version.positions[number] if version.positions else NOWHERE).positions, end.positions)
        state = supervisor.state
        if trouble and state is RunState.RUNNING:
            state = RunState.WAITING
        found.append(SourceProgress(
            name, source, messages, counts.dead if counts else 0,
            _rows(maintained, number, version), behind, round(rates.of(name, source, messages), 1),
            version.number, state.value, mask_addresses(supervisor.error or trouble or "") or None,
        ))
    return found


def _rows(maintained: MaintainedView, number: int, version: Version) -> int | None:
    files = maintained.view.files
    if number not in files.shapes:
        return version.appended[number].rows if number in version.appended else 0
    try:
        return files.table(number, version.number).manifest.rows
    except UnknownVersion:  # deleted by cleaning a moment ago
        return None

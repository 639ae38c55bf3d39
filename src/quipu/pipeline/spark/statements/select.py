"""SELECT: reads the present messages of sources, materialized views, and the queries of views.

It waits until a materialized view has processed all present messages (`catch_up.py`).
"""

import threading
import time
from contextlib import suppress
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from quipu.client.errors import ClientError
from quipu.pipeline.plan.views import used
from quipu.pipeline.reading.positions import Reached
from quipu.pipeline.spark.queries.errors import explained
from quipu.pipeline.spark.session.sessions import empty
from quipu.pipeline.spark.session.supervisor import RunState
from quipu.pipeline.spark.sinks.sink import Sink
from quipu.pipeline.spark.statements import snapshots
from quipu.pipeline.spark.statements.catch_up import WaitControl, wait_until_caught_up
from quipu.pipeline.spark.statements.live_catalog import (
    LETTERS_SUFFIX,
    LiveCatalog,
    MaintainedView,
)
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.query_names import quote_names
from quipu.pipeline.sql.text import TextSpan

POLL_SECONDS = 0.02
UNATTENDED: Final = WaitControl()  # never cancelled, without reports


def select(
    live: LiveCatalog, query: str, start: int, control: WaitControl = UNATTENDED,
) -> DataFrame:
    """A DataFrame of a query's rows; the query begins at `start` of the statement's text."""
    query = quote_names(query)
    for name in used(query, live.broken):
        raise SqlError(f"{name} cannot be used: {live.broken[name]}", TextSpan(
            start, start + len(query)), hint=f"DROP {name}, and create it again")
    scope = live.reading_scope
    with explained(query, start):
        needed = scope.analyzed(query).needed
    frames: dict[str, DataFrame] = {}

    def leaf(name: str) -> DataFrame:
        if name not in frames:
            frames[name] = _relation(live, name, needed.get(name), control)
        return frames[name]

    return scope.frame(query, leaf)


def _relation(
    live: LiveCatalog, name: str, needed: frozenset[str] | None, control: WaitControl,
) -> DataFrame:
    schema = live.reading_scope.relations[name]
    if needed is None:  # the query names it, but reads no row of it
        return empty(live.spark, schema)
    if name in live.maintained:
        maintained = live.maintained[name]
        version = wait_until_caught_up(live, maintained, control)
        maintained.view.files.check(version)
        return maintained.view.frame(version)
    if name in live.sources:
        return snapshots.source_frame(live.spark, live.sources[name], needed)
    return _dead_letters(live, name.removesuffix(LETTERS_SUFFIX), control)


def _dead_letters(live: LiveCatalog, name: str, control: WaitControl) -> DataFrame:
    maintained = live.maintained.get(name)
    if maintained is None:
        return snapshots.dead_letters(live.spark, live.sources[name])
    version = wait_until_caught_up(live, maintained, control)
    first, *rest = [maintained.view.dead_letters(each, version) for each in maintained.view.names]
    for frame in rest:
        first = first.union(frame)
    return first.select(*(f.col(each) for each in first.columns))


def wait_until_all_caught_up(
    live: LiveCatalog, seconds: float, stopping: threading.Event | None = None,
) -> bool:
    """Wait until views have processed all present messages, and sinks have written that.

    Returns False if the time is up, or `stopping` is set.
    """
    stopping = stopping or threading.Event()
    views = [each for each in (*live.maintained.values(), *live.sink_views.values())
            if each.supervisor.state is not RunState.STOPPED]
    deadline = time.monotonic() + seconds
    wanted: list[tuple[MaintainedView, list[Reached]]] = []
    while time.monotonic() < deadline and not stopping.is_set():
        with suppress(ClientError):  # a broker that is down may come back
            wanted = wanted or [
                (each, [live.ends(each.view.plan.sources[name]) for name in each.view.names])
                for each in views]
            if all(each.view.files.has_seen(ends) for each, ends in wanted) and all(
                    _has_written(sink) for sink in live.sinks.values()):
                return True
        stopping.wait(POLL_SECONDS)
    return False


def _has_written(sink: Sink) -> bool:
    return (sink.supervisor.state is RunState.STOPPED
            or sink.written == sink.view.files.latest().number)

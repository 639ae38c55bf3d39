"""SELECT: sources as their topics are now, materialized views as of now, views as their queries.

A materialized view is waited for until it has seen what its topics hold (`waiting`).
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
from quipu.pipeline.spark import snapshots
from quipu.pipeline.spark.names import with_names
from quipu.pipeline.spark.objects import LETTERS_SUFFIX, Objects, Running
from quipu.pipeline.spark.query_errors import explained
from quipu.pipeline.spark.running import State
from quipu.pipeline.spark.session import empty
from quipu.pipeline.spark.sinks import Sink
from quipu.pipeline.spark.waiting import Waiting, caught_up
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.text import Span

LOOK_SECONDS = 0.02
NOBODY: Final = Waiting()  # has ever stopped waiting, or listened


def select(
    objects: Objects, query: str, start: int, waiting: Waiting = NOBODY,
) -> DataFrame:
    """The query's rows; `start` is where it stands in the text."""
    query = with_names(query)
    for name in used(query, objects.broken):
        raise SqlError(f"{name} cannot be used: {objects.broken[name]}", Span(
            start, start + len(query)), hint=f"DROP {name}, and create it again")
    scope = objects.reading_scope
    with explained(query, start):
        needed = scope.analyzed(query).needed
    frames: dict[str, DataFrame] = {}

    def leaf(name: str) -> DataFrame:
        if name not in frames:
            frames[name] = _relation(objects, name, needed.get(name), waiting)
        return frames[name]

    return scope.frame(query, leaf)


def _relation(
    objects: Objects, name: str, needed: frozenset[str] | None, waiting: Waiting,
) -> DataFrame:
    schema = objects.reading_scope.relations[name]
    if needed is None:  # named where nothing is read from it
        return empty(objects.spark, schema)
    if name in objects.running:
        running = objects.running[name]
        version = caught_up(objects, running, waiting)
        running.view.check(version)
        return running.view.frame(version)
    if name in objects.sources:
        return snapshots.source_frame(objects.spark, objects.sources[name], needed)
    return _dead_letters(objects, name.removesuffix(LETTERS_SUFFIX), waiting)


def _dead_letters(
    objects: Objects, name: str, waiting: Waiting,
) -> DataFrame:
    running = objects.running.get(name)
    if running is None:
        return snapshots.dead_letters(objects.spark, objects.sources[name])
    version = caught_up(objects, running, waiting)
    first, *rest = [running.view.dead_letters(each, version) for each in running.view.names]
    for frame in rest:
        first = first.union(frame)
    return first.select(*(f.col(each) for each in first.columns))


def all_caught_up(
    objects: Objects, seconds: float, stopping: threading.Event | None = None,
) -> bool:
    """Wait until views have seen what there is now, and sinks have written what views saw."""
    stopping = stopping or threading.Event()
    kept = [each for each in (*objects.running.values(), *objects.private.values())
            if each.keeper.state is not State.STOPPED]
    deadline = time.monotonic() + seconds
    wanted: list[tuple[Running, list[Reached]]] = []
    while time.monotonic() < deadline and not stopping.is_set():
        with suppress(ClientError):  # a broker that is away may come back
            wanted = wanted or [
                (each, [objects.ends(each.view.plan.sources[name]) for name in each.view.names])
                for each in kept]
            if all(each.view.has_seen(ends) for each, ends in wanted) and all(
                    _has_written(sink) for sink in objects.sinks.values()):
                return True
        stopping.wait(LOOK_SECONDS)
    return False


def _has_written(sink: Sink) -> bool:
    return sink.keeper.state is State.STOPPED or sink.written == sink.view.latest().number

"""Sinks: a view followed into files, a Delta table, a topic, the console or memory.

A sink writes one version after the other, each once: what the target keeps of versions, it keeps
together with the rows (`sink_parquet`, `sink_delta`, `sink_kafka`).  The first version that a sink
writes is a whole one; which one that is, is written down before it begins, so that it can be
finished after a crash.  Versions that a sink has not written are kept for it.

A sink of a source, or of a view that is not materialized, keeps it up to date for itself.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from quipu.pipeline.durable import replace_file
from quipu.pipeline.plan.connections import setting_text
from quipu.pipeline.plan.places import place_of
from quipu.pipeline.spark import versions
from quipu.pipeline.spark.following import Step, change, next_version, snapshot
from quipu.pipeline.spark.running import Keeper
from quipu.pipeline.spark.sink_delta import DeltaTarget
from quipu.pipeline.spark.sink_kafka import KafkaTarget
from quipu.pipeline.spark.sink_memory import ConsoleTarget, MemoryTarget
from quipu.pipeline.spark.sink_parquet import ParquetTarget
from quipu.pipeline.spark.versions import NO_VERSION
from quipu.pipeline.spark.views import Plan, View
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.statements import CreateConnection, CreateSink, SinkKind

LOOK_SECONDS = 0.05
REWRITE_SECONDS = 10.0  # between two versions of a table that is replaced as a whole


class Target(Protocol):
    """Where a sink writes.  One that has failed is used again, with the same step."""

    def position(self) -> int | None:
        """The last version that was written; None before the first."""
        ...

    def write(self, step: Step) -> None:
        """Write a version, whole; if that fails, it is tried again with the same version."""
        ...

    def close(self) -> None:
        """Let go of what is held."""
        ...


@dataclass(frozen=True)
class SinkPlan:
    """A sink as it was understood."""

    name: str
    statement: CreateSink
    settings: dict[str, str]  # of the Kafka client, or of the object store
    uses: tuple[str, ...]


def plan_sink(
    statement: CreateSink, view: Plan, connections: dict[str, CreateConnection],
) -> SinkPlan:
    """Find every mistake in a sink of a view."""
    uses = [statement.view.text]
    settings = {option.name: setting_text(option.value) for option in statement.options}
    if statement.kind is SinkKind.KAFKA:
        assert statement.place is not None
        place = place_of(statement.place, statement.options, connections)
        settings = {**place.options, "bootstrap.servers": place.bootstrap}
        if statement.place.connection is not None:
            uses.append(statement.place.connection.text)
        for name in statement.key:
            if name.text not in view.schema.names:
                raise SqlError(f'There is no column "{name.text}" in {statement.view.text}',
                               name.span, hint=f"there are {', '.join(view.schema.names)}")
        if not statement.key and not view.only_grows:
            raise SqlError("A sink into a topic needs a KEY where rows are taken back",
                           statement.span, hint="write KEY (column, …): what tells rows apart")
    return SinkPlan(statement.name.text, statement, settings, tuple(uses))


def make_target(plan: SinkPlan, view: View, folder: Path) -> Target:
    """Where the sink writes.

    It is known there by its folder's name, which no sink has had before: a sink that is dropped and
    made again begins anew, whatever the first one has written.
    """
    statement, identity = plan.statement, folder.name
    match statement.kind:
        case SinkKind.PARQUET:
            return ParquetTarget(identity, Path(statement.path), only_grows=view.plan.only_grows)
        case SinkKind.DELTA:
            return DeltaTarget(identity, statement.path, only_grows=view.plan.only_grows,
                               options=plan.settings)
        case SinkKind.KAFKA:
            assert statement.place is not None
            return KafkaTarget(identity, statement.place.topics[0], settings=plan.settings,
                               key=tuple(name.text for name in statement.key),
                               mark=folder / "topic.json")
        case SinkKind.CONSOLE:
            return ConsoleTarget()
        case SinkKind.MEMORY:
            return MemoryTarget()


class Sink:
    """A view, followed into a target."""

    def __init__(self, plan: SinkPlan, view: View, folder: Path) -> None:
        self.plan = plan
        self.view = view
        self.written: int | None = None  # the last version
        self._folder = folder
        self._first = folder / "first.json"
        self._target: Target | None = None
        self._lasting = plan.statement.kind not in (SinkKind.CONSOLE, SinkKind.MEMORY)
        folder.mkdir(parents=True, exist_ok=True)
        self.keeper = Keeper(plan.name, self._work)
        view.keepers.append(self._needed)

    @property
    def rows(self) -> pa.Table | None:
        """What a sink into memory has."""
        return self._target.table() if isinstance(self._target, MemoryTarget) else None

    def forget(self) -> None:
        """Nothing has to be kept for this sink any more."""
        self.view.keepers.remove(self._needed)

    def _needed(self) -> int | None:
        """The version from which on everything has to be kept for this sink."""
        if self.written is not None:
            return self.written
        return self._begun()

    def _begun(self) -> int | None:
        if not self._lasting or not self._first.exists():
            return None
        return int(json.loads(self._first.read_text())["version"])

    def _work(self, stop: threading.Event) -> None:
        if self._target is None:
            self._target = make_target(self.plan, self.view, self._folder)
        for step in self._steps(self._target, stop):
            self._target.write(step)
            self.written = step.version
            self.keeper.succeeded()
        self._target.close()

    def _steps(self, target: Target, stop: threading.Event) -> Iterator[Step]:
        written = self.written = target.position()
        if written is None:
            first = self._wait(lambda: self.view.latest().number, stop)
            if first is None:
                return
            begun = self._begun()
            if begun is None:
                replace_file(self._first, json.dumps({"version": first}).encode())
                begun = first
            yield snapshot(self.view, versions.read(self.view.versions, begun))
            written = begun
        if isinstance(target, DeltaTarget) and target.wants_snapshots:
            yield from self._snapshots(written, stop)
            return
        while (number := self._wait(partial(self._next, written), stop)) is not None:
            yield change(self.view, written, number)
            written = number

    def _next(self, after: int) -> int:
        found = next_version(self.view, after)
        return NO_VERSION if found is None else found

    def _snapshots(self, written: int, stop: threading.Event) -> Iterator[Step]:
        """The newest version, whole, now and then: each of them costs what the view is large."""
        rewritten = time.monotonic() - REWRITE_SECONDS
        while not stop.wait(LOOK_SECONDS):
            newest = self.view.latest()
            if newest.number > written and time.monotonic() - rewritten >= REWRITE_SECONDS:
                yield snapshot(self.view, newest)
                written, rewritten = newest.number, time.monotonic()

    @staticmethod
    def _wait(look: Callable[[], int], stop: threading.Event) -> int | None:
        while not stop.is_set():
            found = look()
            if found != NO_VERSION:
                return found
            stop.wait(LOOK_SECONDS)
        return None

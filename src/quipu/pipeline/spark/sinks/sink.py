"""Sinks: write a view to files, a Delta table, a topic, the console or memory.

A sink writes one version after the other to its target (`pipeline/sinks`).  The first is written as
a whole; its number is recorded before, so that it can be finished after a crash.  Versions that a
sink has not written yet are kept for it.

A sink of a source, or of a view that is not materialized, maintains a materialized view of its own.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from quipu.pipeline.durable import replace_file
from quipu.pipeline.plan.connections import setting_text
from quipu.pipeline.plan.topic_location import location_of
from quipu.pipeline.sinks.contract import SinkTarget
from quipu.pipeline.sinks.delta import DeltaTarget
from quipu.pipeline.sinks.kafka import KafkaTarget
from quipu.pipeline.sinks.memory import ConsoleTarget, MemoryTarget
from quipu.pipeline.sinks.parquet import ParquetTarget
from quipu.pipeline.spark.session.supervisor import Supervisor
from quipu.pipeline.spark.views.changelog import change, snapshot
from quipu.pipeline.spark.views.view import View, ViewPlan
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.statements import CreateConnection, CreateSink, SinkKind
from quipu.pipeline.views import versions
from quipu.pipeline.views.changes import ViewChange
from quipu.pipeline.views.versions import NO_VERSION

POLL_SECONDS = 0.05
REWRITE_SECONDS = 10.0  # between two versions of a table that is replaced as a whole


@dataclass(frozen=True)
class SinkPlan:
    """The checked statement of a sink, with the settings of its target."""

    name: str
    statement: CreateSink
    settings: dict[str, str]  # of the Kafka client, or of the object store
    uses: tuple[str, ...]


def plan_sink(
    statement: CreateSink, view: ViewPlan, connections: dict[str, CreateConnection],
) -> SinkPlan:
    """Check the statement of a sink of a view; raises SqlError."""
    uses = [statement.view.text]
    settings = {option.name: setting_text(option.value) for option in statement.options}
    if statement.kind is SinkKind.KAFKA:
        assert statement.kafka is not None
        location = location_of(statement.kafka, statement.options, connections)
        settings = {**location.options, "bootstrap.servers": location.bootstrap}
        if statement.kafka.connection is not None:
            uses.append(statement.kafka.connection.text)
        for name in statement.key:
            if name.text not in view.schema.names:
                raise SqlError(f'There is no column "{name.text}" in {statement.view.text}',
                               name.span, hint=f"there are {', '.join(view.schema.names)}")
        if not statement.key and not view.only_grows:
            raise SqlError("A sink into a topic needs a KEY if the view can remove rows",
                           statement.span, hint="write KEY (column, …): what identifies a row")
    return SinkPlan(statement.name.text, statement, settings, tuple(uses))


def make_target(plan: SinkPlan, view: View, folder: Path) -> SinkTarget:
    """The target of a sink.

    The target identifies the sink by its folder's name, which is unique: a sink that is dropped and
    created again starts from the beginning, independent of what the first one has written.
    """
    statement, identity = plan.statement, folder.name
    match statement.kind:
        case SinkKind.PARQUET:
            return ParquetTarget(identity, Path(statement.path), only_grows=view.plan.only_grows)
        case SinkKind.DELTA:
            return DeltaTarget(identity, statement.path, only_grows=view.plan.only_grows,
                               options=plan.settings)
        case SinkKind.KAFKA:
            assert statement.kafka is not None
            return KafkaTarget(identity, statement.kafka.topics[0], settings=plan.settings,
                               key=tuple(name.text for name in statement.key),
                               checkpoint=folder / "topic.json")
        case SinkKind.CONSOLE:
            return ConsoleTarget()
        case SinkKind.MEMORY:
            return MemoryTarget()


class Sink:
    """Writes the versions of a view to a target, in a supervised thread."""

    def __init__(self, plan: SinkPlan, view: View, folder: Path) -> None:
        self.plan = plan
        self.view = view
        self.written: int | None = None  # the last version
        self._folder = folder
        self._first = folder / "first.json"
        self._target: SinkTarget | None = None
        self._lasting = plan.statement.kind not in (SinkKind.CONSOLE, SinkKind.MEMORY)
        folder.mkdir(parents=True, exist_ok=True)
        self.supervisor = Supervisor(plan.name, self._work)
        view.files.holders.append(self._needed)

    @property
    def rows(self) -> pa.Table | None:
        """The rows of a sink into memory; None for other sinks."""
        return self._target.table() if isinstance(self._target, MemoryTarget) else None

    def forget(self) -> None:
        """Let the view delete versions that only this sink needed."""
        self.view.files.holders.remove(self._needed)

    def _needed(self) -> int | None:
        """The oldest version that has to be kept for this sink; None if it needs none."""
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
        for each in self._changes(self._target, stop):
            assert self.written is None or each.version > self.written, each.version
            self._target.write(each)
            self.written = each.version
            self.supervisor.succeeded()
        self._target.close()

    def _changes(self, target: SinkTarget, stop: threading.Event) -> Iterator[ViewChange]:
        """The changes to write: first a version as a whole, then each change (pipeline.S2)."""
        written = self.written = target.position()
        if written is None:
            first = self._wait(lambda: self.view.files.latest().number, stop)
            if first is None:
                return
            begun = self._begun()
            if begun is None:
                replace_file(self._first, json.dumps({"version": first}).encode())
                begun = first
            yield snapshot(self.view, versions.read(self.view.files.versions, begun))
            written = begun
        if isinstance(target, DeltaTarget) and target.wants_snapshots:
            yield from self._snapshots(written, stop)
            return
        while (number := self._wait(partial(self._next, written), stop)) is not None:
            yield change(self.view, written, number)
            written = number

    def _next(self, after: int) -> int:
        found = self.view.files.next_version(after)
        return NO_VERSION if found is None else found

    def _snapshots(self, written: int, stop: threading.Event) -> Iterator[ViewChange]:
        """The newest version as a whole, every `REWRITE_SECONDS`: it costs as much as the view."""
        rewritten = time.monotonic() - REWRITE_SECONDS
        while not stop.wait(POLL_SECONDS):
            newest = self.view.files.latest()
            if newest.number > written and time.monotonic() - rewritten >= REWRITE_SECONDS:
                yield snapshot(self.view, newest)
                written, rewritten = newest.number, time.monotonic()

    @staticmethod
    def _wait(look: Callable[[], int], stop: threading.Event) -> int | None:
        while not stop.is_set():
            found = look()
            if found != NO_VERSION:
                return found
            stop.wait(POLL_SECONDS)
        return None

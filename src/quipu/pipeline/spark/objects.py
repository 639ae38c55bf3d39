"""Everything that was created, alive: planned sources, views that run, sinks that write.

The catalog remembers statements (`pipeline/catalog.py`); here they are what they mean.  After a
restart every statement is planned again, from what was learned from outside when it was made, and
views and sinks go on where they were.
"""

import secrets
import shutil
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from quipu.client.shared import shared
from quipu.pipeline.catalog import Catalog, Entry
from quipu.pipeline.envelopes.dead_letters import LETTERS
from quipu.pipeline.plan.sources import plan_source
from quipu.pipeline.plan.world import Remembered
from quipu.pipeline.reading.positions import Reached
from quipu.pipeline.reading.stream import ends_of
from quipu.pipeline.source import Source
from quipu.pipeline.spark.analysis import Bench, analyzed, plan_of, quoted, spark_schema
from quipu.pipeline.spark.names import with_names
from quipu.pipeline.spark.pruning import options_of
from quipu.pipeline.spark.query_errors import explained
from quipu.pipeline.spark.relations import nullable
from quipu.pipeline.spark.running import Keeper, attend
from quipu.pipeline.spark.scope import Scope, grouped_of
from quipu.pipeline.spark.session import parallelism
from quipu.pipeline.spark.settings import Settings
from quipu.pipeline.spark.sinks import Sink, plan_sink
from quipu.pipeline.spark.view_batches import begin
from quipu.pipeline.spark.views import Plan, View
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.parser import parse_one
from quipu.pipeline.sql.statements import (
    CreateConnection,
    CreateSink,
    CreateSource,
    CreateView,
    ObjectKind,
    Statement,
)
from quipu.pipeline.sql.text import Span
from quipu.pipeline.types import schema_of

BUCKETS_MIN = 4
BUCKETS_MAX = 64
LETTERS_SUFFIX = "_dead_letters"


@dataclass
class Running:
    """A materialized view, and what keeps it up to date."""

    view: View
    keeper: Keeper


@dataclass
class Objects:
    """See above."""

    spark: SparkSession  # ours: see session.tuned
    catalog: Catalog
    settings: Settings
    bench: Bench
    connections: dict[str, CreateConnection] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    views: dict[str, str] = field(default_factory=dict)  # every view's query
    running: dict[str, Running] = field(default_factory=dict)  # materialized sources, too
    sinks: dict[str, Sink] = field(default_factory=dict)
    _folders: dict[str, Path] = field(default_factory=dict)
    private: dict[str, Running] = field(default_factory=dict)  # by sink: what it keeps for itself
    broken: dict[str, str] = field(default_factory=dict)  # cannot be used: why

    # -- restoring

    def restore(self) -> None:
        """Plan again what the catalog remembers.

        What cannot be planned any more, because rules have become stricter, is left aside with the
        reason, and whatever uses it: it can be dropped, and all the rest goes on.
        """
        for entry in self.catalog.entries():
            try:
                if aside := [name for name in entry.uses if name in self.broken]:
                    raise SqlError(f"it uses {aside[0]}")
                self.add(entry, parse_one(entry.text))
            except SqlError as error:
                self.sources.pop(entry.name, None)
                self.views.pop(entry.name, None)
                self.broken[entry.name] = error.message
        known = {self.folder(entry) for entry in self.catalog.entries()}
        home = self.catalog.directory / "views"
        home.mkdir(0o700, exist_ok=True)  # also in a directory that somebody else has made
        for folder in home.iterdir():
            if folder not in known:  # of something that was dropped
                shutil.rmtree(folder, ignore_errors=True)

    def add(self, entry: Entry, statement: Statement) -> None:
        """Take up an object that is in the catalog."""
        self._folders[entry.name] = self.folder(entry)
        match statement:
            case CreateConnection():
                self.connections[entry.name] = statement
            case CreateSource():
                self.sources[entry.name] = plan_source(
                    statement, entry.text, Remembered(entry.facts), self.connections)
                if entry.materialized:
                    self.running[entry.name] = self._kept(
                        self.followed(entry.name), self.folder(entry))
            case CreateView():
                self.views[entry.name] = with_names(statement.query)
                if entry.materialized:
                    plan = self.plan_view(entry.name, self.views[entry.name])
                    self.running[entry.name] = self._kept(plan, self.folder(entry))
            case CreateSink():
                self._add_sink(entry, statement)
            case _:
                raise AssertionError(type(statement).__name__)

    def _kept(self, plan: Plan, folder: Path) -> Running:
        """A view, and what will keep it up to date."""
        view = View(self.spark, plan, folder)
        trigger_ms = self.settings.trigger_ms

        def work(stop: threading.Event) -> None:
            attend(begin(view, keeper.succeeded, trigger_ms=trigger_ms), stop)

        keeper = Keeper(plan.name, work)
        return Running(view, keeper)

    def _add_sink(self, entry: Entry, statement: CreateSink) -> None:
        name, folder = statement.view.text, self.folder(entry)
        followed = self.running.get(name)
        if followed is None:
            followed = self.private[entry.name] = self._kept(self.followed(name), folder / "view")
        plan = plan_sink(statement, followed.view.plan, self.connections)
        self.sinks[entry.name] = Sink(plan, followed.view, folder)

    def followed(self, name: str) -> Plan:
        """What a sink of a source or view follows."""
        if name in self.running:
            return self.running[name].view.plan
        return self.plan_view(name, f"SELECT * FROM {quoted(name)}")  # noqa: S608 quoted

    def folder(self, entry: Entry) -> Path:
        """Where a view has its tables; another one each time that it is created."""
        return self.catalog.directory / "views" / str(entry.facts.get("folder", "none"))

    @staticmethod
    def new_folder(name: str) -> str:
        """A name for a folder that nobody has used."""
        return f"{quote(name, safe='')}-{secrets.token_hex(4)}"

    def start(self, name: str) -> None:
        """Begin the work of an object, if it has any."""
        for keeper in self._keepers(name):
            keeper.start()

    def stop(self, name: str) -> None:
        """End the work of an object; what it has stays."""
        for keeper in self._keepers(name):
            keeper.stop()

    def _keepers(self, name: str) -> list[Keeper]:
        found = [each[name].keeper for each in (self.running, self.private) if name in each]
        return [*found, *([self.sinks[name].keeper] if name in self.sinks else [])]

    def remove(self, name: str) -> None:
        """Let go of an object that is no longer in the catalog, and of its files."""
        self.stop(name)
        folder = self._folders.pop(name, None)
        if name in self.sinks:
            self.sinks.pop(name).forget()
        self.running.pop(name, None)
        self.private.pop(name, None)
        self.connections.pop(name, None)
        self.sources.pop(name, None)
        self.views.pop(name, None)
        self.broken.pop(name, None)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    # -- planning queries

    @property
    def source_schemas(self) -> dict[str, StructType]:
        return {name: spark_schema(nullable(schema_of(source.columns)))
                for name, source in self.sources.items()}

    @property
    def maintained_scope(self) -> Scope:
        """Where names are sources, and views are their queries: for what is kept up to date."""
        return Scope(self.bench, self.source_schemas, self.views)

    @property
    def reading_scope(self) -> Scope:
        """Where names are sources and materialized views: for what is read now."""
        relations = {**self.source_schemas, **{
            name: spark_schema(each.view.schema) for name, each in self.running.items()}}
        letters = spark_schema(nullable(LETTERS))
        for name in list(relations):
            relations.setdefault(f"{name}{LETTERS_SUFFIX}", letters)
        return Scope(self.bench, relations, {
            name: query for name, query in self.views.items() if name not in self.running})

    def plan_view(self, name: str, query: str, *, start: int = 0) -> Plan:
        """What it takes to keep a view; `start` is where its query stands in the text."""
        scope = self.maintained_scope
        with explained(query, start):
            frame = self.bench.admit(scope.frame(query, scope.blank))
        analysis = analyzed(frame)
        refuse_duplicates(analysis.schema, start, query)
        if not analysis.is_repeatable:
            raise SqlError(
                "A materialized view cannot depend on the clock or on chance",
                hint="leave out now(), current_date, rand() and the like, or CREATE VIEW")
        buckets = self.settings.buckets or min(
            max(2 * parallelism(self.spark), BUCKETS_MIN), BUCKETS_MAX)
        sources = {each: self.sources[each] for each in analysis.needed}
        grouped = None if analysis.is_linear or analysis.is_product else grouped_of(
            scope, query, plan_of(frame), only_grows=not any(
                source.is_keyed for source in sources.values()))
        return Plan(name, query, scope, sources, analysis, grouped, buckets,
                    self.settings.batch_offsets_max)

    # -- the outside

    def ends(self, source: Source, wait_ms: int | None = None) -> Reached:
        """Where the topics of a source end now, as far as it may read; asked for so long."""
        options = options_of(source)
        wait_ms = self.settings.wait_ms if wait_ms is None else wait_ms
        patience = min(options.client.default_api_timeout_ms, max(wait_ms, 1))
        log = shared(replace(options.client, default_api_timeout_ms=patience))
        return ends_of(log, options)

    def kind_of(self, name: str) -> ObjectKind | None:
        """What an object is; None if there is none of that name."""
        entry = self.catalog.find(name)
        return None if entry is None else entry.kind


def refuse_duplicates(schema: StructType, start: int, query: str) -> None:
    """A view's columns have different names."""
    seen: set[str] = set()
    for name in schema.names:
        if name in seen:
            raise SqlError(f'column "{name}" specified more than once',
                           Span(start, start + len(query)), hint="give one another name: AS …")
        seen.add(name)


def columns_of(objects: Objects, name: str) -> pa.Schema:
    """The columns of a source or view."""
    if name in objects.running:
        return objects.running[name].view.schema
    if name in objects.sources:
        return schema_of(objects.sources[name].columns)
    analysis = objects.reading_scope.analyzed(objects.views[name])
    return to_arrow_schema(analysis.schema, timezone="UTC")

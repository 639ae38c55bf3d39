"""The running objects of the catalog: planned sources, maintained views, sinks.

The catalog on disk has statements (`pipeline/catalog.py`); this has the objects planned from them.
After a restart every statement is planned again, with the external facts that were recorded when it
was created, and views and sinks continue from their last versions.
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
from quipu.pipeline.catalog import Catalog, CatalogEntry
from quipu.pipeline.envelopes.dead_letters import LETTERS
from quipu.pipeline.execution.arrow_columns import nullable
from quipu.pipeline.execution.pruning import read_options
from quipu.pipeline.plan.external_facts import RecordedFacts
from quipu.pipeline.plan.sources import plan_source
from quipu.pipeline.reading.positions import Reached
from quipu.pipeline.reading.stream import ends_of
from quipu.pipeline.settings import Settings
from quipu.pipeline.source import PlannedSource
from quipu.pipeline.spark.queries.analysis import (
    QueryPlanner,
    analyzed,
    analyzed_plan,
    spark_schema,
)
from quipu.pipeline.spark.queries.errors import explained
from quipu.pipeline.spark.queries.scope import Scope, grouped_of
from quipu.pipeline.spark.session.sessions import parallelism
from quipu.pipeline.spark.session.supervisor import Supervisor, await_termination
from quipu.pipeline.spark.sinks.sink import Sink, plan_sink
from quipu.pipeline.spark.views.stream import start_stream
from quipu.pipeline.spark.views.view import View, ViewPlan
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.parser import parse_one
from quipu.pipeline.sql.query_names import quote_names, quoted
from quipu.pipeline.sql.statements import (
    CreateConnection,
    CreateSink,
    CreateSource,
    CreateView,
    ObjectKind,
    Statement,
)
from quipu.pipeline.sql.text import TextSpan
from quipu.pipeline.types import schema_of

BUCKETS_MIN = 4
BUCKETS_MAX = 64
LETTERS_SUFFIX = "_dead_letters"


@dataclass
class MaintainedView:
    """A view, and the supervisor of its streaming query."""

    view: View
    supervisor: Supervisor


@dataclass
class LiveCatalog:
    """The objects of one pipeline, on which its statements work."""

    spark: SparkSession  # the pipeline's own, made by sessions.tuned
    catalog: Catalog
    settings: Settings
    planner: QueryPlanner
    connections: dict[str, CreateConnection] = field(default_factory=dict)
    sources: dict[str, PlannedSource] = field(default_factory=dict)
    views: dict[str, str] = field(default_factory=dict)  # every view's query
    maintained: dict[str, MaintainedView] = field(default_factory=dict)  # views and sources
    sinks: dict[str, Sink] = field(default_factory=dict)
    _folders: dict[str, Path] = field(default_factory=dict)
    sink_views: dict[str, MaintainedView] = field(default_factory=dict)  # a sink's own view
    broken: dict[str, str] = field(default_factory=dict)  # why an object cannot be used

    # -- restoring

    def restore(self) -> None:
        """Plan all objects of the catalog again.

        An object that cannot be planned any more, because rules have become stricter, is put into
        `broken` with the reason, and so are objects that use it: they can only be dropped.
        """
        for entry in self.catalog.entries():
            try:
                if broken := [name for name in entry.uses if name in self.broken]:
                    raise SqlError(f"it uses {broken[0]}")
                self.add(entry, parse_one(entry.text))
            except SqlError as error:
                self.sources.pop(entry.name, None)
                self.views.pop(entry.name, None)
                self.broken[entry.name] = error.message
        known = {self.folder(entry) for entry in self.catalog.entries()}
        home = self.catalog.directory / "views"
        home.mkdir(0o700, exist_ok=True)  # the state directory may be readable by others
        for folder in home.iterdir():
            if folder not in known:  # its object was dropped
                shutil.rmtree(folder, ignore_errors=True)

    def add(self, entry: CatalogEntry, statement: Statement) -> None:
        """Plan an object that is in the catalog."""
        self._folders[entry.name] = self.folder(entry)
        match statement:
            case CreateConnection():
                self.connections[entry.name] = statement
            case CreateSource():
                self.sources[entry.name] = plan_source(
                    statement, entry.text, RecordedFacts(entry.facts), self.connections)
                if entry.materialized:
                    self.maintained[entry.name] = self._maintain(
                        self.plan_of(entry.name), self.folder(entry))
            case CreateView():
                self.views[entry.name] = quote_names(statement.query)
                if entry.materialized:
                    plan = self.plan_view(entry.name, self.views[entry.name])
                    self.maintained[entry.name] = self._maintain(plan, self.folder(entry))
            case CreateSink():
                self._add_sink(entry, statement)
            case _:
                raise AssertionError(type(statement).__name__)

    def _maintain(self, plan: ViewPlan, folder: Path) -> MaintainedView:
        """A view with a supervisor, which is not started yet, for its streaming query."""
        view = View(self.spark, plan, folder)
        trigger_ms = self.settings.trigger_ms

        def work(stop: threading.Event) -> None:
            query = start_stream(view, supervisor.succeeded, trigger_ms=trigger_ms)
            await_termination(query, stop)

        supervisor = Supervisor(plan.name, work)
        return MaintainedView(view, supervisor)

    def _add_sink(self, entry: CatalogEntry, statement: CreateSink) -> None:
        name, folder = statement.view.text, self.folder(entry)
        followed = self.maintained.get(name)
        if followed is None:
            followed = self._maintain(self.plan_of(name), folder / "view")
            self.sink_views[entry.name] = followed
        plan = plan_sink(statement, followed.view.plan, self.connections)
        self.sinks[entry.name] = Sink(plan, followed.view, folder)

    def plan_of(self, name: str) -> ViewPlan:
        """The plan of a materialized view, or of SELECT * from a source or other view."""
        if name in self.maintained:
            return self.maintained[name].view.plan
        return self.plan_view(name, f"SELECT * FROM {quoted(name)}")  # noqa: S608 quoted

    def folder(self, entry: CatalogEntry) -> Path:
        """The folder of an object; an object that is created again gets another one."""
        return self.catalog.directory / "views" / str(entry.facts.get("folder", "none"))

    @staticmethod
    def new_folder(name: str) -> str:
        """A unique name for the folder of a new object."""
        return f"{quote(name, safe='')}-{secrets.token_hex(4)}"

    def start(self, name: str) -> None:
        """Start the supervisors of an object, if it has any."""
        for supervisor in self._supervisors(name):
            supervisor.start()

    def stop(self, name: str) -> None:
        """Stop the supervisors of an object; its files stay."""
        for supervisor in self._supervisors(name):
            supervisor.stop()

    def _supervisors(self, name: str) -> list[Supervisor]:
        found = [each[name].supervisor for each in (self.maintained, self.sink_views)
                 if name in each]
        return [*found, *([self.sinks[name].supervisor] if name in self.sinks else [])]

    def remove(self, name: str) -> None:
        """Forget an object that is no longer in the catalog, and delete its files."""
        self.stop(name)
        folder = self._folders.pop(name, None)
        if name in self.sinks:
            self.sinks.pop(name).forget()
        self.maintained.pop(name, None)
        self.sink_views.pop(name, None)
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
        """The scope of maintained views: sources, and views as their queries."""
        return Scope(self.planner, self.source_schemas, self.views)

    @property
    def reading_scope(self) -> Scope:
        """The scope of SELECT: sources and materialized views, and the queries of other views."""
        relations = {**self.source_schemas, **{
            name: spark_schema(each.view.schema) for name, each in self.maintained.items()}}
        letters = spark_schema(nullable(LETTERS))
        for name in list(relations):
            relations.setdefault(f"{name}{LETTERS_SUFFIX}", letters)
        return Scope(self.planner, relations, {
            name: query for name, query in self.views.items() if name not in self.maintained})

    def plan_view(self, name: str, query: str, *, start: int = 0) -> ViewPlan:
        """Plan a view; its query begins at `start` of the statement's text."""
        scope = self.maintained_scope
        with explained(query, start):
            frame = self.planner.admit(scope.frame(query, scope.blank))
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
            scope, query, analyzed_plan(frame), only_grows=not any(
                source.is_keyed for source in sources.values()))
        return ViewPlan(name, query, scope, sources, analysis, grouped, buckets,
                    self.settings.batch_offsets_max)

    # -- brokers

    def ends(self, source: PlannedSource, wait_ms: int | None = None) -> Reached:
        """The ends of a source's topics; brokers have `wait_ms` to respond."""
        options = read_options(source)
        wait_ms = self.settings.wait_ms if wait_ms is None else wait_ms
        timeout_ms = min(options.client.default_api_timeout_ms, max(wait_ms, 1))
        log = shared(replace(options.client, default_api_timeout_ms=timeout_ms))
        return ends_of(log, options)

    def kind_of(self, name: str) -> ObjectKind | None:
        """The kind of an object; None if there is none of that name."""
        entry = self.catalog.find(name)
        return None if entry is None else entry.kind


def refuse_duplicates(schema: StructType, start: int, query: str) -> None:
    """Raise SqlError if two columns of a view have one name."""
    seen: set[str] = set()
    for name in schema.names:
        if name in seen:
            raise SqlError(f'column "{name}" specified more than once',
                           TextSpan(start, start + len(query)), hint="give one another name: AS …")
        seen.add(name)


def columns_of(live: LiveCatalog, name: str) -> pa.Schema:
    """The columns of a source or view."""
    if name in live.maintained:
        return live.maintained[name].view.schema
    if name in live.sources:
        return schema_of(live.sources[name].columns)
    analysis = live.reading_scope.analyzed(live.views[name])
    return to_arrow_schema(analysis.schema, timezone="UTC")

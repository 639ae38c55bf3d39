"""`connect` and `Pipeline`: sources and views on Spark, for Python programs.

    import quipu.pipeline

    with quipu.pipeline.connect(state="state") as pipeline:
        pipeline.execute("CREATE SOURCE orders FROM KAFKA BROKER 'localhost:9092' TOPIC 'orders' "
                         "KEY FORMAT TEXT VALUE FORMAT JSON INCLUDE KEY, OFFSET ENVELOPE UPSERT")
        pipeline.execute("CREATE MATERIALIZED VIEW v AS SELECT …")     # a CommandResult
        pipeline.execute("SELECT * FROM v").show()                     # a DataFrame
        for version, diff, row in pipeline.subscribe("v"): ...         # until it is closed
        pipeline.progress()                                            # rows, rates, lag

`connect(spark=None, *, state="quipu-state", master=None, settings=None, resume=True)`

    spark      a session of the caller; else the Spark of this process, or a new one.  On an
               existing Spark the pipeline makes a session of its own, with its own settings and
               names; it stops only a Spark that it has started
    state      the directory of catalog, tables and checkpoints.  One process may use it at a time;
               with a Spark on several machines it must be on a file system that all of them share
    master     the master URL of a new Spark; by default local[*]
    settings   `spark.…` for a new Spark, and `quipu.…` (`pipeline/settings.py`)
    resume     whether views and sinks are started at once; else SELECT shows their last versions,
               until `resume()`

`execute(statement)` takes a text with one statement, or a parsed statement with the text that its
spans refer to.  It returns

    DataFrame        SELECT, WITH, VALUES.  It reads versions that are kept for ten minutes
    Subscription     SUBSCRIBE: an iterator of (version, diff, row); `close()` ends it
    CommandResult    any other statement: message, columns, rows

and raises `SqlError` for statements that cannot be parsed or executed (with line, column and the
text underlined), `OutstandingErrors` if a strict source has bad records, `NotCaughtUp` if a view
has not processed the present messages and makes no progress.  With a `WaitControl` it reports the
progress of the view, and raises `Cancelled` once another thread has set `stopping`.

A DataFrame is Spark's own, and lazy.  Errors in the rows of a strict source that is not
materialized are raised when the rows are computed: `collect()`, `show()` and the like raise Spark's
PythonException, whose text ends with the error.  Within `with plain_errors():`, of
`queries/errors.py`, they raise `OutstandingErrors` with that error alone.

Every source and materialized view has a second relation, NAME_dead_letters, with its bad records.
Methods may be called from any thread.
"""

import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from quipu.client.errors import ClientError
from quipu.pipeline.catalog import Catalog
from quipu.pipeline.command_result import CommandResult
from quipu.pipeline.live_facts import LiveFacts
from quipu.pipeline.settings import parsed
from quipu.pipeline.spark.queries.admission import close_off
from quipu.pipeline.spark.queries.analysis import QueryPlanner
from quipu.pipeline.spark.session.sessions import register, session, tuned
from quipu.pipeline.spark.statements.catch_up import NotCaughtUp, WaitControl, wait_until_caught_up
from quipu.pipeline.spark.statements.create import create, drop, unknown
from quipu.pipeline.spark.statements.live_catalog import LiveCatalog, columns_of
from quipu.pipeline.spark.statements.progress import Rates, SourceProgress, progress
from quipu.pipeline.spark.statements.select import select, wait_until_all_caught_up
from quipu.pipeline.spark.statements.show import READABLE, explain, show, show_columns, show_create
from quipu.pipeline.spark.statements.subscribe import Subscription
from quipu.pipeline.spark.views.offset_source import OffsetSource
from quipu.pipeline.sql.errors import SqlError, located
from quipu.pipeline.sql.parser import parse_one
from quipu.pipeline.sql.statements import (
    CreateConnection,
    CreateSink,
    CreateSource,
    CreateView,
    Drop,
    Explain,
    Name,
    Option,
    Query,
    Show,
    ShowColumns,
    ShowCreate,
    Statement,
    Subscribe,
)

STATE = "quipu-state"
Result = DataFrame | Subscription | CommandResult


class Pipeline:
    """Executes statements on one state directory; made by `connect`."""

    def __init__(self, live: LiveCatalog, *, stops_spark: bool) -> None:
        self._live = live
        self._stops_spark = stops_spark
        self._facts = LiveFacts()
        self._rates = Rates()
        self._lock = threading.RLock()  # one change to the catalog at a time
        self._begun = False

    @property
    def spark(self) -> SparkSession:
        """The session of the DataFrames that SELECT returns."""
        return self._live.spark

    @property
    def catalog(self) -> Catalog:
        """The catalog on disk; callers must not change it."""
        return self._live.catalog

    def execute(
        self, statement: str | Statement, text: str | None = None, *,
        waiting: WaitControl | None = None,
    ) -> Result:
        """Execute one statement."""
        if isinstance(statement, str):
            text = statement
            statement = parse_one(statement)
        with located(text or ""):
            return self._execute(statement, text or "", waiting or WaitControl())

    def _execute(
        self, statement: Statement, text: str, waiting: WaitControl,
    ) -> Result:
        live = self._live
        match statement:
            case Query():
                return select(live, statement.text, statement.span.start, waiting)
            case Subscribe():
                return self._subscribe(statement.name, statement.options, waiting)
            case CreateConnection() | CreateSource() | CreateView() | CreateSink():
                with self._lock:
                    return create(live, statement, text, self._facts)
            case Drop():
                with self._lock:
                    return drop(live, statement)
            case Show():
                return show(live, statement, self._rates)
            case ShowColumns():
                return show_columns(live, statement)
            case ShowCreate():
                return show_create(live, statement)
            case Explain():
                return explain(live, statement)

    def subscribe(self, name: str, *, snapshot: bool = True) -> Subscription:
        """The rows of a materialized view or source, then its changes."""
        return self._follow(Name(name), snapshot=snapshot)

    def _subscribe(
        self, name: Name, options: tuple[Option, ...], waiting: WaitControl,
    ) -> Subscription:
        with_snapshot = True
        for option in options:
            if option.name != "snapshot" or not isinstance(option.value, bool):
                raise SqlError(f"unknown option {option.name.upper()}", option.span,
                               hint="write WITH (SNAPSHOT = FALSE) for changes only")
            with_snapshot = option.value
        return self._follow(name, snapshot=with_snapshot, waiting=waiting)

    def _follow(
        self, name: Name, *, snapshot: bool, waiting: WaitControl | None = None,
    ) -> Subscription:
        maintained = self._live.maintained.get(name.text)
        if maintained is None:
            if self._live.kind_of(name.text) not in READABLE:
                raise unknown(self._live, name, *READABLE)
            raise SqlError(f"{name.text} is not materialized: its changes are not recorded",
                           name.span,
                           hint="CREATE MATERIALIZED VIEW … AS SELECT … and subscribe to that")
        with suppress(NotCaughtUp, ClientError):  # then the late rows come as changes
            wait_until_caught_up(self._live, maintained, waiting or WaitControl())
        return Subscription(maintained.view, with_snapshot=snapshot)

    def wait(self, name: str) -> int:
        """Wait until a materialized view has processed all present messages; its version."""
        return wait_until_caught_up(self._live, self._live.maintained[name], WaitControl()).number

    def catch_up(self, seconds: float, stopping: threading.Event | None = None) -> bool:
        """Wait until views and sinks have processed all present messages; False at a time-out."""
        return wait_until_all_caught_up(self._live, seconds, stopping)

    def columns(self, name: str) -> pa.Schema:
        """The columns of a source or view."""
        if self._live.kind_of(name) not in READABLE:
            raise unknown(self._live, Name(name), *READABLE)
        return columns_of(self._live, name)

    def progress(self) -> list[SourceProgress]:
        """Messages, rates and lag of every source of every maintained view."""
        return progress(self._live, self._rates)

    def memory(self, name: str) -> pa.Table:
        """The rows of a sink into memory: the view's columns, and #diff."""
        found = self._live.sinks[name].rows
        return pa.table({}) if found is None else found

    def resume(self) -> None:
        """Start views and sinks; they continue from their last versions."""
        with self._lock:
            if not self._begun:
                self._begun = True
                for entry in self._live.catalog.entries():
                    self._live.start(entry.name)

    def close(self) -> None:
        """Stop views and sinks between two batches, and unlock the state directory."""
        with self._lock:
            for entry in reversed(self._live.catalog.entries()):
                self._live.stop(entry.name)
            self._live.catalog.close()
            if self._stops_spark:
                self._live.spark.stop()
                self._stops_spark = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def connect(
    spark: SparkSession | None = None, *, state: str | Path = STATE, master: str | None = None,
    settings: Mapping[str, str] | None = None, resume: bool = True,
) -> Pipeline:
    """Open a pipeline on a state directory; the module's docstring describes the arguments."""
    ours, sparks = parsed(settings or {})
    directory = Path(state).resolve()
    catalog = Catalog.open(directory)
    try:
        starts = spark is None and SparkContext._active_spark_context is None  # noqa: SLF001
        given = spark or (
            session(master, settings=sparks, log=directory / "spark.log") if starts
            else SparkSession.builder.getOrCreate())  # without changing its settings
        own = tuned(given)
        register(own, OffsetSource)
        if not ours.sql_outside_enabled:
            close_off(own)
        live = LiveCatalog(own, catalog, ours, QueryPlanner(own, outside=ours.sql_outside_enabled))
        live.restore()
    except BaseException:
        catalog.close()
        raise
    pipeline = Pipeline(live, stops_spark=starts)
    if resume:
        pipeline.resume()
    return pipeline

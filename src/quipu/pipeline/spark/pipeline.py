"""Sources and views on Spark, from Python.

    import quipu.pipeline

    with quipu.pipeline.connect(state="state") as pipeline:
        pipeline.execute("CREATE SOURCE orders FROM KAFKA BROKER 'localhost:9092' TOPIC 'orders' "
                         "KEY FORMAT TEXT VALUE FORMAT JSON INCLUDE KEY, OFFSET ENVELOPE UPSERT")
        pipeline.execute("CREATE MATERIALIZED VIEW v AS SELECT …")     # an Answer
        pipeline.execute("SELECT * FROM v").show()                     # a DataFrame
        for version, diff, row in pipeline.subscribe("v"): ...         # until it is closed
        pipeline.progress()                                            # rows, rates, lag

`connect(spark=None, *, state="quipu-state", master=None, settings=None, resume=True)`

    spark      a session that somebody else has made; else the Spark that this process has, or one
               of our own.  Of others' we use a session beside theirs, with settings and names of
               its own, and stop nothing but what we have started
    state      a folder for catalog, tables and checkpoints.  One process at a time; with a Spark
               of several machines, on a file system that all of them share
    master     of a session of our own: local[*] unless said otherwise
    settings   `spark.…` for a session of our own, and `quipu.…` (see `settings`)
    resume     whether views and sinks go on at once; else SELECT shows them as they were left,
               until `resume()`

`execute(statement)` takes a text with one statement, or a parsed statement with the text that its
spans are about.  It answers with

    DataFrame      SELECT, WITH, VALUES.  Made of versions that are kept for ten minutes
    Subscription   SUBSCRIBE: an iterator of (version, diff, row); `close()` ends it
    Answer         everything else: message, columns, rows

and raises `SqlError` for statements that cannot be understood or carried out (with line, column
and the text underlined), `OutstandingErrors` if a strict source has bad records, `NotCaughtUp` if
a view has not seen what its sources hold and does not get on.  With `waiting` (see there) it raises
`Cancelled` instead of waiting on for a view once another thread has set `stopping`, and tells how
far the view is.

A DataFrame is Spark's own, and lazy.  What is wrong with the rows of a strict source that nobody
materializes is found where they are computed: `collect()`, `show()` and the like raise Spark's
PythonException, whose text ends with our sentence.  Under `with plain_errors():`, of
`query_errors`, they raise `OutstandingErrors` with that sentence alone.

Every source and materialized view has a second relation, NAME_dead_letters, with the records that
could not be used.  Methods may be called from any thread.
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
from quipu.pipeline.outside import Outside
from quipu.pipeline.spark.admission import close_off
from quipu.pipeline.spark.analysis import Bench
from quipu.pipeline.spark.answers import Answer
from quipu.pipeline.spark.creating import create, drop, unknown
from quipu.pipeline.spark.feed_source import FeedSource
from quipu.pipeline.spark.objects import Objects, columns_of
from quipu.pipeline.spark.progress import Progress, Rates, progress
from quipu.pipeline.spark.selecting import all_caught_up, select
from quipu.pipeline.spark.session import register, session, tuned
from quipu.pipeline.spark.settings import parsed
from quipu.pipeline.spark.showing import READABLE, explain, show, show_columns, show_create
from quipu.pipeline.spark.subscribing import Subscription
from quipu.pipeline.spark.waiting import NotCaughtUp, Waiting, caught_up
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
Result = DataFrame | Subscription | Answer


class Pipeline:
    """See above; made by `connect`."""

    def __init__(self, objects: Objects, *, stops_spark: bool) -> None:
        self._objects = objects
        self._stops_spark = stops_spark
        self._world = Outside()
        self._rates = Rates()
        self._lock = threading.RLock()  # one change to the catalog at a time
        self._begun = False

    @property
    def spark(self) -> SparkSession:
        """The session of the DataFrames that SELECT gives."""
        return self._objects.spark

    @property
    def catalog(self) -> Catalog:
        """What was created, for looking at."""
        return self._objects.catalog

    def execute(
        self, statement: str | Statement, text: str | None = None, *,
        waiting: Waiting | None = None,
    ) -> Result:
        """Carry out one statement."""
        if isinstance(statement, str):
            text = statement
            statement = parse_one(statement)
        with located(text or ""):
            return self._execute(statement, text or "", waiting or Waiting())

    def _execute(
        self, statement: Statement, text: str, waiting: Waiting,
    ) -> Result:
        objects = self._objects
        match statement:
            case Query():
                return select(objects, statement.text, statement.span.start, waiting)
            case Subscribe():
                return self._subscribe(statement.name, statement.options, waiting)
            case CreateConnection() | CreateSource() | CreateView() | CreateSink():
                with self._lock:
                    return create(objects, statement, text, self._world)
            case Drop():
                with self._lock:
                    return drop(objects, statement)
            case Show():
                return show(objects, statement, self._rates)
            case ShowColumns():
                return show_columns(objects, statement)
            case ShowCreate():
                return show_create(objects, statement)
            case Explain():
                return explain(objects, statement)

    def subscribe(self, name: str, *, snapshot: bool = True) -> Subscription:
        """The rows of a materialized view or source, then its changes."""
        return self._follow(Name(name), snapshot=snapshot)

    def _subscribe(
        self, name: Name, options: tuple[Option, ...], waiting: Waiting,
    ) -> Subscription:
        with_snapshot = True
        for option in options:
            if option.name != "snapshot" or not isinstance(option.value, bool):
                raise SqlError(f"unknown option {option.name.upper()}", option.span,
                               hint="write WITH (SNAPSHOT = FALSE) for changes only")
            with_snapshot = option.value
        return self._follow(name, snapshot=with_snapshot, waiting=waiting)

    def _follow(
        self, name: Name, *, snapshot: bool, waiting: Waiting | None = None,
    ) -> Subscription:
        running = self._objects.running.get(name.text)
        if running is None:
            if self._objects.kind_of(name.text) not in READABLE:
                raise unknown(self._objects, name, *READABLE)
            raise SqlError(f"{name.text} is not materialized: nobody keeps its changes", name.span,
                           hint="CREATE MATERIALIZED VIEW … AS SELECT … and subscribe to that")
        with suppress(NotCaughtUp, ClientError):  # then rows are late, and come as changes
            caught_up(self._objects, running, waiting or Waiting())
        return Subscription(running.view, with_snapshot=snapshot)

    def wait(self, name: str) -> int:
        """Wait until a materialized view has seen what its sources have now; its version."""
        return caught_up(self._objects, self._objects.running[name], Waiting()).number

    def catch_up(self, seconds: float, stopping: threading.Event | None = None) -> bool:
        """Wait until views and sinks have taken in what there is now; False if the time is up."""
        return all_caught_up(self._objects, seconds, stopping)

    def columns(self, name: str) -> pa.Schema:
        """The columns of a source or view."""
        if self._objects.kind_of(name) not in READABLE:
            raise unknown(self._objects, Name(name), *READABLE)
        return columns_of(self._objects, name)

    def progress(self) -> list[Progress]:
        """Rows, rates and lag of everything that is kept up to date."""
        return progress(self._objects, self._rates)

    def memory(self, name: str) -> pa.Table:
        """What a sink into memory has: the columns, and #diff."""
        found = self._objects.sinks[name].rows
        return pa.table({}) if found is None else found

    def resume(self) -> None:
        """Let views and sinks go on where they were."""
        with self._lock:
            if not self._begun:
                self._begun = True
                for entry in self._objects.catalog.entries():
                    self._objects.start(entry.name)

    def close(self) -> None:
        """Stop views and sinks between two batches, and let others use the state."""
        with self._lock:
            for entry in reversed(self._objects.catalog.entries()):
                self._objects.stop(entry.name)
            self._objects.catalog.close()
            if self._stops_spark:
                self._objects.spark.stop()
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
    """A pipeline over a folder of state.  See above."""
    ours, sparks = parsed(settings or {})
    directory = Path(state).resolve()
    catalog = Catalog.open(directory)
    try:
        starts = spark is None and SparkContext._active_spark_context is None  # noqa: SLF001
        given = spark or (
            session(master, settings=sparks, log=directory / "spark.log") if starts
            else SparkSession.builder.getOrCreate())  # as it is: no setting of ours is put on it
        own = tuned(given)
        register(own, FeedSource)
        if not ours.sql_outside_enabled:
            close_off(own)
        objects = Objects(own, catalog, ours, Bench(own, outside=ours.sql_outside_enabled))
        objects.restore()
    except BaseException:
        catalog.close()
        raise
    pipeline = Pipeline(objects, stops_spark=starts)
    if resume:
        pipeline.resume()
    return pipeline

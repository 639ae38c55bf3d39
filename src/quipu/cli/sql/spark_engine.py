"""`SparkEngine`, the engine of `quipu sql` on a pipeline on Spark, usable from any thread.

Spark takes seconds to start.  So it is started on a thread when the engine is constructed, and a
call that needs Spark waits for it; the shell shows its prompt meanwhile.  Every statement is a job
group of its own, so that cancelling one ends its jobs and not the streaming queries of the views.
Jobs are cancelled repeatedly until the statement ends, since one job may follow another.
"""

import contextlib
import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from quipu.cli.sql.engine import (
    Names,
    ResultRows,
    RowChanges,
    StatementDone,
    StatementResult,
    ViewProgress,
)
from quipu.cli.sql.output import Block, Heading
from quipu.model.errors import QuipuError
from quipu.pipeline.spark.queries.errors import plain_errors
from quipu.pipeline.spark.session.supervisor import summary
from quipu.pipeline.spark.session.threads import close_thread_connections
from quipu.pipeline.spark.statements.catch_up import Cancelled, WaitControl
from quipu.pipeline.spark.statements.pipeline import Pipeline, connect
from quipu.pipeline.spark.statements.subscribe import Subscription
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.lexer import TokenizedStatement
from quipu.pipeline.sql.parser import parse_piece
from quipu.pipeline.sql.secrets import mask_text
from quipu.pipeline.views.changes import DIFF

BLOCK_ROWS: Final = 1_000
STARTED_SECONDS_MAX: Final = 300.0
CANCEL_SECONDS: Final = 0.2  # between two attempts to end the jobs of a statement
CANCELS_MAX: Final = 300


class SparkFailed(QuipuError):
    """A statement failed in Spark; the message is the first sentence of Spark's error."""


class _Statement:
    """A statement that runs: the group of its Spark jobs, and whether it was cancelled."""

    def __init__(self, number: int) -> None:
        self.group = f"quipu sql {number}"
        self.stopping = threading.Event()
        self.status = ""  # what the statement waits for, for the status line
        self.over = threading.Event()

    def check(self) -> None:
        if self.stopping.is_set():
            raise Cancelled("the statement was cancelled")

    def set_status(self, line: str) -> None:
        self.status = line

    def end_jobs(self, context: SparkContext) -> None:
        """Cancel its Spark jobs repeatedly until the statement has ended."""
        for _ in range(CANCELS_MAX):
            context.cancelJobGroup(self.group)
            if self.over.wait(CANCEL_SECONDS):
                break
        close_thread_connections()


class SparkEngine:
    """Runs statements with a pipeline on Spark."""

    def __init__(
        self, state: Path, *, bootstrap: str, master: str | None = None,
        settings: Mapping[str, str] | None = None, spark: SparkSession | None = None,
    ) -> None:
        self._bootstrap = bootstrap
        self._made: Pipeline | None = None
        self._failure: BaseException | None = None
        self._started = threading.Event()
        self._statements = map(_Statement, itertools.count(1))
        self._statement: _Statement | None = None
        self._canceller: threading.Thread | None = None
        self._following: Subscription | None = None

        def start() -> None:
            try:
                self._made = connect(spark, state=state, master=master, settings=settings)
            except BaseException as error:  # noqa: BLE001 raised where the pipeline is needed
                self._failure = error
            finally:
                close_thread_connections()
                self._started.set()

        threading.Thread(target=start, name="start of Spark", daemon=True).start()

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline; waits until Spark has started."""
        if not self._started.wait(STARTED_SECONDS_MAX):
            raise SparkFailed(f"Spark did not start within {STARTED_SECONDS_MAX:.0f} s")
        if self._failure is not None:
            with _spark_errors():
                raise self._failure
        assert self._made is not None
        return self._made

    # -- statements

    def run(
        self, text: str, piece: TokenizedStatement, rows_max: int | None = None,
    ) -> StatementResult:
        this = self._statement = next(self._statements)
        with contextlib.ExitStack() as ending:
            ending.callback(this.over.set)
            result = self._run(this, text, piece, rows_max)
            if isinstance(result, RowChanges):  # it ends when the subscription does
                ending.pop_all()
        return result

    def _run(
        self, this: _Statement, text: str, piece: TokenizedStatement, rows_max: int | None
    ) -> StatementResult:
        statement = parse_piece(text, piece, self._bootstrap)
        pipeline = self.pipeline
        this.check()  # Spark may have been starting until now
        pipeline.spark.sparkContext.setJobGroup(
            this.group, mask_text(text[piece.span.start:piece.span.end])[:100],
            interruptOnCancel=True)
        with _spark_errors():
            result = pipeline.execute(
                statement, text, waiting=WaitControl(this.stopping, this.set_status))
            this.check()
            if isinstance(result, DataFrame):
                return _rows(result if rows_max is None else result.limit(rows_max + 1))
        if isinstance(result, Subscription):
            self._following = result
            return RowChanges(_change_headings(result), _changes(result, this))
        if not result.columns:
            return StatementDone(result.message)
        return ResultRows(_headings(result.columns, result.rows), iter([result.rows]))

    def activity(self) -> str:
        if not self._started.is_set():
            return "Spark is starting"
        if self._statement is None or self._made is None:
            return ""
        if self._statement.status:
            return self._statement.status
        tracker = self._made.spark.sparkContext.statusTracker()
        stages = [stage for job in tracker.getJobIdsForGroup(self._statement.group)
                  if (found := tracker.getJobInfo(job)) is not None and found.status == "RUNNING"
                  for each in found.stageIds
                  if (stage := tracker.getStageInfo(each)) is not None]
        done = sum(stage.numCompletedTasks for stage in stages)
        return f"{done} of {sum(stage.numTasks for stage in stages)} tasks" if stages else ""

    def cancel(self) -> None:
        if self._following is not None:
            self._following.close()
            self._following = None
        if self._statement is None:
            return
        self._statement.stopping.set()
        if self._made is not None:
            self._canceller = threading.Thread(
                target=self._statement.end_jobs, args=(self._made.spark.sparkContext,),
                name="cancel", daemon=True)
            self._canceller.start()

    # -- the catalog, and progress

    def names(self) -> Names:
        return self._made.catalog.names() if self._made is not None else {}

    def columns(self, name: str) -> Sequence[str]:
        if self._made is None:
            return ()
        with contextlib.suppress(QuipuError):
            return [str(each) for each in self._made.columns(name).names]
        return ()

    def progress(self) -> Sequence[ViewProgress]:
        if self._made is None:
            return ()
        return [
            ViewProgress(each.view, each.source, each.state, each.messages, each.rate, each.lag,
                     each.dead_letters, each.error)
            for each in self._made.progress()
        ]

    def catch_up(self, seconds_max: float) -> bool:
        this = self._statement = next(self._statements)
        this.over.set()  # it has no jobs of its own
        return self.pipeline.catch_up(seconds_max, this.stopping)

    def close_thread_connections(self) -> None:
        close_thread_connections()

    def close(self) -> None:
        self._started.wait(STARTED_SECONDS_MAX)
        if self._canceller is not None and self._statement is not None:
            self._statement.over.set()
            self._canceller.join()  # else it would call Spark after its end
        if self._made is not None:
            self._made.close()


@contextlib.contextmanager
def _spark_errors() -> Iterator[None]:
    """Raise an error of Spark as `SparkFailed` with one sentence."""
    try:
        with plain_errors():
            yield
    except (SqlError, QuipuError):
        raise
    except Exception as error:
        raise SparkFailed(summary(error)) from error


def _rows(frame: DataFrame) -> ResultRows:
    """All rows of a query, read through Arrow: times in UTC, decimals exact."""
    table: pa.Table = frame.toArrow()
    headings = [Heading(field.name, is_number=_is_number(field.type)) for field in table.schema]
    return ResultRows(headings, _blocks(table))


def _blocks(table: pa.Table) -> Iterator[Block]:
    for batch in table.to_batches(max_chunksize=BLOCK_ROWS):
        columns = [column.to_pylist(maps_as_pydicts="lossy") for column in batch.columns]
        yield list(zip(*columns, strict=True))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind)
                or pa.types.is_decimal(kind))


def _headings(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[Heading]:
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    return [
        Heading(name, is_number=bool(known) and all(_is_plain_number(each) for each in known))
        for name, column in zip(names, columns, strict=True)
        for known in [[each for each in column if each is not None]]
    ]


def _is_plain_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _change_headings(changes: Subscription) -> list[Heading]:
    fields = [Heading(field.name, is_number=_is_number(field.type)) for field in changes.schema]
    return [Heading("version", is_number=True), Heading("diff", is_number=True), *fields]


def _changes(subscription: Subscription, this: _Statement) -> Iterator[Block]:
    """The changes of each version: one row for each copy of a row that was added or removed."""
    try:
        for change in subscription.changes:
            for batch in change.batches:
                diffs = batch.column(DIFF).to_pylist()
                columns = [column.to_pylist(maps_as_pydicts="lossy")
                           for column in batch.drop_columns([DIFF]).columns]
                yield [(change.version, 1 if diff > 0 else -1, *row)
                       for diff, row in zip(diffs, zip(*columns, strict=True), strict=True)
                       for _ in range(abs(diff))]
    finally:
        this.over.set()

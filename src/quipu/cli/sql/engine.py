"""`Engine`, the protocol by which `quipu sql` runs statements, and the results of statements.

The script, the shell and `--serve` use an `Engine`; `spark_engine` has the one on Spark.  So the
code that shows results can be tested without a Java process.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from quipu.cli.sql.output import Block, Heading
from quipu.pipeline.sql.lexer import TokenizedStatement
from quipu.pipeline.sql.statements import ObjectKind

Names = Mapping[ObjectKind, Sequence[str]]


class StatementDone(NamedTuple):
    """The result of a statement without rows: a sentence that says what was done."""

    text: str


class ResultRows(NamedTuple):
    """The result of a query: its rows, in blocks."""

    headings: Sequence[Heading]
    blocks: Iterator[Block]


class RowChanges(NamedTuple):
    """The result of SUBSCRIBE: changes of rows, without end; the next block may take long."""

    headings: Sequence[Heading]
    blocks: Iterator[Block]


StatementResult = StatementDone | ResultRows | RowChanges


class ViewProgress(NamedTuple):
    """The progress of a view with one of its sources."""

    view: str
    source: str
    state: str  # running, waiting, stopped
    messages: int  # read since the view was created
    rate: float  # messages a second, recently
    lag: int | None  # messages still to be read; None if the broker does not respond
    dead_letters: int
    error: str | None


class Engine(Protocol):
    """Runs statements.  `run` and `catch_up` take long; another thread may `cancel` them."""

    def run(
        self, text: str, piece: TokenizedStatement, rows_max: int | None = None,
    ) -> StatementResult:
        """Run one statement of a script; raises `SqlError`.

        With `rows_max`, a query returns at most `rows_max` + 1 rows: the caller shows `rows_max`
        of them, and knows by the last that there are more.
        """

    def activity(self) -> str:
        """What Spark does for the running statement, as a short text for the status line."""

    def cancel(self) -> None:
        """Make the running statement end soon; returns at once."""

    def names(self) -> Names:
        """Names of the objects in the catalog, by their kind."""

    def columns(self, name: str) -> Sequence[str]:
        """The columns of a source or view; none for an unknown one."""

    def progress(self) -> Sequence[ViewProgress]:
        """The progress of each view with each of its sources."""

    def catch_up(self, seconds_max: float) -> bool:
        """Wait until views and sinks have processed all present messages; False at a time-out."""

    def close_thread_connections(self) -> None:
        """Release the connections of the calling thread, which will not use the engine again."""

    def close(self) -> None:
        """Stop all queries between two batches, and then Spark."""

"""What `quipu sql` needs of the pipeline, and what statements answer.

The script, the shell and `--serve` see an `Engine`; `sql_engine` makes one of a pipeline on Spark.
So whatever shows answers can be tried without a Java process.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from quipu.cli.sql_output import Block, Heading
from quipu.pipeline.sql.lexer import Piece
from quipu.pipeline.sql.statements import ObjectKind

Names = Mapping[ObjectKind, Sequence[str]]


class Told(NamedTuple):
    """Something was done; one sentence says what."""

    text: str


class Rows(NamedTuple):
    """A table."""

    headings: Sequence[Heading]
    blocks: Iterator[Block]


class Changes(NamedTuple):
    """Rows that come as long as somebody looks; the next block may be long in coming."""

    headings: Sequence[Heading]
    blocks: Iterator[Block]


Answer = Told | Rows | Changes


class Progress(NamedTuple):
    """How far a view has come with one of its sources."""

    view: str
    source: str
    state: str  # running, waiting, stopped
    messages: int  # read since the view was created
    rate: float  # messages a second, of late
    lag: int | None  # messages still to be read; None where the broker cannot be asked
    dead_letters: int
    error: str | None


class Engine(Protocol):
    """See above.  `run` and `catch_up` take long; `cancel` ends `run` from another thread."""

    def run(self, text: str, piece: Piece, rows_max: int | None = None) -> Answer:
        """Carry out one statement of a script; raises `SqlError`.

        With `rows_max`, a query gives one row more than that at most: enough to know of others.
        """

    def activity(self) -> str:
        """What Spark does for the statement that runs now, in a few words."""

    def cancel(self) -> None:
        """Have what runs now end, soon; this itself returns at once."""

    def names(self) -> Names:
        """What the catalog holds."""

    def columns(self, name: str) -> Sequence[str]:
        """The columns of a source or view; none for an unknown one."""

    def progress(self) -> Sequence[Progress]:
        """Everything that is kept up to date."""

    def catch_up(self, seconds_max: float) -> bool:
        """Wait until views and sinks have taken in what there is now; False if the time is up."""

    def leave(self) -> None:
        """The thread that calls this asks nothing more; what it holds is let go."""

    def close(self) -> None:
        """End all queries between two batches, and Spark."""

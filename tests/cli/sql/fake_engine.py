"""An engine without Spark: statements are parsed for real, and answered from a list.

It stands in where the shell, scripts and progress lines are tried, never for what SQL means.
"""

import threading
from collections.abc import Iterator, Sequence

from quipu.cli.sql.engine import (
    Names,
    ResultRows,
    RowChanges,
    StatementDone,
    StatementResult,
    ViewProgress,
)
from quipu.cli.sql.output import Block, Heading
from quipu.pipeline.sql.lexer import TokenizedStatement
from quipu.pipeline.sql.parser import parse_piece
from quipu.pipeline.sql.printer import canonical
from quipu.pipeline.sql.statements import ObjectKind, Query, Subscribe

HEADINGS = (Heading("id", is_number=True), Heading("name"))


class FakeEngine:
    """Knows a source `orders` with two columns; queries wait while `holds` says so."""

    def __init__(self, blocks: Sequence[Block] = ([(1, "ada"), (2, None)],)) -> None:
        self.ran: list[str] = []
        self.cancelled = threading.Event()
        self.holds = False
        self.closed = False
        self.catches_up = True
        self.reports: list[ViewProgress] = []
        self._blocks = blocks

    def run(
        self, text: str, piece: TokenizedStatement, rows_max: int | None = None,
    ) -> StatementResult:
        statement = parse_piece(text, piece)
        self.ran.append(canonical(statement))
        if self.holds:
            self.cancelled.wait(10)
        if isinstance(statement, Query):
            return ResultRows(HEADINGS, iter(self._blocks))
        if isinstance(statement, Subscribe):
            return RowChanges((Heading("diff", is_number=True), *HEADINGS), self._changes())
        return StatementDone("done")

    def _changes(self) -> Iterator[Block]:
        yield [(1, 1, "ada")]
        self.cancelled.wait(10)

    def activity(self) -> str:
        return "1 of 2 tasks"

    def cancel(self) -> None:
        self.cancelled.set()

    def names(self) -> Names:
        return {ObjectKind.SOURCE: ["orders"], ObjectKind.VIEW: ["Totals"]}

    def columns(self, name: str) -> Sequence[str]:
        return {"orders": ["order_id", "amount"]}.get(name, [])

    def progress(self) -> Sequence[ViewProgress]:
        return self.reports

    def catch_up(self, seconds_max: float) -> bool:
        self.cancelled.wait(0.5)  # long enough to be told of
        return self.catches_up

    def close_thread_connections(self) -> None:
        """It holds nothing."""

    def close(self) -> None:
        self.closed = True

"""An engine without Spark: statements are parsed for real, and answered from a list.

It stands in where the shell, scripts and progress lines are tried, never for what SQL means.
"""

import threading
from collections.abc import Iterator, Sequence

from quipu.cli.sql_answers import Answer, Changes, Names, Progress, Rows, Told
from quipu.cli.sql_output import Block, Heading
from quipu.pipeline.sql.lexer import Piece
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
        self.reports: list[Progress] = []
        self._blocks = blocks

    def run(self, text: str, piece: Piece, rows_max: int | None = None) -> Answer:
        statement = parse_piece(text, piece)
        self.ran.append(canonical(statement))
        if self.holds:
            self.cancelled.wait(10)
        if isinstance(statement, Query):
            return Rows(HEADINGS, iter(self._blocks))
        if isinstance(statement, Subscribe):
            return Changes((Heading("diff", is_number=True), *HEADINGS), self._changes())
        return Told("done")

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

    def progress(self) -> Sequence[Progress]:
        return self.reports

    def catch_up(self, seconds_max: float) -> bool:
        self.cancelled.wait(0.5)  # long enough to be told of
        return self.catches_up

    def leave(self) -> None:
        """It holds nothing."""

    def close(self) -> None:
        self.closed = True

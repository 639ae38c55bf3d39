"""`SqlError`: the error of a statement, with its place, the text underlined, and a hint.

    line 4, column 13: Expected NONE, DEBEZIUM, UPSERT, or MATERIALIZE, found identifier "upset"
        ENVELOPE UPSET
                 ^^^^^
    hint: did you mean UPSERT?

The code that raises an error gives the span; a caller that has the text adds it with `located`.
Passwords in the line that is shown are masked, see `secrets`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from quipu.model.errors import QuipuError
from quipu.pipeline.sql.secrets import MASK, mask_addresses, secret_spans
from quipu.pipeline.sql.text import NOWHERE, TextSpan, line_and_column

SHOWN_WIDTH_MAX = 100  # of a longer line, only the part around the error is shown
INDENT = "    "


class SqlError(QuipuError):
    """A statement that cannot be parsed or executed."""

    def __init__(self, message: str, span: TextSpan = NOWHERE, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.span = span
        self.hint = hint
        self.text: str | None = None

    def located(self, text: str) -> Self:
        """The same error, with the text that its span refers to."""
        if self.text is None:
            self.text = text
        return self

    @property
    def line(self) -> int:
        """The line where the error begins, from one."""
        return line_and_column(self.text or "", self.span.start)[0]

    @property
    def column(self) -> int:
        """The column where the error begins, from one."""
        return line_and_column(self.text or "", self.span.start)[1]

    @property
    def length(self) -> int:
        """The number of underlined characters: at least one, and none after the line."""
        text = self.text or ""
        newline = text.find("\n", self.span.start)
        line_end = len(text) if newline < 0 else newline
        return max(1, min(self.span.end, line_end) - self.span.start)

    def __str__(self) -> str:
        hint = f"\nhint: {mask_addresses(self.hint)}" if self.hint else ""
        if self.text is None:
            return f"{mask_addresses(self.message)}{hint}"
        line, underline = _underlined(self.text, self.span.start, self.length)
        return (f"line {self.line}, column {self.column}: {mask_addresses(self.message)}\n"
                f"{INDENT}{line}\n{INDENT}{underline}{hint}")


@contextmanager
def located(text: str) -> Iterator[None]:
    """Add a text to every SqlError that is raised within."""
    try:
        yield
    except SqlError as error:
        raise error.located(text) from error.__cause__


def _underlined(text: str, start: int, length: int) -> tuple[str, str]:
    """The line with the error, and the line of carets below it."""
    line_start = text.rfind("\n", 0, start) + 1
    newline = text.find("\n", line_start)
    line_end = len(text) if newline < 0 else newline
    shown, first, end = "", 0, 0
    position = line_start
    stops = [span for span in secret_spans(text)
             if span.start < line_end and span.end > line_start]
    for stop in [*stops, TextSpan(line_end, line_end)]:
        for at in range(position, min(stop.start, line_end)):
            first = len(shown) if at == start else first
            shown += text[at] if text[at].isprintable() else " "
            end = len(shown) if at < start + length else end
        position = max(position, stop.end)
        if stop.start < stop.end:
            first = len(shown) if stop.start <= start < stop.end else first
            shown += MASK
            end = len(shown) if stop.start < start + length else end
    if start >= line_end and not any(stop.start <= start < stop.end for stop in stops):
        first = end = len(shown)
    return _cropped(shown, first, max(end, first + 1))


def _cropped(line: str, first: int, end: int) -> tuple[str, str]:
    if len(line) <= SHOWN_WIDTH_MAX:
        return line, " " * first + "^" * (end - first)
    left = max(0, min(first - SHOWN_WIDTH_MAX // 3, len(line) - SHOWN_WIDTH_MAX))
    before, after = "…" if left else "", "…" if left + SHOWN_WIDTH_MAX < len(line) else ""
    width = min(end - first, SHOWN_WIDTH_MAX - (first - left))
    return (f"{before}{line[left:left + SHOWN_WIDTH_MAX]}{after}",
            " " * (len(before) + first - left) + "^" * max(1, width))

"""`TextSpan`: a place in a text, to which errors point.

It is a half-open range of characters of the text that was parsed, a whole script or one statement.
Lines and columns are computed only when an error is shown.
"""

from collections.abc import Sequence
from typing import NamedTuple

SHOWN_MAX = 60


class TextSpan(NamedTuple):
    """Characters `start` to `end` of a text."""

    start: int
    end: int

    def to(self, other: "TextSpan") -> "TextSpan":
        """The span from the start of this one to the end of another."""
        return TextSpan(self.start, max(self.end, other.end))


NOWHERE = TextSpan(0, 0)


def line_and_column(text: str, position: int) -> tuple[int, int]:
    """The line and column of a position, counted from one."""
    before = text[:position]
    return before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1


def in_one_line(text: str) -> str:
    """A text for a message: cut if it is long, without line breaks and control characters."""
    shown = "".join(each if each.isprintable() else " " for each in text[:SHOWN_MAX])
    return shown if len(text) <= SHOWN_MAX else f"{shown}…"


def one_of(words: Sequence[str]) -> str:
    """`A`, `A or B`, `A, B, or C`."""
    if len(words) <= 2:
        return " or ".join(words)
    return f"{', '.join(words[:-1])}, or {words[-1]}"

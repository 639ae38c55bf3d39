"""Places in a text: what errors point at.

A `Span` is a half-open range of characters of the text that was parsed, a whole script or one
statement.  Lines and columns are worked out only when an error is shown.
"""

from collections.abc import Sequence
from typing import NamedTuple

SHOWN_MAX = 60


class Span(NamedTuple):
    """Characters `start` to `end` of a text."""

    start: int
    end: int

    def to(self, other: "Span") -> "Span":
        """Everything from here to the end of another span."""
        return Span(self.start, max(self.end, other.end))


NOWHERE = Span(0, 0)


def line_and_column(text: str, position: int) -> tuple[int, int]:
    """Where a position is, as editors count: from one."""
    before = text[:position]
    return before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1


def in_one_line(text: str) -> str:
    """What somebody wrote, fit for a message."""
    shown = "".join(each if each.isprintable() else " " for each in text[:SHOWN_MAX])
    return shown if len(text) <= SHOWN_MAX else f"{shown}…"


def one_of(words: Sequence[str]) -> str:
    """`A`, `A or B`, `A, B, or C`."""
    if len(words) <= 2:
        return " or ".join(words)
    return f"{', '.join(words[:-1])}, or {words[-1]}"

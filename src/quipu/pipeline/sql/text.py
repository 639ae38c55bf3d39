"""Places in a text: what errors point at.

A `Span` is a half-open range of characters of the text that was parsed, a whole script or one
statement.  Lines and columns are worked out only when an error is shown.
"""

import difflib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

SHOWN_MAX = 60
NEAREST_LENGTH_MAX = 100  # what is longer is no misspelling, and comparing it is slow


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


def nearest(word: str, candidates: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The candidate that somebody who wrote `word` may have meant."""
    by_folded = {each.lower(): each for each in candidates}
    folded = word[:NEAREST_LENGTH_MAX].lower()
    near = difflib.get_close_matches(folded, by_folded, n=1, cutoff=cutoff)
    return by_folded[near[0]] if near else None


def in_one_line(text: str) -> str:
    """What somebody wrote, fit for a message."""
    shown = "".join(each if each.isprintable() else " " for each in text[:SHOWN_MAX])
    return shown if len(text) <= SHOWN_MAX else f"{shown}…"


def one_of(words: Sequence[str]) -> str:
    """`A`, `A or B`, `A, B, or C`."""
    if len(words) <= 2:
        return " or ".join(words)
    return f"{', '.join(words[:-1])}, or {words[-1]}"

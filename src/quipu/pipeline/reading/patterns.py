"""Finds topics by a regular expression of RE2, which takes linear time for any name.

Any user may create topics, and one name can make a backtracking engine run for years.  So TOPIC
PATTERN is a pattern of RE2.  The option subscribePattern, known from Spark, also accepts patterns
that RE2 does not have, such as lookahead: these are matched by Python's engine.
"""

import re
from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

Matching = Callable[[list[str]], list[str]]


class BadPattern(ValueError):
    """A text is no regular expression; the message says why."""


def matching(pattern: str) -> Matching:
    """A function that returns those of some names that a pattern matches as a whole."""
    try:
        check_linear(pattern)
    except BadPattern:
        whole = re.compile(pattern).fullmatch
        return lambda names: [name for name in names if whole(name)]
    return partial(_matched, f"^(?:{pattern})$")


def check_linear(pattern: str) -> None:
    """Raise BadPattern if a pattern is not one of RE2."""
    try:
        _matched(pattern, [""])  # by itself: a)|(b is wrong, but becomes valid within (?:…)
        _matched(f"^(?:{pattern})$", [""])
    except pa.ArrowInvalid as error:
        raise BadPattern(str(error).removeprefix("Invalid regular expression: ")) from None


def _matched(pattern: str, names: list[str]) -> list[str]:
    found = pc.match_substring_regex(pa.array(names, pa.string()), pattern).to_pylist()
    return [name for name, is_match in zip(names, found, strict=True) if is_match]

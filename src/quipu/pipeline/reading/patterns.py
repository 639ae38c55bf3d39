"""Topics by a regular expression: RE2's, which takes linear time whatever the names are.

Names are chosen by whoever may create topics, and an engine that goes back can be made to run for
years by one of them.  TOPIC PATTERN is RE2's.  The option subscribePattern of programs, known from
Spark, also takes what RE2 does not have, such as looking ahead: that is left to Python's engine.
"""

import re
from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

Matching = Callable[[list[str]], list[str]]


class BadPattern(ValueError):
    """No regular expression; the message says why."""


def matching(pattern: str) -> Matching:
    """Which of some names a pattern matches as a whole."""
    try:
        check_linear(pattern)
    except BadPattern:
        whole = re.compile(pattern).fullmatch
        return lambda names: [name for name in names if whole(name)]
    return partial(_matched, f"^(?:{pattern})$")


def check_linear(pattern: str) -> None:
    """Raise if a pattern is none of RE2's."""
    try:
        _matched(pattern, [""])  # alone: a)|(b is none, whatever is around it
        _matched(f"^(?:{pattern})$", [""])
    except pa.ArrowInvalid as error:
        raise BadPattern(str(error).removeprefix("Invalid regular expression: ")) from None


def _matched(pattern: str, names: list[str]) -> list[str]:
    found = pc.match_substring_regex(pa.array(names, pa.string()), pattern).to_pylist()
    return [name for name, is_match in zip(names, found, strict=True) if is_match]

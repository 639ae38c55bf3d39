r"""REGEX: a column of text per group; a message that does not match is absent.

The pattern is one of RE2, searched for anywhere in the message; the column of a group has the
group's name, (?P<n>…) or (?<n>…), or is `columnN`, counted from 1.  It is null if the group is not
part of the match.

RE2 takes time that is linear in the size of the message, for any pattern and message, so no other
engine is used.  Lookaround and back-references, which need more time, are refused when the source
is created.  \w, \d, \s and \b match ASCII only, \pL and \p{Nd} all letters and digits; $ is the end
of the message, (?m)$ also the end of a line.
"""

import re
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quipu.pipeline.formats.contract import Decoded
from quipu.pipeline.formats.spans import Mask, mask_of
from quipu.pipeline.formats.specs import Regex
from quipu.pipeline.formats.text import errors_where
from quipu.pipeline.formats.utf8 import BAD_UTF8, texts_of
from quipu.pipeline.types import Column

PATTERN_SIZE_MAX: Final = 100_000
GROUPS_MAX: Final = 1000
LINEAR: Final = ("patterns are RE2's, which never take more than linear time: no (?=…), (?!…), "
                 r"(?<=…), (?<!…) and no \1")
_PART: Final = re.compile(
    r"\\Q.*?(?:\\E|\Z)"                                             # as it is written
    r"|\\."                                                         # \( and \d
    r"|\[\^?\]?(?:\\.|\[:\^?[a-z]+:\]|[^\]\\])*\]"                  # [^]()[:alpha:]]
    r"|\(\?P?<(?P<name>[^>]*)>"                                     # a group with a name
    r"|\(\?|\{,(?P<most>[0-9]+)\}|.", re.DOTALL)


class InvalidPattern(ValueError):
    """A regular expression that cannot be used; the message says why."""


class _Pattern(NamedTuple):
    text: str  # for Arrow, which requires names for all groups: g1, g2, …
    names: list[str]  # the names of the columns


class RegexFormat:
    """FORMAT REGEX: the groups of a match.  Raises `InvalidPattern`."""

    def __init__(self, spec: Regex) -> None:
        if len(spec.pattern) > PATTERN_SIZE_MAX:
            raise InvalidPattern(f"the regular expression has more than {PATTERN_SIZE_MAX} "
                                 "characters")
        self._pattern, names = _parsed(spec.pattern)
        self.columns: tuple[Column, ...] = tuple(Column(name, pa.string()) for name in names)

    def decode(self, data: pa.BinaryArray) -> Decoded:
        texts = texts_of(data)
        columns, is_match = self._match(texts.values)
        absent = pa.array(~is_match if texts.bad is None else ~is_match & ~texts.bad)
        return Decoded(columns, errors_where(texts.bad, BAD_UTF8, len(data)), absent)

    def _match(self, texts: pa.StringArray) -> tuple[list[pa.Array], Mask]:
        """The groups of each row, and which rows match; null rows do not."""
        found = pc.extract_regex(texts, self._pattern)
        columns: list[pa.Array] = found.flatten()
        is_empty = np.zeros(len(texts), np.bool_)
        for column in columns:
            is_empty |= mask_of(pc.equal(pc.binary_length(column), 0))
        if is_empty.any():
            columns = self._with_nulls(texts, columns, is_empty)
        return columns, mask_of(found.is_valid())

    def _with_nulls(
        self, texts: pa.StringArray, columns: list[pa.Array], is_empty: Mask
    ) -> list[pa.Array]:
        """The columns with null for groups that are not part of the match; Arrow has "" there.

        Their spans distinguish them from groups that match an empty text.
        """
        rows = np.flatnonzero(is_empty)
        spans = pc.extract_regex_span(texts.take(pa.array(rows)), self._pattern).flatten()
        result = []
        for column, span in zip(columns, spans, strict=True):
            takes_part = np.ones(len(texts), np.bool_)
            takes_part[rows] = mask_of(span.is_valid())
            result.append(pc.if_else(pa.array(takes_part), column, pa.scalar(None, pa.string())))
        return result


def _parsed(pattern: str) -> _Pattern:
    parts: list[str] = []
    shown: list[str] = []
    names: list[str] = []
    for part in _PART.finditer(pattern):
        name, most = part["name"], part["most"]
        if part[0] == r"\C":
            raise InvalidPattern(r"the regular expression cannot be used: \C is part of a "
                                 "character, and columns hold whole ones")
        if part[0] == "(" or name is not None:
            names.append(f"column{len(names) + 1}" if name is None else _checked(name, names))
            parts.append(f"(?P<g{len(names)}>")
            shown.append("(" if name is None else f"(?P<{name}>")
        else:
            parts.append(part[0] if most is None else f"{{0,{most}}}")
            shown.append(parts[-1])
    text = "".join(parts)
    if len(names) > GROUPS_MAX:
        raise InvalidPattern(f"the regular expression has more than {GROUPS_MAX} groups")
    try:
        pc.match_substring_regex(pa.array([""]), "".join(shown))  # its errors quote it
        found = pc.extract_regex(pa.array([""]), text)
    except pa.ArrowInvalid as error:
        reason = str(error).removeprefix("Invalid regular expression: ")
        raise InvalidPattern(f"the regular expression cannot be read: {reason}; {LINEAR}"
                             ) from None
    if not names:
        raise InvalidPattern("the pattern has no group, and each column is one: write (…) "
                             "or (?P<name>…) around what a column shall hold")
    if [field.name for field in found.type] != [f"g{index + 1}" for index in range(len(names))]:
        raise InvalidPattern("the groups of the regular expression cannot be found: write "
                             r"\( for a parenthesis that begins no group")
    return _Pattern(text, names)


def _checked(name: str, names: list[str]) -> str:
    if not name.isidentifier():
        raise InvalidPattern(f"the regular expression cannot be read: {name[:60]!r} is no name of "
                             f"a group; {LINEAR}")
    if name in names:
        raise InvalidPattern(f"the regular expression has two groups {name[:60]!r}")
    return name

r"""REGEX: a column of text per group; a message that does not match is absent.

The pattern is Python's, looked for anywhere in the message; (?<n>…) serves as (?P<n>…).  A group
without a name is `columnN`, counted from 1; one that takes no part in the match is null.

RE2 goes over a whole array at once, and does so where the two cannot differ: the pattern means
the same to both, and the message is printable ASCII, so that neither what \w and \s are nor
where $ matches comes into it.  RE2 does not tell a group without a part from one that is empty,
so rows with an empty group are looked at again.
"""

import re
import warnings
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quipu.pipeline.formats.contract import Decoded
from quipu.pipeline.formats.spans import Mask, laid, mask_of
from quipu.pipeline.formats.specs import Regex
from quipu.pipeline.formats.text import errors_where
from quipu.pipeline.formats.utf8 import BAD_UTF8, texts_of
from quipu.pipeline.types import Column

PATTERN_SIZE_MAX: Final = 100_000
_PRINTABLE: Final = r"^[\t -~]*$"
_PART = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?<(?![=!])|\(\?|.", re.DOTALL)


class InvalidPattern(ValueError):
    """A regular expression that cannot serve; the message says why."""


class RegexFormat:
    """See `contract.Format`.  Raises `InvalidPattern`."""

    def __init__(self, spec: Regex) -> None:
        pattern = spec.pattern
        if len(pattern) > PATTERN_SIZE_MAX:
            raise InvalidPattern(f"the regular expression has more than {PATTERN_SIZE_MAX} "
                                 "characters")
        self._pattern = _compiled(_rewritten(pattern, named=False))
        if self._pattern.groups == 0:
            raise InvalidPattern("the pattern has no group, and each column is one: write (…) "
                                 "or (?P<name>…) around what a column shall hold")
        names = {index: name for name, index in self._pattern.groupindex.items()}
        self.columns: tuple[Column, ...] = tuple(
            Column(names.get(index, f"column{index}"), pa.string())
            for index in range(1, self._pattern.groups + 1))
        self._fast = _for_re2(pattern, self._pattern.groups)

    def decode(self, data: pa.BinaryArray) -> Decoded:
        texts = texts_of(data)
        columns, is_match = self._match(texts.values)
        absent = pa.array(~is_match if texts.bad is None else ~is_match & ~texts.bad)
        return Decoded(columns, errors_where(texts.bad, BAD_UTF8, len(data)), absent)

    def _match(self, texts: pa.StringArray) -> tuple[list[pa.Array], Mask]:
        """The groups of each row, and where there is a match; null rows have none."""
        if self._fast is None:
            return self._match_slowly(texts)
        is_plain = _printable(texts)
        plain = texts if is_plain is None else pc.if_else(pa.array(is_plain), texts, None)
        found = pc.extract_regex(plain, self._fast)
        columns = found.flatten()
        is_match = mask_of(found.is_valid())
        again = np.zeros(len(texts), np.bool_) if is_plain is None else ~is_plain
        for column in columns:
            again |= mask_of(pc.equal(pc.binary_length(column), 0))
        if not again.any():
            return columns, is_match
        rows = np.flatnonzero(again)
        slow, slow_match = self._match_slowly(texts.take(pa.array(rows)))
        order = np.arange(len(texts))
        order[rows] = len(texts) + np.arange(len(rows))
        is_match = is_match.copy()  # Arrow's are not to be written to
        is_match[rows] = slow_match
        return [pa.concat_arrays([column, other]).take(pa.array(order))
                for column, other in zip(columns, slow, strict=True)], is_match

    def _match_slowly(self, texts: pa.StringArray) -> tuple[list[pa.Array], Mask]:
        nothing = (None,) * self._pattern.groups
        search = self._pattern.search
        matches = [None if text is None else search(text) for text in texts.to_pylist()]
        groups = [nothing if match is None else match.groups() for match in matches]
        is_match = np.fromiter((match is not None for match in matches), np.bool_, len(matches))
        columns = zip(*groups, strict=True) if groups else ((),) * len(nothing)
        return [pa.array(list(column), pa.string()) for column in columns], is_match


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # [[:alpha:]] and [a&&b] mean more elsewhere
            return re.compile(pattern)
    except (re.error, FutureWarning, DeprecationWarning, RecursionError, OverflowError) as error:
        raise InvalidPattern(f"the regular expression cannot be read: {error}") from None


def _rewritten(pattern: str, *, named: bool) -> str:
    """The pattern with every named group written (?P<…>, and with `named` all groups named."""
    group = 0
    out = []
    for part in _PART.findall(pattern):
        if part == "(?<":
            out.append("(?P<")
        elif part == "(" and named:
            group += 1
            out.append(f"(?P<quipu{group}>")
        else:
            out.append(part)
    return "".join(out)


def _for_re2(pattern: str, groups: int) -> str | None:
    """The pattern for RE2, which wants all groups named; None if RE2 cannot serve."""
    if not pattern.isascii() or "{," in pattern:  # a repetition to Python, characters to RE2
        return None
    named = _rewritten(pattern, named=True)
    try:
        found = pc.extract_regex(pa.array([], pa.string()), named)
    except pa.ArrowInvalid:
        return None
    return named if found.type.num_fields == groups else None


def _printable(texts: pa.StringArray) -> Mask | None:
    """The rows of printable ASCII; None: all."""
    place = laid(texts)
    view = np.frombuffer(place.data, np.uint8)[place.offsets[0] : place.offsets[-1]]
    if len(view) == 0 or (view.min() >= 0x20 and view.max() < 0x7F):
        return None
    return mask_of(pc.match_substring_regex(texts, _PRINTABLE), null=True)

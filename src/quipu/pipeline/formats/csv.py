"""CSV: one record of text columns per message, with or without an end of line.

Rows without quotes are cut at their delimiters, all at once.  Rows with quotes, or with an end of
line before their end, go through Python's reader.  A quote counts at the start of a field only.
"""

import csv
import io
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quipu.pipeline.formats.casting import Errors, error_array, shown
from quipu.pipeline.formats.contract import Decoded
from quipu.pipeline.formats.spans import Laid, Mask, Numbers, laid, mask_of, pieces
from quipu.pipeline.formats.specs import Csv
from quipu.pipeline.formats.utf8 import texts_of
from quipu.pipeline.types import Column

_PREFIX: Final = "CSV error at record number 1: "
_BLOCK: Final = 1024
_FIELD_SIZE_MAX: Final = (1 << 31) - 1  # a message's: the reader's own limit of 128 KiB is none

csv.field_size_limit(_FIELD_SIZE_MAX)


class CsvFormat:
    """See `contract.Format`."""

    def __init__(self, spec: Csv) -> None:
        self.columns: tuple[Column, ...] = tuple(
            Column(name, pa.string()) for name in spec.columns)
        self._delimiter = spec.delimiter
        assert len(spec.delimiter) == 1, spec.delimiter
        assert spec.columns

    def decode(self, data: pa.BinaryArray) -> Decoded:
        texts = texts_of(data)
        errors: Errors = {}
        if texts.bad is not None:
            errors = dict.fromkeys(np.flatnonzero(texts.bad).tolist(), f"{_PREFIX}invalid UTF-8")
        lines = _lines(texts.values, self._delimiter)
        columns = self._cut(lines, errors)
        if lines.odd.any():
            columns = self._with_odd(texts.values, lines.odd, columns, errors)
        return Decoded(columns, error_array(errors, len(data)), data.is_null())

    def _cut(self, lines: "_Lines", errors: Errors) -> list[pa.Array]:
        """The fields of plain rows; other rows are null."""
        count = len(self.columns)
        cuts = lines.cuts
        right = lines.plain & (lines.cut_ends - lines.cut_starts == count - 1)
        for row in np.flatnonzero(lines.plain & ~right).tolist():
            found = int(lines.cut_ends[row] - lines.cut_starts[row]) + 1
            errors[row] = _wrong_count(count, found)
        missing = None if right.all() else ~right
        columns = []
        starts = lines.starts
        for index in range(count):
            ends = lines.ends
            if index < count - 1 and len(cuts):
                ends = cuts[np.minimum(lines.cut_starts + index, len(cuts) - 1)]
            columns.append(pieces(
                lines.data, np.where(right, starts, lines.starts),
                np.where(right, ends, lines.starts), missing=missing))
            starts = ends + 1
        return columns

    def _with_odd(
        self, texts: pa.StringArray, odd: Mask, columns: list[pa.Array], errors: Errors
    ) -> list[pa.Array]:
        """The columns, with the rows put in that are read one by one."""
        rows = np.flatnonzero(odd)
        count = len(self.columns)
        fields: list[list[str | None]] = []
        for row, read in zip(rows.tolist(), _read_all(texts.take(pa.array(rows)).to_pylist(),
                                                      self._delimiter), strict=True):
            if isinstance(read, str):
                errors[row] = read
            elif len(read) != count:
                errors[row] = _wrong_count(count, len(read))
            fields.append([None] * count if row in errors else [*read])
        order = np.arange(len(texts))
        order[rows] = len(texts) + np.arange(len(rows))
        return [pa.concat_arrays([column, pa.array(list(found), pa.string())]).take(pa.array(order))
                for column, found in zip(columns, zip(*fields, strict=True), strict=True)]


class _Lines(NamedTuple):
    """Rows, without the ends of their lines, and where delimiters are among them."""

    data: pa.Buffer
    starts: Numbers
    ends: Numbers
    cuts: npt.NDArray[np.int32]  # the place of every delimiter
    cut_starts: npt.NDArray[np.int64]  # of each row: the first delimiter in it
    cut_ends: npt.NDArray[np.int64]
    plain: Mask  # neither null nor odd
    odd: Mask  # for Python's reader


def _lines(texts: pa.StringArray, delimiter: str) -> _Lines:
    place = laid(texts)
    starts, ends = place.offsets[:-1], place.offsets[1:]
    is_there = mask_of(texts.is_valid())
    view = np.frombuffer(place.data, np.uint8)[place.offsets[0] : place.offsets[-1]]
    if not delimiter.isascii():  # it is several bytes
        none = np.zeros(len(texts), np.int64)
        return _Lines(place.data, starts, starts, none[:0].astype(np.int32), none, none,
                      np.zeros(len(texts), np.bool_), is_there)
    has_breaks = bool((view == 10).any() or (view == 13).any())
    if has_breaks:
        ends = _without_break(place, starts, ends)
    cuts = (np.flatnonzero(view == ord(delimiter)) + place.offsets[0]).astype(np.int32)
    odd = np.zeros(len(texts), np.bool_)
    for byte in (34, 10, 13) if has_breaks else (34,):
        found = np.flatnonzero(view == byte) + place.offsets[0]
        if len(found):
            odd |= np.searchsorted(found, starts) < np.searchsorted(found, ends)
    odd &= is_there
    return _Lines(place.data, starts, ends, cuts, np.searchsorted(cuts, starts),
                  np.searchsorted(cuts, ends), is_there & ~odd, odd)


def _without_break(place: Laid, starts: Numbers, ends: Numbers) -> Numbers:
    """The ends of rows, before a line feed and the carriage return in front of it."""
    view = np.frombuffer(place.data, np.uint8)
    for byte in (10, 13):
        is_last = (ends > starts) & (view[np.maximum(ends - 1, 0)] == byte)
        ends = ends - is_last.astype(np.int32)
    return ends


def _wrong_count(expected: int, found: int) -> str:
    return f"{_PREFIX}expected {expected} columns, got {found}."


# ---------------------------------------------------------------- rows with quotes

def _read_all(texts: list[str], delimiter: str) -> list[list[str] | str]:
    """The fields of each text, or what is wrong with it."""
    read: list[list[str] | str] = []
    for start in range(0, len(texts), _BLOCK):
        block = texts[start : start + _BLOCK]
        try:
            rows = list(csv.reader(block, delimiter=delimiter))
        except csv.Error:
            rows = []
        # A record takes at least one text, so as many records as texts are one of each.
        whole = len(rows) == len(block) and all(rows)
        read += rows if whole else [_read_one(text, delimiter) for text in block]
    return read


def _read_one(text: str, delimiter: str) -> list[str] | str:
    lines = io.StringIO(text, newline="")
    reader = csv.reader(lines, delimiter=delimiter)
    try:
        fields = next(reader, [])
    except csv.Error as error:
        return f"{_PREFIX}{error}"
    rest = text[lines.tell() :]
    if rest.strip("\r\n"):
        return f"Unexpected bytes remaining for decoded value: {shown(rest)}"
    return fields or [""]  # an empty line has one empty field

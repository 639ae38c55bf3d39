"""CSV: one record of text columns per message, with or without an end of line.

Rows without quotes are split at their delimiters, all at once.  Rows with quotes are read by Arrow,
a block at a time; a block with an end of line within a row, or with a quote that is not closed, is
read by Python, row by row.  Both give the same result.  A quote counts only at the start of a
field.
"""

import csv
import io
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from quipu.pipeline.formats.casts import Errors, error_array, shown
from quipu.pipeline.formats.contract import Decoded
from quipu.pipeline.formats.spans import Laid, Mask, Numbers, laid, mask_of, pieces
from quipu.pipeline.formats.specs import Csv
from quipu.pipeline.formats.utf8 import texts_of
from quipu.pipeline.types import Column

_PREFIX: Final = "CSV error at record number 1: "
_BLOCK: Final = 4096  # rows that Arrow reads at once
_QUOTE, _LF, _CR = b'"\n\r'
_FIELD_SIZE_MAX: Final = (1 << 31) - 1  # that of a message, instead of Python's default of 128 KiB

csv.field_size_limit(_FIELD_SIZE_MAX)


class CsvFormat:
    """FORMAT CSV: the fields of a line."""

    def __init__(self, spec: Csv) -> None:
        self.columns: tuple[Column, ...] = tuple(
            Column(name, pa.string(), nullable=False) for name in spec.columns)
        self._delimiter = spec.delimiter
        assert spec.columns
        assert len(spec.delimiter.encode()) == 1, spec.delimiter
        assert spec.delimiter not in '"\r\n', spec.delimiter

    def decode(self, data: pa.BinaryArray) -> Decoded:
        texts = texts_of(data)
        errors: Errors = {}
        if texts.bad is not None:
            errors = dict.fromkeys(np.flatnonzero(texts.bad).tolist(), f"{_PREFIX}invalid UTF-8")
        lines = _lines(texts.values, self._delimiter)
        columns = self._cut(lines, errors)
        if lines.odd.any():
            columns = self._with_odd(lines, columns, errors)
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
        self, lines: "_Lines", columns: list[pa.Array], errors: Errors
    ) -> list[pa.Array]:
        """The columns with the values of odd rows put in."""
        rows = np.flatnonzero(lines.odd)
        texts = pieces(lines.data, lines.starts[rows], lines.ends[rows])
        blocks = []
        for start in range(0, len(rows), _BLOCK):
            block = texts.slice(start, _BLOCK)
            read = _read_by_arrow(block, len(columns), self._delimiter) or (
                _read_by_python(block, len(columns), self._delimiter))
            blocks.append(read.columns)
            errors |= {int(rows[start + row]): error for row, error in read.errors.items()}
        order = np.arange(len(lines.odd))
        order[rows] = len(order) + np.arange(len(rows))
        return [pa.concat_arrays([column, *parts]).take(pa.array(order))
                for column, parts in zip(columns, zip(*blocks, strict=True), strict=True)]


class _Lines(NamedTuple):
    """The rows without their line ends, and the positions of the delimiters."""

    data: pa.Buffer
    starts: Numbers
    ends: Numbers
    cuts: npt.NDArray[np.int32]  # the position of every delimiter
    cut_starts: npt.NDArray[np.int64]  # of each row: the index of its first delimiter in `cuts`
    cut_ends: npt.NDArray[np.int64]
    plain: Mask  # neither null nor odd
    odd: Mask  # with quotes, or ends of lines within


def _lines(texts: pa.StringArray, delimiter: str) -> _Lines:
    place = laid(texts)
    starts, ends = place.offsets[:-1], place.offsets[1:]
    is_there = mask_of(texts.is_valid())
    view = np.frombuffer(place.data, np.uint8)[place.offsets[0] : place.offsets[-1]]
    has_breaks = bool((view == _LF).any() or (view == _CR).any())
    if has_breaks:
        ends = _without_break(place, starts, ends)
    cuts = (np.flatnonzero(view == ord(delimiter)) + place.offsets[0]).astype(np.int32)
    odd = np.zeros(len(texts), np.bool_)
    for byte in (_QUOTE, _LF, _CR) if has_breaks else (_QUOTE,):
        found = np.flatnonzero(view == byte) + place.offsets[0]
        if len(found):
            odd |= np.searchsorted(found, starts) < np.searchsorted(found, ends)
    odd &= is_there
    return _Lines(place.data, starts, ends, cuts, np.searchsorted(cuts, starts),
                  np.searchsorted(cuts, ends), is_there & ~odd, odd)


def _without_break(place: Laid, starts: Numbers, ends: Numbers) -> Numbers:
    """The ends of rows without a final line feed and a carriage return before it."""
    view = np.frombuffer(place.data, np.uint8)
    for byte in (_LF, _CR):
        is_last = (ends > starts) & (view[np.maximum(ends - 1, 0)] == byte)
        ends = ends - is_last.astype(np.int32)
    return ends


def _wrong_count(expected: int, found: int) -> str:
    return f"{_PREFIX}expected {expected} columns, got {found}."


# ---------------------------------------------------------------- rows with quotes

class _ReadFields(NamedTuple):
    columns: list[pa.Array]  # null where there is an error
    errors: Errors


def _read_by_arrow(texts: pa.StringArray, count: int, delimiter: str) -> _ReadFields | None:
    """The fields of a block; None if Arrow may not have read each row as one record."""
    joined = "\n".join(texts.to_pylist()).encode()
    if b"\r" in joined or joined.count(b"\n") != len(texts) - 1:
        return None
    errors: Errors = {}

    def note(row: pyarrow.csv.InvalidRow) -> str:
        errors[row.number - 1] = _wrong_count(count, row.actual_columns)
        return "skip"

    names = [str(index) for index in range(count)]
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(joined),
            pyarrow.csv.ReadOptions(column_names=names, use_threads=False,
                                    block_size=len(joined) + 1),
            pyarrow.csv.ParseOptions(delimiter=delimiter, ignore_empty_lines=False,
                                     invalid_row_handler=note),
            pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()),
                                       strings_can_be_null=False))
    except pa.ArrowInvalid:
        return None
    # A record has at least one row, so with as many records as rows each row is a record.
    if table.num_rows + len(errors) != len(texts):
        return None
    columns = [column.combine_chunks() for column in table.columns]
    if errors:
        good = np.ones(len(texts), np.bool_)
        good[list(errors)] = False
        order = pa.array(np.cumsum(good) - 1, mask=~good)
        columns = [column.take(order) for column in columns]
    return _ReadFields(columns, errors)


def _read_by_python(texts: pa.StringArray, count: int, delimiter: str) -> _ReadFields:
    """The fields of a block, row by row."""
    errors: Errors = {}
    rows: list[list[str | None]] = []
    for row, text in enumerate(texts.to_pylist()):
        fields = _read_one(text, delimiter)
        if isinstance(fields, str):
            errors[row] = fields
        elif len(fields) != count:
            errors[row] = _wrong_count(count, len(fields))
        rows.append([None] * count if row in errors else [*fields])
    return _ReadFields([pa.array(list(column), pa.string()) for column in zip(*rows, strict=True)],
                 errors)


def _read_one(text: str, delimiter: str) -> list[str] | str:
    """The fields of a row, or its error."""
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

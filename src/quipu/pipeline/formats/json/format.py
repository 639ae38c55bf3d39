"""`JsonFormat`: decodes the members of objects to columns, or the whole document to one column.

A document that becomes one column is checked and kept as it was written.  Of duplicate members the
last counts.  `payload` is for messages as Kafka Connect writes them with schemas, {"schema": …,
"payload": …}: only the payload is decoded, and a null payload counts as an absent message.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quipu.pipeline.formats.bounds import decoded_by_halves
from quipu.pipeline.formats.casts import Errors, error_array
from quipu.pipeline.formats.contract import Decoded, null_where
from quipu.pipeline.formats.json.scan import (
    ESCAPED,
    FAULTS,
    MISSING,
    NULL,
    STRING,
    JsonFaults,
    check,
    members,
)
from quipu.pipeline.formats.json.values import cast_field, check_type
from quipu.pipeline.formats.spans import laid, mask_of, pieces
from quipu.pipeline.formats.specs import Json
from quipu.pipeline.formats.utf8 import Texts, texts_of
from quipu.pipeline.types import Column

_PREFIX: Final = "Failed to decode JSON: "
_EOF: Final = "EOF"


class JsonFormat:
    """FORMAT JSON.  Raises `CannotCast` for columns whose type JSON cannot be cast to."""

    def __init__(self, spec: Json) -> None:
        self._is_typed = bool(spec.columns)
        self._has_payload = spec.payload
        self.columns: tuple[Column, ...] = spec.columns or (
            Column(spec.name, pa.string(), nullable=False),)
        for column in spec.columns:
            check_type(column.type)
        self._names = [column.name.encode() for column in spec.columns]

    def decode(self, data: pa.BinaryArray) -> Decoded:
        return decoded_by_halves(self._decode, data, self.columns, _PREFIX)

    def _decode(self, data: pa.BinaryArray) -> Decoded:
        texts = texts_of(data)
        documents = texts.values
        absent = data.is_null()
        errors = _unicode_errors(data, texts)
        if self._has_payload:
            documents, is_null = _payloads(documents, errors)
            absent = pc.or_(absent, is_null)
        columns = self._columns(documents, errors) if self._is_typed else (
            _whole(documents, errors))
        complaints = error_array(errors, len(data))
        if errors:
            columns = null_where(complaints.is_valid(), columns)
        return Decoded(columns, complaints, absent)

    def _columns(self, documents: pa.StringArray, errors: Errors) -> list[pa.Array]:
        """The members that are columns; adds to the errors."""
        found, faults = members(documents, self._names)
        _add_faults(documents, faults, errors)
        place = laid(documents)
        due = mask_of(documents.is_valid())
        columns = []
        for column, values in zip(self.columns, found, strict=True):
            cast = cast_field(place.data, values, column.field, column.name, due=due)
            columns.append(cast.values)
            for row, error in cast.errors.items():
                errors.setdefault(row, _PREFIX + error)
        return columns


def _whole(documents: pa.StringArray, errors: Errors) -> list[pa.Array]:
    _add_faults(documents, check(documents), errors)
    return [documents]


def _payloads(
    documents: pa.StringArray, errors: Errors
) -> tuple[pa.StringArray, pa.BooleanArray]:
    """The member `payload` of each document, and which of them are null."""
    (values,), faults = members(documents, [b"payload"])
    _add_faults(documents, faults, errors)
    is_there = mask_of(documents.is_valid())
    for row in np.flatnonzero(is_there & (values.kinds == MISSING)):
        errors.setdefault(int(row), _PREFIX + 'no member "payload" in the message')
    quotes = ((values.kinds == STRING) | (values.kinds == ESCAPED)).astype(np.int32)
    texts = pieces(laid(documents).data, values.starts - quotes, values.ends + quotes,
                   missing=values.kinds <= NULL)
    return texts, pa.array(values.kinds == NULL)


def _add_faults(documents: pa.StringArray, faults: JsonFaults, errors: Errors) -> None:
    """Add the texts of the faults of documents to the errors."""
    texts = documents.take(pa.array(faults.rows)).to_pylist()
    for row, code, position, text in zip(faults.rows.tolist(), faults.codes.tolist(),
                                         faults.positions.tolist(), texts, strict=True):
        fault = FAULTS[code]
        place = _place(text.encode(), position, is_end=fault.startswith(_EOF))
        errors.setdefault(row, f"{_PREFIX}{fault} at {place}")


def _place(text: bytes, position: int, *, is_end: bool) -> str:
    """The line and column of a position, from 1; at the end of a text, its last column."""
    line = text.count(b"\n", 0, position) + 1
    column = position - (text.rfind(b"\n", 0, position) + 1) + (0 if is_end else 1)
    return f"line {line} column {column}"


def _unicode_errors(data: pa.BinaryArray, texts: Texts) -> Errors:
    errors: Errors = {}
    if texts.bad is None:
        return errors
    rows = np.flatnonzero(texts.bad)
    for row, raw in zip(rows.tolist(), data.take(pa.array(rows)).to_pylist(), strict=True):
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            place = _place(raw, error.start, is_end=False)
            errors[row] = f"{_PREFIX}invalid unicode code point at {place}"
    return errors

"""Casts values within JSON texts to typed columns: records and arrays too, a level at a time.

What a column accepts:

    text            strings, unescaped; any other value as its JSON text, as it was written
    bytes           strings in base64
    boolean         true and false
    numbers         numbers; numeric also a string that is one, since that is how it stays exact
    date, timestamp strings in ISO 8601
    record          objects; members that the type does not name are ignored
    type[]          arrays
A missing member is null, or an error if the column is NOT NULL.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quipu.pipeline.formats.bounds import VALUES_MAX, TooManyValues, width
from quipu.pipeline.formats.casts import (
    CannotCast,
    Cast,
    Errors,
    can_cast,
    cast_texts,
    from_base64,
    shown,
)
from quipu.pipeline.formats.json.scan import (
    ARRAY,
    DECIMAL,
    ESCAPED,
    FALSE,
    INTEGER,
    MISSING,
    NULL,
    OBJECT,
    STRING,
    TRUE,
    Values,
    elements,
    members,
    unescaped,
)
from quipu.pipeline.formats.spans import Mask, laid, mask_of, pieces
from quipu.pipeline.types import sql_name

_KIND_NAMES: Final = ("nothing", "null", "true", "false", "number", "number", "text", "text",
                      "object", "array")
_STRINGS: Final = (STRING, ESCAPED)
_NUMBERS: Final = (INTEGER, DECIMAL)


def check_type(kind: pa.DataType) -> None:
    """Raise `CannotCast` if JSON cannot become this type."""
    if pa.types.is_struct(kind):
        for field in kind:
            check_type(field.type)
    elif pa.types.is_list(kind):
        check_type(kind.value_type)
    elif not (pa.types.is_binary(kind) or can_cast(kind)):
        raise CannotCast(sql_name(kind))


def cast_field(
    data: pa.Buffer, values: Values, field: pa.Field, path: str, *, due: Mask | None = None
) -> Cast:
    """The values of one column; errors name it by its path.

    `due` are the rows in which a missing value is an error for a NOT NULL column; None: all.
    """
    cast = _cast(data, values, field.type, path)
    if field.nullable:
        return cast
    for row in np.flatnonzero((values.kinds <= NULL) & (True if due is None else due)):
        what = "is missing" if values.kinds[row] == MISSING else "must not be null"
        cast.errors.setdefault(int(row), f'column "{path}" {what}')
    return cast


def _cast(data: pa.Buffer, values: Values, kind: pa.DataType, path: str) -> Cast:
    if pa.types.is_string(kind):
        return Cast(_texts(data, values, values.kinds > NULL), {})
    if pa.types.is_boolean(kind):
        fits = _fitting(values, (TRUE, FALSE))
        cast = Cast(pa.array(values.kinds == TRUE, mask=~fits), {})
    elif pa.types.is_struct(kind):
        fits = _fitting(values, (OBJECT,))
        cast = _cast_records(_texts(data, values, fits), kind, path)
    elif pa.types.is_list(kind):
        fits = _fitting(values, (ARRAY,))
        cast = _cast_arrays(_texts(data, values, fits), kind, path)
    else:
        fits = _fitting(values, _accepted(kind))
        cast = _cast_scalars(_texts(data, values, fits), values, kind)
        cast = Cast(cast.values, {row: f'column "{path}": {error}'
                                  for row, error in cast.errors.items()})
    wrong = ~fits & (values.kinds > NULL)
    if wrong.any():
        cast = Cast(cast.values, cast.errors | _wrong_kinds(data, values, wrong, kind, path))
    return cast


def _fitting(values: Values, kinds: tuple[int, ...]) -> Mask:
    fits: Mask = values.kinds == kinds[0]
    for other in kinds[1:]:
        fits |= values.kinds == other
    return fits


def _accepted(kind: pa.DataType) -> tuple[int, ...]:
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _NUMBERS
    return (*_NUMBERS, *_STRINGS) if pa.types.is_decimal(kind) else _STRINGS


def _texts(data: pa.Buffer, values: Values, fits: Mask) -> pa.StringArray:
    texts = pieces(data, values.starts, values.ends, missing=None if fits.all() else ~fits)
    return unescaped(texts, values.kinds) if (values.kinds == ESCAPED).any() else texts


def _cast_scalars(texts: pa.StringArray, values: Values, kind: pa.DataType) -> Cast:
    if pa.types.is_binary(kind):
        return from_base64(texts)
    is_number = not (pa.types.is_decimal(kind) and _fitting(values, _STRINGS).any()) and (
        _accepted(kind) != _STRINGS)
    return cast_texts(texts, kind, is_number=is_number)


def _cast_records(texts: pa.StringArray, kind: pa.DataType, path: str) -> Cast:
    fields = list(kind)
    found, faults = members(texts, [field.name.encode() for field in fields])
    assert len(faults.rows) == 0  # a part of a text that was checked
    data = laid(texts).data
    due = mask_of(texts.is_valid())  # in a record that is null nothing is missing
    columns, errors = [], Errors()
    for field, values in zip(fields, found, strict=True):
        cast = cast_field(data, values, field, f"{path}.{field.name}", due=due)
        columns.append(cast.values)
        errors = cast.errors | errors  # the first stays
    return Cast(pa.StructArray.from_arrays(columns, fields=fields, mask=texts.is_null()), errors)


def _cast_arrays(texts: pa.StringArray, kind: pa.DataType, path: str) -> Cast:
    ends, values = elements(texts)
    if len(values.kinds) * width(kind.value_type) > VALUES_MAX:
        raise TooManyValues
    cast = cast_field(laid(texts).data, values, kind.value_field, f"{path}[]")
    rows = np.searchsorted(ends, np.fromiter(cast.errors, np.int64), side="right") - 1
    errors: Errors = {}
    for row, error in zip(rows.tolist(), cast.errors.values(), strict=True):
        errors.setdefault(row, error)
    offsets = pa.array(ends, mask=_with_end(texts)) if texts.null_count else pa.array(ends)
    return Cast(pa.ListArray.from_arrays(offsets, cast.values, type=kind), errors)


def _with_end(texts: pa.StringArray) -> npt.NDArray[np.bool_]:
    """The mask of null offsets, one more than rows: Arrow reads a null offset as a null row."""
    return np.append(mask_of(texts.is_null()), False)


def _wrong_kinds(
    data: pa.Buffer, values: Values, wrong: Mask, kind: pa.DataType, path: str
) -> Errors:
    rows = np.flatnonzero(wrong)
    texts = pieces(data, values.starts[rows], values.ends[rows]).to_pylist()
    name = sql_name(kind)
    return {int(row): f'column "{path}": expected {name}, got '
            f"{_KIND_NAMES[values.kinds[row]]} {shown(text)}"
            for row, text in zip(rows, texts, strict=True)}

"""Casts text to the types of columns, strictly: a text that does not fit is an error of its row.

Arrow casts a whole array at once; only a block in which that fails is cast row by row, by the same
rules.  Arrow's cast to decimals has bugs: beyond 38 digits it returns wrong values without an
error, and an exponent makes it read past the end of a table.  So it gets only texts without an
exponent whose digits fit the type (`_sure_decimals`); the others are cast one by one, exactly, and
at a cost that their length bounds.  Rules that are not obvious:

    numeric      digits after the type's scale are rounded, as SQL does; others must fit
    real, double a number that is too large for the type is an error, not infinity
    integers     1.0 and 1e3 are whole numbers too
    timestamptz  a text without a zone is UTC; for timestamp, a text with a zone is an error
    timestamps   digits after the microsecond are cut off
"""

import binascii
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import (
    MAX_EMAX,
    MAX_PREC,
    MIN_EMIN,
    ROUND_HALF_UP,
    Context,
    Decimal,
    InvalidOperation,
)
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quipu.pipeline.formats.spans import Mask, mask_of
from quipu.pipeline.types import PRECISION_MAX, sql_name

SHOWN_MAX: Final = 60  # characters of a bad value in its error
_BLOCK: Final = 1024
_DIGITS: Final = Context(prec=100)
_WIDE: Final = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)  # nothing is rounded in it
_EXPONENT_MAX: Final = 10**12  # beyond it a number is out of range with any number of digits
_TINY: Final = -100  # a number whose first digit is below this power of ten rounds to zero
_HUGE: Final = 100   # a number whose first digit is above this power of ten fits no type

_YEAR: Final = r"(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
_DATE: Final = _YEAR + r"-[0-9]{2}-[0-9]{2}"
_TIME: Final = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?"
_ZONE: Final = r"Z|[+-][0-9]{2}(?::?[0-9]{2})?"
_NUMBER: Final = r"-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_FRACTION = re.compile(r"(\.[0-9]{6})[0-9]+")
_PADDED = re.compile(r"(\.[0-9]{1,6})(?![0-9])")

Errors = dict[int, str]
"""The error of each bad row."""


class Cast(NamedTuple):
    """The result of a cast: typed values, null in rows with an error."""

    values: pa.Array
    errors: Errors


class CannotCast(ValueError):
    """No column of this type can be made from text; the message names it."""


class _OutOfRange(ValueError):
    pass


class _Rule(NamedTuple):
    form: str  # a regular expression that the whole text must match
    whole: Callable[[pa.StringArray], pa.Array]  # casts all rows; raises ArrowInvalid
    one: Callable[[str], Any]  # casts one row; raises ValueError or _OutOfRange
    sure: str | None = None  # the texts for which `whole` is correct; None: all


def cast_texts(texts: pa.StringArray, kind: pa.DataType, *, is_number: bool = False) -> Cast:
    """Cast texts to a type; null stays null.  `is_number`: all match `_NUMBER`."""
    if pa.types.is_string(kind):
        return Cast(texts, {})
    rule = _rule_of(kind)
    errors: Errors = {}
    if not is_number:
        texts, errors = _of_form(texts, rule.form, kind)
    if rule.sure is not None:
        is_sure = mask_of(pc.match_substring_regex(texts, f"^(?:{rule.sure})$"), null=True)
        if not is_sure.all():
            return _cast_apart(texts, is_sure, rule, kind, errors)
    try:
        return Cast(rule.whole(texts), errors)
    except pa.ArrowInvalid:
        blocks = [_cast_block(texts.slice(start, _BLOCK), start, rule, kind)
                  for start in range(0, len(texts), _BLOCK)]
    for block in blocks:
        errors |= block.errors
    return Cast(pa.concat_arrays([block.values for block in blocks]), errors)


def can_cast(kind: pa.DataType) -> bool:
    """Can text be cast to this type?"""
    try:
        return pa.types.is_string(kind) or bool(_rule_of(kind))
    except CannotCast:
        return False


def error_array(errors: Errors, count: int) -> pa.StringArray:
    """Errors as a column: null for a row without an error."""
    if not errors:
        return pa.nulls(count, pa.string())
    column = np.full(count, None, np.object_)
    column[list(errors)] = list(errors.values())
    return pa.array(column, pa.string())


def shown(text: str) -> str:
    """A value for an error text: quoted, and cut if it is long."""
    return f'"{text}"' if len(text) <= SHOWN_MAX else f'"{text[:SHOWN_MAX]}…"'


def from_base64(texts: pa.StringArray) -> Cast:
    """Decode base64 texts to bytes."""
    values: list[bytes | None] = []
    errors: Errors = {}
    for row, text in enumerate(texts.to_pylist()):
        try:
            values.append(None if text is None else binascii.a2b_base64(text, strict_mode=True))
        except ValueError:
            values.append(None)
            errors[row] = f"invalid base64: {shown(text)}"
    return Cast(pa.array(values, pa.binary()), errors)


def _of_form(
    texts: pa.StringArray, form: str, kind: pa.DataType
) -> tuple[pa.StringArray, Errors]:
    """The texts that match a form, null for the others; and the errors of those."""
    fits = pc.match_substring_regex(texts, f"^(?:{form})$")
    if pc.all(fits, min_count=0).as_py():
        return texts, {}
    rows = np.flatnonzero(~mask_of(fits, null=True))
    errors = {int(row): _misshapen(text, kind)
              for row, text in zip(rows, texts.take(pa.array(rows)).to_pylist(), strict=True)}
    return pc.if_else(fits, texts, None), errors


def _cast_apart(
    texts: pa.StringArray, is_sure: Mask, rule: _Rule, kind: pa.DataType, errors: Errors
) -> Cast:
    """Cast the rows of `is_sure` at once, the others one by one."""
    rows = np.flatnonzero(~is_sure)
    others = _cast_each(texts.take(pa.array(rows)), rows.tolist(), rule, kind)
    values = rule.whole(pc.if_else(pa.array(is_sure), texts, None))
    order = np.arange(len(texts))
    order[rows] = len(texts) + np.arange(len(rows))
    return Cast(pa.concat_arrays([values, others.values]).take(pa.array(order)),
                errors | others.errors)


def _cast_block(texts: pa.StringArray, start: int, rule: _Rule, kind: pa.DataType) -> Cast:
    try:
        return Cast(rule.whole(texts), {})
    except pa.ArrowInvalid:
        return _cast_each(texts, range(start, start + len(texts)), rule, kind)


def _cast_each(
    texts: pa.StringArray, rows: Sequence[int], rule: _Rule, kind: pa.DataType
) -> Cast:
    values: list[Any] = []
    errors: Errors = {}
    for row, text in zip(rows, texts.to_pylist(), strict=True):
        value = None
        try:
            value = None if text is None else rule.one(text)
        except (_OutOfRange, ArithmeticError):
            errors[row] = f"{shown(text)} is out of range for type {sql_name(kind)}"
        except ValueError:
            errors[row] = _misshapen(text, kind)
        values.append(value)
    return Cast(pa.array(values, kind), errors)


def _misshapen(text: str, kind: pa.DataType) -> str:
    return f"invalid input syntax for type {sql_name(kind)}: {shown(text)}"


# ---------------------------------------------------------------- rules

def _rule_of(kind: pa.DataType) -> _Rule:
    if pa.types.is_signed_integer(kind):
        return _Rule(r"-?[0-9]+", lambda texts: texts.cast(kind),
                     lambda text: _integer(text, kind))
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return _Rule(_NUMBER, lambda texts: _floats(texts, kind), lambda text: _float(text, kind))
    if pa.types.is_decimal128(kind):
        return _Rule(_NUMBER, lambda texts: texts.cast(kind), lambda text: _decimal(text, kind),
                     _sure_decimals(kind))
    if pa.types.is_boolean(kind):
        return _Rule(r"(?i:true|false)", lambda texts: texts.cast(kind),
                     lambda text: text.lower() == "true")
    if pa.types.is_date32(kind):
        return _Rule(_DATE, lambda texts: texts.cast(kind), date.fromisoformat)
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return _timestamp_rule(kind)
    raise CannotCast(sql_name(kind))


def _exactly(text: str) -> Decimal:
    """The exact value of a text of form `_NUMBER`; an extreme exponent is limited."""
    digits, has_exponent, exponent = text.replace("E", "e").partition("e")
    number = Decimal(digits)
    if not has_exponent or not number:
        return number
    sign = -1 if exponent.startswith("-") else 1
    places = exponent.lstrip("+-").lstrip("0")
    shift = int(places or "0") if len(places) <= 12 else _EXPONENT_MAX
    return number.scaleb(sign * min(shift, _EXPONENT_MAX), _WIDE)


def _integer(text: str, kind: pa.DataType) -> int:
    number = _exactly(text)
    if number and number.adjusted() >= 20:  # int() would write out all its digits
        raise _OutOfRange
    if number and number.adjusted() < _TINY:
        raise ValueError
    value = int(number)
    if value != number:
        raise ValueError
    if not -1 << (kind.bit_width - 1) <= value < 1 << (kind.bit_width - 1):
        raise _OutOfRange
    return value


def _floats(texts: pa.StringArray, kind: pa.DataType) -> pa.Array:
    values = texts.cast(kind)
    if pc.any(pc.is_inf(values)).as_py():
        raise pa.ArrowInvalid("out of range")
    return values


def _float(text: str, kind: pa.DataType) -> float:
    value: float = pa.scalar(text).cast(kind).as_py()
    if value in {float("inf"), float("-inf")}:
        raise _OutOfRange
    return value


def _sure_decimals(kind: pa.DataType) -> str:
    """A pattern of the texts that fit a decimal type without rounding."""
    whole, scale = kind.precision - kind.scale, kind.scale
    zero = "0?" if kind.precision < PRECISION_MAX else ""  # 0.5 has two digits, and needs one
    front = rf"{zero}[0-9]{{0,{whole}}}" if whole else zero
    behind = rf"\.[0-9]{{1,{scale}}}" if scale else ""
    plain = rf"{zero}[0-9]{{1,{whole}}}" if whole else "0"
    return rf"-?(?:{plain}|{front}{behind})" if behind else f"-?{plain}"


def _decimal(text: str, kind: pa.DataType) -> Decimal:
    number = _exactly(text)
    if not number or number.adjusted() < _TINY:
        number = Decimal(0)
    elif number.adjusted() > _HUGE:
        raise _OutOfRange
    try:
        value = number.quantize(
            Decimal(1).scaleb(-kind.scale), rounding=ROUND_HALF_UP, context=_DIGITS)
    except InvalidOperation:
        raise _OutOfRange from None
    if len(value.as_tuple().digits) > kind.precision:
        raise _OutOfRange
    return value


def _timestamp_rule(kind: pa.DataType) -> _Rule:
    is_zoned = kind.tz is not None
    form = f"{_DATE}(?:[T ]{_TIME}(?:{_ZONE})?)?" if is_zoned else f"{_DATE}(?:[T ]{_TIME})?"
    return _Rule(form, lambda texts: _timestamps(texts, kind),
                 lambda text: _timestamp(text, is_zoned=is_zoned))


def _timestamps(texts: pa.StringArray, kind: pa.DataType) -> pa.Array:
    try:
        values = _timestamps_as_written(texts, kind)
    except pa.ArrowInvalid:
        cut = pc.replace_substring_regex(texts, _FRACTION.pattern, r"\1")
        values = _timestamps_as_written(cut, kind)
    try:
        pc.min_max(values).as_py()
    except (OverflowError, ValueError):  # its zone moves it out of the years 1 to 9999
        raise pa.ArrowInvalid("out of range") from None
    return values


def _timestamps_as_written(texts: pa.StringArray, kind: pa.DataType) -> pa.Array:
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        if kind.tz is None:
            raise
        return texts.cast(pa.timestamp("us")).cast(kind)  # if none of them has a zone


def _timestamp(text: str, *, is_zoned: bool) -> datetime:
    cut = _FRACTION.sub(r"\1", text)
    value = datetime.fromisoformat(_PADDED.sub(lambda match: match[1].ljust(7, "0"), cut))
    if not is_zoned:
        return value
    try:
        return (value.replace(tzinfo=UTC) if value.tzinfo is None else value).astimezone(UTC)
    except OverflowError:
        raise _OutOfRange from None

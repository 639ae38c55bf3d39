"""Numbers and moments as text, against Python's own: `decimal`, `float`, `int` and `datetime`.

Every text goes through alone and among others, so that both ways of casting are seen: whole
arrays by Arrow, and rows one by one.
"""

import json
import re
import time
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from quipu.pipeline.formats.avro.format import AvroFormat
from quipu.pipeline.formats.casts import cast_texts
from quipu.pipeline.formats.headers import header_column
from quipu.pipeline.formats.json.format import JsonFormat
from quipu.pipeline.formats.specs import Avro, Json
from quipu.pipeline.types import TIMESTAMP, TIMESTAMPTZ, Column
from tests.pipeline.formats.avro.avro_maker import encoded
from tests.pipeline.formats.decoding import decoded

NINES = "9" * 38
EXTREMES = [
    "0", "-0", "0.0", "-0.0", "00", "007", "-007.50", "0" * 60 + "1", "0" * 60 + "1.5",
    NINES, f"-{NINES}", NINES + "0", "1" + "0" * 37, "1" + "0" * 38, "1" + "0" * 39, "8" * 39,
    "1" + "0" * 76, "1" + "0" * 77, "9" * 400, "1" * 3000,
    f"0.{NINES}", f"0.{NINES}9", f"{NINES}.{NINES}", f".{NINES}", "0." + "0" * 60 + "1",
    "0.5", "0.05", "0.005", "0.0005", "-0.5", "-0.05", "-0.005", "0.4999999999", "1.9999999999",
    "999.995", "9999.995", "-9999.995", "9999.994", "99999.5", "0.30000000000000004", "1.", ".5",
    "1e0", "1e3", "1E3", "1e+3", "1e-3", "-1e-3", "12.5e1", "12.5e-1", "1e37", "1e38", "1e-37",
    "1e-38", "1e-39", "5e-39", "5e-10", "4e-10", f"{NINES}e-38", f"{NINES}e1", f"0.{NINES}e38",
    "1e00000000000000000000003", "1e-00000000000000000000003", "0." + "0" * 100 + "1e101",
    "1" + "0" * 100 + "e-100", "1e999999999", "1e-999999999", "-1e-999999999", "0e999999999",
    "0e-999999999", "1e9999999999999999999", "1e-9999999999999999999", "0e9999999999999999999",
    "1e" + "9" * 3000, "1e-" + "9" * 3000, "0e" + "9" * 3000, "1e-2147483648", "1e2147483648",
    "1e-9223372036854775808", "1e-9223372036854775809", "123456789012345678901234567890e-40",
]
KINDS = [(38, 9), (38, 0), (38, 38), (6, 2), (1, 0), (1, 1), (5, 5), (37, 37), (37, 0), (18, 6)]

_digits = st.text("0123456789", max_size=45)
_nines = st.builds(lambda count, last: "9" * count + last, st.integers(0, 45), st.sampled_from(
    ["", "4", "5", "49", "50", "95"]))
_exponents = st.one_of(
    st.just(""), st.builds("e{}".format, st.integers(-60, 60)),
    st.builds("E{:+}".format, st.integers(-(10**25), 10**25)))
numbers = st.builds(
    lambda sign, front, behind, exponent: f"{sign}{front}{behind}{exponent}",
    st.sampled_from(["", "-"]), st.one_of(_digits, _nines),
    st.one_of(st.just(""), st.builds(".{}".format, st.one_of(_digits, _nines))), _exponents,
).filter(lambda text: re.search("[0-9]", text.partition("e")[0].partition("E")[0]))
kinds = st.sampled_from(KINDS) | st.integers(1, 38).flatmap(
    lambda precision: st.tuples(st.just(precision), st.integers(0, precision)))

WRONG = object()  # an error of its row


def exactly(text: str) -> Fraction | None:
    """What a text means; None: too far from 1 to be written out."""
    digits, _, exponent = text.lower().partition("e")
    places = int(exponent or "0") if len(exponent) < 30 else 10**30 * (-1) ** ("-" in exponent)
    number = Fraction(digits if digits[-1] != "." else digits[:-1])
    if number == 0 or abs(places) <= 4000:
        return number * Fraction(10) ** (places if number else 0)
    return None if places > 0 else Fraction(0)


def as_numeric(text: str, precision: int, scale: int) -> object:
    """The value that a column has to hold, by fractions alone."""
    number = exactly(text)
    if number is None:
        return WRONG
    size, rest = divmod(abs(number) * 10**scale, 1)
    whole = int(size) + (rest >= Fraction(1, 2))
    if whole >= 10**precision:
        return WRONG
    with localcontext(Context(prec=80)):
        return Decimal(whole if number >= 0 else -whole).scaleb(-scale)


def cast_all(texts: list[str], kind: pa.DataType, *, is_number: bool = False) -> list[object]:
    cast = cast_texts(pa.array(texts, pa.string()), kind, is_number=is_number)
    assert cast.values.type == kind
    cast.values.validate(full=True)
    assert all(cast.values[row].as_py() is None for row in cast.errors)
    return [WRONG if row in cast.errors else value
            for row, value in enumerate(cast.values.to_pylist())]


@pytest.mark.parametrize(("precision", "scale"), KINDS)
def test_extremes_as_numeric(precision: int, scale: int) -> None:
    """I10, I15, K8: exact, rounded at the scale, or an error of the row; never another value."""
    kind = pa.decimal128(precision, scale)
    wanted = [as_numeric(text, precision, scale) for text in EXTREMES]
    assert cast_all(EXTREMES, kind) == wanted
    assert [cast_all([text], kind, is_number=True)[0] for text in EXTREMES] == wanted


@given(kinds, st.lists(numbers, max_size=12))
@settings(max_examples=300, deadline=None)
@example((38, 0), ["1e-999999999"])
@example((38, 9), ["9" * 39])
def test_any_number_as_numeric(kind: tuple[int, int], texts: list[str]) -> None:
    """I10, I15: as `decimal` has it, in whatever company."""
    wanted = [as_numeric(text, *kind) for text in texts]
    assert cast_all(texts, pa.decimal128(*kind)) == wanted
    assert [cast_all([text], pa.decimal128(*kind))[0] for text in texts] == wanted


@given(numbers, kinds)
@settings(max_examples=200, deadline=None)
def test_the_oracle_is_decimal(text: str, kind: tuple[int, int]) -> None:
    """I10: the fractions of these tests and Python's `decimal` tell the same."""
    precision, scale = kind
    with localcontext(Context(prec=300)):
        try:
            number = Decimal(text)
        except ArithmeticError:
            return  # an exponent that `decimal` does not take
        if abs(number.adjusted()) > 100:
            return
        value = number.quantize(Decimal(1).scaleb(-scale), rounding=ROUND_HALF_UP)
    fits = len(value.as_tuple().digits) <= precision
    assert as_numeric(text, precision, scale) == (value if fits else WRONG)


@given(st.lists(numbers, max_size=12), st.sampled_from([pa.int16(), pa.int32(), pa.int64()]))
@settings(max_examples=200, deadline=None)
@example([*EXTREMES], pa.int64())
def test_any_number_as_an_integer(texts: list[str], kind: pa.DataType) -> None:
    """I10, I15: JSON's numbers, which may be 1.0 and 1e3."""
    def wanted(text: str) -> object:
        number = exactly(text)
        limit = 1 << (kind.bit_width - 1)
        if number is None or number.denominator != 1 or not -limit <= number < limit:
            return WRONG
        tiny = number == 0 and re.search("[1-9]", text.lower().partition("e")[0])
        return WRONG if tiny else int(number)

    assert cast_all(texts, kind, is_number=True) == [wanted(text) for text in texts]


@given(st.lists(numbers, max_size=12))
@settings(max_examples=200, deadline=None)
@example([*EXTREMES])
def test_any_number_as_double(texts: list[str]) -> None:
    """I10, I15: to the last bit as Python reads it."""
    wanted = [WRONG if abs(float(text)) == float("inf") else float(text) for text in texts]
    assert cast_all(texts, pa.float64()) == wanted


@given(st.lists(numbers, max_size=6))
@settings(max_examples=100, deadline=None)
@example([*EXTREMES])
def test_any_number_as_real(texts: list[str]) -> None:
    """I10, I15: the nearest of its 32 bits, or an error."""
    for text, found in zip(texts, cast_all(texts, pa.float32()), strict=True):
        number = exactly(text)
        if found is WRONG:
            assert number is None or abs(number) > Fraction(34 * 10**37)
        else:
            assert isinstance(found, float)
            assert number is not None
            assert abs(Fraction(found) - number) <= max(abs(number) / 2**24, Fraction(1, 2**150))


_two = st.integers(0, 99).map("{:02}".format)
dates = st.builds("{:04}-{}-{}".format, st.integers(0, 9999), _two, _two) | st.dates().map(str)
times = st.builds(lambda hour, minute, second, part: f"{hour}:{minute}{second}{part}",
                  _two, _two, st.one_of(st.just(""), _two.map(":{}".format)),
                  st.sampled_from(["", ".1", ".123456", ".1234567", ".000000999999"]))
zones = st.one_of(st.sampled_from(["", "Z", "+00", "-00:00", "+14:00", "-23:59", "+24:00"]),
                  st.builds("{}{}{}".format, st.sampled_from("+-"), _two, _two))
moments = st.builds("{}{}{}{}".format, dates, st.sampled_from("T "), times, zones) | dates


def as_moment(text: str, *, zoned: bool) -> object:
    """By `datetime`, which is told what it does not know: long fractions, short ones."""
    cut = re.sub(r"(\.[0-9]{6})[0-9]+", r"\1", text)
    cut = re.sub(r"\.([0-9]{1,5})(?![0-9])", lambda found: "." + found[1].ljust(6, "0"), cut)
    if re.search(r"[0-9]{2}\.|T[0-9]{2}[^:]|[T ]24:", cut) and not re.search(
            r":[0-9]{2}:[0-9]{2}", cut):
        return WRONG  # hours and minutes have no fraction
    try:
        found = datetime.fromisoformat(cut)
        if not zoned:
            return WRONG if found.tzinfo is not None else found
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return WRONG


@given(st.lists(moments, max_size=8))
@settings(max_examples=300, deadline=None)
@example(["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2024-02-30", "0000-01-01"])
@example(["2024-12-31T23:59:60Z", "2024-12-31T24:00:00Z", "2024-06-30T12:00:00+00:60"])
@example(["2024-06-30T12:00:00+2400", "2024-06-30T12:00:00-9900", "2024-06-30T12:00:00+0099"])
def test_any_moment(texts: list[str]) -> None:
    """I10, I15: days and hours that there are not are errors, in whatever company."""
    for kind, zoned in ((TIMESTAMPTZ, True), (TIMESTAMP, False)):
        wanted = [as_moment(text, zoned=zoned) for text in texts]
        assert cast_all(texts, kind) == wanted
        assert [cast_all([text], kind)[0] for text in texts] == wanted


@given(st.lists(dates, max_size=8))
@settings(max_examples=200, deadline=None)
def test_any_date(texts: list[str]) -> None:
    """I10, I15."""
    def wanted(text: str) -> object:
        try:
            return date.fromisoformat(text)
        except ValueError:
            return WRONG

    assert cast_all(texts, pa.date32()) == [wanted(text) for text in texts]


def test_a_number_that_killed_the_worker_is_an_error_or_a_value_of_its_message() -> None:
    """K8, I15: in JSON, as a number and as a string, in records and arrays too; in headers."""
    kind = pa.decimal128(38, 9)
    fmt = JsonFormat(Json((
        Column("n", kind), Column("l", pa.list_(kind)), Column("r", pa.struct([("x", kind)])))))
    rows: list[Any] = decoded(fmt, [
        b'{"n": 1e-999999999}', b'{"n": "1e-999999999"}', b'{"l": [1, 1e-999999999]}',
        b'{"r": {"x": 1e999999999}}', b'{"n": 1.5}', b'{"n": %s}' % (b"9" * 39)])
    assert rows[:3] == [(0, None, None), (0, None, None), (None, [1, 0], None)]
    assert "out of range for type numeric(38,9)" in rows[3]
    assert rows[4] == (Decimal("1.5"), None, None)
    assert "out of range for type numeric(38,9)" in rows[5]
    headers = pa.array([[{"key": "h", "value": b"1e-999999999"}]], pa.list_(pa.struct(
        [("key", pa.string()), ("value", pa.binary())])))
    found = header_column(headers, "h", kind)
    assert found.values.to_pylist() == [0]
    assert found.errors.to_pylist() == [None]


@pytest.mark.parametrize(("precision", "scale"), [(38, 9), (38, 0), (38, 38), (6, 2), (1, 1)])
def test_extremes_as_numeric_in_records_and_lists(precision: int, scale: int) -> None:
    """I10, I15, K8: JSON's numbers, and strings that are numbers, at every depth."""
    kind = pa.decimal128(precision, scale)
    fmt = JsonFormat(Json((
        Column("n", kind), Column("l", pa.list_(kind)), Column("ll", pa.list_(pa.list_(kind))),
        Column("r", pa.struct([("x", kind), ("y", pa.list_(kind))])))))
    numbers = [text for text in EXTREMES if re.fullmatch(
        r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", text)]
    assert len(numbers) > 50
    written = [form.format(text) for text in numbers for form in ("{}", '"{}"')]
    shapes: list[tuple[str, Any]] = [
        ('{"n": %s}', lambda row: row[0]), ('{"l": [0, %s, 0]}', lambda row: row[1][1]),
        ('{"ll": [[], [%s]]}', lambda row: row[2][1][0]),
        ('{"r": {"x": %s}}', lambda row: row[3]["x"]),
        ('{"r": {"y": [%s]}}', lambda row: row[3]["y"][0])]
    for shape, taken in shapes:
        found = fmt.decode(pa.array([(shape % text).encode() for text in written]))
        rows = [*zip(*(column.to_pylist() for column in found.columns), strict=True)]
        assert [WRONG if error else taken(row)
                for row, error in zip(rows, found.errors.to_pylist(), strict=True)] == [
            as_numeric(text.strip('"'), precision, scale) for text in written]


@given(st.integers(1, 38), st.integers(0, 38), st.lists(st.one_of(
    st.binary(max_size=40), st.builds(lambda byte, size, rest: byte * size + rest, st.sampled_from(
        [b"\0", b"\xff"]), st.integers(0, 3000), st.binary(max_size=16))), max_size=8))
@settings(max_examples=150, deadline=None)
def test_any_bytes_as_a_decimal_of_avro(precision: int, scale: int, raws: list[bytes]) -> None:
    """I10, I15: numbers of any length; exact, or an error of their message."""
    scale = min(scale, precision)
    fmt = AvroFormat(Avro(json.dumps({
        "type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}),
        framed=False))
    found = fmt.decode(pa.array([encoded("bytes", raw) for raw in raws], pa.binary()))
    for raw, value, error in zip(
            raws, found.columns[0].to_pylist(), found.errors.to_pylist(), strict=True):
        number = int.from_bytes(raw, "big", signed=True)
        if abs(number) >= 10**precision:
            assert "more digits than its precision" in error
        else:
            assert (error, Fraction(value) * 10**scale) == (None, number)


def test_extremes_are_cheap() -> None:
    """K8: what a number costs is bounded by its length, not by its exponent."""
    texts = pa.array(["1e-999999999", "1e999999999", "0e999999999", "1e" + "9" * 1000] * 500)
    plain = pa.array(["1.23456789012345678901"] * 2000)  # rounded: one by one, too
    for kind, is_number in ((pa.decimal128(38, 9), False), (pa.int64(), True)):
        begun = time.perf_counter()
        cast_texts(plain, kind, is_number=True)
        usual = time.perf_counter() - begun
        begun = time.perf_counter()
        cast_texts(texts, kind, is_number=is_number)
        assert time.perf_counter() - begun < 0.5 + 50 * usual

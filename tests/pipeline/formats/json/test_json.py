"""JSON: typed columns, whole documents, payloads."""

import json
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.pipeline.formats.casts import CannotCast
from quipu.pipeline.formats.factory import make_format
from quipu.pipeline.formats.specs import Json
from quipu.pipeline.types import TIMESTAMPTZ, Column
from tests.pipeline.formats.decoding import decoded

PREFIX = "Failed to decode JSON: "


def one(kind: pa.DataType, text: str, *, nullable: bool = True) -> Any:
    """The value of the one column `a`, or the error without its prefix."""
    fmt = make_format(Json((Column("a", kind, nullable),)))
    found = decoded(fmt, [text.encode(), b'{"a": null}', None])[0]
    return found[0] if isinstance(found, tuple) else found.removeprefix(PREFIX)


@pytest.mark.parametrize("text", [
    '{"a": 1}', "[1, 2]", '"text"', "12", "4.9E-324", "null", "true", '""', " \n {} \n",
    '"\\u00e9 😀"', "1e400"])
def test_a_document_is_kept_as_it_was_written(text: str) -> None:
    """I10: any JSON is a row."""
    assert decoded(make_format(Json()), [text.encode(), None]) == [(text,), None]


@pytest.mark.parametrize(("data", "error"), [
    (b'{"a":', "EOF while parsing a value at line 1 column 5"),
    (b'{"a": x}', "expected value at line 1 column 7"),
    (b"", "EOF while parsing a value at line 1 column 0"),
    (b'{"a": 1,\n "b" 2}', "expected `:` at line 2 column 6"),
    (b"[1 2]", "expected `,` or `]` at line 1 column 4"),
    (b'{"a": 1 "b"}', "expected `,` or `}` at line 1 column 9"),
    (b"{'a': 1}", "key must be a string at line 1 column 2"),
    (b'{"a": 1,}', "key must be a string at line 1 column 9"),
    (b"1 2", "trailing characters at line 1 column 3"),
    (b"NaN", "expected value at line 1 column 1"),
    (b"01", "invalid number at line 1 column 2"),
    (b'"\\x"', "invalid escape at line 1 column 2"),
    (b'"a\nb"', "control character in a string at line 1 column 3"),
    (b'"\\ud800"', "lone surrogate in a string at line 1 column 2"),
    (b'"abc', "EOF while parsing a string at line 1 column 4"),
    (b'"a\xff"', "invalid unicode code point at line 1 column 3"),
])
def test_what_is_no_json_says_where(data: bytes, error: str) -> None:
    """I15: line and column; neighbours are decoded, whatever they look like together."""
    for fmt in (make_format(Json()), make_format(Json((Column("a", pa.int64()),)))):
        found = decoded(fmt, [b'{"a": 1}', data, b'{"a": 2}'])
        assert found[1] == PREFIX + error
        assert isinstance(found[0], tuple)
        assert isinstance(found[2], tuple)


@pytest.mark.parametrize(("kind", "text", "value"), [
    (pa.string(), '"x"', "x"), (pa.string(), '"\\"\\u00e9\\ud83d\\ude00"', '"é😀'),
    (pa.string(), "12.50", "12.50"), (pa.string(), '{"b":  [1]}', '{"b":  [1]}'),
    (pa.string(), "true", "true"),
    (pa.int16(), "7", 7), (pa.int64(), "-9223372036854775808", -(1 << 63)),
    (pa.int32(), "1.0", 1), (pa.int32(), "2e3", 2000),
    (pa.float64(), "3", 3.0), (pa.float32(), "0.5", 0.5),
    (pa.bool_(), "true", True), (pa.bool_(), "false", False),
    (pa.decimal128(38, 9), "123456789012345678901234567.5",
     Decimal("123456789012345678901234567.5")),
    (pa.decimal128(5, 2), '"1.5"', Decimal("1.50")),
    (pa.binary(), '"aGk="', b"hi"), (pa.date32(), '"2024-02-29"', date(2024, 2, 29)),
    (pa.list_(pa.int64()), "[1, null, 3]", [1, None, 3]), (pa.list_(pa.int64()), "[]", []),
    (pa.list_(pa.list_(pa.string())), '[["a"], null, []]', [["a"], None, []]),
    (pa.struct([("b", pa.int64()), ("c", pa.string())]), '{"c": "\\t", "d": 1}',
     {"b": None, "c": "\t"}),
    (pa.list_(pa.struct([("b", pa.bool_())])), '[{"b": true}, {}]', [{"b": True}, {"b": None}]),
])
def test_values_become_what_their_columns_are(
    kind: pa.DataType, text: str, value: object
) -> None:
    """I10: scalars, records and arrays."""
    assert one(kind, f'{{"z": [{{}}], "a": {text}, "y": 0}}') == value


@pytest.mark.parametrize(("kind", "text", "error"), [
    (pa.int64(), '"12"', 'column "a": expected bigint, got text "12"'),
    (pa.int64(), "1.5", 'column "a": invalid input syntax for type bigint: "1.5"'),
    (pa.int32(), "3000000000", 'column "a": "3000000000" is out of range for type integer'),
    (pa.int32(), "1e999999999999", 'column "a": "1e999999999999" is out of range for type integer'),
    (pa.float64(), "1e400", 'column "a": "1e400" is out of range for type double'),
    (pa.bool_(), "1", 'column "a": expected boolean, got number "1"'),
    (pa.bool_(), '"true"', 'column "a": expected boolean, got text "true"'),
    (pa.decimal128(5, 2), "1000", 'column "a": "1000" is out of range for type numeric(5,2)'),
    (pa.decimal128(5, 2), '"x"', 'column "a": invalid input syntax for type numeric(5,2): "x"'),
    (TIMESTAMPTZ, "1700000000", 'column "a": expected timestamptz, got number "1700000000"'),
    (pa.struct([("b", pa.int64())]), '{"b": {}}', 'column "a.b": expected bigint, got object "{}"'),
    (pa.struct([("b", pa.int64())]), "[]", 'column "a": expected record(b bigint), got array "[]"'),
    (pa.list_(pa.int64()), "[1, true]", 'column "a[]": expected bigint, got true "true"'),
    (pa.binary(), '"!"', 'column "a": invalid base64: "!"'),
])
def test_a_value_of_the_wrong_kind_is_an_error(
    kind: pa.DataType, text: str, error: str
) -> None:
    """I15: it names column, type and value."""
    assert one(kind, f'{{"a": {text}}}') == error


def test_missing_members_are_null_where_they_may_be() -> None:
    """I10."""
    assert one(pa.int64(), "{}") is None
    assert one(pa.int64(), "{}", nullable=False) == 'column "a" is missing'
    assert one(pa.int64(), '{"a": null}', nullable=False) == 'column "a" must not be null'
    inner = pa.struct([pa.field("b", pa.int64(), nullable=False)])
    assert one(inner, '{"a": {}}') == 'column "a.b" is missing'
    assert one(inner, '{"a": null}') is None
    assert one(pa.int64(), "[]") == "expected an object at line 1 column 1"


def test_the_first_column_that_is_wrong_is_named() -> None:
    """I15: one error per message."""
    fmt = make_format(Json((Column("a", pa.int64()), Column("b", pa.int64()))))
    assert decoded(fmt, [b'{"b": "x", "a": "y"}', b'{"a": 1, "b": 2}', b'{"b": 3}']) == [
        f'{PREFIX}column "a": expected bigint, got text "y"', (1, 2), (None, 3)]


def test_payloads() -> None:
    """I7, I10: what Kafka Connect writes with schemas; a null payload is no message."""
    messages = [b'{"schema": {"a": 9}, "payload": {"a": 1}}', b'{"payload": null}', b'{"a": 1}',
                None, b'{"payload": "te\\nxt"}']
    typed = make_format(Json((Column("a", pa.int64()),), payload=True))
    assert decoded(typed, messages) == [
        (1,), None, PREFIX + 'no member "payload" in the message', None,
        PREFIX + "expected an object at line 1 column 1"]
    whole = make_format(Json(payload=True))
    assert decoded(whole, messages) == [
        ('{"a": 1}',), None, PREFIX + 'no member "payload" in the message', None,
        ('"te\\nxt"',)]


def test_a_column_of_a_type_that_json_cannot_give_is_refused() -> None:
    """I19: when the source is made."""
    with pytest.raises(CannotCast):
        make_format(Json((Column("a", pa.map_(pa.string(), pa.string())),)))


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.text(max_size=5)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["a", "b", "c"]), inner, max_size=3), max_leaves=6)
KINDS = [pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.list_(pa.int64()),
         pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])]


def fits(value: Any, kind: pa.DataType) -> Any:
    """What a careful reader would make of a value; raises ValueError."""
    if value is None:
        return None
    if pa.types.is_string(kind):
        return value if isinstance(value, str) else json.dumps(value)
    if pa.types.is_list(kind) and isinstance(value, list):
        return [fits(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return {field.name: fits(value.get(field.name), field.type) for field in kind}
    if pa.types.is_boolean(kind) and isinstance(value, bool):
        return value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if pa.types.is_float64(kind) and is_number:
        return float(value)
    if (pa.types.is_int64(kind) and is_number and value == int(value)
            and -1 << 63 <= value < 1 << 63):
        return int(value)
    raise ValueError(value)


@given(st.lists(st.dictionaries(st.sampled_from("abcdef"), values, max_size=4), max_size=5),
       st.sampled_from([None, 1]))
@settings(max_examples=60, deadline=None)
def test_a_careful_reader_finds_the_same(rows: list[dict[str, Any]], indent: int | None) -> None:
    """I10, I15: every kind of value in every kind of column; a plain model as oracle."""
    columns = tuple(Column(name, kind) for name, kind in zip("abcdef", KINDS, strict=True))
    found = decoded(make_format(Json(columns)),
                    [json.dumps(row, indent=indent).encode() for row in rows])
    for row, result in zip(rows, found, strict=True):
        try:
            expected = tuple(fits(row.get(column.name), column.type) for column in columns)
        except ValueError:
            assert isinstance(result, str)
        else:
            assert [unspaced(one) for one in result] == [unspaced(one) for one in expected]


def unspaced(value: Any) -> Any:
    """Text without white space: indented documents stay indented."""
    return "".join(value.split()) if isinstance(value, str) else value

"""Headers as columns."""

from typing import Any

import pyarrow as pa
import pytest

from quipu.pipeline.formats.headers import can_be_header, header_column
from quipu.pipeline.records.batches import HEADERS_TYPE
from quipu.pipeline.types import TIMESTAMPTZ


def headers(rows: list[list[tuple[str, bytes | None]]]) -> pa.ListArray:
    return pa.array([[{"key": key, "value": value} for key, value in row] for row in rows],
                    HEADERS_TYPE)


def column(rows: list[list[tuple[str, bytes | None]]], name: str, kind: pa.DataType) -> list[Any]:
    padded = headers([[(name, b"not of this slice")], *rows, [(name, b"nor this")]])
    found = header_column(padded.slice(1, len(rows)), name, kind)
    assert found.values.type == kind
    found.values.validate(full=True)
    assert len(found.values) == len(found.errors) == len(rows)
    return [error or value for value, error in zip(found.values.to_pylist(),
                                                   found.errors.to_pylist(), strict=True)]


ROWS: list[list[tuple[str, bytes | None]]] = [
    [("a", b"1"), ("b", b"x"), ("a", b"2")], [], [("b", b"y")], [("a", None)], [("a", b"")]]


def test_the_last_header_of_a_name_counts_and_a_missing_one_is_null() -> None:
    """I16."""
    assert column(ROWS, "a", pa.binary()) == [b"2", None, None, None, b""]
    assert column(ROWS, "b", pa.string()) == ["x", None, "y", None, None]
    assert column([], "b", pa.string()) == []


@pytest.mark.parametrize(("kind", "text", "value"), [
    (pa.int32(), b"-12", -12), (pa.int64(), b"9000000000", 9_000_000_000),
    (pa.bool_(), b"TRUE", True), (pa.float64(), b"1.5e3", 1500.0),
    (pa.string(), b'{"a": 1}', '{"a": 1}'),
])
def test_headers_have_types(kind: pa.DataType, text: bytes, value: object) -> None:
    """I16: read from text."""
    assert column([[("h", text)], []], "h", kind) == [value, None]


def test_a_bad_header_is_an_error_of_its_record() -> None:
    """I15, I16: the others are read."""
    rows: list[list[tuple[str, bytes | None]]] = [[("h", b"1")], [("h", b"\xc3\x28")],
                                                  [("h", b"one")], [("h", b"3000000000")]]
    assert column(rows, "h", pa.int32()) == [
        1,
        ("Found ill-formed byte sequence in header 'h' that cannot be decoded as valid utf-8 "
         "(original bytes: [c3, 28])"),
        "header 'h': invalid input syntax for type integer: \"one\"",
        "header 'h': \"3000000000\" is out of range for type integer"]


def test_which_types_a_header_can_have() -> None:
    """I19: asked when the source is made."""
    assert all(map(can_be_header, [pa.binary(), pa.string(), TIMESTAMPTZ, pa.decimal128(5, 2)]))
    assert not can_be_header(pa.list_(pa.string()))

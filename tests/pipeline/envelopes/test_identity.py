"""Canonical bytes: two rows have the same exactly if they are equal."""

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.pipeline.envelopes.events import Slot
from quipu.pipeline.envelopes.identity import encode_rows, key_identities

TEXT = st.text("ab\x00é", max_size=3)
KINDS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.string(), TEXT),
    (pa.binary(), st.binary(max_size=3)),
    (pa.int32(), st.integers(-2, 2)),
    (pa.int64(), st.sampled_from([0, 1, -1, 256, 2**63 - 1, -(2**63)])),
    (pa.bool_(), st.booleans()),
    (pa.float64(), st.sampled_from([0.0, 1.5, -1.5, math.inf])),
    (pa.decimal128(10, 2), st.sampled_from([Decimal("1.00"), Decimal("-1.00"), Decimal("0.01")])),
    (pa.date32(), st.dates()),
    (pa.timestamp("us", "UTC"), st.integers(-2, 2)),
    (pa.list_(pa.string()), st.lists(st.none() | TEXT, max_size=3)),
    (pa.struct([("a", pa.int16()), ("b", pa.string())]),
     st.fixed_dictionaries({"a": st.none() | st.integers(0, 2), "b": st.none() | TEXT})),
    (pa.list_(pa.list_(pa.int64())),
     st.lists(st.none() | st.lists(st.none() | st.integers(0, 1), max_size=2), max_size=2)),
    (pa.map_(pa.string(), pa.int64()),
     st.lists(st.tuples(TEXT, st.none() | st.integers(0, 1)), max_size=2)),
]


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[pa.Array], list[tuple[Any, ...]]]:
    """Columns of some types, and the rows that they hold."""
    chosen = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    rows = draw(st.lists(st.tuples(*(st.none() | values for _, values in chosen)),
                         min_size=1, max_size=12))
    columns = [pa.array([row[index] for row in rows], kind)
               for index, (kind, _) in enumerate(chosen)]
    skip = draw(st.integers(0, len(rows)))
    columns = [column.slice(skip) for column in columns]
    return columns, list(zip(*(column.to_pylist() for column in columns), strict=True))


def distinct(rows: list[tuple[Any, ...]]) -> list[int]:
    """The number of the first row that each row is equal to; True is not 1 here."""
    return [[repr(other) for other in rows].index(repr(row)) for row in rows]


@settings(max_examples=150)
@given(tables())
def test_bytes_are_equal_exactly_if_rows_are(given_table: Any) -> None:
    columns, rows = given_table
    found = encode_rows(columns)
    assert len(found) == len(rows)
    assert found.null_count == 0
    assert distinct([(each,) for each in found.to_pylist()]) == distinct(rows)

    identities, slots = key_identities(columns)
    assert identities.null_count == 0
    both = list(zip(identities.to_pylist(), slots.tolist(), strict=True))
    assert distinct(both) == distinct(rows)


def test_floats_that_are_equal_in_sql_are_one() -> None:
    column = pa.array([0.0, -0.0, math.nan, -math.nan, 1.0])
    zero, minus_zero, nan, minus_nan, one = encode_rows([column]).to_pylist()

    assert (zero, nan) == (minus_zero, minus_nan)
    assert len({zero, nan, one}) == 3


@pytest.mark.parametrize(("narrow", "wide", "values"), [
    (pa.int16(), pa.int64(), [1, -1, None]), (pa.float32(), pa.float64(), [1.5, None]),
    (pa.string(), pa.large_string(), ["a", None]), (pa.binary(), pa.large_binary(), [b"a", None]),
    (pa.string(), pa.string_view(), ["a", None]),
    (pa.list_(pa.int8()), pa.list_(pa.int32()), [[1, None], None]),
], ids=str)
def test_a_column_can_be_widened(narrow: pa.DataType, wide: pa.DataType, values: Any) -> None:
    """Rows stay who they are."""
    for encode in (encode_rows, lambda columns: key_identities(columns)[0]):
        assert encode([pa.array(values, narrow)]) == encode([pa.array(values, wide)])


def test_a_key_of_one_column_is_its_own_bytes() -> None:
    """Nothing is added, nothing copied."""
    text = pa.array(["a", "é", ""])
    identities, slots = key_identities([text])
    assert identities.to_pylist() == [b"a", "é".encode(), b""]
    assert identities.buffers()[2].address == text.buffers()[2].address
    assert slots.tolist() == [Slot.KEY] * 3

    numbers, slots = key_identities([pa.array([1, None, -1], pa.int32())])
    assert numbers.to_pylist() == [b"\x01" + bytes(7), b"", b"\xff" * 8]
    assert slots.tolist() == [Slot.KEY, Slot.NULL, Slot.KEY]


def test_dictionaries_are_their_values() -> None:
    column = pa.array(["a", "b", None, "a"])

    assert encode_rows([column.dictionary_encode()]) == encode_rows([column])


def test_what_has_no_canonical_bytes_is_an_error() -> None:
    union = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])

    with pytest.raises(TypeError, match="no canonical bytes for sparse_union"):
        encode_rows([union])

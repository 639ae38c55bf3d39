"""The Avro walk: the compiled and the plain one are held to the same results, and to fastavro's.

Where nothing is compiled, `walk` is the plain one, and these tests hold for it alone.
"""

import json
import os
import subprocess
import sys
import time
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.pipeline.formats.avro import _walk_pure, walk
from quipu.pipeline.formats.avro.program import compile_program, layout_of
from quipu.pipeline.formats.avro.schema import parse
from quipu.pipeline.formats.avro.steps import (
    EMPTY_ITEMS_MAX,
    FREE_VALUES_MAX,
    NO_ID,
    WALK_DEPTH_MAX,
    Complaint,
    MessageFault,
)
from tests.pipeline.formats.avro.avro_maker import (
    WIDE,
    Names,
    encoded,
    is_alike,
    made_records,
    made_types,
)

BOTH = (walk, _walk_pure)


def walked(writer: Any, reader: Any, messages: list[bytes | None]) -> tuple[
        list[Any], list[Complaint]]:
    """What both walks make of messages; they must agree."""
    target = parse(json.dumps(reader))
    layout = layout_of(target)
    program = compile_program(parse(json.dumps(writer)), target, layout)
    data = pa.array([b"in front", *messages], pa.binary())[1:]
    results = []
    for twin in BOTH:
        code = twin.load(program)
        root, complaints = twin.walk(layout.sinks, {NO_ID: code}, data, framed=False)
        root.validate(full=True)
        results.append((root.to_pylist(), complaints))
    assert is_alike(results[0], results[1])
    return results[0]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_values_come_out_as_they_went_in(data: Any) -> None:
    """I10: every type, in any place, with bad neighbours."""
    made = data.draw(made_records(Names()))
    pairs = data.draw(st.lists(made.values, max_size=5))
    messages = [encoded(made.schema, given) for given, _ in pairs]
    rows, complaints = walked(made.schema, made.schema, [
        *messages, None, *(message + b"\0" for message in messages)])

    assert is_alike(rows[:len(pairs) + 1], [*(expected for _, expected in pairs), None])
    assert [each[:2] for each in complaints] == [
        (len(pairs) + 1 + index, MessageFault.TRAILING) for index in range(len(pairs))]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_schema_that_is_no_record_has_one_column(data: Any) -> None:
    made = data.draw(made_types(Names()).filter(
        lambda made: not layout_of(parse(json.dumps(made.schema))).is_record))
    pairs = data.draw(st.lists(made.values, max_size=5))
    rows, complaints = walked(made.schema, made.schema,
                              [encoded(made.schema, given) for given, _ in pairs])
    assert is_alike(rows, [None if expected is None else {"?column?": expected}
                           for _, expected in pairs])
    assert complaints == []


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_broken_messages_break_nothing_else(data: Any) -> None:
    """I15: whatever the bytes are, both walks say the same, and good rows stay."""
    made = data.draw(made_records(Names()))
    value, expected = data.draw(made.values)
    good = encoded(made.schema, value)
    broken = data.draw(st.lists(st.one_of(
        st.binary(max_size=30),
        st.integers(0, max(0, len(good) - 1)).map(lambda size: good[:size]),
        st.tuples(st.integers(0, max(0, len(good) - 1)), st.integers(0, 255)).map(
            lambda edit: good[:edit[0]] + bytes([edit[1]]) + good[edit[0] + 1:])), max_size=6))
    rows, complaints = walked(made.schema, made.schema, [good, *broken, good])
    assert is_alike([rows[0], rows[-1]], [expected, expected])
    assert {each.row for each in complaints}.isdisjoint({0, len(rows) - 1})


PROMOTIONS = {"int": ["int", "long", "float", "double"], "long": ["long", "float", "double"],
              "float": ["float", "double"], "double": ["double"], "string": ["string"],
              "boolean": ["boolean"]}
VALUES = {"int": st.integers(-2**31, 2**31 - 1), "long": st.integers(-2**63, 2**63 - 1),
          "float": st.floats(width=32, allow_nan=False), "double": st.floats(allow_nan=False),
          "string": st.text(max_size=5), "boolean": st.booleans()}
DEFAULTS = [("string", "d"), (["null", "long"], None), ("double", 1.5),
            ({"type": "array", "items": "int"}, [1, 2]), ({"type": "map", "values": "int"}, {}),
            ({"type": "record", "name": "inner", "fields": [
                {"name": "x", "type": "int"}, {"name": "y", "type": "string", "default": "z"}]},
             {"x": 3, "y": "z"})]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_readers_may_differ_from_writers(data: Any) -> None:
    """I10: fields dropped, added, reordered, renamed, promoted, made optional; as fastavro."""
    kinds = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=5))
    writer = {"type": "record", "name": "r", "fields": [
        {"name": f"w{index}", "type": kind} for index, kind in enumerate(kinds)]}
    fields = []
    for index, kind in enumerate(kinds):
        if data.draw(st.booleans(), "kept"):
            read = data.draw(st.sampled_from(PROMOTIONS[kind]), "as")
            field: dict[str, Any] = {"name": f"w{index}", "type": read}
            if data.draw(st.booleans(), "renamed"):
                field = {**field, "name": f"r{index}", "aliases": [f"w{index}"]}
            if data.draw(st.booleans(), "optional"):
                field["type"] = ["null", field["type"]]
            fields.append(field)
    for index, (kind, default) in enumerate(DEFAULTS):
        if not fields or data.draw(st.booleans(), "added"):
            fields.append({"name": f"d{index}", "type": kind, "default": default})
    reader = {"type": "record", "name": "r", "fields": data.draw(st.permutations(fields))}
    values = data.draw(st.lists(st.tuples(*(VALUES[kind] for kind in kinds)), max_size=4))
    messages = [encoded(writer, {f"w{index}": each for index, each in enumerate(row)})
                for row in values]

    rows, complaints = walked(writer, reader, messages)

    assert complaints == []
    for row, message in zip(rows, messages, strict=True):
        expected = _by_fastavro(message, writer, reader)
        assert is_alike(row, _in_single_precision(expected, reader))


def _by_fastavro(message: bytes, writer: Any, reader: Any) -> Any:
    import io

    return fastavro.schemaless_reader(io.BytesIO(message), writer, reader)


def _in_single_precision(row: Any, reader: Any) -> Any:
    """A promoted int is left as it is by fastavro; an Arrow float has 24 bits.  Maps are pairs."""
    import numpy as np

    result = {}
    for field in reader["fields"]:
        value, kind = row[field["name"]], field["type"]
        kind = kind[-1] if isinstance(kind, list) else kind
        if kind == "float" and value is not None:
            value = float(np.float32(float(value)))
        elif kind == "double" and value is not None:
            value = float(value)
        result[field["name"]] = list(value.items()) if kind == DEFAULTS[4][0] else value
    return result


@pytest.mark.parametrize("kind", ["boolean", "int", "string", "double"])
def test_many_rows_with_holes_and_faults(kind: str) -> None:
    """I15: arrays grow, nulls begin late, and faults in between leave nothing behind."""
    schema = {"type": "record", "name": "r", "fields": [
        {"name": "a", "type": ["null", kind]},
        {"name": "b", "type": {"type": "array", "items": ["null", kind]}}]}
    value = {"boolean": True, "int": -5, "string": "text", "double": 0.5}[kind]
    good = {"a": value, "b": [value] * 3}
    holed = {"a": None, "b": [None, value]}
    message, other = encoded(schema, good), encoded(schema, holed)
    messages: list[bytes | None] = [message] * 100
    expected: list[Any] = [good] * 100
    for number in range(1000):
        messages += [other, message[:-1], None, message] if number % 3 else [other]
        expected += [holed, None, None, good] if number % 3 else [holed]
    rows, complaints = walked(schema, schema, messages)
    assert rows == expected
    assert len(complaints) == 666


RECURSIVE = {"type": "record", "name": "list", "fields": [
    {"name": "value", "type": "int"}, {"name": "next", "type": ["null", "list"]}]}


@pytest.mark.parametrize(("schema", "value"), [
    (RECURSIVE, {"value": 1, "next": {"value": 2, "next": None}}),
    ({"type": "array", "items": "null"}, [None, None]),
    ({"type": "map", "values": {"type": "array", "items": "string"}}, {"a": ["b"]}),
    (["null", {"type": "fixed", "name": "f", "size": 3}], b"abc"),
    ({"type": "enum", "name": "e", "symbols": ["A"]}, "A"),
    ("double", 1.0), ("boolean", True), ("null", None),
])
def test_what_the_reader_does_not_want_is_skipped(schema: Any, value: Any) -> None:
    """Even values that a reader could not have, such as records within themselves."""
    writer = {"type": "record", "name": "r", "fields": [
        {"name": "a", "type": "int"}, {"name": "b", "type": schema}, {"name": "c", "type": "int"}]}
    reader = {"type": "record", "name": "r", "fields": [
        {"name": "c", "type": "int"}, {"name": "a", "type": "int"}]}
    message = encoded(writer, {"a": 1, "b": value, "c": 3})
    rows, complaints = walked(writer, reader, [message, message])
    assert (rows, complaints) == ([{"a": 1, "c": 3}] * 2, [])


def test_blocks_with_sizes_are_read_and_skipped() -> None:
    """A negative count is followed by the block's size in bytes."""
    array = {"type": "array", "items": "int"}
    writer = {"type": "record", "name": "r", "fields": [
        {"name": "a", "type": array}, {"name": "b", "type": array}]}
    reader = {"type": "record", "name": "r", "fields": [{"name": "b", "type": array}]}
    message = b"\x03\x04\x02\x04\0" * 2  # two items in two bytes: 1, 2
    assert walked(writer, writer, [message]) == ([{"a": [1, 2], "b": [1, 2]}], [])
    assert walked(writer, reader, [message]) == ([{"b": [1, 2]}], [])


LONGS = {"type": "array", "items": "long"}
HOLLOW = {"type": "array", "items": {"type": "record", "name": "h", "fields": []}}
FULL = {"type": "array", "items": {"type": "record", "name": "h", "fields": [
    {"name": "x", "type": "int", "default": 7}]}}
HUGE = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # the least 64-bit number
MOST = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"


@pytest.mark.parametrize(("schema", "message", "fault"), [
    ("string", MOST + b"abc", MessageFault.ENDED),
    ("string", b"\x01abc", MessageFault.LENGTH),
    ("string", b"\x02\xff", MessageFault.UTF8),
    ("string", b"\x06\xed\xa0\x80", MessageFault.UTF8),
    (LONGS, MOST, MessageFault.ITEMS),
    (LONGS, HUGE + b"\x00", MessageFault.ITEMS),
    (LONGS, HUGE + MOST, MessageFault.LENGTH),
    (LONGS, b"\x03\x01", MessageFault.LENGTH),
    ("long", b"\xff" * 9 + b"\x02", MessageFault.LONG_NUMBER),
    ("long", b"\xff" * 20, MessageFault.LONG_NUMBER),
    ("long", b"", MessageFault.ENDED),
    ("int", b"\x80\x80\x80\x80\x10", MessageFault.INT_RANGE),
    ("boolean", b"\x02", MessageFault.BOOLEAN),
    (["null", "int"], b"\x04", MessageFault.BRANCH),
    (["null", "int"], b"\x01", MessageFault.BRANCH),
    ({"type": "enum", "name": "e", "symbols": ["A"]}, b"\x02", MessageFault.SYMBOL),
    ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\x02\x64",
     MessageFault.DECIMAL),
    ({"type": "bytes", "logicalType": "decimal", "precision": 38}, b"\x22" + b"\x01" * 17,
     MessageFault.DECIMAL),
    ({"type": "int", "logicalType": "time-millis"}, b"\x01", MessageFault.TIME),
    ({"type": "long", "logicalType": "timestamp-millis"}, MOST, MessageFault.TIMESTAMP),
    ("float", b"abc", MessageFault.ENDED),
    ({"type": "fixed", "name": "f", "size": 4}, b"abc", MessageFault.ENDED),
])
def test_a_lying_message_is_found_out(schema: Any, message: bytes, fault: MessageFault) -> None:
    """I15: numbers from outside are bounded before anything is done with them."""
    rows, complaints = walked(schema, schema, [message])
    assert rows == [None]
    assert [each.fault for each in complaints] == [fault]


def test_items_without_bytes_are_bounded() -> None:
    """A few bytes cannot ask for millions of defaults."""
    assert walked(HOLLOW, FULL, [b"\x04\0"]) == ([{"?column?": [{"x": 7}, {"x": 7}]}], [])
    too_many = encoded("long", EMPTY_ITEMS_MAX + 1)
    assert walked(HOLLOW, FULL, [too_many + b"\0"])[1][0].fault is MessageFault.ITEMS


def fields(*pairs: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "wide", "fields": [
        {"name": name, "type": kind} for name, kind in pairs]}


NOTHING = fields(*((f"n{index}", "null") for index in range(2000)))
DEFAULT = {"type": "record", "name": "wide", "fields": [
    {"name": "x", "type": "string", "default": "x" * 100_000}]}
NULLS = {"type": "array", "items": "null"}
BOMBS = [  # a writer, a reader, and a block of items that make much of few bytes
    (HOLLOW, FULL, encoded("long", EMPTY_ITEMS_MAX)),
    (NULLS, None, encoded("long", EMPTY_ITEMS_MAX)),
    ({"type": "array", "items": {"type": "record", "name": "wide", "fields": []}},
     {"type": "array", "items": DEFAULT}, encoded("long", EMPTY_ITEMS_MAX)),
    ({"type": "array", "items": NOTHING}, None, encoded("long", EMPTY_ITEMS_MAX)),
]


@pytest.mark.parametrize(("writer", "reader", "block"), BOMBS)
def test_what_a_message_makes_is_bounded_by_its_bytes(
    writer: Any, reader: Any, block: bytes
) -> None:
    """K8, I15: blocks of items without bytes, over and over: one error, soon, and no memory.

    It is the error of one message, and its neighbours keep what is theirs.
    """
    wrap = fields(("a", writer), ("b", "int"))
    into = fields(*((("a", reader),) if reader else ()), ("b", "int"))  # else it is skipped
    good, bomb = b"\0\x0a", block * 20_000 + b"\0\x0a"
    begun = time.perf_counter()
    rows, complaints = walked(_named(wrap), _named(into), [good, bomb, good, bomb, good])
    assert [each.fault for each in complaints] == [MessageFault.TOO_MANY] * 2
    assert [row and row["b"] for row in rows] == [5, None, 5, None, 5]
    assert time.perf_counter() - begun < 60  # both walks; the plain one takes most of it


def _named(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "name": "outer"}


def test_messages_of_a_block_share_what_has_no_bytes() -> None:
    """K8: many small messages that each stay below the bound do not add up to a large one."""
    each = encoded("long", EMPTY_ITEMS_MAX) + b"\0"
    count = FREE_VALUES_MAX // EMPTY_ITEMS_MAX
    rows, complaints = walked(HOLLOW, FULL, [each] * count)
    assert count / 2 < len(complaints) < count * 0.8  # an item takes three steps
    assert {found.fault for found in complaints} == {MessageFault.TOO_MANY}
    assert rows.count(None) == len(complaints)


def test_a_default_may_be_large_and_rows_may_be_wide() -> None:
    """I10: what a schema alone asks for is never too much, however short the message is."""
    reader = {"type": "record", "name": "wide", "fields": [
        {"name": "x", "type": "string", "default": "x" * 500_000},
        *({"name": f"n{index}", "type": ["null", "int"], "default": None}
          for index in range(3000))]}
    writer = {"type": "record", "name": "wide", "fields": []}
    rows, complaints = walked(writer, reader, [b""] * 5)
    assert complaints == []
    assert [len(row["x"]) for row in rows] == [500_000] * 5
    optional = {"type": "array", "items": ["null", fields(*(
        (f"n{index}", "int") for index in range(300)))]}
    rows, complaints = walked(optional, optional, [encoded("long", 2000) + b"\0" * 2001] * 3)
    assert complaints == []
    assert len(rows[0]["?column?"]) == 2000


def test_skipped_values_nest_only_so_deep() -> None:
    writer = {"type": "record", "name": "r", "fields": [{"name": "l", "type": RECURSIVE},
                                                        {"name": "a", "type": "int"}]}
    reader = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}
    deep = b"\x02\x02" * 50 + b"\x02\0" + b"\x0a"
    assert walked(writer, reader, [deep]) == ([{"a": 5}], [])
    deeper = b"\x02\x02" * 5000 + b"\x02\0\x0a"
    assert walked(writer, reader, [deeper])[1][0].fault is MessageFault.DEPTH


def test_the_walks_agree_on_how_deep_is_too_deep() -> None:
    """Also where a reader's union is on the way."""
    part = {"type": "record", "name": "part", "fields": [{"name": "b", "type": "int"}]}
    more = {**part, "fields": [*part["fields"], {"name": "l", "type": RECURSIVE}]}
    writer = {"type": "record", "name": "r", "fields": [{"name": "u", "type": more}]}
    reader = {"type": "record", "name": "r", "fields": [{"name": "u", "type": ["int", part]}]}
    faults = [walked(writer, reader, [b"\x0a" + b"\x02\x02" * levels + b"\x02\0"])[1]
              for levels in range(WALK_DEPTH_MAX // 2 - 5, WALK_DEPTH_MAX // 2)]
    assert [[each.fault for each in found] for found in faults] == [
        [], [], [], [MessageFault.DEPTH], [MessageFault.DEPTH]]


def test_a_writer_whose_types_nest_without_end_fails_its_messages_alone() -> None:
    """By name, types nest deeper than any text: that is no reason to fail a whole batch."""
    ladder: list[Any] = ["null"]
    for level in range(1200):
        inner = f"r{level - 1}" if level else "int"
        ladder.append({"type": "record", "name": f"r{level}",
                       "fields": [{"name": "x", "type": inner}]})
    writer = {"type": "record", "name": "r", "fields": [
        {"name": "a", "type": ladder}, {"name": "b", "type": "r1199"}]}
    reader = {"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null", "int"]}]}
    rows, complaints = walked(writer, reader, [b"\0\0"])
    assert (rows, complaints[0].fault) == ([None], MessageFault.NO_PROGRAM)


def test_wide_decimals_may_have_leading_bytes() -> None:
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 1}
    for number in (0, 1, -1, 10**38 - 1, 1 - 10**38):
        message = encoded("bytes", number.to_bytes(20, "big", signed=True))
        rows, complaints = walked(schema, schema, [message])
        assert complaints == []
        assert int(rows[0]["?column?"].scaleb(1, context=WIDE)) == number


def test_ids_of_frames_are_found() -> None:
    data = pa.array([b"\0\0\0\1\2rest", None, b"\0\0\0\0\5", b"\1\0\0\0\7", b"\0\0\0",
                     b"\0\0\0\1\2"], pa.binary())
    for twin in BOTH:
        assert twin.schema_ids(data) == [258, 5]
        assert twin.schema_ids(data[2:3]) == [5]
        assert twin.schema_ids(data[:0]) == []


def test_the_plain_walk_serves_when_asked_for() -> None:
    """I10: QUIPU_PURE=1 chooses it."""
    program = "from quipu.pipeline.formats.avro import walk; print(walk.COMPILED)"
    answer = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True,
                            text=True, env={**os.environ, "QUIPU_PURE": "1"})
    assert answer.stdout.strip() == "False"

"""Avro schemas: which columns they give, and which are refused."""

import json
from typing import Any

import pytest

from quipu.pipeline.formats.avro.compatibility import complaint
from quipu.pipeline.formats.avro.schema import (
    COLUMNS_MAX,
    DEPTH_MAX,
    AvroSchemaError,
    columns_of,
    parse,
    self_contained,
)
from quipu.pipeline.types import sql_name


def named(schema: Any) -> list[tuple[str, str, bool]]:
    return [(each.name, sql_name(each.type), each.nullable)
            for each in columns_of(parse(json.dumps(schema)))]


def record(*fields: Any, name: str = "r") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [
        {"name": field, "type": kind} for field, kind in fields]}


@pytest.mark.parametrize(("schema", "name"), [
    ("boolean", "boolean"), ("int", "integer"), ("long", "bigint"), ("float", "real"),
    ("double", "double"), ("bytes", "bytes"), ("string", "text"),
    ({"type": "enum", "name": "e", "symbols": ["A"]}, "text"),
    ({"type": "fixed", "name": "f", "size": 3}, "bytes"),
    ({"type": "array", "items": "int"}, "integer[]"),
    ({"type": "map", "values": "long"}, "map(text, bigint)"),
    (["null", "int"], "integer"),
    (["int", "string"], "record(int integer, string text)"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}, "numeric(10,2)"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 5}, "bytes"),
    ({"type": "int", "logicalType": "date"}, "date"),
    ({"type": "string", "logicalType": "date"}, "text"),
    ({"type": "int", "logicalType": "time-millis"}, "text"),
    ({"type": "long", "logicalType": "timestamp-nanos"}, "timestamptz"),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, "timestamp"),
    ({"type": "string", "logicalType": "uuid"}, "text"),
    ({"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}, "timestamp"),
    ({"type": "int", "connect.name": "io.debezium.time.Date"}, "date"),
    ({"type": {"type": "string"}}, "text"),
    (record(("a", "int"), ("b", ["null", "string"]), name="x"), "record(a integer, b text)"),
])
def test_types_have_columns(schema: Any, name: str) -> None:
    """I10: what each type becomes, within a record."""
    assert named(record(("c", schema))) == [("c", name, isinstance(schema, list)
                                             and "null" in schema)]


def test_what_is_no_record_is_one_column() -> None:
    """I10: it has no name of its own."""
    assert named("long") == [("?column?", "bigint", False)]
    assert named(["null", "string"]) == [("?column?", "text", True)]
    assert columns_of(parse("string")) == columns_of(parse('"string"'))


def test_a_record_or_nothing_is_flattened_too() -> None:
    assert named(["null", record(("a", "int"))]) == [("a", "integer", True)]


def test_names_are_found_in_their_namespaces() -> None:
    schema = {"type": "record", "name": "a.b.Outer", "fields": [
        {"name": "x", "type": {"type": "enum", "name": "E", "symbols": ["P"]}},
        {"name": "y", "type": "E"}, {"name": "z", "type": "a.b.E"},
        {"name": "w", "type": {"type": "fixed", "name": "F", "namespace": "", "size": 1}},
        {"name": "v", "type": "F"}]}
    assert [each[1] for each in named(schema)] == ["text", "text", "text", "bytes", "bytes"]


RECURSIVE = {"type": "record", "name": "a", "fields": [{"name": "f", "type": ["a", "null"]}]}
WIDE = {"type": "record", "name": "r0", "fields": [{"name": "x", "type": "int"}]}
for level in range(1, 16):  # each has the one before twice: 2 ** 15 columns
    WIDE = {"type": "record", "name": f"r{level}", "fields": [
        {"name": "l", "type": WIDE}, {"name": "r", "type": f"r{level - 1}"}]}
LADDER: list[Any] = ["null"]  # each type is used by name, far down in the next
for level in range(12):
    rung: Any = f"r{level - 1}" if level else "int"
    for _ in range(DEPTH_MAX - 4):
        rung = {"type": "array", "items": rung}
    LADDER.append({"type": "record", "name": f"r{level}", "fields": [{"name": "x", "type": rung}]})


@pytest.mark.parametrize(("schema", "message"), [
    ("{", "the schema is not JSON"),
    ('"other"', "type 'other' is not defined"),
    ("[]", "a union needs branches"),
    ('["int", "int"]', "a union needs branches, each of another type"),
    ('["int", ["string"]]', "a union directly inside a union"),
    ('"null"', "a type that is always null has no column"),
    ('{"type": "record", "name": "r"}', "record 'r' needs a list of fields"),
    ('{"type": "record", "name": "r", "fields": []}', "record 'r' has no fields"),
    ('{"type": "record", "fields": []}', "a type of kind record needs a name"),
    ('{"type": "array"}', "a type lacks its 'items'"),
    ('{"type": "fixed", "name": "f", "size": -1}', "'size' is a whole number from 0"),
    ('{"type": "enum", "name": "f", "symbols": ["A", "A"]}', "needs symbols, each once"),
    ('{"type": "bytes", "logicalType": "decimal", "precision": 40}', "numeric has at most 38"),
    ("17", "a type is a name, a list or an object, not 17"),
    (json.dumps(RECURSIVE), "^Recursive types are not supported: .a$"),
    (json.dumps(WIDE), f"more than {COLUMNS_MAX} columns"),
    ('{"type":"array","items":' * (DEPTH_MAX + 2) + '"int"' + "}" * (DEPTH_MAX + 2),
     f"nests deeper than {DEPTH_MAX}"),
    (json.dumps(LADDER), f"nests deeper than {DEPTH_MAX}"),
    ("[" * 100_000, "the schema is not JSON"),
    (" " * (1 << 21), "longer than"),
])
def test_other_schemas_are_refused(schema: str, message: str) -> None:
    """I19: with the reason."""
    with pytest.raises(AvroSchemaError, match=message):
        columns_of(parse(schema))


def test_references_are_written_out_once() -> None:
    """I10: types of other schemas come in where they are used first, in their namespaces."""
    money = {"type": "record", "name": "Money", "namespace": "x", "fields": [
        {"name": "c", "type": {"type": "enum", "name": "Currency", "symbols": ["EUR"]}}]}
    schema = {"type": "record", "name": "O", "namespace": "y", "fields": [
        {"name": "a", "type": "x.Money"}, {"name": "b", "type": ["null", "x.Money"]},
        {"name": "c", "type": {"type": "map", "values": "x.Currency"}}]}
    text = self_contained(json.dumps(schema), [json.dumps(money)])
    assert named(json.loads(text)) == [
        ("a", "record(c text)", False), ("b", "record(c text)", True),
        ("c", "map(text, text)", False)]
    assert text.count('"symbols"') == 1


@pytest.mark.parametrize(("writer", "reader", "message"), [
    (record(("key", "long")), record(("key", "int")),
     "Writer schema has type `Long`, but reader schema has type `Int` for field `r.key`"),
    (record(("a", "int")), record(("b", "int")),
     "Reader field `r.b` is not in the writer's schema, and has no default"),
    ({"type": "fixed", "name": "f", "size": 1}, {"type": "fixed", "name": "f", "size": 2},
     "Writer schema has 1 bytes, but reader schema has 2 for field `f`"),
    ({"type": "enum", "name": "e", "symbols": ["A", "B"]},
     {"type": "enum", "name": "e", "symbols": ["A"]}, "Reader enum `e` lacks `B`"),
    (["int", "string"], "int",
     "Writer schema has type `String`, but reader schema has type `Int` for field `int`"),
    ("string", ["null", "int"],
     "Writer schema has type `String`, but reader schema has type `Union` for field `union`"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 1},
     {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
     "Writer schema has type `Bytes`, but reader schema has type `Bytes` for field `bytes`"),
    (RECURSIVE, RECURSIVE, None),
    (record(("a", "int"), name="other"), record(("a", ["null", "double"])), None),
    ({"type": "enum", "name": "e", "symbols": ["A", "B"]},
     {"type": "enum", "name": "e", "symbols": ["A"], "default": "A"}, None),
])
def test_readers_are_held_to_what_they_can_read(
        writer: Any, reader: Any, message: str | None) -> None:
    assert complaint(parse(json.dumps(writer)), parse(json.dumps(reader))) == message

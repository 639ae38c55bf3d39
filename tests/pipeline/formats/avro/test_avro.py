"""Avro messages with and without frames, with a registry and without."""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from quipu.pipeline.formats.avro.format import TRAILING_SHOWN, AvroFormat
from quipu.pipeline.formats.contract import Decoded
from quipu.pipeline.formats.specs import Avro, Registry
from quipu.pipeline.registry.client import RegistryClient, RegistryUnavailable
from quipu.pipeline.registry.server import RegistryServer
from tests.pipeline.formats.avro.avro_maker import encoded

READER = {"type": "record", "name": "Key", "fields": [
    {"name": "key", "type": "int"}, {"name": "name", "type": ["null", "string"], "default": None}]}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as server:
        server.store.levels[""] = "NONE"
        yield server


def framed(schema_id: int, data: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + data


def rows(decoded: Decoded) -> list[tuple[Any, ...]]:
    for column in decoded.columns:
        column.validate(full=True)
    return list(zip(*(column.to_pylist() for column in decoded.columns), strict=True))


def decode(form: AvroFormat, *messages: bytes | None) -> Decoded:
    return form.decode(pa.array(messages, pa.binary()))


def error_of(form: AvroFormat, message: bytes) -> str | None:
    """The one bad message's error, among good ones that must not suffer."""
    good = encoded(READER, {"key": 1, "name": "x"})
    if form._framed:
        good = framed(1, good)
    decoded = decode(form, good, message, None, good)
    assert rows(decoded) == [(1, "x"), (None, None), (None, None), (1, "x")]
    assert decoded.absent.to_pylist() == [False, False, True, False]
    errors: list[str | None] = decoded.errors.to_pylist()
    assert (errors[0], errors[2], errors[3]) == (None, None, None)
    return errors[1]


@pytest.mark.parametrize(("message", "error"), [
    (b" hello",
     ("avro deserialization error: wrong Confluent-style avro serialization magic: expected 0, "
     "got 32")),
    (b"\0\0\0",
     ("avro deserialization error: Confluent-style avro datum is too few bytes: expected at least "
     "5 bytes, got 3")),
    (b"",
     ("avro deserialization error: Confluent-style avro datum is too few bytes: expected at least "
     "5 bytes, got 0")),
    (framed(1, b""),
     ("avro deserialization error: unable to decode row (Avro schema id = 1): the message ends "
     "within a value")),
    (framed(1, b"\2\2\4\xc3\x28"),
     ("avro deserialization error: unable to decode row (Avro schema id = 1): a string is not "
     "UTF-8")),
    (framed(1, b"\2\0\7\x08"), "Unexpected bytes remaining for decoded value: [7, 8]"),
    (framed(1, b"\2\0" + b"\1" * 99), ("Unexpected bytes remaining for decoded value: "
     f"[{', '.join('1' * TRAILING_SHOWN)}, …]")),
])
def test_a_bad_message_is_an_error_of_its_row(message: bytes, error: str) -> None:
    """I15: the texts tell what is wrong."""
    assert error_of(AvroFormat(Avro(json.dumps(READER))), message) == error


def test_without_frames_there_is_no_schema_id() -> None:
    form = AvroFormat(Avro(json.dumps(READER), framed=False))
    assert error_of(form, b"\2\4") == (
        "avro deserialization error: unable to decode row: the union has no branch 2")


def test_writers_are_looked_up_by_id(server: RegistryServer) -> None:
    """I10: messages of several writers in one topic, each read as it was written."""
    old = {"type": "record", "name": "Key", "fields": [{"name": "key", "type": "int"}]}
    new = {"type": "record", "name": "Key", "fields": [
        {"name": "extra", "type": {"type": "array", "items": "string"}},
        {"name": "name", "type": "string"}, {"name": "key", "type": "int"}]}
    bad = {"type": "record", "name": "Key", "fields": [{"name": "key", "type": "long"}]}
    registry = Registry(server.url)
    client = RegistryClient(registry)
    ids = [client.register("t", json.dumps(schema)) for schema in (READER, old, new, bad)]
    form = AvroFormat(Avro(json.dumps(READER), registry=registry))

    decoded = decode(
        form, framed(ids[0], encoded(READER, {"key": 1, "name": "a"})),
        framed(ids[1], encoded(old, {"key": 2})),
        framed(ids[2], encoded(new, {"key": 3, "name": "c", "extra": ["x", "y"]})),
        framed(ids[1], encoded(old, {"key": 4})),
        framed(ids[3], encoded(bad, {"key": 5})),
        framed(99, b"\2\0"))

    assert rows(decoded) == [(1, "a"), (2, None), (3, "c"), (4, None), (None, None), (None, None)]
    assert decoded.errors.to_pylist()[4:] == [
        ("avro deserialization error: unable to decode row (Avro schema id = 4): Writer schema has "
        "type `Long`, but reader schema has type `Int` for field `Key.key`"),
        ("avro deserialization error: unable to decode row (Avro schema id = 99): schema id 99 is "
        "not in the registry")]


def test_a_schema_that_comes_late_is_found(server: RegistryServer) -> None:
    """An unknown id is not remembered for ever, and not asked for again at once."""
    now = [0.0]
    registry = Registry(server.url)
    client = RegistryClient(registry, clock=lambda: now[0])
    form = AvroFormat(Avro(json.dumps(READER)), client)
    message = framed(1, encoded(READER, {"key": 1, "name": "a"}))

    assert decode(form, message).errors[0].is_valid
    RegistryClient(registry).register("t", json.dumps(READER))
    assert decode(form, message).errors[0].is_valid
    now[0] += 60
    assert rows(decode(form, message)) == [(1, "a")]


def test_a_registry_that_is_away_blames_no_message() -> None:
    """I15: the read fails and can be repeated; nothing becomes a dead letter."""
    with RegistryServer() as server:
        registry = Registry(server.url)
    form = AvroFormat(Avro(json.dumps(READER)), RegistryClient(registry, sleep=lambda _: None))
    with pytest.raises(RegistryUnavailable):
        decode(form, framed(1, b""))
    assert decode(form, b"x").errors[0].is_valid  # no frame, no question


def test_a_schema_of_another_kind_is_an_error_of_its_messages(server: RegistryServer) -> None:
    registry = Registry(server.url)
    RegistryClient(registry).register("t", "{}", "JSON")
    form = AvroFormat(Avro(json.dumps(READER), registry=registry))
    assert decode(form, framed(1, b"")).errors.to_pylist() == [
        ("avro deserialization error: unable to decode row (Avro schema id = 1): schema id 1 is "
        "not Avro but JSON")]


def test_null_at_the_top_is_no_message() -> None:
    """I7: it deletes, as a message without a value does."""
    for schema, value in ((["null", READER], {"key": 1, "name": "x"}), (["null", "int"], 7)):
        form = AvroFormat(Avro(json.dumps(schema), framed=False))
        decoded = decode(form, encoded(schema, None), encoded(schema, value))
        assert decoded.absent.to_pylist() == [True, False]
        assert decoded.errors.null_count == 2
        assert decoded.columns[0].to_pylist() == [None, 7 if value == 7 else 1]


@pytest.mark.parametrize(("writer", "reader", "expected"), [
    ({"type": "long", "logicalType": "timestamp-millis"},
     {"type": "long", "logicalType": "timestamp-micros"}, 5_000),
    ({"type": "long", "logicalType": "timestamp-nanos"},
     {"type": "long", "logicalType": "timestamp-millis"}, -1),
    ("long", {"type": "long", "logicalType": "timestamp-millis"}, 5_000),
    ("int", {"type": "long", "logicalType": "timestamp-millis"}, 5_000),
    ({"type": "long", "logicalType": "timestamp-millis"}, "long", 5),
])
def test_times_are_converted(writer: Any, reader: Any, expected: int) -> None:
    """A writer's unit is the writer's; the column has microseconds."""
    form = AvroFormat(Avro(json.dumps(reader), framed=False))
    form._own = AvroFormat(Avro(json.dumps(writer), framed=False), reader=form._reader)._own
    number = -5 if expected == -1 else 5
    (column,) = decode(form, encoded("long", number)).columns
    assert column.cast(pa.int64()).to_pylist() == [expected]


def test_symbols_and_branches_that_the_reader_lacks_are_errors_of_rows() -> None:
    """The rest of the writer's messages is read."""
    writer = {"type": "record", "name": "r", "fields": [
        {"name": "e", "type": {"type": "enum", "name": "e", "symbols": ["A", "B"]}},
        {"name": "u", "type": ["int", "string"]}]}
    reader = {"type": "record", "name": "r", "fields": [
        {"name": "e", "type": {"type": "enum", "name": "e", "symbols": ["A"]}},
        {"name": "u", "type": "int"}]}
    form = AvroFormat(Avro(json.dumps(reader), framed=False))
    form._own = AvroFormat(Avro(json.dumps(writer), framed=False), reader=form._reader)._own
    decoded = decode(form, *(encoded(writer, {"e": symbol, "u": value}) for symbol, value in (
        ("A", 1), ("B", 1), ("A", "x"))))
    assert rows(decoded) == [("A", 1), (None, None), (None, None)]
    assert decoded.errors.to_pylist() == [
        None,
        ("avro deserialization error: unable to decode row: the reader's enum lacks the writer's "
        "symbol 1, and has no default"),
        ("avro deserialization error: unable to decode row: Writer schema has type `String`, but "
        "reader schema has type `Int` for field `r.u`")]


def test_slices_and_nothing_are_decoded() -> None:
    form = AvroFormat(Avro('"int"', framed=False))
    data = pa.array([b"\2", b"\4", None, b"\6"], pa.binary())
    assert form.decode(data[1:3]).columns[0].to_pylist() == [2, None]
    assert form.decode(data[:0]).columns[0].to_pylist() == []
    assert form.decode(pa.array([None], pa.binary())).absent.to_pylist() == [True]

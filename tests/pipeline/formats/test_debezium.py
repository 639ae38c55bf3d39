"""Change events of Debezium: JSON with and without wrapper, and Avro, give the same columns."""

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from quipu.pipeline.formats.avro.schema import AvroSchemaError
from quipu.pipeline.formats.contract import Decoded
from quipu.pipeline.formats.debezium import (
    NO_EVENT,
    DebeziumFormat,
    decoded_columns,
    row_columns_of,
)
from quipu.pipeline.formats.factory import make_format
from quipu.pipeline.formats.specs import Avro, Debezium, Json
from quipu.pipeline.types import Column
from tests.pipeline.formats.avro.avro_maker import encoded

ROW = (Column("id", pa.int64(), nullable=False), Column("name", pa.string()))
VALUE = {"type": "record", "name": "Value", "fields": [
    {"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"], "default": None}]}
SOURCE = {"type": "record", "name": "Source", "fields": [
    {"name": "version", "type": "string"}, {"name": "ts_ms", "type": "long"},
    {"name": "db", "type": "string"}, {"name": "table", "type": "string"},
    {"name": "lsn", "type": ["null", "long"], "default": None}]}
ENVELOPE = {"type": "record", "name": "Envelope", "namespace": "server.public.t", "fields": [
    {"name": "before", "type": ["null", VALUE], "default": None},
    {"name": "after", "type": ["null", "Value"], "default": None},
    {"name": "source", "type": SOURCE},
    {"name": "transaction", "type": ["null", {"type": "record", "name": "block", "fields": [
        {"name": "id", "type": "string"}]}], "default": None},
    {"name": "op", "type": "string"},
    {"name": "ts_ms", "type": ["null", "long"], "default": None}]}

ONE, TWO = {"id": 1, "name": "one"}, {"id": 1, "name": "zwei"}


def event(op: str, before: Any, after: Any) -> dict[str, Any]:
    return {"before": before, "after": after, "op": op, "ts_ms": 9_000, "transaction": None,
            "source": {"version": "3.0", "ts_ms": 7_000, "db": "d", "table": "t", "lsn": 5}}


EVENTS = [event("c", None, ONE), event("u", ONE, TWO), event("d", TWO, None),
          event("r", None, ONE), event("t", None, None)]
MOMENT = datetime.fromtimestamp(7, UTC)
EXPECTED = [(each["before"], each["after"], each["op"], MOMENT, "t") for each in EVENTS]


def decode(spec: Debezium, messages: list[bytes | None]) -> tuple[list[Any], Decoded]:
    form = make_format(spec)
    assert isinstance(form, DebeziumFormat)
    decoded = form.decode(pa.array(messages, pa.binary()))
    for column, array in zip(form.columns, decoded.columns, strict=True):
        array.validate(full=True)
        assert array.type == column.type
    assert form.columns == decoded_columns(spec.row)
    return list(zip(*(array.to_pylist() for array in decoded.columns), strict=True)), decoded


def in_json(messages: list[Any]) -> list[bytes | None]:
    return [None if each is None else json.dumps(each).encode() for each in messages]


@pytest.mark.parametrize("wrapped", [False, True])
def test_json_events(*, wrapped: bool) -> None:
    """I7, I16: rows, and op, time and table as columns; with and without Connect's wrapper."""
    messages = [{"schema": {"type": "struct", "fields": []}, "payload": each} if wrapped else each
                for each in EVENTS]
    rows, decoded = decode(Debezium(Json(), ROW), in_json([*messages, None]))
    assert rows == [*EXPECTED, (None,) * 5]
    assert decoded.errors.null_count == len(rows)
    assert decoded.absent.to_pylist() == [False] * 5 + [True]


def test_both_forms_may_be_mixed() -> None:
    rows, _ = decode(Debezium(Json(), ROW), in_json([EVENTS[0], {"payload": EVENTS[1]}]))
    assert rows == EXPECTED[:2]


def test_avro_events() -> None:
    """I7, I16: the same from Avro."""
    row = row_columns_of(json.dumps(ENVELOPE))
    assert row == (Column("id", pa.int64(), nullable=False), Column("name", pa.string()))
    messages = [b"\0\0\0\0\1" + encoded(ENVELOPE, each) for each in EVENTS]
    rows, decoded = decode(Debezium(Avro(json.dumps(ENVELOPE)), row), [*messages, None, b"\0"])
    assert rows == [*EXPECTED, (None,) * 5, (None,) * 5]
    assert decoded.absent.to_pylist() == [False] * 5 + [True, False]
    assert decoded.errors.is_valid().to_pylist() == [False] * 6 + [True]


def test_a_small_envelope_is_enough() -> None:
    """Only `after` must be there."""
    schema = {"type": "record", "name": "e", "fields": [{"name": "after", "type": VALUE}]}
    row = row_columns_of(json.dumps(schema))
    rows, _ = decode(Debezium(Avro(json.dumps(schema), framed=False), row),
                     [encoded(schema, {"after": ONE})])
    assert rows == [(None, ONE, None, None, None)]


def test_mongodb_has_collections() -> None:
    rows, _ = decode(Debezium(Json(), ROW), in_json([
        {"after": ONE, "op": "c", "ts_ms": 7_000, "source": {"collection": "c"}}]))
    assert rows == [(None, ONE, "c", MOMENT, "c")]


@pytest.mark.parametrize(("message", "error"), [
    (b'{"other": 1}', NO_EVENT),
    (b'{"payload": {}}', NO_EVENT),
    (b'{"after": {"name": "x"}, "op": "c"}',
     'Failed to decode JSON: column "after.id" is missing'),
    (b'{"after": {"id": "x"}, "op": "c"}', 'Failed to decode JSON: column "after.id": '),
    (b'{"after": 7, "op": "c"}', 'Failed to decode JSON: column "after": expected record'),
    (b"{", "Failed to decode JSON: EOF"),
])
def test_what_is_no_event_is_an_error_of_its_row(message: bytes, error: str) -> None:
    """I15: and of no other."""
    good = json.dumps(EVENTS[0]).encode()
    rows, decoded = decode(Debezium(Json(), ROW), [good, message, good])
    assert rows == [EXPECTED[0], (None,) * 5, EXPECTED[0]]
    errors = decoded.errors.to_pylist()
    assert errors[1].startswith(error)
    assert (errors[0], errors[2]) == (None, None)


def test_a_row_before_may_be_told_by_its_key_alone() -> None:
    """As PostgreSQL tells it without REPLICA IDENTITY FULL."""
    strict = (*ROW[:1], Column("name", pa.string(), nullable=False))
    rows, _ = decode(Debezium(Json(), strict), in_json([event("d", {"id": 1}, None)]))
    assert rows[0][0] == {"id": 1, "name": None}


def test_a_moment_out_of_range_is_null() -> None:
    rows, decoded = decode(Debezium(Json(), ROW), in_json([
        {"after": ONE, "op": "c", "ts_ms": moment} for moment in (2**62, -2**63)]))
    assert [row[3] for row in rows] == [None, None]
    assert decoded.errors.null_count == 2


OTHER = {"type": "record", "name": "Other", "fields": [{"name": "id", "type": "string"}]}


@pytest.mark.parametrize(("schema", "message"), [
    ("long", "Incorrect type for Debezium value, expected Record, got Long"),
    ({"type": "record", "name": "e", "fields": [{"name": "before", "type": VALUE}]},
     "'after' column missing from debezium input"),
    ({"type": "record", "name": "e", "fields": [
        {"name": "before", "type": "int"}, {"name": "after", "type": VALUE}]},
     "'before' column must be of type record"),
    ({"type": "record", "name": "e", "fields": [{"name": "after", "type": "int"}]},
     "'after' column must be of type record"),
    ({"type": "record", "name": "e", "fields": [
        {"name": "before", "type": ["null", OTHER]}, {"name": "after", "type": VALUE}]},
     "'before' type differs from 'after' column"),
])
def test_other_schemas_are_refused(schema: Any, message: str) -> None:
    """I19: with what is wrong."""
    with pytest.raises(AvroSchemaError, match=f"^{message}$"):
        row_columns_of(json.dumps(schema))

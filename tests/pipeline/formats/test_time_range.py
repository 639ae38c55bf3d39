"""Dates and times that nobody can show are errors of their messages, at any depth."""

import datetime as dt
import json
from typing import Any

import pyarrow as pa
import pytest

from quipu.pipeline.formats.avro.format import AvroFormat
from quipu.pipeline.formats.contract import Decoded
from quipu.pipeline.formats.protobuf.format import ProtobufFormat
from quipu.pipeline.formats.protobuf.proto_file import descriptors_of
from quipu.pipeline.formats.specs import Avro, Protobuf
from quipu.pipeline.formats.time_range import checked
from quipu.pipeline.types import TIMESTAMPTZ
from tests.pipeline.formats.avro.avro_maker import encoded
from tests.pipeline.formats.decoding import decoded

WHY = "a date or time is before the year 1 or after the year 9999"
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
DATE = {"type": "int", "logicalType": "date"}
FIRST, LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
DEEP = {"type": "record", "name": "R", "fields": [
    {"name": "t", "type": ["null", MICROS]}, {"name": "d", "type": DATE},
    {"name": "many", "type": {"type": "array", "items": MICROS}},
    {"name": "by_name", "type": {"type": "map", "values": {
        "type": "record", "name": "I", "fields": [{"name": "at", "type": MICROS}]}}}]}


def row(**given: Any) -> dict[str, Any]:
    return {"t": None, "d": 0, "many": [], "by_name": {}, **given}


@pytest.mark.parametrize("bad", [
    {"t": LAST + 1}, {"t": 2**63 - 1}, {"t": FIRST - 1}, {"d": 2_932_897}, {"d": -719_163},
    {"many": [0, LAST + 1]}, {"by_name": {"a": {"at": 0}, "b": {"at": FIRST - 1}}},
], ids=str)
def test_avro_times_beyond_sql_are_errors(bad: dict[str, Any]) -> None:
    """I10, I15: one such message has no row, and its neighbours have theirs."""
    form = AvroFormat(Avro(json.dumps(DEEP), framed=False))
    edges = row(t=FIRST, d=2_932_896, many=[LAST], by_name={"a": {"at": LAST}})
    good, wrong, other = decoded(form, [
        encoded(_plain(DEEP), each) for each in (edges, row(**bad), row(many=[1, 2]))])

    assert good[0] == dt.datetime(1, 1, 1, tzinfo=dt.UTC)
    assert good[1] == dt.date(9999, 12, 31)
    assert wrong == f"avro deserialization error: {WHY}"
    assert len(other[2]) == 2


def _plain(schema: Any) -> Any:
    """The schema without the meaning of its numbers, to write any of them."""
    if isinstance(schema, dict):
        return {name: _plain(value) for name, value in schema.items() if name != "logicalType"}
    return [_plain(each) for each in schema] if isinstance(schema, list) else schema


def test_protobuf_times_beyond_sql_are_errors() -> None:
    """I10, I15: also seconds that are too many for 64 bits of microseconds."""
    text = ('syntax = "proto3"; import "google/protobuf/timestamp.proto"; '
            "message M { google.protobuf.Timestamp at = 1; }")
    form = ProtobufFormat(Protobuf(descriptors_of(text, {}), "M"))
    seconds = [b"\x0a\x02\x08\x07", b"\x0a\x0a\x08" + b"\xff" * 8 + b"\x7f",
               b"\x0a\x07\x08\x80\xb0\xb4\x8d\xb0\x07"]
    good, huge, late = decoded(form, seconds)

    assert good == (dt.datetime(1970, 1, 1, 0, 0, 7, tzinfo=dt.UTC),)
    assert huge.startswith("protobuf deserialization error: ")
    assert late.endswith(WHY)


def test_what_can_be_shown_is_left_as_it_is() -> None:
    nothing = Decoded([pa.nulls(2, TIMESTAMPTZ), pa.array([1, 2])], pa.nulls(2, pa.string()),
                      pa.array([False, False]))

    assert checked(nothing, "") is nothing

"""Protocol Buffers: `.proto` text to descriptors, descriptors to columns, messages to rows."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.pipeline.formats.protobuf.format import (
    ProtobufFormat,
    ProtobufSchemaError,
    first_message,
)
from quipu.pipeline.formats.protobuf.proto_file import descriptors_of
from quipu.pipeline.formats.specs import Protobuf
from quipu.pipeline.types import sql_name

TEXT = """
// A file with one of everything.
syntax = "proto3";
package shop.v1;

import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import public "google/protobuf/struct.proto";
import "money.proto";

option java_package = "x.y";
option (custom) = { a: 1 b: "}" };

message Order {
  reserved 90, 95 to 99;
  reserved "old";
  option deprecated = true;

  enum State { option allow_alias = true; NEW = 0; OPEN = 1 [deprecated = true]; ALSO = 1; }
  message Line {
    string item = 1;
    uint32 count = 2 [json_name = "n", (x.y) = {z: [1, 2]}];
    shop.v1.Money price = 3;
  }

  int64 id = 1; /* the key */
  State state = 2;
  repeated Line lines = 3;
  map<string, double> rates = 4;
  oneof payment { string card = 5; int32 cash = 6; }
  optional bool gift = 7;
  google.protobuf.Timestamp created = 8;
  google.protobuf.StringValue note = 9;
  uint64 big = 10;
  bytes raw = 11;
  repeated sint32 deltas = 12 [packed = true];
  google.protobuf.Struct extra = 13;
  map<int32, Line> by_number = 14;
  repeated State states = 15;
  .shop.v1.Empty nothing = 16;
  float ratio = 17;
}
message Empty {}
service Orders { rpc Get (Order) returns (stream Order) { option (http) = { get: "/" }; } }
"""
MONEY = 'syntax = "proto3"; package shop.v1; message Money { sfixed64 cents = 1; }'
DESCRIPTORS = descriptors_of(TEXT, {"money.proto": MONEY})


def message_class(name: str, descriptors: bytes = DESCRIPTORS) -> Any:
    pool = DescriptorPool()
    from google.protobuf import struct_pb2, timestamp_pb2, wrappers_pb2

    for module in (struct_pb2, timestamp_pb2, wrappers_pb2):
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        pool.Add(file)
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


Order = message_class("shop.v1.Order")


def decode(messages: list[bytes | None], *, framed: bool = False,
           message: str = "shop.v1.Order") -> tuple[list[dict[str, Any]], list[Any]]:
    form = ProtobufFormat(Protobuf(DESCRIPTORS, message, framed=framed))
    columns, errors, absent = form.decode(pa.array(messages, pa.binary()))
    for column, array in zip(form.columns, columns, strict=True):
        array.validate(full=True)
        assert array.type == column.type
    assert absent.to_pylist() == [each is None for each in messages]
    names = [column.name for column in form.columns]
    rows = [dict(zip(names, row, strict=True))
            for row in zip(*(array.to_pylist() for array in columns), strict=True)]
    return rows, errors.to_pylist()


def test_fields_have_columns() -> None:
    """I10: what each kind of field becomes; only fields that may be absent are nullable."""
    line = "record(item text, count bigint, price record(cents bigint))"
    assert [(each.name, sql_name(each.type), each.nullable)
            for each in ProtobufFormat(Protobuf(DESCRIPTORS, "shop.v1.Order")).columns] == [
        ("id", "bigint", False), ("state", "text", False), ("lines", f"{line}[]", False),
        ("rates", "map(text, double)", False), ("card", "text", True), ("cash", "integer", True),
        ("gift", "boolean", True), ("created", "timestamptz", True), ("note", "text", True),
        ("big", "numeric(20,0)", False), ("raw", "bytes", False), ("deltas", "integer[]", False),
        ("extra", "text", True), ("by_number", f"map(integer, {line})", False),
        ("states", "text[]", False), ("nothing", "record(present boolean)", True),
        ("ratio", "real", False)]


def test_messages_become_rows() -> None:
    """I10: a full message, an empty one with proto3's defaults, and none."""
    order = Order(id=7, state=1, card="visa", gift=False, big=2**64 - 1, raw=b"\xff",
                  deltas=[-1, 2], states=[0, 1, 9], ratio=0.5)
    order.lines.add(item="a", count=2**32 - 1).price.cents = 5
    order.lines.add(item="b")
    order.rates["x"] = 1.5
    order.created.FromDatetime(datetime(2021, 1, 2, 3, 4, 5, 678901, tzinfo=UTC))
    order.note.value = ""
    order.extra.update({"k": [1, None]})
    order.by_number[3].item = "c"
    order.nothing.SetInParent()

    rows, errors = decode([order.SerializeToString(), b"", None])

    assert errors == [None, None, None]
    line = {"item": "a", "count": 2**32 - 1, "price": {"cents": 5}}
    assert rows[0] == {
        "id": 7, "state": "OPEN", "lines": [line, {"item": "b", "count": 0, "price": None}],
        "rates": [("x", 1.5)], "card": "visa", "cash": None, "gift": False,
        "created": datetime(2021, 1, 2, 3, 4, 5, 678901, tzinfo=UTC), "note": "",
        "big": Decimal(2**64 - 1), "raw": b"\xff", "deltas": [-1, 2], "extra": '{"k": [1.0, null]}',
        "by_number": [(3, {"item": "c", "count": 0, "price": None})],
        "states": ["NEW", "OPEN", "9"], "nothing": {"present": True}, "ratio": 0.5}
    assert rows[1] == {
        "id": 0, "state": "NEW", "lines": [], "rates": [], "card": None, "cash": None,
        "gift": None, "created": None, "note": None, "big": Decimal(0), "raw": b"", "deltas": [],
        "extra": None, "by_number": [], "states": [], "nothing": None, "ratio": 0.0}
    assert set(rows[2].values()) == {None}


def extra(value: float | None) -> bytes:
    """A message with a Struct that holds one member."""
    order = Order(id=1)
    order.extra.fields["x"].SetInParent()
    if value is not None:
        order.extra.fields["x"].number_value = value
    return bytes(order.SerializeToString())


def nested(depth: int) -> bytes:
    """Structs within structs; too deep for the parser, or for Python."""
    order = Order(id=1)
    value = order.extra.fields["x"]
    for _ in range(depth):
        value = value.list_value.values.add()
    value.null_value = 0
    return bytes(order.SerializeToString())


@pytest.mark.parametrize("message", [
    extra(float("nan")), extra(float("inf")), extra(float("-inf")), nested(60),
    b"\x0f", b"\xff" * 11, b"\x2a\x02\xff\xff", b"\x2a\xff\xff\xff\xff\x0f",
    b"\x42\x0a\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f",  # a moment that no timestamp holds
])
def test_a_bad_message_is_an_error_of_its_row(message: bytes) -> None:
    """I15: and of no other."""
    good = Order(id=1).SerializeToString()
    rows, errors = decode([good, message, good])
    assert [row["id"] for row in rows] == [1, None, 1]
    assert set(rows[1].values()) == {None}
    assert errors[1].startswith(
        "protobuf deserialization error: failed to decode Protobuf message: ")
    assert (errors[0], errors[2]) == (None, None)


@pytest.mark.parametrize("bad", [b"\x0f", extra(float("nan")),
                                 b"\x42\x0a\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f"])
def test_a_bad_message_costs_few_of_the_others(bad: bytes, monkeypatch: Any) -> None:
    """K8, I15: messages are not gone through one by one because one of them is bad."""
    taken = 0
    whole = ProtobufFormat._arrays

    def counted(self: ProtobufFormat, messages: Any, *rest: Any) -> Any:
        nonlocal taken
        taken += len(messages)
        return whole(self, messages, *rest)

    monkeypatch.setattr(ProtobufFormat, "_arrays", counted)
    good = Order(id=1).SerializeToString()
    rows, errors = decode([good] * 1500 + [bad] + [good] * 500)
    assert [row["id"] for row in rows].count(1) == 2000
    assert [row for row, error in enumerate(errors) if error] == [1500]
    assert taken <= 6 * len(rows)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=5))
def test_no_bytes_make_it_fail(messages: list[bytes]) -> None:
    """I15: whatever they are."""
    decode([*messages])


def test_frames_say_which_message_it_is() -> None:
    """I10: Confluent's frame; the first message has a short form."""
    data = Order(id=5).SerializeToString()
    rows, errors = decode([
        b"\0\0\0\0\1\0" + data, b"\0\0\0\0\1\2\0" + data, b"\0\0\0\0\1\x06" + data, b"\0\0\0\0",
        b"\5\0\0\0\1\0" + data, None], framed=True)
    assert [row["id"] for row in rows] == [5, 5, None, None, None, None]
    prefix = "protobuf deserialization error: "
    assert errors == [
        None, None,
        prefix + "unsupported Confluent-style protobuf message descriptor id: expected 0, but "
        "found: 6",
        prefix + "Confluent-style protobuf datum is too few bytes: expected at least 6 bytes, got "
        "4",
        prefix + "wrong Confluent-style protobuf serialization magic: expected 0, got 5", None]


def test_frames_may_name_an_inner_message() -> None:
    line = message_class("shop.v1.Order.Line")(item="x").SerializeToString()
    rows, errors = decode([b"\0\0\0\0\1\4\0\0" + line, b"\0\0\0\0\1\0" + line],
                          framed=True, message="shop.v1.Order.Line")
    assert rows[0]["item"] == "x"
    assert errors[0] is None
    assert "expected 4, but found: 0" in errors[1]


def test_proto2_knows_what_is_there() -> None:
    descriptors = descriptors_of("""
        message M {
            required int32 a = 1;
            optional string b = 2 [default = "x", deprecated = true];
            extensions 100 to max;
        }
        extend M { optional int32 more = 100; }
    """)
    form = ProtobufFormat(Protobuf(descriptors, first_message(descriptors)))
    columns, errors, _ = form.decode(pa.array([b"\x08\x05", b"\x12\x01y", b""], pa.binary()))
    assert columns[0].to_pylist() == [5, None, None]
    assert columns[1].to_pylist() == [None, "y", None]
    assert errors.null_count == 3


@pytest.mark.parametrize(("text", "message"), [
    ("syntax = 'proto4';", "';' is unexpected, where there should be proto2 or proto3"),
    ("edition = '2023';", "editions are not supported"),
    ("message M { int32 a = x; }", ":1: 'x' is unexpected, where there should be a whole"),
    ("message M {\n\n group G = 1 {} }", "groups are not supported"),
    ("message M { int32 a = 1;", "the end is unexpected"),
    ("message", "the end is unexpected"),
    ("nonsense", "'nonsense' is unexpected, where there should be a statement"),
    ("message M { int32 a = 1 [", "the end is unexpected"),
    ("message M {" * 100, "messages nest deeper"),
    ("message M { ` }", "'`' is unexpected"),
    (" " * (1 << 21), "longer than"),
    ("message M { int32 a = 99999999999; }", "Value out of range"),
])
def test_text_that_is_no_schema_is_refused(text: str, message: str) -> None:
    """I19: with the line."""
    with pytest.raises(ValueError, match=message):
        descriptors_of(text)


@pytest.mark.parametrize(("descriptors", "name", "message"), [
    (b"\xff", "M", "no set of file descriptors"),
    (descriptors_of("message M { int32 a = 1; }"), "N", "there is no message 'N'; there are M"),
    (descriptors_of("message M { M m = 1; }"), "M", "Recursive types are not supported: M"),
    (descriptors_of("message M { }"), "M", "message 'M' has no fields"),
    (descriptors_of("message M { X x = 1; }"), "M", "schema.proto: "),
    (descriptors_of("import 'gone.proto';"), "M", "'gone.proto' is imported, and not among"),
])
def test_descriptors_that_do_not_serve_are_refused(
        descriptors: bytes, name: str, message: str) -> None:
    """I19: with what is wrong."""
    with pytest.raises(ProtobufSchemaError, match=message):
        ProtobufFormat(Protobuf(descriptors, name))

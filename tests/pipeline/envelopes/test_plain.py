"""ENVELOPE NONE, case by case."""

import pyarrow as pa
import pytest

from quipu.pipeline.envelopes.contract import OutstandingErrors, refuse
from quipu.pipeline.envelopes.factory import make_envelope
from quipu.pipeline.formats.specs import Bytes, Regex, Text
from quipu.pipeline.source import EnvelopeKind, ErrorPolicy, KeyShape, MetadataKind
from quipu.pipeline.types import Column
from tests.pipeline.envelopes.message_maker import (
    Headers,
    item,
    messages_of,
    opened,
    rows_of,
    source_of,
)

NONE = EnvelopeKind.NONE
MISSING = "Envelope error: Flat: Value not present for message"


def test_messages_are_rows_and_a_missing_key_is_null() -> None:
    """I7: with INCLUDE KEY a message without key has NULL there; one without both is nothing."""
    found = opened(source_of(NONE), [
        (b"hello", b"world"), (None, b"foo"), (None, None), (b"bar", None)])

    assert rows_of(found.batch) == [("hello", "world"), (None, "foo")]
    assert found.letters.column("error").to_pylist() == [MISSING]


def test_without_a_key_column_a_message_without_value_is_nothing() -> None:
    """I7: and so is one whose key cannot be decoded, or whose value has nothing in it."""
    source = source_of(NONE, key=None, key_shape=KeyShape.HIDDEN, value=Regex("a(.)"))
    found = opened(source, [(b"k", b"ab"), (b"\xff", b"ac"), (b"k", None), (b"k", b"no")])

    assert rows_of(found.batch) == [("b",), ("c",)]
    assert found.letters.num_rows == 0


def test_bad_records_become_dead_letters_with_their_provenance() -> None:
    """I15: topic, partition, offset, timestamp, headers, raw bytes and the error."""
    headers: list[Headers] = [[], [("h", b"1"), ("h", None)], []]
    found = opened(source_of(NONE), [(b"a", b"1"), (b"b", b"\xff\x00x"), (b"\xfe", b"3")],
                   first=7, partition=2, times_ms=[1, 2, None], headers=headers)

    assert rows_of(found.batch) == [("a", "1")]
    bad_value, bad_key = found.letters.to_pylist()
    error = bad_value.pop("error")
    assert bad_value.pop("timestamp").timestamp() == 0.002
    assert bad_value == {
        "topic": "t", "partition": 2, "offset": 8, "key": b"b", "value": b"\xff\x00x",
        "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]}
    assert error.startswith("Decode error: ")
    assert error.endswith('(original text: \N{REPLACEMENT CHARACTER}'
                          '\N{REPLACEMENT CHARACTER}x, original bytes: "ff0078")')
    assert bad_key["error"].startswith("Decode error: key: ")
    assert bad_key["timestamp"] is None


def test_inline_errors_are_rows() -> None:
    """I15: with the policy INLINE whatever can be decoded is shown beside the error."""
    found = opened(source_of(NONE, errors=ErrorPolicy.INLINE), [
        (b"a", b"1"), (b"b", b"\xff"), (b"\xfe", b"3"), (b"c", None), (None, None)])

    rows = rows_of(found.batch)
    assert [(key, value) for key, _, value in rows] == [
        ("a", "1"), ("b", None), (None, "3"), ("c", None)]
    assert rows[0][1] is None
    assert rows[3][1] == {"description": MISSING}
    assert found.letters.num_rows == 0


def test_a_strict_source_refuses_to_be_read() -> None:
    """I15: the error names the record."""
    source = source_of(NONE, errors=ErrorPolicy.STRICT)
    found = opened(source, [(b"a", b"1"), (b"b", b"\xff")], first=40)

    assert found.batch.num_rows == 1
    with pytest.raises(OutstandingErrors, match=r"source s: Decode error.*offset 41\)"):
        refuse(source, found.letters)
    refuse(source_of(NONE), found.letters)  # other policies do not mind
    refuse(source, found.letters.slice(0, 0))


def test_a_key_of_several_columns_can_be_a_record() -> None:
    """I6: key columns come first; INCLUDE KEY AS makes one of them."""
    fields = [Column("a", pa.string()), Column("b", pa.string())]
    record = Column("k", pa.struct([each.field for each in fields]), nullable=False)
    source = source_of(NONE, key=Regex("(?P<a>[^,]+),(?P<b>.+)"), key_shape=KeyShape.RECORD,
                       key_columns=(record,))
    found = opened(source, [(b"one,1", b"x"), (None, b"y")])

    assert rows_of(found.batch) == [({"a": "one", "b": "1"}, "x"), ({"a": None, "b": None}, "y")]


def test_columns_that_nobody_asked_for_are_not_read() -> None:
    """I4: no cost for what is not included, not even for dead letters while there are none."""
    bare = source_of(NONE, key=None, key_shape=KeyShape.HIDDEN, value=Bytes())
    assert make_envelope(bare).wanted.schema.names == ["value"]

    def never() -> pa.RecordBatch:
        raise AssertionError("there is no bad record")

    messages = messages_of(bare, [(b"k", b"v")])._replace(reread=never)
    assert rows_of(make_envelope(bare).open(messages).batch) == [(b"v",)]

    items = (item(MetadataKind.OFFSET), item(MetadataKind.TOPIC),
             item(MetadataKind.HEADER, "h", "x"))
    asked = source_of(NONE, key=None, key_shape=KeyShape.HIDDEN, items=items)
    assert make_envelope(asked).wanted.schema.names == ["value", "offset", "headers"]


def test_no_messages_are_no_rows() -> None:
    for policy in ErrorPolicy:
        assert opened(source_of(NONE, errors=policy), []).batch.num_rows == 0


def test_an_error_does_not_show_all_of_a_large_record() -> None:
    found = opened(source_of(NONE, value=Text()), [(b"k", b"\xff" * 1_000_000)])

    assert len(found.letters.column("error")[0].as_py()) < 1000
    assert found.letters.column("value")[0].as_py() == b"\xff" * 1_000_000

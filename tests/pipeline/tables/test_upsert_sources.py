"""ENVELOPE UPSERT from messages to rows."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from quipu.pipeline.formats.specs import Bytes, Json, Regex, Text
from quipu.pipeline.source import EnvelopeKind, ErrorPolicy, MetadataKind
from quipu.pipeline.types import Column
from tests.pipeline.envelopes.message_maker import Pair, item, opened, source_of
from tests.pipeline.tables.source_table import SourceTable

UPSERT = EnvelopeKind.UPSERT


def pairs(text: str) -> list[Pair]:
    """`key:value …`; an empty part is no key, or no value."""
    split = [each.encode().split(b":") for each in text.split()]
    return [(key or None, value or None) for key, value in split]


@pytest.mark.parametrize("key", [Text("key"), Bytes("key")], ids=["text", "bytes"])
@pytest.mark.parametrize("value", [Text(), Bytes()], ids=["text", "bytes"])
def test_the_latest_message_of_a_key_counts(
    key: Text | Bytes, value: Text | Bytes, tmp_path: Path,
) -> None:
    """I7: a null value deletes; a delete of an unknown key is nothing; deleted keys come back."""
    table = SourceTable(tmp_path, source_of(UPSERT, key=key, value=value))

    def want(**rows: str) -> list[tuple[object, object]]:
        as_key = str if isinstance(key, Text) else str.encode
        as_value = str if isinstance(value, Text) else str.encode
        return sorted(((as_key(k), as_value(v)) for k, v in rows.items()), key=repr)

    table.feed(*pairs("fish:fish bìrd1:goose bírdmore:geese mammal1:moose bìrd1:"))
    assert table.rows() == want(fish="fish", bírdmore="geese", mammal1="moose")
    table.feed(*pairs("bírdmore:géese mammalmore:moose mammal1: mammal1:mouse"))
    assert table.rows() == want(fish="fish", bírdmore="géese", mammal1="mouse",
                                mammalmore="moose")
    table.feed(*pairs("mammalmore:herd"))
    table.feed(*pairs("bìrd1: fish:"))
    assert table.rows() == want(bírdmore="géese", mammal1="mouse", mammalmore="herd")
    assert not table.letters


def test_metadata_is_the_latest_records(tmp_path: Path) -> None:
    """I7: partition, offset and headers of the message that the row is from, nothing older."""
    items = (item(MetadataKind.OFFSET), item(MetadataKind.PARTITION), item(MetadataKind.TOPIC),
             item(MetadataKind.HEADER, "h", "h"))
    table = SourceTable(tmp_path, source_of(UPSERT, items=items))
    table.feed((b"a", b"1"), (b"b", b"1"), headers=[[("h", b"x")], []])
    table.feed((b"a", b"1"), partition=4, headers=[[]])

    assert table.rows() == [("a", "1", 2, 4, "t", None), ("b", "1", 1, 0, "t", None)]
    assert table.changes() == [("a", "1", 0, 0, "t", "x", -1), ("a", "1", 2, 4, "t", None, 1)]


def test_a_message_that_changes_nothing_is_no_change(tmp_path: Path) -> None:
    """I13: without metadata an equal row is the same row."""
    table = SourceTable(tmp_path, source_of(UPSERT))
    table.feed((b"a", b"1"), (b"b", b"1"))
    table.feed((b"a", b"1"), (b"b", b"2"), (b"c", b"1"), (b"c", None))

    assert table.changes() == [("b", "1", -1), ("b", "2", 1)]


def test_a_bad_value_becomes_a_dead_letter_and_its_key_keeps_its_row(tmp_path: Path) -> None:
    """I15: the default policy; the rest goes on."""
    table = SourceTable(tmp_path, source_of(UPSERT))
    table.feed((b"a", b"1"))
    table.feed((b"a", b"\xff"), (b"b", b"2"), (None, b"3"), (b"\xfe", b"4"), (None, None),
               (b"\xfe", None))

    assert table.rows() == [("a", "1"), ("b", "2")]
    assert [(each["offset"], each["key"], each["value"]) for each in table.letters] == [
        (1, b"a", b"\xff"), (3, None, b"3"), (4, b"\xfe", b"4")]
    assert table.now.errors == 0


def test_errors_are_kept_by_key_and_can_be_retracted(tmp_path: Path) -> None:
    """I15: with the policy STRICT, by the next good value or delete of the key."""
    table = SourceTable(tmp_path, source_of(UPSERT, errors=ErrorPolicy.STRICT))
    table.feed((b"a", b"1"), (b"b", b"1"))
    table.feed((b"a", b"\xff"), (b"b", b"\xfe"))
    assert table.rows() == []
    assert table.changes() == [("a", "1", -1), ("b", "1", -1)]
    assert table.now.errors == 2
    assert [text.partition(":")[0] for text in table.errors()] == ["Decode error"] * 2
    table.feed((b"a", b"2"), (b"b", None))
    assert table.rows() == [("a", "2")]
    assert (table.now.errors, table.errors(), table.letters) == (0, [], [])


def test_a_message_without_key_is_an_error_until_one_without_both(tmp_path: Path) -> None:
    """I15: the slot of messages without key; a key without bytes is another thing."""
    table = SourceTable(tmp_path, source_of(UPSERT, errors=ErrorPolicy.STRICT))
    table.feed(*pairs("bird1:goose :geese mammal1:moose bird1: birdmore:geese mammalmore:moose "
                      "mammal1:"), (b"", b"empty"))
    assert table.now.errors == 1
    assert "record with NULL key in UPSERT source" in table.errors()[0]
    assert "produce a record upstream with a NULL key and NULL value" in table.errors()[0]
    table.feed((None, b"more"), (b"", None))
    assert table.now.errors == 1
    table.feed((None, None))
    assert table.now.errors == 0
    assert table.rows() == [("birdmore", "geese"), ("mammalmore", "moose")]


def test_a_key_that_cannot_be_decoded_is_an_error_of_its_bytes(tmp_path: Path) -> None:
    """I15: until the same bytes come without value."""
    table = SourceTable(tmp_path, source_of(UPSERT, errors=ErrorPolicy.STRICT))
    table.feed((b"\xff", b"1"), (b"\xfe", b"\xfd"), (b"\xff", b"2"))
    assert table.now.errors == 2
    table.feed((b"\xff", None))
    assert table.now.errors == 1
    table.feed((b"\xfe", None))
    assert table.now.errors == 0


def test_inline_errors_are_rows_of_their_key(tmp_path: Path) -> None:
    """I15: the metadata is that of the failing record; a key that is bad has no row."""
    table = SourceTable(tmp_path, source_of(
        UPSERT, errors=ErrorPolicy.INLINE, items=(item(MetadataKind.OFFSET),)))
    table.feed((b"a", b"1"), (b"b", b"2"))
    table.feed((b"a", b"\xff"), (None, b"3"), (b"\xfe", b"4"))
    (key, error, value, offset), b = table.rows()
    assert (key, value, offset) == ("a", None, 2)
    assert error["description"].startswith("Decode error: ")
    assert b == ("b", None, "2", 1)
    assert [each["offset"] for each in table.letters] == [3, 4]
    table.feed((b"a", b"5"), (b"b", None))
    assert table.rows() == [("a", None, "5", 5)]


def test_a_value_in_which_nothing_is_found_deletes(tmp_path: Path) -> None:
    """I10: a regular expression that does not match."""
    table = SourceTable(tmp_path, source_of(UPSERT, value=Regex("v(.)")))
    table.feed((b"a", b"v1"), (b"b", b"v2"))
    table.feed((b"a", b"other"))

    assert table.rows() == [("b", "2")]


def test_event_time_decides_if_it_is_asked_to(tmp_path: Path) -> None:
    """I16: the greatest timestamp, whenever it comes; the offset breaks ties."""
    table = SourceTable(tmp_path, source_of(
        UPSERT, order_by=MetadataKind.TIMESTAMP, items=(item(MetadataKind.TIMESTAMP),)))

    def at(time_ms: int) -> datetime:
        return datetime.fromtimestamp(time_ms / 1000, UTC)

    table.feed((b"k1", b"a"), (b"k2", b"b"), (b"k4", b"c"), times_ms=[100, 201, 300])
    table.feed((b"k1", b"d"), (b"k2", b"e"), (b"k4", b"f"), (b"k5", b"g"), (b"k5", b"h"),
               times_ms=[200, 200, 300, 500, 400])
    want = [("k1", "d", at(200)), ("k2", "b", at(201)), ("k4", "f", at(300)),
            ("k5", "g", at(500))]
    assert table.rows() == want
    table.feed((b"k1", None), (b"k2", None), times_ms=[199, 300])
    assert table.rows() == [want[0], *want[2:]]
    table.feed((b"k2", b"late"), (b"k4", b"none"), times_ms=[299, None])
    assert table.rows() == [want[0], *want[2:]]


def test_keys_of_several_columns(tmp_path: Path) -> None:
    """I10: NULL within a key is a value like others."""
    columns = (Column("a", pa.int64()), Column("b", pa.string()))
    table = SourceTable(tmp_path, source_of(UPSERT, key=Json(columns)))
    table.feed((b'{"a":1,"b":"x"}', b"1"), (b'{"b":"x"}', b"2"), (b'{"a":1}', b"3"),
               (b'{"b":"x","a":1}', b"4"), (b'{"a":null,"b":"x"}', b"5"))

    assert table.rows() == [(1, "x", "4"), (1, None, "3"), (None, "x", "5")]


def test_a_key_of_one_column_that_is_null_is_a_key(tmp_path: Path) -> None:
    table = SourceTable(tmp_path, source_of(UPSERT, key=Json((Column("a", pa.string()),))))
    table.feed((b'{"a":null}', b"1"), (b'{"a":""}', b"2"), (b"{}", b"3"))

    assert table.rows() == [("", "2"), (None, "3")]
    assert not table.letters


def test_events_need_only_key_value_and_offset() -> None:
    """I4: no cost for what is not included."""
    from quipu.pipeline.envelopes.factory import make_envelope

    assert make_envelope(source_of(UPSERT)).wanted.schema.names == ["key", "value", "offset"]
    assert opened(source_of(UPSERT), []).batch.num_rows == 0

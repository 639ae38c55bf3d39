"""Metadata columns."""

from datetime import UTC, datetime

import pyarrow as pa

from quipu.pipeline.source import EnvelopeKind, ErrorPolicy, MetadataKind
from tests.pipeline.envelopes.message_maker import Headers, item, opened, rows_of, source_of

NONE = EnvelopeKind.NONE
PAIRS = [(b"a", b"1"), (b"b", b"2")]


def test_metadata_of_a_record() -> None:
    """I1, I2, I6: in the order written, after the data."""
    kinds = (MetadataKind.OFFSET, MetadataKind.TIMESTAMP, MetadataKind.PARTITION,
             MetadataKind.TOPIC, MetadataKind.TIMESTAMP_TYPE)
    found = opened(source_of(NONE, items=tuple(item(kind) for kind in kinds)), PAIRS,
                   first=5, partition=3, times_ms=[1500, None])

    assert found.batch.schema.names == [
        "key", "text", "offset", "timestamp", "partition", "topic", "timestamp_type"]
    assert rows_of(found.batch) == [
        ("a", "1", 5, datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC), 3, "t", "CreateTime"),
        ("b", "2", 6, None, 3, "t", "CreateTime")]


def test_headers() -> None:
    """I16: all of them in order, or one by name and type; a missing one is NULL."""
    headers: list[Headers] = [[("n", b"1"), ("n", b"2"), ("x", b"\xff")], []]
    items = (item(MetadataKind.HEADERS), item(MetadataKind.HEADER, "n", "n", pa.int64()),
             item(MetadataKind.HEADER, "x", "x", pa.binary()))
    found = opened(source_of(NONE, items=items), PAIRS, headers=headers)

    assert [row[2:] for row in rows_of(found.batch)] == [
        ([{"key": "n", "value": b"1"}, {"key": "n", "value": b"2"},
          {"key": "x", "value": b"\xff"}], 2, b"\xff"),
        ([], None, None)]


def test_a_header_of_the_wrong_type_is_an_error_of_its_record() -> None:
    """I15, I16: the others go on."""
    items = (item(MetadataKind.HEADER, "n", "n", pa.int64()),)
    headers: list[Headers] = [[("n", b"many")], [("n", b"2")]]
    found = opened(source_of(NONE, items=items), PAIRS, headers=headers)
    assert rows_of(found.batch) == [("b", "2", 2)]
    assert "header 'n'" in found.letters.column("error")[0].as_py()

    inline = opened(source_of(NONE, items=items, errors=ErrorPolicy.INLINE), PAIRS,
                    headers=headers)
    assert [row[2:] for row in rows_of(inline.batch)] == [("1", None), ("2", 2)]


def test_a_bad_header_does_not_save_a_row_from_its_delete() -> None:
    """I7, I15: a message without value has no row whose header could be wrong."""
    items = (item(MetadataKind.HEADER, "n", "n", pa.int64()),)
    found = opened(source_of(EnvelopeKind.UPSERT, items=items), [(b"a", None)],
                   headers=[[("n", b"many")]])

    assert found.batch.column("#kind").to_pylist() == [0]
    assert found.letters.num_rows == 0

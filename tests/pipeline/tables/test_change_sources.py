"""ENVELOPE DEBEZIUM, DEBEZIUM UPSERT and MATERIALIZE from messages to rows."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from quipu.pipeline.formats.specs import Debezium, Json, Materialize
from quipu.pipeline.source import EnvelopeKind, ErrorPolicy, KeyShape, MetadataKind, PlannedSource
from quipu.pipeline.tables import reading
from quipu.pipeline.types import Column
from tests.pipeline.envelopes.message_maker import Pair, item, source_of
from tests.pipeline.tables.source_table import SourceTable

ROW = (Column("id", pa.int64()), Column("name", pa.string()))
KEY = Json((ROW[0],))
HIDDEN = KeyShape.HIDDEN


def change(before: Any, after: Any, op: str = "u", key: Any = None) -> Pair:
    """A message: rows are (id, name)."""
    def row(given: Any) -> Any:
        return None if given is None else {"id": given[0], "name": given[1]}

    event = {"before": row(before), "after": row(after), "op": op, "ts_ms": 5,
             "source": {"ts_ms": 4, "table": "people"}}
    return (None if key is None else json.dumps({"id": key}).encode(),
            json.dumps(event).encode())


def debezium(envelope: EnvelopeKind, **changes: Any) -> PlannedSource:
    return source_of(envelope, **{
        "value": Debezium(Json(), ROW), "value_columns": ROW, "key": KEY, "key_shape": HIDDEN,
        **changes})


@pytest.mark.parametrize("envelope", [EnvelopeKind.DEBEZIUM_UPSERT, EnvelopeKind.DEBEZIUM])
def test_changes_of_rows_with_a_key(envelope: EnvelopeKind, tmp_path: Path) -> None:
    """I7, I8: the row after the change, with the metadata it was inserted with, by key."""
    items = (item(MetadataKind.OFFSET), item(MetadataKind.DEBEZIUM_OP),
             item(MetadataKind.DEBEZIUM_TABLE))
    table = SourceTable(tmp_path, debezium(envelope, items=items))
    table.feed(change(None, (1, "a"), "r", 1), change(None, (2, "b"), "c", 2),
               change(None, (3, "c"), "c", 3))
    assert table.rows() == [(1, "a", 0, "r", "people"), (2, "b", 1, "c", "people"),
                            (3, "c", 2, "c", "people")]
    table.feed(change((1, "a"), (1, "A"), "u", 1), change((2, "b"), None, "d", 2),
               (b'{"id": 2}', None))
    assert table.rows() == [(1, "A", 3, "u", "people"), (3, "c", 2, "c", "people")]
    assert table.changes() == [(1, "A", 3, "u", "people", 1), (1, "a", 0, "r", "people", -1),
                               (2, "b", 1, "c", "people", -1)]
    assert not table.letters


def test_a_change_that_is_sent_twice_is_harmless_with_a_key(tmp_path: Path) -> None:
    """I8: what was inserted is replaced, not added."""
    table = SourceTable(tmp_path, debezium(EnvelopeKind.DEBEZIUM))
    table.feed(change(None, (1, "a"), "c", 1), change(None, (1, "a"), "c", 1))
    table.feed(change((1, "a"), (1, "b"), "u", 1), change((1, "a"), (1, "b"), "u", 1))

    assert table.rows() == [(1, "b")]


def test_changes_of_rows_without_a_key_are_counted(tmp_path: Path) -> None:
    """I8: self-retracting; equal rows are several, a change takes one of them."""
    table = SourceTable(tmp_path, debezium(EnvelopeKind.DEBEZIUM, key=None))
    table.feed(change(None, (1, "a"), "c"), change(None, (1, "a"), "c"),
               change(None, (1, None), "c"), (None, None))
    assert table.rows() == [(1, "a"), (1, "a"), (1, None)]
    table.feed(change((1, "a"), (1, "b")), change((1, None), None, "d"))
    assert table.rows() == [(1, "a"), (1, "b")]
    assert table.changes() == [(1, "a", -1), (1, "b", 1), (1, None, -1)]
    table.feed(change((7, "x"), None, "d"))  # before it was inserted
    assert table.rows() == [(1, "a"), (1, "b")]
    assert table.now.rows == 2
    table.feed(change(None, (7, "x"), "c"), change((1, "b"), (1, "b")))
    assert table.rows() == [(1, "a"), (1, "b")]
    assert table.changes() == []


def test_columns_of_the_row_can_be_its_key(tmp_path: Path) -> None:
    """I8: with PRIMARY KEY metadata works without a key of messages; a new key moves the row."""
    table = SourceTable(tmp_path, debezium(
        EnvelopeKind.DEBEZIUM, key=None, identity=("id",), items=(item(MetadataKind.OFFSET),)))
    table.feed(change(None, (1, "a"), "c"), change(None, (2, "b"), "c"))
    table.feed(change((1, "a"), (1, "A")), change((2, "b"), (3, "b")), change((3, "b"), (4, "b")))
    assert table.rows() == [(1, "A", 2), (4, "b", 4)]
    table.feed(change((4, "b"), None, "d"), change(None, (4, "c"), "c"))
    assert table.rows() == [(1, "A", 2), (4, "c", 6)]


def test_a_change_event_that_cannot_be_read_is_a_dead_letter(tmp_path: Path) -> None:
    """I15: with a key, and the policy STRICT, it is an error of that key."""
    bad: Pair = (b'{"id": 1}', b"{")
    for index, (key, policy) in enumerate([
        (KEY, ErrorPolicy.DEAD_LETTER), (None, ErrorPolicy.DEAD_LETTER),
        (None, ErrorPolicy.STRICT), (KEY, ErrorPolicy.STRICT)]):
        table = SourceTable(tmp_path / str(index), debezium(
            EnvelopeKind.DEBEZIUM, key=key, errors=policy))
        table.feed(change(None, (2, "b"), "c", 2), bad)
        assert table.rows() == [(2, "b")]
        kept = policy is ErrorPolicy.STRICT and key is not None
        assert (table.now.errors, len(table.letters)) == (kept, not kept)


def test_a_change_that_does_not_tell_what_it_takes_away_is_a_dead_letter(tmp_path: Path) -> None:
    """I8: by key it is no matter; without one the error says what to do."""
    events = [change(None, (1, "a"), "c", 1), change(None, (1, "b"), "u", 1),
              change(None, None, "d", 1)]
    for index, (changes, want, dead) in enumerate([
        ({}, [], 0), ({"key": None}, [(1, "a")], 2),
        ({"key": None, "identity": ("id",)}, [(1, "b")], 1)]):
        table = SourceTable(tmp_path / str(index), debezium(EnvelopeKind.DEBEZIUM, **changes))
        table.feed(*events)
        assert table.rows() == want
        assert len(table.letters) == dead
        assert all("ENVELOPE DEBEZIUM UPSERT" in each["error"] for each in table.letters)


def updates(*given: tuple[int, str, int, int]) -> Pair:
    """Updates: (id, name, time, diff) each."""
    return None, json.dumps([{"data": {"id": number, "name": name}, "time": time, "diff": diff}
                             for number, name, time, diff in given]).encode()


def progress(lower: int, upper: int | None, **counts: int) -> Pair:
    """Progress; counts as t3=2."""
    told = [{"time": int(name[1:]), "count": count} for name, count in counts.items()]
    return None, json.dumps({"lower": [lower], "upper": [] if upper is None else [upper],
                             "counts": told}).encode()


def materialize(**changes: Any) -> PlannedSource:
    return source_of(EnvelopeKind.MATERIALIZE, **{
        "value": Materialize(Json(), ROW), "value_columns": ROW, "key": None,
        "key_shape": HIDDEN, **changes})


def test_updates_are_seen_when_their_time_is_closed(tmp_path: Path) -> None:
    """I8: in any order, and more than once."""
    table = SourceTable(tmp_path, materialize())
    table.feed(updates((5, "x", 5, 1), (5, "y", 4, 1)), updates((5, "y", 5, -1)))
    assert table.rows() == []
    table.feed(progress(0, 3))
    assert table.rows() == []
    table.feed(progress(3, 5, t4=1))
    assert table.rows() == [(5, "y")]
    table.feed(updates((5, "x", 5, 1)), progress(3, 5, t4=1), updates((5, "y", 4, 1)))
    assert table.rows() == [(5, "y")]
    table.feed(progress(5, 9, t5=2, t7=2))
    assert table.rows() == [(5, "x")]
    assert table.changes() == [(5, "x", 1), (5, "y", -1)]
    table.feed(updates((6, "z", 7, 3)))
    assert table.rows() == [(5, "x")]
    table.feed(updates((7, "w", 7, 1)))
    assert table.rows() == [(5, "x"), (6, "z"), (6, "z"), (6, "z"), (7, "w")]
    assert table.now.rows == 5
    table.feed(updates((6, "z", 12, -2)), progress(9, None, t12=1))
    assert table.rows() == [(5, "x"), (6, "z"), (7, "w")]


def test_a_row_that_counts_very_often_is_read_a_batch_at_a_time(tmp_path: Path) -> None:
    """I8: numbers from outside do not decide how much memory is taken."""
    table = SourceTable(tmp_path, materialize())
    table.feed(updates((1, "a", 1, 10**12), (2, "b", 1, 2)), progress(0, 2, t1=2))
    batches = reading.rows(tmp_path, table.shape, table.now.bucket(0))
    batch = next(batches)

    assert batch.num_rows == reading.BATCH_ROWS_MAX
    assert batch.column("id").to_pylist().count(2) == 2
    assert table.now.rows == 10**12 + 2
    assert table.changes() == [(1, "a", 10**12), (2, "b", 2)]


def test_updates_with_metadata_by_the_columns_of_the_key(tmp_path: Path) -> None:
    """I8: a row keeps the metadata of the message that inserted it."""
    table = SourceTable(tmp_path, materialize(
        identity=("id",), items=(item(MetadataKind.OFFSET),)))
    table.feed(updates((1, "a", 1, 1), (2, "b", 1, 1)), progress(0, 2, t1=2))
    assert table.rows() == [(1, "a", 0), (2, "b", 0)]
    table.feed(updates((1, "A", 3, 1), (1, "a", 3, -1)), updates((2, "b", 3, -1)),
               progress(2, 4, t3=3))
    assert table.rows() == [(1, "A", 2)]
    assert table.changes() == [(1, "A", 2, 1), (1, "a", 0, -1), (2, "b", 0, -1)]


def test_a_bad_message_of_updates_does_not_hold_time_for_ever(tmp_path: Path) -> None:
    """I15: the numbers cannot be met any more, so progress alone closes times."""
    table = SourceTable(tmp_path, materialize())
    table.feed(updates((1, "a", 1, 1)), (None, b'[{"data": 5}]'), progress(0, 2, t1=3))

    assert table.rows() == [(1, "a")]
    assert len(table.letters) == 1

"""Change messages of Materialize: updates and progress, from Avro and JSON."""

import json
from typing import Any

import pyarrow as pa
import pytest

from quipu.pipeline.formats.avro.schema import AvroSchemaError
from quipu.pipeline.formats.factory import make_format
from quipu.pipeline.formats.materialize import (
    INCOMPLETE,
    NO_CHANGE,
    NO_PROGRESS,
    MaterializeChanges,
    changes_of,
    row_columns_of,
)
from quipu.pipeline.formats.specs import Avro, Json, Materialize
from quipu.pipeline.types import Column
from tests.pipeline.formats.avro.avro_maker import encoded

ROW = (Column("id", pa.int64(), nullable=False), Column("price", pa.int64()))
UPDATES = {"type": "array", "items": {
    "type": "record", "name": "update", "namespace": "com.materialize.cdc", "fields": [
        {"name": "data", "type": {"type": "record", "name": "data", "fields": [
            {"name": "id", "type": "long"}, {"name": "price", "type": ["null", "long"]}]}},
        {"name": "time", "type": "long"}, {"name": "diff", "type": "long"}]}}
PROGRESS = {"type": "record", "name": "progress", "namespace": "com.materialize.cdc", "fields": [
    {"name": "lower", "type": {"type": "array", "items": "long"}},
    {"name": "upper", "type": {"type": "array", "items": "long"}},
    {"name": "counts", "type": {"type": "array", "items": {
        "type": "record", "name": "counts", "fields": [
            {"name": "time", "type": "long"}, {"name": "count", "type": "long"}]}}}]}
SCHEMA = json.dumps([UPDATES, PROGRESS])

FIRST = [{"data": {"id": 0, "price": 5}, "time": 4, "diff": 1},
         {"data": {"id": 1, "price": None}, "time": 4, "diff": 2}]
SECOND = [{"data": {"id": 0, "price": 5}, "time": 5, "diff": -1}]
SAID = {"lower": [0], "upper": [6], "counts": [{"time": 4, "count": 2}, {"time": 5, "count": 1}]}
MESSAGES = [FIRST, SAID, [], SECOND]


def taken_apart(spec: Materialize, messages: list[bytes | None]) -> tuple[MaterializeChanges, Any]:
    form = make_format(spec)
    decoded = form.decode(pa.array(messages, pa.binary()))
    for column, array in zip(form.columns, decoded.columns, strict=True):
        array.validate(full=True)
        assert array.type == column.type
    return changes_of(decoded), decoded


def check(changes: MaterializeChanges) -> None:
    """The four messages above, whatever follows them."""
    assert changes.update_message.to_pylist()[:3] == [0, 0, 3]
    assert changes.row.to_pylist()[:3] == [each["data"] for each in (*FIRST, *SECOND)]
    assert changes.time.to_pylist()[:3] == [4, 4, 5]
    assert changes.diff.to_pylist()[:3] == [1, 2, -1]
    assert changes.progress.to_pylist()[:1] == [SAID]


def test_avro_changes() -> None:
    """I8: rows with a time and a count, and progress; nothing and bad messages among them."""
    assert row_columns_of(SCHEMA) == ROW
    messages = [b"\0\0\0\0\1" + encoded([UPDATES, PROGRESS], each) for each in MESSAGES]
    spec = Materialize(Avro(SCHEMA), ROW)
    changes, decoded = taken_apart(spec, [*messages, None, b"\0\0\0\0\1\7"])
    check(changes)
    assert (len(changes.row), len(changes.progress)) == (3, 1)
    assert decoded.absent.to_pylist() == [False] * 4 + [True, False]
    assert decoded.errors.is_valid().to_pylist() == [False] * 5 + [True]


def test_updates_alone_are_a_schema_too() -> None:
    schema = json.dumps(UPDATES)
    spec = Materialize(Avro(schema, framed=False), row_columns_of(schema))
    changes, _ = taken_apart(spec, [encoded(UPDATES, FIRST)])
    assert changes.row.to_pylist() == [each["data"] for each in FIRST]
    assert len(changes.progress) == 0


def test_json_changes() -> None:
    """I8: the same from JSON, in both spellings."""
    plain = [json.dumps(each).encode() for each in MESSAGES]
    as_avro = [json.dumps({"com.materialize.cdc.progress": each} if isinstance(each, dict)
                          else {"array": each}).encode() for each in MESSAGES]
    spec = Materialize(Json(), ROW)
    for messages in (plain, as_avro):
        changes, decoded = taken_apart(spec, [*messages, None])
        check(changes)
        assert decoded.errors.null_count == 5
        assert decoded.absent.to_pylist() == [False] * 4 + [True]


@pytest.mark.parametrize(("message", "error"), [
    (b'{"x": 1}', NO_CHANGE), (b'{"lower": [1]}', NO_CHANGE),
    (b'[{"time": 1, "diff": 1}]', INCOMPLETE),
    (b'[{"data": {"id": 1}, "time": 1}]', INCOMPLETE),
    (b'[{"data": {"price": 1}, "time": 1, "diff": 1}]',
     'Failed to decode JSON: column "array[].data.id" is missing'),
    (b"[", "Failed to decode JSON: "), (b"[1]", "Failed to decode JSON: "),
    (b"[null]", INCOMPLETE),
    (b'{"com.materialize.cdc.progress": {}}', NO_PROGRESS),
    (b'{"com.materialize.cdc.progress": {"lower": [0]}}', NO_PROGRESS),
    (b'{"lower": [0], "upper": [null]}', NO_PROGRESS),
    (b'{"lower": [0, 1], "upper": [3]}', NO_PROGRESS),
    (b'{"lower": [0], "upper": [3], "counts": [null]}', NO_PROGRESS),
    (b'{"lower": [0], "upper": [3], "counts": [{"time": 1}]}', NO_PROGRESS),
    (b'{"lower": [0], "upper": [3], "counts": [{"count": 1}]}', NO_PROGRESS),
])
def test_what_is_no_change_is_an_error_of_its_message(message: bytes, error: str) -> None:
    """I15: its updates do not count, the others' do."""
    good = [json.dumps(each).encode() for each in MESSAGES]
    changes, decoded = taken_apart(Materialize(Json(), ROW), [*good, message, good[0]])
    check(changes)
    assert changes.update_message.to_pylist() == [0, 0, 3, 5, 5]
    assert decoded.errors.to_pylist()[4].startswith(error)
    assert decoded.errors.null_count == 5


def test_progress_of_avro_that_says_nothing_is_an_error_of_its_message() -> None:
    """I15: a schema may allow nulls where progress has none."""
    schema = json.loads(SCHEMA)
    counts = next(field for branch in schema if branch["type"] == "record"
                  for field in branch["fields"] if field["name"] == "counts")
    count = next(field for field in counts["type"]["items"]["fields"] if field["name"] == "count")
    count["type"] = ["null", "long"]
    said = {"lower": [0], "upper": [3], "counts": [{"time": 1, "count": None}]}
    spec = Materialize(Avro(json.dumps(schema), framed=False), row_columns_of(json.dumps(schema)))
    changes, decoded = taken_apart(spec, [encoded(schema, said), encoded(schema, FIRST)])
    assert decoded.errors.to_pylist() == [NO_PROGRESS, None]
    assert (len(changes.progress), changes.update_message.to_pylist()) == (0, [1, 1])


@pytest.mark.parametrize("schema", [
    "long", UPDATES["items"], {"type": "array", "items": "long"}, [UPDATES, "string"],
    [UPDATES, {"type": "record", "name": "p", "fields": [{"name": "lower", "type": "long"}]}],
])
def test_other_schemas_are_refused(schema: Any) -> None:
    """I19: with what is wanted."""
    with pytest.raises(AvroSchemaError, match="ENVELOPE MATERIALIZE takes"):
        row_columns_of(json.dumps(schema))

"""What is not asked for is not read: of sources without INCLUDE, and of queries that look away."""

from typing import Any

import pytest

from quipu.pipeline.execution.pruning import PrunedSource
from quipu.pipeline.execution.source_reader import SourceReader
from quipu.pipeline.records.columns import WantedColumns
from quipu.pipeline.spark.statements import snapshots
from tests.pipeline.spark.workbench import Workbench

METADATA = {"key", "offset", "partition", "topic", "timestamp", "headers"}
VALUE_ONLY = WantedColumns(key=False, value=True, offset=False, timestamp=False)


def handed_out(monkeypatch: pytest.MonkeyPatch) -> list[PrunedSource]:
    """What the tasks of queries are asked to read, from now on."""
    asked: list[PrunedSource] = []
    original = snapshots.from_tasks

    def from_tasks(spark: Any, schema: Any, tasks: Any) -> Any:
        asked.extend(task.args[0] for task in tasks)
        return original(spark, schema, tasks)

    monkeypatch.setattr(snapshots, "from_tasks", from_tasks)
    return asked


def decodes_key(given: PrunedSource) -> bool:
    return SourceReader(given)._key is not None


def wanted(given: PrunedSource) -> WantedColumns:
    return SourceReader(given)._envelope.wanted


def test_without_include_there_is_no_metadata_anywhere(
    work: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I4: not in the columns, nor in Spark's plan, nor in what tasks read of a record."""
    name = work.source_of(work.broker.topic(), "KEY FORMAT JSON VALUE FORMAT JSON",
                          "(a bigint, b text)")
    work.send(name, b'not json:{"a": 1, "b": "x"}')
    asked = handed_out(monkeypatch)

    assert [row[0] for row in work.do(f"SHOW COLUMNS FROM {name}").rows] == ["a", "b"]
    assert work.rows(f"SELECT * FROM {name}") == [(1, "x")]
    assert work.rows(f"SELECT count(*) FROM {name}_dead_letters") == [(0,)]  # no key was decoded
    plan = [str(row[0]) for row in work.do(f"EXPLAIN SELECT * FROM {name}").rows]
    physical = " ".join(plan[plan.index("== Physical Plan =="):]).lower()
    assert not [word for word in METADATA if word in physical]
    assert asked
    for given in asked:
        assert wanted(given) == VALUE_ONLY
        assert not decodes_key(given)


def test_what_a_query_does_not_look_at_is_not_read(
    work: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I4: though the source includes everything, `SELECT a` reads values and decodes one field."""
    name = work.source_of(
        work.broker.topic(), "KEY FORMAT TEXT VALUE FORMAT JSON INCLUDE OFFSET, PARTITION, TOPIC, "
                             "TIMESTAMP, HEADERS", "(a bigint, b text)")
    work.send(name, 'k:{"a": 1, "b": "x"}', 'k:{"a": 2, "b": "y"}')
    asked = handed_out(monkeypatch)

    assert work.rows(f"SELECT a FROM {name}") == [(1,), (2,)]
    (given,) = asked
    assert wanted(given) == VALUE_ONLY
    assert not decodes_key(given)
    assert [column.name for column in given.source.columns] == ["a"]
    asked.clear()
    assert work.rows(f"SELECT b FROM {name} WHERE offset = 1") == [("y",)]
    assert {(wanted(each), tuple(column.name for column in each.source.columns))
            for each in asked} == {(VALUE_ONLY._replace(offset=True), ("b", "offset"))}

    view = work.view(f"SELECT a + 1 AS a FROM {name}")
    assert work.rows(f"SELECT * FROM {view}") == [(2,), (3,)]
    (source_input,) = work.pipeline._live.maintained[view].view.files.inputs.sources
    assert wanted(source_input.source) == VALUE_ONLY
    assert [column.name for column in source_input.source.source.columns] == ["a"]

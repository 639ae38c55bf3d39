"""SELECT from sources: a snapshot of their topics, by envelope."""

import pytest
from pyspark.errors import PythonException

from quipu.pipeline.envelopes.contract import OutstandingErrors
from quipu.pipeline.spark.queries.errors import plain_errors
from quipu.pipeline.spark.session.supervisor import summary
from quipu.pipeline.sql.errors import SqlError
from tests.pipeline.spark.workbench import Workbench

KEYED = "KEY FORMAT TEXT VALUE FORMAT TEXT INCLUDE KEY"


def test_messages_are_rows(work: Workbench) -> None:
    """I1, I2, I6, I12: ENVELOPE NONE with all of its metadata, in the order written."""
    name = work.source(f'{KEYED}, PARTITION, TOPIC AS t, OFFSET AS "Off"', "a:1", ":2", "a:3")

    assert work.rows(f"SELECT * FROM {name}") == [
        ("a", "1", 0, work.topics[name], 0), ("a", "3", 0, work.topics[name], 2),
        (None, "2", 0, work.topics[name], 1)]
    assert work.rows(f'SELECT "Off" FROM {name} WHERE key = \'a\'') == [(0,), (2,)]
    assert work.frame(f"SELECT * FROM {name}").columns == ["key", "text", "partition", "t", "Off"]


def test_the_latest_message_of_a_key_counts(work: Workbench) -> None:
    """I7, I12: ENVELOPE UPSERT, over two partitions; a null value deletes."""
    name = work.source(f"{KEYED}, OFFSET ENVELOPE UPSERT", "a:1", "b:2", "a:3", "b:", "c:4",
                       partitions=2)
    work.send(name, "z:9", partition=1)

    assert work.rows(f"SELECT * FROM {name}") == [("a", "3", 2), ("c", "4", 4), ("z", "9", 0)]
    assert work.rows(f"SELECT count(*) FROM {name}") == [(3,)]


def test_sources_join_and_unite(work: Workbench) -> None:
    """I9: rows of several sources in one query; topic is a column like any other."""
    people = work.source(f"{KEYED} ENVELOPE UPSERT", "1:Ada", "2:Bob")
    orders = work.source(f"{KEYED}, TOPIC", "1:tea", "1:jam", "3:ink")

    assert work.rows(f"SELECT p.text, o.text FROM {people} p JOIN {orders} o USING (key)") == [
        ("Ada", "jam"), ("Ada", "tea")]
    assert work.rows(f"SELECT text, topic FROM {orders} UNION ALL SELECT text, 'none' "
                     f"FROM {people}") == [
        ("Ada", "none"), ("Bob", "none"), ("ink", work.topics[orders]),
        ("jam", work.topics[orders]), ("tea", work.topics[orders])]


def test_bad_records_are_put_aside(work: Workbench) -> None:
    """I15: dead letters have everything that is known of a record; the rest goes on."""
    name = work.source("FORMAT TEXT INCLUDE OFFSET", b"k:good", b"k:\xc3\x28", b"k:fine")

    assert work.rows(f"SELECT * FROM {name}") == [("fine", 2), ("good", 0)]
    ((topic, partition, offset, key, value, error),) = work.rows(
        f"SELECT topic, partition, offset, key, value, error FROM {name}_dead_letters")
    assert (topic, partition, offset) == (work.topics[name], 0, 1)
    assert (key, value) == (b"k", b"\xc3\x28")
    assert "UTF-8" in str(error)


def test_a_strict_source_fails_until_the_error_is_taken_back(work: Workbench) -> None:
    """I15: an outstanding error makes every SELECT fail; the next message of the key ends it."""
    name = work.source(f"{KEYED} ENVELOPE UPSERT WITH (ERRORS = 'strict')", "a:1", b"b:\xff")

    found = work.frame(f"SELECT * FROM {name}")
    with pytest.raises(PythonException, match=r"OutstandingErrors: source .* UTF-8") as caught:
        found.collect()
    assert summary(caught.value).startswith(f"source {name}: ")
    with pytest.raises(OutstandingErrors, match=f"^source {name}: .* UTF-8"), plain_errors():
        found.collect()
    work.send(name, "b:2")

    assert work.rows(f"SELECT * FROM {name}") == [("a", "1"), ("b", "2")]


def test_views_are_their_queries(work: Workbench) -> None:
    """I13: a view that is not kept, over another one."""
    name = work.source(KEYED, "a:1", "b:2")
    first, second = work.name("v"), work.name("v")
    work.do(f"CREATE VIEW {first} AS SELECT key, int(text) AS n FROM {name}")
    work.do(f"CREATE VIEW {second} AS SELECT n * 10 AS n FROM {first} WHERE n > 1")

    assert work.rows(f"SELECT n FROM {second}") == [(20,)]
    with pytest.raises(SqlError, match="is needed by"):
        work.do(f"DROP VIEW {first}")
    work.do(f"DROP VIEW {first} CASCADE")
    with pytest.raises(SqlError, match=second):
        work.rows(f"SELECT n FROM {second}")


def test_what_is_not_needed_is_left_out(work: Workbench) -> None:
    """I4: EXPLAIN tells which columns are never made."""
    name = work.source(f"{KEYED}, OFFSET, TIMESTAMP, HEADERS", "a:1", "b:2")

    lines = [str(row[0]) for row in work.do(f"EXPLAIN SELECT key FROM {name}").rows]

    assert f"source {name}: envelope none, errors dead letter" in lines
    assert "  left out: text, offset, timestamp, headers" in lines
    assert any("[0, 2)" in line for line in lines)
    assert any("Physical Plan" in line for line in lines)


def test_a_mistake_in_a_query_is_shown_in_its_place(work: Workbench) -> None:
    """I19: line, column, the text underlined, and a hint."""
    name = work.source(KEYED, "a:1")

    with pytest.raises(SqlError) as caught:
        work.rows(f"SELECT key,\n       txt FROM {name}")

    assert "line 2, column 8" in str(caught.value)
    assert "^^^" in str(caught.value)
    assert "did you mean" in str(caught.value)


def test_what_there_is_can_be_shown(work: Workbench) -> None:
    """I13: SHOW of sources, columns and statements."""
    name = work.source(f"{KEYED}, OFFSET", "a:1")

    assert (name, "none", work.topics[name], False) in work.do("SHOW SOURCES").rows
    assert work.do(f"SHOW COLUMNS FROM {name}").rows == (
        ("key", "text", True), ("text", "text", False), ("offset", "bigint", True))
    ((_, statement),) = work.do(f"SHOW CREATE SOURCE {name}").rows
    assert "INCLUDE KEY, OFFSET" in str(statement)
    with pytest.raises(SqlError, match="There is no source or view"):
        work.do("SHOW COLUMNS FROM nowhere")

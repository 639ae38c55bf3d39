"""What sources promise, on a real node and a real Spark, where no other test shows it."""

import json
import time
from datetime import UTC, datetime

import pytest

from quipu.pipeline.sql.errors import SqlError
from tests.pipeline.spark.cases.cases import (
    BOTH_TEXT,
    Case,
    Message,
    Outcome,
    Stage,
    Story,
    Topic,
    check,
    from_topic,
)
from tests.pipeline.spark.workbench import Workbench

NOW_MS = time.time_ns() // 1_000_000
HOUR_MS = 3_600_000
TEN = datetime(2024, 5, 1, 10, tzinfo=UTC)
TEN_MS = int(TEN.timestamp() * 1000)
TIMES = "FORMAT TEXT INCLUDE TIMESTAMP"
STORY = Story(
    Topic("times", partitions=2),
    Topic("times-of-now"),
    Topic("fruit-1"),
    Topic("fruit-2"),
    Topic("bad"),
    Stage(
        {
            "times": [Message(None, "nine", 0, TEN_MS - HOUR_MS), Message(None, "ten", 0, TEN_MS),
                      Message(None, "eleven", 0, TEN_MS + HOUR_MS),
                      Message(None, "early", 1, TEN_MS - HOUR_MS)],
            "times-of-now": [Message(None, "old", 0, NOW_MS - 2 * HOUR_MS),
                             Message(None, "new", 0, NOW_MS - 60_000)],
            "fruit-1": [("a", "apple")],
            "fruit-2": [("a", "apricot"), ("b", "banana")],
            "bad": [Message("a", "1", 0, 1000, [("h", b"x")]),
                    Message("a", b"\xff", 0, 2000, [("h", b"\x00")]),
                    Message(b"\xfe", "3", 0, 3000), ("b", b"\xc3\x28"), ("b", "4"),
                    ("c", b"\xff")],
        },
        Case("time", "the first record at or after a time",
             f"FROM KAFKA CONNECTION k TOPIC 'times' {TIMES} WITH (START TIMESTAMP = {TEN_MS})",
             columns="text text not null, timestamp timestamptz",
             rows=[("ten", TEN), ("eleven", datetime(2024, 5, 1, 11, tzinfo=UTC))]),
        Case("time_text", "a time that people write",
             f"FROM KAFKA CONNECTION k TOPIC 'times' {TIMES} "
             "WITH (START TIMESTAMP = '2024-05-01T10:30:00Z')",
             query="SELECT text FROM {}", rows=[("eleven",)]),
        Case("time_ago", "half an hour ago",
             f"FROM KAFKA CONNECTION k TOPIC 'times-of-now' {TIMES} "
             "WITH (START TIMESTAMP = -1800000)", query="SELECT text FROM {}", rows=[("new",)]),
        Case("time_late", "after the last record: only what comes",
             f"FROM KAFKA CONNECTION k TOPIC 'times' {TIMES} "
             f"WITH (START TIMESTAMP = {TEN_MS + 9 * HOUR_MS})", rows=[]),
        Case("topics", "several topics, and which",
             f"FROM KAFKA CONNECTION k TOPICS ('fruit-1', 'fruit-2') {BOTH_TEXT} "
             "INCLUDE KEY, TOPIC, OFFSET",
             rows=[("a", "apple", "fruit-1", 0), ("a", "apricot", "fruit-2", 0),
                   ("b", "banana", "fruit-2", 1)]),
        Case("pattern", "topics that match, the latest of each key",
             f"FROM KAFKA CONNECTION k TOPIC PATTERN 'fruit-[0-9]' {BOTH_TEXT} "
             "INCLUDE TOPIC ENVELOPE UPSERT",
             rows=[("a", "apricot", "fruit-2"), ("b", "banana", "fruit-2")]),
        Case("offsets", "offsets are for every topic",
             "FROM KAFKA CONNECTION k TOPICS ('fruit-1', 'fruit-2') FORMAT TEXT "
             "WITH (START OFFSET = 1)", rows=[("banana",)]),
        Case("inline", "errors in a column, with the metadata of the bad record; by key",
             f"{from_topic('bad')} {BOTH_TEXT} INCLUDE OFFSET "
             "ENVELOPE UPSERT (VALUE DECODING ERRORS = INLINE AS why)",
             columns="key text not null, why record(description text), text text, offset bigint",
             query="SELECT key, why.description LIKE '%UTF-8%', text, offset FROM {}",
             rows=[("a", True, None, 1), ("b", None, "4", 4), ("c", True, None, 5)],
             letters=[(0, 2, "UTF-8")]),
        Case("strict", "one bad record is enough", f"{from_topic('bad')} FORMAT TEXT "
             "WITH (ERRORS = 'strict')",
             unreadable=["UTF-8", "topic bad, partition 0, offset 1"]),
        Case("aside", "all bad records, all there is to them",
             f"{from_topic('bad')} {BOTH_TEXT} ENVELOPE UPSERT",
             query="SELECT topic, partition, offset, timestamp, headers, key, value FROM "
                   "{}_dead_letters WHERE offset = 1",
             rows=[("bad", 0, 1, datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC),
                    [{"key": "h", "value": b"\x00"}], b"a", b"\xff")],
             letters=[(0, 1, 'original bytes: "ff"'), (0, 2, "key: Failed to decode"),
                      (0, 3, "c328"), (0, 5, "UTF-8")])),
    Stage(
        {"times": [Message(None, "late", 1, TEN_MS)], "fruit-1": [("b", "berry")]},
        Case("time_went_on", "where reading begins was settled", of="time_late",
             query="SELECT text FROM {}", rows=[("late",)])))


@pytest.mark.parametrize("case", STORY.cases, ids=lambda case: case.number)
def test_starts_and_errors(case: Case, outcomes: dict[str, Outcome]) -> None:
    """I9, I14, I15: times, topics and patterns; every policy for bad records."""
    check(case, outcomes)


def test_topics_that_come_later_match_too(work: Workbench) -> None:
    """I14: a pattern is about all topics, also about those of tomorrow."""
    prefix = work.name("later-")
    name = work.name("s")
    work.do(f"CREATE SOURCE {name} FROM KAFKA BROKER '{work.broker.bootstrap}' "
            f"TOPIC PATTERN '{prefix}.*' FORMAT TEXT INCLUDE TOPIC")
    assert work.rows(f"SELECT * FROM {name}") == []

    work.broker.topic(name=f"{prefix}-a")
    work.broker.send(f"{prefix}-a", ":1")

    assert work.rows(f"SELECT * FROM {name}") == [("1", f"{prefix}-a")]


def test_names_fold_unless_they_are_quoted(work: Workbench) -> None:
    """I3: of sources and of columns, where they are made and where they are read."""
    topic = work.broker.topic()
    work.broker.send(topic, "a:1")
    place = f"FROM KAFKA BROKER '{work.broker.bootstrap}' TOPIC '{topic}'"
    work.do(f'CREATE SOURCE Folded {place} FORMAT TEXT INCLUDE OFFSET AS "Off", PARTITION AS PART')

    assert [row[0] for row in work.do("SHOW COLUMNS FROM FOLDED").rows] == ["text", "Off", "part"]
    assert work.rows('SELECT "Off", Part, "text" FROM folded') == [(0, 0, "1")]
    assert work.rows("SELECT 'Off' FROM Folded WHERE \"Off\" = 0") == [("Off",)]


def test_a_refused_statement_leaves_nothing(work: Workbench) -> None:
    """I5, I19: one error with the place and what to write; and then it works."""
    topic = work.broker.topic()
    name = work.name("s")
    text = (f"CREATE SOURCE {name}\n  FROM KAFKA BROKER '{work.broker.bootstrap}' TOPIC '{topic}'\n"
            "  FORMAT CSV WITH HEADER (id, offset)\n  INCLUDE PARTITION, OFFSET")
    with pytest.raises(SqlError) as refused:
        work.do(text)

    assert str(refused.value) == (
        'line 4, column 22: column "offset" specified more than once\n'
        "      INCLUDE PARTITION, OFFSET\n"
        "                         ^^^^^^\n"
        "hint: write OFFSET AS kafka_offset")
    with pytest.raises(SqlError, match="There is no source or view"):
        work.do(f"SHOW COLUMNS FROM {name}")
    work.do(f"{text} AS kafka_offset")
    assert [row[0] for row in work.do(f"SHOW COLUMNS FROM {name}").rows] == [
        "id", "offset", "partition", "kafka_offset"]


def event(before: dict[str, object] | None, after: dict[str, object] | None) -> bytes:
    return json.dumps({"before": before, "after": after, "op": "u"}).encode()


def test_what_is_taken_back_has_the_metadata_it_came_with(work: Workbench) -> None:
    """I8: rows that take themselves back, with metadata: through a table of what came."""
    columns = "(id bigint, name text, PRIMARY KEY (id) NOT ENFORCED)"
    topics = [work.broker.topic(), work.broker.topic()]
    ada, bob = {"id": 1, "name": "Ada"}, {"id": 1, "name": "Bob"}
    first = [event(None, ada), json.dumps([{"data": ada, "time": 1, "diff": 1}]).encode(),
             b'{"lower": [0], "upper": [2], "counts": [{"time": 1, "count": 1}]}']
    then = [event(ada, bob), json.dumps([{"data": ada, "time": 2, "diff": -1},
                                         {"data": bob, "time": 2, "diff": 1}]).encode(),
            b'{"lower": [2], "upper": [3], "counts": [{"time": 2, "count": 2}]}']
    followed = []
    for topic, messages, envelope in zip(
            topics, (first[:1], first[1:]), ("DEBEZIUM", "MATERIALIZE"), strict=True):
        for value in messages:
            work.broker.record(topic, value=value, timestamp=5000)
        name = work.name("s")
        work.do(f"CREATE MATERIALIZED SOURCE {name} {columns} FROM KAFKA BROKER "
                f"'{work.broker.bootstrap}' TOPIC '{topic}' FORMAT JSON INCLUDE OFFSET, TOPIC, "
                f"TIMESTAMP ENVELOPE {envelope}")
        followed.append(work.pipeline.subscribe(name))
    came = [next(each) for each in followed]
    for topic, messages in zip(topics, (then[:1], then[1:]), strict=True):
        for value in messages:
            work.broker.record(topic, value=value, timestamp=6000)

    for topic, each, earlier, offset in zip(topics, followed, came, (1, 2), strict=True):
        seen = sorted((change.diff, change.row) for change in (next(each), next(each)))
        assert (earlier.diff, earlier.row) == (1, {
            **ada, "offset": 0, "topic": topic, "timestamp": datetime(
                1970, 1, 1, 0, 0, 5, tzinfo=UTC)})
        assert seen == [(-1, earlier.row), (1, {
            **bob, "offset": offset, "topic": topic, "timestamp": datetime(
                1970, 1, 1, 0, 0, 6, tzinfo=UTC)})]
        each.close()

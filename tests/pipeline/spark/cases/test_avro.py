"""Avro, and where reading begins.

Case 28, a schema that refers to itself, is refused among the plans (tests/pipeline/plan).
"""

import json
from dataclasses import replace

import pytest

from tests.pipeline.spark.cases.cases import (
    REGISTRY,
    Case,
    Message,
    Outcome,
    Stage,
    Story,
    Teller,
    Topic,
    check,
    from_topic,
)
from tests.pipeline.spark.cases.codecs import Avro, avro

FORMAT = f"FORMAT AVRO {REGISTRY}"
PAIR = avro("Pair", a="long", b="long")


def pair(a: int, b: int, partition: int = 0) -> Message:
    return Message(None, {"a": a, "b": b}, partition)


def start(topic: str, offsets: str) -> str:
    return f"{from_topic(topic, f', START OFFSET {offsets}')} {FORMAT}"


STORY = Story(
    Topic("avro-one", value=PAIR),
    Topic("avro-two", value=PAIR, partitions=2),
    Topic("avro-growing", value=PAIR),
    Topic("avro-string-key", key=Avro('"string"'), value=avro("Other", a="string")),
    Topic("avro-nulls", value=avro("Maybe", f1=["null", "long"])),
    Stage(
        {
            "avro-one": [pair(1, 2), pair(2, 3)],
            "avro-two": [pair(4, 1, 1), pair(1, 2, 0)],
            "avro-growing": [pair(5, 6)],
            "avro-string-key": [("bad", {"a": "asdf"})],
            "avro-nulls": [(None, {"f1": None}), (None, {"f1": 1}), (None, {"f1": None})],
        },
        Case("20", "partition and offset",
             f"{from_topic('avro-one')} {FORMAT} INCLUDE PARTITION, OFFSET ENVELOPE NONE",
             columns="a bigint not null, b bigint not null, partition integer not null, "
                     "offset bigint",
             rows=[(1, 2, 0, 0), (2, 3, 0, 1)],
             ours="an offset is a nullable bigint, not an unsigned number"),
        Case("21", "under other names",
             f"{from_topic('avro-one')} {FORMAT} INCLUDE PARTITION as part, OFFSET as mzo",
             query="SELECT a, b, part, mzo FROM {}", rows=[(1, 2, 0, 0), (2, 3, 0, 1)]),
        Case("22", "partitions that are not named begin at the earliest",
             start("avro-two", "[1]"), rows=[(4, 1)]),
        Case("23", "from the first offsets", start("avro-two", "[0,0]"), rows=[(4, 1), (1, 2)]),
        Case("24", "after the one record of a partition", start("avro-two", "[0,1]"),
             rows=[(1, 2)]),
        Case("25", "after that of the other", start("avro-two", "[1,0]"), rows=[(4, 1)]),
        Case("26", "after everything that there is", start("avro-growing", "[1]"), rows=[]),
        Case("29", "a key that nobody asked for may be anything",
             f"{from_topic('avro-string-key')} {FORMAT} ENVELOPE NONE", rows=[("asdf",)]),
        Case("90", "NULLs are values", f"{from_topic('avro-nulls')} {FORMAT}",
             columns="f1 bigint", rows=[(None,), (None,), (1,)]),
        Case("90j", "which no join finds equal", of="90",
             query="SELECT l.f1, r.f1 FROM {0} AS l JOIN {0} AS r ON l.f1 = r.f1",
             rows=[(1, 1)])),
    Stage(
        {"avro-growing": [pair(7, 8, 1), pair(9, 10, 1)]},
        Case("26g", "a new partition is read from its first record", of="26",
             rows=[(7, 8), (9, 10)]),
        Case("27", "two partitions, each from its own offset",
             start("avro-growing", "[1,1]"), rows=[(9, 10)]),
        grow={"avro-growing": 2}),
    Stage(
        {"avro-growing": [pair(11, 12, 2)]},
        Case("27g", "and a third that came later", of="27", rows=[(9, 10), (11, 12)]),
        grow={"avro-growing": 3}))


@pytest.mark.parametrize("case", STORY.cases, ids=lambda case: case.number)
def test_avro(case: Case, outcomes: dict[str, Outcome]) -> None:
    """I2, I10, I14: rows of Avro, with where they are from; from where reading begins."""
    check(case, outcomes)


def test_a_schema_evolves(teller: Teller) -> None:
    """I10: messages of two schemas in one topic, read by the newer one."""
    old = Topic("avro-evolved", value=avro("V", a="long"))
    new = replace(old, value=Avro(json.dumps({"type": "record", "name": "V", "fields": [
        {"name": "a", "type": "long"}, {"name": "b", "type": "string", "default": "?"}]})))
    teller.work.broker.topic(name=old.name)
    for topic, value in ((old, {"a": 1}), (new, {"a": 2, "b": "x"})):
        teller.register(topic)
        teller.send(topic, [(None, value)])
    teller.work.do(f"CREATE SOURCE evolved {from_topic(old.name)} {FORMAT}")
    assert teller.rows("SELECT * FROM evolved") == [(1, "?"), (2, "x")]

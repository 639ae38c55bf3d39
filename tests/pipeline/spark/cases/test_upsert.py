"""ENVELOPE UPSERT: the latest message of a key counts, a message without value takes it away."""

import pytest

from tests.pipeline.spark.cases.cases import (
    BOTH_TEXT,
    REGISTRY,
    Case,
    Message,
    Outcome,
    Row,
    Stage,
    Story,
    Topic,
    check,
    from_topic,
    protobuf,
)
from tests.pipeline.spark.cases.codecs import Protobuf, avro

ANIMAL = avro("Animal", f1=["null", "string"], f2=["null", "long"])
LETTER = Protobuf('syntax = "proto3"; message Letter { string f = 1; }', "Letter", wire=False)
NULL_KEY = "record with NULL key in UPSERT source"
NULL_KEY_HELP = "to retract this error, produce a record upstream with a NULL key and NULL value"


def animal(kind: str, count: int) -> dict[str, object]:
    return {"f1": kind, "f2": count}


def words(key: str, value: str) -> str:
    return f"{from_topic('upsert-words')} KEY FORMAT {key} VALUE FORMAT {value} ENVELOPE UPSERT"


def utf8(*pairs: tuple[str, str], key: bool = False, value: bool = False) -> list[Row]:
    """Rows of text, of which columns are bytes."""
    return [(k.encode() if key else k, v.encode() if value else v) for k, v in pairs]


STORY = Story(
    Topic("upsert-avro", key=avro("Key", key="string"), value=ANIMAL),
    Topic("upsert-text-avro", value=ANIMAL),
    Topic("upsert-words"),
    Topic("upsert-protobuf", value=LETTER),
    Topic("upsert-null-key"),
    Topic("upsert-order", partitions=1),
    Stage(
        {
            "upsert-avro": [
                ({"key": "fish"}, animal("fish", 1000)), ({"key": "bird1"}, animal("goose", 1)),
                ({"key": "birdmore"}, animal("geese", 2)),
                ({"key": "mammal1"}, animal("moose", 1)), ({"key": "bird1"}, None),
                ({"key": "birdmore"}, animal("geese", 56)),
                ({"key": "mammalmore"}, animal("moose", 42)), ({"key": "mammal1"}, None),
                ({"key": "mammalmore"}, animal("moose", 2)),
            ],
            "upsert-text-avro": [
                ("fish", animal("fish", 1000)), ("bìrd1", animal("goose", 1)),
                ("birdmore", animal("geese", 2)), ("mammal1", animal("moose", 1)),
            ],
            "upsert-words": [("fish", "fish"), ("bìrd1", "goose"), ("bírdmore", "geese"),
                             ("mammal1", "moose"), ("bìrd1", None)],
            "upsert-protobuf": [("fish", {"f": "one"}), ("bìrd1", {"f": "two"}), ("birdmore", {})],
            "upsert-null-key": [("bird1", "goose"), (None, "geese"), ("mammal1", "moose"),
                                ("bird1", None), ("birdmore", "geese"), ("mammalmore", "moose"),
                                ("mammal1", None)],
            "upsert-order": [Message("k1", "1", 0, 100), Message("k2", "2", 0, 201),
                             Message("k4", "4", 0, 300)],
        },
        Case("30", "the latest of each key, and none of those that are gone",
             f"{from_topic('upsert-avro')} FORMAT AVRO {REGISTRY} ENVELOPE UPSERT",
             columns="key text not null, f1 text, f2 bigint",
             rows=[("fish", "fish", 1000), ("birdmore", "geese", 56),
                   ("mammalmore", "moose", 2)]),
        Case("31b", "keys as bytes",
             f"{from_topic('upsert-text-avro')} KEY FORMAT BYTES VALUE FORMAT AVRO {REGISTRY} "
             "ENVELOPE UPSERT", columns="key bytes not null, f1 text, f2 bigint",
             rows=[(b"fish", "fish", 1000), (b"b\xc3\xacrd1", "goose", 1),
                   (b"birdmore", "geese", 2), (b"mammal1", "moose", 1)]),
        Case("31t", "keys as text",
             f"{from_topic('upsert-text-avro')} KEY FORMAT TEXT VALUE FORMAT AVRO {REGISTRY} "
             "ENVELOPE UPSERT",
             rows=[("fish", "fish", 1000), ("bìrd1", "goose", 1), ("birdmore", "geese", 2),
                   ("mammal1", "moose", 1)]),
        Case("32tt", "text and text", words("TEXT", "TEXT"),
             columns="key text not null, text text not null",
             rows=utf8(("fish", "fish"), ("bírdmore", "geese"), ("mammal1", "moose"))),
        Case("32tb", "text and bytes", words("TEXT", "BYTES"),
             columns="key text not null, data bytes not null",
             rows=utf8(("fish", "fish"), ("bírdmore", "geese"), ("mammal1", "moose"),
                       value=True)),
        Case("32bt", "bytes and text", words("BYTES", "TEXT"),
             columns="key bytes not null, text text not null",
             rows=utf8(("fish", "fish"), ("bírdmore", "geese"), ("mammal1", "moose"), key=True)),
        Case("32bb", "bytes and bytes", words("BYTES", "BYTES"),
             columns="key bytes not null, data bytes not null",
             rows=utf8(("fish", "fish"), ("bírdmore", "geese"), ("mammal1", "moose"),
                       key=True, value=True)),
        Case("35", "a field that is not there has its default",
             f"{from_topic('upsert-protobuf')} KEY FORMAT TEXT VALUE FORMAT {protobuf(LETTER)} "
             "ENVELOPE UPSERT", columns="key text not null, f text not null",
             rows=[("fish", "one"), ("bìrd1", "two"), ("birdmore", "")]),
        Case("36", "a message without key, where errors are strict",
             f"{from_topic('upsert-null-key')} {BOTH_TEXT} ENVELOPE UPSERT "
             "WITH (ERRORS = 'strict')", unreadable=[NULL_KEY, NULL_KEY_HELP],
             ours="only if asked for: ERRORS = 'strict'"),
        Case("36d", "a message without key is put aside",
             f"{from_topic('upsert-null-key')} {BOTH_TEXT} ENVELOPE UPSERT",
             rows=[("birdmore", "geese"), ("mammalmore", "moose")], letters=[(0, 1, NULL_KEY)],
             ours="a bad record does not stop a source"),
        Case("129", "by event time, kept up to date",
             f"{from_topic('upsert-order')} {BOTH_TEXT} INCLUDE OFFSET "
             "ENVELOPE UPSERT (ORDER BY (TIMESTAMP, OFFSET))", materialized=True,
             rows=[("k1", "1", 0), ("k2", "2", 1), ("k4", "4", 2)],
             ours="Materialize has this in a design, not in a release")),
    Stage(
        {
            "upsert-text-avro": [("bìrd1", None), ("birdmore", animal("geese", 56)),
                                 ("mämmalmore", animal("moose", 42)), ("mammal1", None)],
            "upsert-words": [("bírdmore", "géese"), ("mammalmore", "moose"), ("mammal1", None),
                             ("mammal1", "mouse")],
            "upsert-protobuf": [
                ("mammal1", {"f": "three"}), ("bìrd1", None), ("birdmore", {"f": "four"}),
                ("mämmalmore", {"f": "five"}), ("bìrd1", {"f": "six"}), ("mammal1", None),
                ("mammalmore", {"f": "seven"})],
            "upsert-null-key": [(None, None)],
            "upsert-order": [Message("k1", "5", 0, 200), Message("k2", "6", 0, 200),
                             Message("k4", "7", 0, 300)],
        },
        Case("31u", "after changes", of="31t",
             rows=[("fish", "fish", 1000), ("birdmore", "geese", 56),
                   ("mämmalmore", "moose", 42)]),
        Case("33", "a key that was gone comes back", of="32tb",
             rows=utf8(("fish", "fish"), ("bírdmore", "géese"), ("mammal1", "mouse"),
                       ("mammalmore", "moose"), value=True)),
        Case("35u", "after changes", of="35",
             rows=[("fish", "one"), ("birdmore", "four"), ("mämmalmore", "five"),
                   ("bìrd1", "six"), ("mammalmore", "seven")]),
        Case("37", "neither key nor value takes the error away", of="36",
             rows=[("birdmore", "geese"), ("mammalmore", "moose")]),
        Case("129u", "later wins, earlier is ignored, of equals the later offset wins", of="129",
             rows=[("k1", "5", 3), ("k2", "2", 1), ("k4", "7", 5)])),
    Stage(
        {"upsert-words": [("mammalmore", "herd"), ("bìrd1", None), ("fish", None)]},
        Case("34", "a key that nobody knows can be deleted", of="32bt",
             rows=utf8(("bírdmore", "géese"), ("mammal1", "mouse"), ("mammalmore", "herd"),
                       key=True))))


@pytest.mark.parametrize("case", STORY.cases, ids=lambda case: case.number)
def test_upsert(case: Case, outcomes: dict[str, Outcome]) -> None:
    """I7, I15, I16: the latest of each key; errors by key; order by event time."""
    check(case, outcomes)

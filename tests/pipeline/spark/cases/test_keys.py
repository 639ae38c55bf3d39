"""Keys as columns: INCLUDE KEY, in every format of keys, alone and with names of its own.

Cases 1, 2, 4 and 11, which are refused, are among the plans (tests/pipeline/plan).
"""

import pytest

from tests.pipeline.spark.cases.cases import (
    BOTH_TEXT,
    REGISTRY,
    Case,
    Outcome,
    Stage,
    Story,
    Topic,
    check,
    from_topic,
    protobuf,
)
from tests.pipeline.spark.cases.codecs import Protobuf, avro

AVRO = f"AVRO {REGISTRY}"
BOTH_AVRO = f"KEY FORMAT {AVRO} VALUE FORMAT {AVRO}"
ANIMAL = r"REGEX '(?P<animal>[^,]+),(?P<food>\w+)'"
NUMBERED = r"REGEX '(?P<id_name>[^,]+),(?P<id>\w+)'"

KEY = Protobuf('syntax = "proto3"; message Key { string id = 1; }', "Key", wire=False)
KEY_PAIR = Protobuf('syntax = "proto3"; message KeyComplex { int32 id1 = 1; int32 id2 = 2; }',
                    "KeyComplex", wire=False)
MEASURE = Protobuf('syntax = "proto3"; message Measure { int64 measurement = 1; }', "Measure",
                   wire=False)

STORY = Story(
    Topic("keys-avro", key=avro("Key", id="long"), value=avro("Value", id="long", b="long")),
    Topic("keys-geo", key=avro("Place", id="long", geo="string"), value=avro("Value", a="long")),
    Topic("keys-text"),
    Topic("keys-protobuf", key=KEY, value=MEASURE),
    Topic("keys-protobuf-pair", key=KEY_PAIR, value=MEASURE),
    Topic("keys-again"),
    Stage(
        {
            "keys-avro": [({"id": 1}, {"id": 2, "b": 3})],
            "keys-geo": [({"id": 1, "geo": "nyc"}, {"a": 99}), (None, {"a": 88})],
            "keys-text": [("one,1", "horse,apple"), ("two,2", "bee,honey"), (None, "cow,grass")],
            "keys-protobuf": [({"id": "a"}, {"measurement": 10}), (None, {"measurement": 11})],
            "keys-protobuf-pair": [({"id1": 1, "id2": 2}, {"measurement": 10})],
            "keys-again": [("a", "1"), ("b", "2"), ("a", "3")],
        },
        Case("3", "a bare format finds the key's schema in the registry",
             f"{from_topic('keys-avro')} FORMAT {AVRO} INCLUDE KEY AS named ENVELOPE UPSERT",
             columns="named bigint not null, id bigint not null, b bigint not null",
             rows=[(1, 2, 3)]),
        Case("5", "names for all columns resolve a clash",
             f"(key_id, id, b) {from_topic('keys-avro')} {BOTH_AVRO} INCLUDE KEY",
             columns="key_id bigint, id bigint not null, b bigint not null", rows=[(1, 2, 3)]),
        Case("6", "metadata is last",
             f"{from_topic('keys-avro')} FORMAT {AVRO} INCLUDE PARTITION",
             columns="id bigint not null, b bigint not null, partition integer not null",
             rows=[(2, 3, 0)]),
        Case("7", "another name for the key resolves a clash",
             f"{from_topic('keys-avro')} {BOTH_AVRO} INCLUDE KEY AS renamed_id",
             columns="renamed_id bigint, id bigint not null, b bigint not null",
             rows=[(1, 2, 3)]),
        Case("8", "under UPSERT as well",
             f"{from_topic('keys-avro')} {BOTH_AVRO} INCLUDE KEY AS renamed ENVELOPE UPSERT",
             columns="renamed bigint not null, id bigint not null, b bigint not null",
             rows=[(1, 2, 3)]),
        Case("9", "a message without key has NULLs for its columns",
             f"{from_topic('keys-geo')} {BOTH_AVRO} INCLUDE KEY",
             columns="id bigint, geo text, a bigint not null",
             rows=[(None, None, 88), (1, "nyc", 99)]),
        Case("10", "several columns under one name are a record",
             f"{from_topic('keys-geo')} {BOTH_AVRO} INCLUDE KEY AS named",
             columns="named record(id bigint, geo text) not null, a bigint not null",
             query="SELECT named.id, named.geo, a FROM {}",
             rows=[(None, None, 88), (1, "nyc", 99)]),
        Case("12", "text", f"{from_topic('keys-text')} {BOTH_TEXT} INCLUDE KEY",
             columns="key text, text text not null",
             rows=[("one,1", "horse,apple"), ("two,2", "bee,honey"), (None, "cow,grass")]),
        Case("13", "text, and a value of named groups",
             f"{from_topic('keys-text')} KEY FORMAT TEXT VALUE FORMAT {ANIMAL} INCLUDE KEY",
             columns="key text, animal text, food text",
             rows=[("one,1", "horse", "apple"), ("two,2", "bee", "honey"),
                   (None, "cow", "grass")]),
        Case("14", "a key of named groups",
             f"{from_topic('keys-text')} KEY FORMAT {NUMBERED} VALUE FORMAT {ANIMAL} INCLUDE KEY",
             columns="id_name text, id text, animal text, food text",
             rows=[("one", "1", "horse", "apple"), ("two", "2", "bee", "honey"),
                   (None, None, "cow", "grass")]),
        Case("15", "which together have one name",
             f"{from_topic('keys-text')} KEY FORMAT {NUMBERED} VALUE FORMAT {ANIMAL} "
             "INCLUDE KEY AS nest", query="SELECT nest.id_name, nest.id, animal FROM {}",
             rows=[(None, None, "cow"), ("one", "1", "horse"), ("two", "2", "bee")]),
        Case("16", "Protocol Buffers",
             f"{from_topic('keys-protobuf')} KEY FORMAT {protobuf(KEY)} "
             f"VALUE FORMAT {protobuf(MEASURE)} INCLUDE KEY",
             columns="id text, measurement bigint not null", rows=[("a", 10), (None, 11)]),
        Case("17", "a record of Protocol Buffers",
             f"{from_topic('keys-protobuf-pair')} KEY FORMAT {protobuf(KEY_PAIR)} "
             f"VALUE FORMAT {protobuf(MEASURE)} INCLUDE KEY AS key",
             query="SELECT CAST(key AS STRING), key.id1, key.id2, measurement FROM {}",
             rows=[("{1, 2}", 1, 2, 10)], ours="a record as text is Spark's: braces, not (1,2)"),
        Case("18", "keys are unique under UPSERT",
             f"{from_topic('keys-again')} {BOTH_TEXT} INCLUDE KEY ENVELOPE UPSERT",
             query="SELECT count(*), count(DISTINCT key) FROM {}", rows=[(2, 2)],
             ours="Spark has no way to be told, and plans DISTINCT in any case"),
        Case("18n", "and not under NONE", f"{from_topic('keys-again')} {BOTH_TEXT} INCLUDE KEY",
             query="SELECT count(*), count(DISTINCT key) FROM {}", rows=[(3, 2)]),
        Case("19", "the topic",
             f"{from_topic('keys-avro')} FORMAT {AVRO} INCLUDE TOPIC",
             columns="id bigint not null, b bigint not null, topic text not null",
             rows=[(2, 3, "keys-avro")], ours="Materialize has no TOPIC"),
        Case("19t", "the topic among others",
             f"{from_topic('keys-avro')} FORMAT {AVRO} INCLUDE TIMESTAMP as myts, TOPIC",
             columns="id bigint not null, b bigint not null, myts timestamptz, "
                     "topic text not null",
             query="SELECT topic, id, b, myts > '2020-01-01' FROM {}",
             rows=[("keys-avro", 2, 3, True)], ours="Materialize has no TOPIC")))


@pytest.mark.parametrize("case", STORY.cases, ids=lambda case: case.number)
def test_keys(case: Case, outcomes: dict[str, Outcome]) -> None:
    """I1, I2, I6, I10: which columns the key has, and what they hold."""
    check(case, outcomes)

"""What planning asks, and that it can be remembered."""

import json
from uuid import UUID

import pytest

from quipu.model.errors import CorruptLog
from quipu.pipeline.formats.factory import make_format
from quipu.pipeline.plan.connections import check_connection
from quipu.pipeline.plan.external_facts import RecordedFacts, RecordingFacts, RegistrySchema
from quipu.pipeline.plan.sources import plan_source
from quipu.pipeline.source import KeyShape, Start
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.parser import parse_one
from quipu.pipeline.sql.statements import CreateConnection, CreateSource
from tests.pipeline.plan.describe import CONNECTIONS, planned
from tests.pipeline.plan.fake_facts import FakeFacts

HEAD = "CREATE SOURCE s FROM KAFKA BROKER 'b:1' TOPIC 't' "
REGISTRY = "CONFLUENT SCHEMA REGISTRY CONNECTION r"
STATEMENTS = [
    f"{HEAD} FORMAT TEXT WITH (START TIMESTAMP = -5000)",
    f"{HEAD} FORMAT TEXT WITH (START OFFSET = (1, 2))",
    f"{HEAD} FORMAT AVRO USING {REGISTRY} INCLUDE KEY AS k ENVELOPE UPSERT",
    f"{HEAD} FORMAT AVRO USING SCHEMA FILE 'value.avsc'",
    f"{HEAD} FORMAT AVRO USING {REGISTRY} VALUE STRATEGY ID 3 ENVELOPE NONE",
]


@pytest.mark.parametrize("text", STATEMENTS)
def test_a_remembered_world_gives_the_same_source(text: str) -> None:
    """I14: start offsets and schemas are resolved once, and stay after a restart."""
    statement = parse_one(text)
    assert isinstance(statement, CreateSource)
    facts = RecordingFacts(FakeFacts())
    source = plan_source(statement, text, facts, CONNECTIONS)

    kept = json.loads(json.dumps(facts.recorded))
    assert plan_source(statement, text, RecordedFacts(kept), CONNECTIONS) == source


def test_a_catalog_that_knows_no_ids_gives_the_same_source_without_them() -> None:
    """I14, I13: Quipu 0.3 kept offsets alone."""
    statement = parse_one(STATEMENTS[0])
    assert isinstance(statement, CreateSource)
    facts = RecordingFacts(FakeFacts())
    start = plan_source(statement, STATEMENTS[0], facts, CONNECTIONS).start
    assert start.topic_ids == {"t": UUID(int=1)}

    del facts.recorded["topic_ids"]
    again = plan_source(statement, STATEMENTS[0], RecordedFacts(facts.recorded), CONNECTIONS).start
    assert again == Start(start.offsets)


def test_a_forgotten_fact_is_said() -> None:
    statement = parse_one(STATEMENTS[0])
    assert isinstance(statement, CreateSource)
    with pytest.raises(CorruptLog, match="drop the source and create it again"):
        plan_source(statement, STATEMENTS[0], RecordedFacts({"partitions": {"t": 1}}), {})


@pytest.mark.parametrize("content", [
    b"hunter2", b'"hunter2"', b'{"type": "hunter2"}', b'{"hunter2": 1}', b"[hunter2", b"hunter2:\n",
    b'{"type": "record", "name": "hunter2", "fields": 5}', b"hunter2\xff"])
def test_what_is_in_a_file_that_is_no_schema_is_not_told(content: bytes) -> None:
    """K8: SCHEMA FILE may name any file of the machine."""
    for kind in ("AVRO", "PROTOBUF MESSAGE 'M'"):
        with pytest.raises(SqlError) as raised:
            planned(f"{HEAD} FORMAT {kind} USING SCHEMA FILE 'x'", FakeFacts(files={"x": content}))
        assert "hunter2" not in str(raised.value)


def test_protobuf_schemas_are_remembered() -> None:
    schema = RegistrySchema("PROTOBUF", descriptors=b"\0\xff")
    facts = RecordingFacts(FakeFacts(schemas={"t-value": schema}))
    answer = facts.schema(planned_registry(), "t-value", None)
    missing = facts.schema(planned_registry(), "t-key", None)
    again = RecordedFacts(json.loads(json.dumps(facts.recorded)))

    assert again.schema(planned_registry(), "t-value", None) == answer
    assert again.schema(planned_registry(), "t-key", None) is missing is None


def planned_registry():  # noqa: ANN201 a spec of the plan
    return planned(f"{HEAD} FORMAT AVRO USING {REGISTRY}").value.registry


@pytest.mark.parametrize(("clause", "asked"), [
    ("FORMAT TEXT", ["partitions"]),
    ("FORMAT TEXT WITH (START OFFSET = 1)", ["partitions", "topic ids"]),
    ("FORMAT TEXT WITH (START TIMESTAMP = 1)", ["partitions", "topic ids", "offsets at 1"]),
    (f"FORMAT AVRO USING {REGISTRY}", ["partitions", "schema t-value None"]),
    (f"KEY FORMAT AVRO USING {REGISTRY} VALUE FORMAT TEXT", ["partitions"]),
    (f"FORMAT AVRO USING {REGISTRY} VALUE STRATEGY INLINE '\"long\"'", ["partitions"]),
])
def test_nobody_is_asked_for_what_is_not_included(clause: str, asked: list[str]) -> None:
    """I4: no cost for what is not included."""
    facts = FakeFacts()
    planned(f"{HEAD} {clause}", facts)

    assert facts.asked == asked


def test_mistakes_in_the_statement_are_found_before_anybody_is_asked() -> None:
    facts = FakeFacts()
    with pytest.raises(SqlError, match="INCLUDE DEBEZIUM OP requires"):
        planned(f"{HEAD} FORMAT TEXT INCLUDE DEBEZIUM OP", facts)

    assert facts.asked == []


@pytest.mark.parametrize(("written", "asked"), [
    ("2038-06-19T07:57:29.219Z", 2_160_547_049_219), ("1970-01-01T01:00:00.001+01:00", 1),
    ("1970-01-01", 0)])
def test_times_are_exact_to_the_millisecond(written: str, asked: int) -> None:
    """I14: as many as the text says, whatever a float makes of them."""
    facts = FakeFacts()
    planned(f"{HEAD} FORMAT TEXT WITH (START TIMESTAMP = '{written}')", facts)

    assert f"offsets at {asked}" in facts.asked


BAD_CONNECTIONS = [
    ("KAFKA (BROKER 'b:1', SASL PASWORD 'x')", "unexpected parameters for CREATE CONNECTION"),
    ("KAFKA (BROKER 'b:1', BROKERS 'c:1')", "one BROKER or BROKERS"),
    ("KAFKA (CLIENT ID 'x')", "one BROKER or BROKERS"),
    ("KAFKA (BROKER 'nowhere')", "must be HOST:PORT"),
    ("KAFKA (BROKER 'me:secret@b:1')", "without an @; give the user with sasl.username"),
    ("KAFKA (BROKER 'b:1', SECURITY PROTOCOL SASL_SSL)", "needs sasl.username"),
    ("KAFKA (BROKER 'b:1', SECURITY PROTOCOL none)", "security.protocol"),
    ("KAFKA (BROKER 'b:1', CLIENT ID 'x', client_id 'y')", "CLIENT ID is given twice"),
    ("CONFLUENT SCHEMA REGISTRY (USERNAME 'x')", "one URL"),
    ("CONFLUENT SCHEMA REGISTRY (URL 'http://r', BROKER 'b:1')", "unexpected parameters"),
    ("CONFLUENT SCHEMA REGISTRY (URL 'r:8081')", "starts with http:// or https://"),
    ("CONFLUENT SCHEMA REGISTRY (URL 'http://u:secret@r:no')", "a host; not 'r:no'"),
    ("CONFLUENT SCHEMA REGISTRY (URL 'http://r', TIMEOUT MS 0)", "timeout.ms is a number from 1"),
]


@pytest.mark.parametrize(
    ("what", "message"), BAD_CONNECTIONS, ids=[bad for bad, _ in BAD_CONNECTIONS])
def test_connections_are_checked_when_they_are_made(what: str, message: str) -> None:
    connection = parse_one(f"CREATE CONNECTION c TO {what}")
    assert isinstance(connection, CreateConnection)
    with pytest.raises(SqlError, match=message):
        check_connection(connection)


def test_a_connection_tells_the_client_everything() -> None:
    """I18: any broker, with its way to log in; a source's own options win."""
    text = ("CREATE CONNECTION k TO KAFKA (BROKERS ('a:1', 'b:1'), SECURITY PROTOCOL SASL_SSL, "
            "SASL MECHANISMS 'SCRAM-SHA-256', SASL USERNAME 'u', SASL PASSWORD 'p', "
            "SSL CERTIFICATE AUTHORITY '-----BEGIN', CLIENT ID 'x')")
    connection = parse_one(text)
    assert isinstance(connection, CreateConnection)
    statement_text = ("CREATE SOURCE s FROM KAFKA CONNECTION k TOPIC 't' FORMAT TEXT "
                      "WITH (CLIENT ID = 'y')")
    statement = parse_one(statement_text)
    assert isinstance(statement, CreateSource)

    location = plan_source(statement, statement_text, FakeFacts(), {"k": connection}).location

    assert location.bootstrap == "a:1,b:1"
    assert location.options == {
        "security.protocol": "SASL_SSL", "sasl.mechanisms": "SCRAM-SHA-256", "sasl.username": "u",
        "sasl.password": "p", "ssl.ca.pem": "-----BEGIN", "client.id": "y"}


@pytest.mark.parametrize("clause", [
    "KEY FORMAT TEXT VALUE FORMAT BYTES", "KEY FORMAT BYTES VALUE FORMAT TEXT",
    "KEY FORMAT JSON VALUE FORMAT JSON", "KEY FORMAT CSV WITH 2 COLUMNS VALUE FORMAT TEXT",
    "KEY FORMAT TEXT VALUE FORMAT REGEX '(a)(?<b>b)'", f"FORMAT AVRO USING {REGISTRY}",
    "KEY FORMAT TEXT VALUE FORMAT PROTOBUF MESSAGE 'Value' USING SCHEMA FILE 'value.pb'"])
def test_plans_have_the_columns_that_the_formats_give(clause: str) -> None:
    """I10: as many, in the same order, of the same types."""
    source = planned(f"{HEAD} {clause} INCLUDE KEY AS the_key")
    assert source.key is not None
    key, value = make_format(source.key).columns, make_format(source.value).columns

    assert [column[:2] for column in value] == [column[:2] for column in source.value_columns]
    if source.key_shape is KeyShape.RECORD:
        assert [column[:2] for column in key] == [
            (field.name, field.type) for field in source.key_columns[0].type]
    else:
        assert [column.type for column in key] == [column.type for column in source.key_columns]

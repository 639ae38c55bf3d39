"""Plans as text, for golden files."""

from quipu.pipeline.formats.specs import Avro, Debezium, FormatSpec, Json, Materialize, Protobuf
from quipu.pipeline.plan.sources import plan_source
from quipu.pipeline.source import KeyShape, PlannedSource
from quipu.pipeline.sql.errors import SqlError
from quipu.pipeline.sql.parser import parse, parse_one
from quipu.pipeline.sql.statements import CreateConnection, CreateSource
from quipu.pipeline.types import Column, sql_name
from tests.pipeline.plan.fake_facts import FakeFacts

CONNECTIONS = {
    connection.name.text: connection
    for connection in parse("""
        CREATE CONNECTION c TO KAFKA (BROKERS ('x:1', 'y:1'), CLIENT ID 'me');
        CREATE CONNECTION r TO CONFLUENT SCHEMA REGISTRY (URL 'http://r', USERNAME 'u');
        CREATE CONNECTION down TO CONFLUENT SCHEMA REGISTRY (URL 'http://down')
        """)
    if isinstance(connection, CreateConnection)}


def planned(text: str, facts: FakeFacts | None = None) -> PlannedSource:
    statement = parse_one(text)
    assert isinstance(statement, CreateSource)
    return plan_source(statement, text, facts or FakeFacts(), CONNECTIONS)


def plan_text(text: str) -> str:
    """The plan, or what is wrong."""
    try:
        return describe(planned(text))
    except SqlError as error:
        return str(error)


def describe(source: PlannedSource) -> str:
    lines = [_place(source)]
    for topic, offsets in sorted(source.start.offsets.items()):
        lines.append(f"start {topic}: {', '.join(f'{p}={o}' for p, o in offsets.items())}")
    lines.append(f"value {_spec(source.value)}")
    if source.key is not None:
        lines.append(f"key {_spec(source.key)}, {source.key_shape.value}")
    else:
        assert source.key_shape is KeyShape.HIDDEN
    words = [f"envelope {source.envelope.value}"]
    words += [f"by {', '.join(source.identity)}"] if source.identity else []
    words += [f"in order of {source.order_by.value}"] if source.order_by else []
    words += [f"errors {source.errors.value}"]
    words += [] if source.read_committed else ["uncommitted too"]
    lines.append(", ".join(words))
    return "\n".join([*lines, *(f"  {_column(column)}" for column in source.columns)])


def _place(source: PlannedSource) -> str:
    location = source.location
    topics = (", ".join(location.topics) if location.pattern is None
              else f"pattern {location.pattern}")
    options = "".join(f" {name}={value}" for name, value in location.options.items())
    return f"{location.bootstrap} {topics}{options}"


def _spec(spec: FormatSpec) -> str:
    match spec:
        case Avro(framed=framed, registry=registry):
            where = f" {registry.url} {dict(registry.options)}" if registry is not None else ""
            return f"Avro{'' if framed else ' bare'}{where}"
        case Protobuf(message=message, framed=framed):
            return f"Protobuf {message}{' framed' if framed else ''}"
        case Debezium(inner=inner, row=row) | Materialize(inner=inner, row=row):
            columns = ", ".join(column.name for column in row)
            return f"{type(spec).__name__} of ({columns}) in {_spec(inner)}"
        case Json(columns=columns, payload=payload):
            names = ", ".join(column.name for column in columns) or spec.name
            return f"Json ({names}){' payload' if payload else ''}"
        case _:
            return str(spec)


def _column(column: Column) -> str:
    return f"{column.name} {sql_name(column.type)}{'' if column.nullable else ' not null'}"

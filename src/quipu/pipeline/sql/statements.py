"""The parsed statements: one frozen class per statement and per clause.

Names are folded to lower case already (I3).  Spans give the place of a part in the text, for
errors; they are not compared, so equal statements at different places are equal.
"""

# ruff: noqa: RUF009  the calls make dataclass fields

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from quipu.pipeline.source import EnvelopeKind, MetadataKind
from quipu.pipeline.sql.secrets import Secret
from quipu.pipeline.sql.text import NOWHERE, TextSpan


def _place() -> TextSpan:
    """The field of a part's span in the text, which is not compared."""
    return field(default=NOWHERE, compare=False, repr=False)


class ObjectKind(Enum):
    """The kinds of objects in the catalog."""

    CONNECTION = "CONNECTION"
    SOURCE = "SOURCE"
    VIEW = "VIEW"
    SINK = "SINK"


@dataclass(frozen=True)
class Name:
    """A name of an object or a column."""

    text: str
    span: TextSpan = _place()


Value: TypeAlias = "str | int | float | bool | Secret | tuple[Value, ...]"


@dataclass(frozen=True)
class Option:
    """`name = value`; the name in the form of `option_name`: `start offset`."""

    name: str
    value: Value
    span: TextSpan = _place()
    value_span: TextSpan = _place()


# -- types and columns


@dataclass(frozen=True)
class TypeName:
    """A type in a statement: `numeric` (10, 2); `list` has one part, `map` two, `record` many."""

    name: str
    arguments: tuple[int, ...] = ()
    parts: tuple[tuple[str, "TypeName"], ...] = ()
    span: TextSpan = _place()


@dataclass(frozen=True)
class ColumnItem:
    """A column's new name, or, with a type, its definition."""

    name: Name
    type: TypeName | None = None
    nullable: bool = True


# -- formats


@dataclass(frozen=True)
class Strategy:
    """Which schema of a subject to use: the latest, one by its id, or a given one."""

    id: int | None = None
    schema: str | None = None
    span: TextSpan = _place()


@dataclass(frozen=True)
class RegistryReference:
    """A schema registry by URL or by connection, and which of its schemas to use."""

    url: str | None = None
    connection: Name | None = None
    options: tuple[Option, ...] = ()
    key: Strategy | None = None
    value: Strategy | None = None
    span: TextSpan = _place()


@dataclass(frozen=True)
class TextClause:
    """FORMAT TEXT."""

    span: TextSpan = _place()


@dataclass(frozen=True)
class BytesClause:
    """FORMAT BYTES."""

    span: TextSpan = _place()


@dataclass(frozen=True)
class JsonClause:
    """FORMAT JSON."""

    span: TextSpan = _place()


@dataclass(frozen=True)
class CsvClause:
    """FORMAT CSV: a number of columns, or their names."""

    columns: int | tuple[Name, ...]
    delimiter: str = ","
    span: TextSpan = _place()
    delimiter_span: TextSpan = _place()


@dataclass(frozen=True)
class RegexClause:
    """FORMAT REGEX."""

    pattern: str
    span: TextSpan = _place()


@dataclass(frozen=True)
class AvroClause:
    """FORMAT AVRO: exactly one of registry, schema and file is given."""

    registry: RegistryReference | None = None
    schema: str | None = None
    file: str | None = None
    options: tuple[Option, ...] = ()
    span: TextSpan = _place()


@dataclass(frozen=True)
class ProtobufClause:
    """FORMAT PROTOBUF: a registry, or a message of a descriptor set in hexadecimal or a file."""

    registry: RegistryReference | None = None
    message: str | None = None
    schema: str | None = None
    file: str | None = None
    span: TextSpan = _place()


Format = (TextClause | BytesClause | JsonClause | CsvClause | RegexClause | AvroClause
          | ProtobufClause)


# -- sources


@dataclass(frozen=True)
class KafkaClause:
    """BROKER '…' or CONNECTION c, and the topics."""

    broker: str | None = None
    connection: Name | None = None
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    span: TextSpan = _place()
    topics_span: TextSpan = _place()


@dataclass(frozen=True)
class Include:
    """An item of INCLUDE; without a kind it is the KEY."""

    kind: MetadataKind | None
    alias: Name | None = None
    header: str = ""
    type: TypeName | None = None
    span: TextSpan = _place()


@dataclass(frozen=True)
class EnvelopeClause:
    """ENVELOPE, and its options in parentheses."""

    kind: EnvelopeKind
    order_by: tuple[Name, ...] = ()
    inline_errors: bool = False
    error_name: Name | None = None
    span: TextSpan = _place()


@dataclass(frozen=True)
class CreateConnection:
    """CREATE CONNECTION … TO KAFKA, or to a schema registry."""

    name: Name
    is_registry: bool
    options: tuple[Option, ...] = ()
    if_not_exists: bool = False
    span: TextSpan = _place()


@dataclass(frozen=True)
class CreateSource:
    """CREATE SOURCE."""

    name: Name
    kafka: KafkaClause
    columns: tuple[ColumnItem, ...] = ()
    primary_key: tuple[Name, ...] = ()
    key_format: Format | None = None
    value_format: Format | None = None
    bare_format: bool = False  # FORMAT, not KEY FORMAT … VALUE FORMAT
    include: tuple[Include, ...] = ()
    envelope: EnvelopeClause | None = None
    options: tuple[Option, ...] = ()
    materialized: bool = False
    if_not_exists: bool = False
    span: TextSpan = _place()


# -- other statements


@dataclass(frozen=True)
class CreateView:
    """CREATE VIEW; the query is in Spark's language, and kept as it was written."""

    name: Name
    query: str
    materialized: bool = False
    or_replace: bool = False
    if_not_exists: bool = False
    query_span: TextSpan = _place()
    span: TextSpan = _place()


class SinkKind(Enum):
    """Where a sink writes."""

    PARQUET = "PARQUET"
    DELTA = "DELTA"
    KAFKA = "KAFKA"
    CONSOLE = "CONSOLE"
    MEMORY = "MEMORY"


@dataclass(frozen=True)
class CreateSink:
    """CREATE SINK; `path` is for files, `kafka` and `key` are for a topic."""

    name: Name
    view: Name
    kind: SinkKind
    path: str = ""
    kafka: KafkaClause | None = None
    key: tuple[Name, ...] = ()
    options: tuple[Option, ...] = ()
    if_not_exists: bool = False
    span: TextSpan = _place()


@dataclass(frozen=True)
class Drop:
    """DROP."""

    kind: ObjectKind
    name: Name
    materialized: bool = False
    if_exists: bool = False
    cascade: bool = False
    span: TextSpan = _place()


class ShowKind(Enum):
    """The lists of SHOW."""

    SOURCES = "SOURCES"
    VIEWS = "VIEWS"
    SINKS = "SINKS"
    CONNECTIONS = "CONNECTIONS"
    PROGRESS = "PROGRESS"


@dataclass(frozen=True)
class Show:
    """SHOW of a list."""

    kind: ShowKind
    span: TextSpan = _place()


@dataclass(frozen=True)
class ShowColumns:
    """SHOW COLUMNS FROM a source or view."""

    name: Name
    span: TextSpan = _place()


@dataclass(frozen=True)
class ShowCreate:
    """SHOW CREATE: the statement that made an object, without its passwords."""

    kind: ObjectKind
    name: Name
    span: TextSpan = _place()


@dataclass(frozen=True)
class Query:
    """A query, in Spark's language."""

    text: str
    span: TextSpan = _place()


@dataclass(frozen=True)
class Subscribe:
    """SUBSCRIBE TO a view or source: its rows, then its changes."""

    name: Name
    options: tuple[Option, ...] = ()
    span: TextSpan = _place()


@dataclass(frozen=True)
class Explain:
    """EXPLAIN a statement, or a source, view or sink that exists."""

    target: "Statement | Name"
    span: TextSpan = _place()


Statement = (CreateConnection | CreateSource | CreateView | CreateSink | Drop | Show | ShowColumns
             | ShowCreate | Query | Subscribe | Explain)

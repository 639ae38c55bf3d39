"""What can be said: one frozen class per statement and per part of one.

Names are folded already (I3).  Spans tell errors where a part stands in the text; two statements
that say the same are equal, wherever they stand.
"""

# ruff: noqa: RUF009  the calls make dataclass fields

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from quipu.pipeline.source import EnvelopeKind, ItemKind
from quipu.pipeline.sql.secrecy import Secret
from quipu.pipeline.sql.text import NOWHERE, Span


def _place() -> Span:
    """Where a part stands in the text: of no account where two are compared."""
    return field(default=NOWHERE, compare=False, repr=False)


class ObjectKind(Enum):
    """What the catalog keeps."""

    CONNECTION = "CONNECTION"
    SOURCE = "SOURCE"
    VIEW = "VIEW"
    SINK = "SINK"


@dataclass(frozen=True)
class Name:
    """A name of an object or a column."""

    text: str
    span: Span = _place()


Value: TypeAlias = "str | int | float | bool | Secret | tuple[Value, ...]"


@dataclass(frozen=True)
class Option:
    """`name = value`; the name as `option_name` has it: `start offset`."""

    name: str
    value: Value
    span: Span = _place()
    value_span: Span = _place()


# -- types and columns


@dataclass(frozen=True)
class TypeName:
    """A type as written: `numeric` (10, 2); `list` of a part, `map` of two, `record` of many."""

    name: str
    arguments: tuple[int, ...] = ()
    parts: tuple[tuple[str, "TypeName"], ...] = ()
    span: Span = _place()


@dataclass(frozen=True)
class ColumnItem:
    """A column's new name, or, with a type, its definition."""

    name: Name
    type: TypeName | None = None
    nullable: bool = True


# -- formats


@dataclass(frozen=True)
class Strategy:
    """Which schema of a subject: the latest, one by its number, or this one."""

    id: int | None = None
    schema: str | None = None
    span: Span = _place()


@dataclass(frozen=True)
class RegistryReference:
    """A schema registry by address or by connection, and which of its schemas to read with."""

    url: str | None = None
    connection: Name | None = None
    options: tuple[Option, ...] = ()
    key: Strategy | None = None
    value: Strategy | None = None
    span: Span = _place()


@dataclass(frozen=True)
class TextFormat:
    """FORMAT TEXT."""

    span: Span = _place()


@dataclass(frozen=True)
class BytesFormat:
    """FORMAT BYTES."""

    span: Span = _place()


@dataclass(frozen=True)
class JsonFormat:
    """FORMAT JSON."""

    span: Span = _place()


@dataclass(frozen=True)
class CsvFormat:
    """FORMAT CSV: a number of columns, or their names."""

    columns: int | tuple[Name, ...]
    delimiter: str = ","
    span: Span = _place()
    delimiter_span: Span = _place()


@dataclass(frozen=True)
class RegexFormat:
    """FORMAT REGEX."""

    pattern: str
    span: Span = _place()


@dataclass(frozen=True)
class AvroFormat:
    """FORMAT AVRO: exactly one of registry, schema and file is given."""

    registry: RegistryReference | None = None
    schema: str | None = None
    file: str | None = None
    options: tuple[Option, ...] = ()
    span: Span = _place()


@dataclass(frozen=True)
class ProtobufFormat:
    """FORMAT PROTOBUF: a registry, or a message of a descriptor set in hexadecimal or a file."""

    registry: RegistryReference | None = None
    message: str | None = None
    schema: str | None = None
    file: str | None = None
    span: Span = _place()


Format = (TextFormat | BytesFormat | JsonFormat | CsvFormat | RegexFormat | AvroFormat
          | ProtobufFormat)


# -- sources


@dataclass(frozen=True)
class KafkaPlace:
    """BROKER '…' or CONNECTION c, and the topics."""

    broker: str | None = None
    connection: Name | None = None
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    span: Span = _place()
    topics_span: Span = _place()


@dataclass(frozen=True)
class Include:
    """An item of INCLUDE; without a kind it is the KEY."""

    kind: ItemKind | None
    alias: Name | None = None
    header: str = ""
    type: TypeName | None = None
    span: Span = _place()


@dataclass(frozen=True)
class Envelope:
    """ENVELOPE and what is in parentheses after it."""

    kind: EnvelopeKind
    order_by: tuple[Name, ...] = ()
    inline_errors: bool = False
    error_name: Name | None = None
    span: Span = _place()


@dataclass(frozen=True)
class CreateConnection:
    """CREATE CONNECTION … TO KAFKA, or to a schema registry."""

    name: Name
    is_registry: bool
    options: tuple[Option, ...] = ()
    if_not_exists: bool = False
    span: Span = _place()


@dataclass(frozen=True)
class CreateSource:
    """CREATE SOURCE."""

    name: Name
    place: KafkaPlace
    columns: tuple[ColumnItem, ...] = ()
    primary_key: tuple[Name, ...] = ()
    key_format: Format | None = None
    value_format: Format | None = None
    bare_format: bool = False  # FORMAT, not KEY FORMAT … VALUE FORMAT
    include: tuple[Include, ...] = ()
    envelope: Envelope | None = None
    options: tuple[Option, ...] = ()
    materialized: bool = False
    if_not_exists: bool = False
    span: Span = _place()


# -- everything else


@dataclass(frozen=True)
class CreateView:
    """CREATE VIEW; the query is Spark's, kept as it was written."""

    name: Name
    query: str
    materialized: bool = False
    or_replace: bool = False
    if_not_exists: bool = False
    query_span: Span = _place()
    span: Span = _place()


class SinkKind(Enum):
    """Where a sink writes."""

    PARQUET = "PARQUET"
    DELTA = "DELTA"
    KAFKA = "KAFKA"
    CONSOLE = "CONSOLE"
    MEMORY = "MEMORY"


@dataclass(frozen=True)
class CreateSink:
    """CREATE SINK; `path` of files, `place` and `key` of Kafka."""

    name: Name
    view: Name
    kind: SinkKind
    path: str = ""
    place: KafkaPlace | None = None
    key: tuple[Name, ...] = ()
    options: tuple[Option, ...] = ()
    if_not_exists: bool = False
    span: Span = _place()


@dataclass(frozen=True)
class Drop:
    """DROP."""

    kind: ObjectKind
    name: Name
    materialized: bool = False
    if_exists: bool = False
    cascade: bool = False
    span: Span = _place()


class ShowKind(Enum):
    """Lists that can be shown."""

    SOURCES = "SOURCES"
    VIEWS = "VIEWS"
    SINKS = "SINKS"
    CONNECTIONS = "CONNECTIONS"
    PROGRESS = "PROGRESS"


@dataclass(frozen=True)
class Show:
    """SHOW of a list."""

    kind: ShowKind
    span: Span = _place()


@dataclass(frozen=True)
class ShowColumns:
    """SHOW COLUMNS FROM a source or view."""

    name: Name
    span: Span = _place()


@dataclass(frozen=True)
class ShowCreate:
    """SHOW CREATE: the statement that made an object, without its passwords."""

    kind: ObjectKind
    name: Name
    span: Span = _place()


@dataclass(frozen=True)
class Query:
    """A query, in Spark's words."""

    text: str
    span: Span = _place()


@dataclass(frozen=True)
class Subscribe:
    """SUBSCRIBE TO a view or source: its rows, then its changes."""

    name: Name
    options: tuple[Option, ...] = ()
    span: Span = _place()


@dataclass(frozen=True)
class Explain:
    """EXPLAIN a statement, or a source, view or sink that exists."""

    target: "Statement | Name"
    span: Span = _place()


Statement = (CreateConnection | CreateSource | CreateView | CreateSink | Drop | Show | ShowColumns
             | ShowCreate | Query | Subscribe | Explain)

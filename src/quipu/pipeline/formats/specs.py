"""What was asked for in a FORMAT clause, resolved: plain data that travels to executors."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from quipu.pipeline.types import Column


@dataclass(frozen=True)
class Text:
    """One column of text; bytes must be UTF-8."""

    name: str = "text"


@dataclass(frozen=True)
class Bytes:
    """One column of bytes, as they came."""

    name: str = "data"


@dataclass(frozen=True)
class Json:
    """Columns by name from an object; or, without columns, the whole document in one."""

    columns: tuple[Column, ...] = ()
    name: str = "data"
    payload: bool = False  # of {"schema": …, "payload": …}, as Kafka Connect writes, the payload


@dataclass(frozen=True)
class Csv:
    """One line of text per message."""

    columns: tuple[str, ...]
    delimiter: str = ","


@dataclass(frozen=True)
class Regex:
    """A column per group; a message that does not match is absent."""

    pattern: str


@dataclass(frozen=True)
class Registry:
    """A schema registry: where, and how to log in."""

    url: str
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Avro:
    """Avro: the reader's schema, and how the writer's is found."""

    schema: str  # JSON, as the reader wants it
    framed: bool = True  # Confluent's five bytes are in front
    registry: Registry | None = None  # asked for writers' schemas; without one they are `schema`


@dataclass(frozen=True)
class Protobuf:
    """Protocol Buffers: a serialized FileDescriptorSet, and which message."""

    descriptors: bytes
    message: str
    framed: bool = False


@dataclass(frozen=True)
class Debezium:
    """Change events of Debezium: a row before and after, and what happened to it.

    `row` are its columns: with Avro those of the schema (debezium.row_columns_of);
    with JSON they are those of the statement, and `inner` has no columns of its own.
    """

    inner: Json | Avro
    row: tuple[Column, ...]


@dataclass(frozen=True)
class Materialize:
    """Change messages of Materialize (CDCv2): rows with a time and a count, and progress.

    `row` as for Debezium (materialize.row_columns_of).
    """

    inner: Json | Avro
    row: tuple[Column, ...]


FormatSpec = Text | Bytes | Json | Csv | Regex | Avro | Protobuf | Debezium | Materialize

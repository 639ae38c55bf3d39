"""Specs: a resolved FORMAT clause as plain data that is sent to executors."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from quipu.pipeline.types import Column


@dataclass(frozen=True)
class Text:
    """One column of text; bytes must be UTF-8."""

    name: str = "text"


@dataclass(frozen=True)
class Bytes:
    """One column with the unchanged bytes."""

    name: str = "data"


@dataclass(frozen=True)
class Json:
    """Columns by name from an object; or, without columns, the whole document in one."""

    columns: tuple[Column, ...] = ()
    name: str = "data"
    payload: bool = False  # decode only the payload of Kafka Connect's {"schema": …, "payload": …}


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
    """A schema registry: its URL, and the settings to log in."""

    url: str
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Avro:
    """Avro: the reader's schema, and how the writer's is found."""

    schema: str  # the reader's schema, in JSON
    framed: bool = True  # messages begin with the five bytes of Confluent's frame
    registry: Registry | None = None  # has the writers' schemas; without one they are `schema`


@dataclass(frozen=True)
class Protobuf:
    """Protocol Buffers: a serialized FileDescriptorSet, and which message."""

    descriptors: bytes
    message: str
    framed: bool = False


@dataclass(frozen=True)
class Debezium:
    """Change events of Debezium: the row before and after a change, and the kind of change.

    `row` are the row's columns: with Avro those of the schema (debezium.row_columns_of), with JSON
    those of the statement, and then `inner` has no columns.
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

"""Prints statements in one canonical form: `parse(canonical(x, secrets=True)) == x`.

    >>> from quipu.pipeline.sql.parser import parse_one
    >>> print(canonical(parse_one("create source S from kafka broker 'b' topic 't' format text")))
    CREATE SOURCE s
        FROM KAFKA BROKER 'b' TOPIC 't'
        FORMAT TEXT

Secrets are masked, unless `secrets` is set.
"""

import re
from collections.abc import Iterable
from typing import assert_never

from quipu.pipeline.source import MetadataKind
from quipu.pipeline.sql.cursor import RESERVED
from quipu.pipeline.sql.secrets import MASK, Secret, mask_addresses
from quipu.pipeline.sql.statements import (
    AvroClause,
    BytesClause,
    ColumnItem,
    CreateConnection,
    CreateSink,
    CreateSource,
    CreateView,
    CsvClause,
    Drop,
    EnvelopeClause,
    Explain,
    Format,
    Include,
    JsonClause,
    KafkaClause,
    Name,
    Option,
    ProtobufClause,
    Query,
    RegexClause,
    RegistryReference,
    Show,
    ShowColumns,
    ShowCreate,
    SinkKind,
    Statement,
    Strategy,
    Subscribe,
    TextClause,
    TypeName,
    Value,
)

CLAUSE = "\n    "
_PLAIN = re.compile(r"[a-z_][a-z0-9_$]*")
_PLAIN_OPTION = re.compile(r"[a-z][a-z0-9$]*( [a-z][a-z0-9$]*)*")


def canonical(statement: Statement, *, secrets: bool = False) -> str:
    """A statement as text."""
    return _Printer(secrets=secrets).statement(statement)


def quote_name(name: str) -> str:
    """A name, in quotes if it would be parsed as another one without them.

    >>> quote_name("a"), quote_name("Off"), quote_name("select")
    ('a', '"Off"', '"select"')
    """
    if _PLAIN.fullmatch(name) and name.upper() not in RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'


def quote_string(text: str) -> str:
    """A string, in quotes."""
    return "'" + text.replace("'", "''") + "'"


def type_text(kind: TypeName) -> str:
    """A type as it is written in SQL."""
    if kind.name == "list" and kind.parts:
        return f"{type_text(kind.parts[0][1])}[]"
    if kind.parts:
        inner = ", ".join(f"{quote_name(name)} {type_text(part)}" if kind.name == "record"
                          else type_text(part) for name, part in kind.parts)
        return f"{kind.name}({inner})"
    if kind.arguments:
        return f"{kind.name}({', '.join(map(str, kind.arguments))})"
    return kind.name


def item_text(item: Include) -> str:
    """An item of INCLUDE."""
    alias = f" AS {quote_name(item.alias.text)}" if item.alias is not None else ""
    if item.kind is MetadataKind.HEADER:
        kind = f" {type_text(item.type)}" if item.type is not None else ""
        return f"HEADER {quote_string(item.header)}{alias}{kind}"
    return f"{'KEY' if item.kind is None else item.kind.value.upper()}{alias}"


class _Printer:
    def __init__(self, *, secrets: bool) -> None:
        self.secrets = secrets

    def statement(self, statement: Statement) -> str:
        match statement:
            case CreateSource():
                return self._source(statement)
            case CreateConnection():
                return self._connection(statement)
            case CreateView():
                words = _words("CREATE", statement.or_replace and "OR REPLACE",
                               statement.materialized and "MATERIALIZED", "VIEW",
                               statement.if_not_exists and "IF NOT EXISTS", _name(statement.name))
                return f"{words} AS{CLAUSE}{statement.query}"
            case CreateSink():
                return self._sink(statement)
            case Drop():
                return _words("DROP", statement.materialized and "MATERIALIZED",
                              statement.kind.value, statement.if_exists and "IF EXISTS",
                              _name(statement.name), statement.cascade and "CASCADE")
            case Show():
                return f"SHOW {statement.kind.value}"
            case ShowColumns():
                return f"SHOW COLUMNS FROM {_name(statement.name)}"
            case ShowCreate():
                return f"SHOW CREATE {statement.kind.value} {_name(statement.name)}"
            case Query():
                return statement.text
            case Subscribe():
                return _words("SUBSCRIBE TO", _name(statement.name),
                              self._with(statement.options))
            case Explain(target=Name() as name):
                return f"EXPLAIN {_name(name)}"
            case Explain():
                assert not isinstance(statement.target, Name)
                return f"EXPLAIN {self.statement(statement.target)}"
            case _:
                assert_never(statement)

    # -- CREATE

    def _connection(self, connection: CreateConnection) -> str:
        words = _words("CREATE CONNECTION", connection.if_not_exists and "IF NOT EXISTS",
                       _name(connection.name), "TO",
                       "CONFLUENT SCHEMA REGISTRY" if connection.is_registry else "KAFKA")
        return f"{words} ({self._options(connection.options)})"

    def _source(self, source: CreateSource) -> str:
        head = _words("CREATE", source.materialized and "MATERIALIZED", "SOURCE",
                      source.if_not_exists and "IF NOT EXISTS", _name(source.name),
                      _columns(source))
        clauses = [head, f"FROM KAFKA {self._kafka(source.kafka)}"]
        if source.value_format is not None:
            value = self._format(source.value_format)
            if source.key_format is not None:
                clauses.append(f"KEY FORMAT {self._format(source.key_format)}")
                clauses.append(f"VALUE FORMAT {value}")
            else:
                clauses.append(f"FORMAT {value}")
        if source.include:
            clauses.append(f"INCLUDE {', '.join(map(item_text, source.include))}")
        if source.envelope is not None:
            key = source.key_format if source.value_format is None else None
            clauses.append(self._envelope(source.envelope, key))
        if source.options:
            clauses.append(self._with(source.options))
        return CLAUSE.join(clauses)

    def _sink(self, sink: CreateSink) -> str:
        head = _words("CREATE SINK", sink.if_not_exists and "IF NOT EXISTS", _name(sink.name),
                      "FROM", _name(sink.view))
        into = f"INTO {sink.kind.value}"
        if sink.kind in (SinkKind.PARQUET, SinkKind.DELTA):
            into += f" {self._address(sink.path)}"
        if sink.kafka is not None:
            key = f"KEY ({', '.join(map(_name, sink.key))})" if sink.key else ""
            into = _words(into, self._kafka(sink.kafka), key, "FORMAT JSON")
        return CLAUSE.join(filter(None, [head, into, self._with(sink.options)]))

    # -- parts

    def _kafka(self, kafka: KafkaClause) -> str:
        if kafka.connection is not None:
            where = f"CONNECTION {_name(kafka.connection)}"
        else:
            where = f"BROKER {self._address(kafka.broker or '')}"
        if kafka.pattern is not None:
            return f"{where} TOPIC PATTERN {quote_string(kafka.pattern)}"
        if len(kafka.topics) == 1:
            return f"{where} TOPIC {quote_string(kafka.topics[0])}"
        return f"{where} TOPICS ({', '.join(map(quote_string, kafka.topics))})"

    def _address(self, text: str) -> str:
        return quote_string(text if self.secrets else mask_addresses(text))

    def _format(self, written: Format) -> str:
        match written:
            case TextClause():
                return "TEXT"
            case BytesClause():
                return "BYTES"
            case JsonClause():
                return "JSON"
            case CsvClause(columns=columns, delimiter=delimiter):
                wanted = (f"{columns} COLUMNS" if isinstance(columns, int)
                          else f"HEADER ({', '.join(map(_name, columns))})")
                ending = f" DELIMITED BY {quote_string(delimiter)}" if delimiter != "," else ""
                return f"CSV WITH {wanted}{ending}"
            case RegexClause(pattern=pattern):
                return f"REGEX {quote_string(pattern)}"
            case AvroClause(registry=RegistryReference() as registry):
                return f"AVRO USING {self._registry(registry)}"
            case AvroClause():
                options = f" ({self._options(written.options)})" if written.options else ""
                return f"AVRO USING {_schema(written.schema, written.file)}{options}"
            case ProtobufClause(registry=RegistryReference() as registry):
                return f"PROTOBUF USING {self._registry(registry)}"
            case ProtobufClause():
                return (f"PROTOBUF MESSAGE {quote_string(written.message or '')} USING"
                        f" {_schema(written.schema, written.file)}")
            case _:
                assert_never(written)

    def _registry(self, registry: RegistryReference) -> str:
        where = (f"CONNECTION {_name(registry.connection)}" if registry.connection is not None
                 else self._address(registry.url or ""))
        options = f"({self._options(registry.options)})" if registry.options else ""
        return _words("CONFLUENT SCHEMA REGISTRY", where, options,
                      _strategy("KEY", registry.key), _strategy("VALUE", registry.value))

    def _envelope(self, envelope: EnvelopeClause, key: Format | None) -> str:
        inside = []
        if envelope.order_by:
            inside.append(f"ORDER BY ({', '.join(map(_name, envelope.order_by))})")
        if envelope.inline_errors:
            alias = (f" AS {_name(envelope.error_name)}" if envelope.error_name is not None
                     else "")
            inside.append(f"VALUE DECODING ERRORS = (INLINE{alias})")
        key_format = f"FORMAT {self._format(key)}" if key is not None else ""
        return _words("ENVELOPE", envelope.kind.value.upper(), key_format,
                      inside and f"({', '.join(inside)})")

    def _with(self, options: tuple[Option, ...]) -> str:
        return f"WITH ({self._options(options)})" if options else ""

    def _options(self, options: Iterable[Option]) -> str:
        return ", ".join(f"{_option_name(option.name)} = {self._value(option.value)}"
                         for option in options)

    def _value(self, value: Value) -> str:
        match value:
            case Secret():
                return quote_string(value.value) if self.secrets else MASK
            case bool():
                return str(value).upper()
            case str():
                return self._address(value)
            case tuple():
                return f"({', '.join(map(self._value, value))})"
            case _:
                return repr(value)


def _words(*words: str | bool | list[str]) -> str:
    return " ".join(word for word in words if isinstance(word, str) and word)


def _name(name: Name) -> str:
    return quote_name(name.text)


def _option_name(name: str) -> str:
    return name.upper() if _PLAIN_OPTION.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def _columns(source: CreateSource) -> str:
    items = [_column(item) for item in source.columns]
    if source.primary_key:
        names = ", ".join(map(_name, source.primary_key))
        items.append(f"PRIMARY KEY ({names}) NOT ENFORCED")
    return f"({', '.join(items)})" if items else ""


def _column(item: ColumnItem) -> str:
    return _words(_name(item.name), item.type is not None and type_text(item.type),
                  not item.nullable and "NOT NULL")


def _schema(schema: str | None, file: str | None) -> str:
    return f"SCHEMA FILE {quote_string(file)}" if file is not None else (
        f"SCHEMA {quote_string(schema or '')}")


def _strategy(subject: str, strategy: Strategy | None) -> str:
    if strategy is None:
        return ""
    if strategy.id is not None:
        return f"{subject} STRATEGY ID {strategy.id}"
    if strategy.schema is not None:
        return f"{subject} STRATEGY INLINE {quote_string(strategy.schema)}"
    return f"{subject} STRATEGY LATEST"

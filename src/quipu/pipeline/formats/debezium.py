"""Decodes change events of Debezium, in JSON or Avro, to the same columns.

    {"before": row or null, "after": row or null, "op": "c" | "u" | "d" | "r" | "t",
     "ts_ms": …, "source": {"ts_ms": …, "table": …, …}, …}

With JSON the event may be in {"schema": …, "payload": event}, as Kafka Connect's converter writes
it.  `decode` returns five columns: before and after (records of the row's columns), op, the time of
the change in its database (or else of the event), and the table (with MongoDB the collection).
Other fields of an event are not decoded.

A message that is null (Debezium's tombstone, after a delete) is absent.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from quipu.pipeline.formats.avro.format import AvroFormat
from quipu.pipeline.formats.avro.schema import (
    AvroSchemaError,
    SchemaField,
    SchemaNode,
    columns_of,
    parse,
)
from quipu.pipeline.formats.contract import Decoded, null_where
from quipu.pipeline.formats.json.format import JsonFormat
from quipu.pipeline.formats.specs import Avro, Debezium, Json
from quipu.pipeline.registry.client import RegistryClient
from quipu.pipeline.types import MILLIS_MAX, MILLIS_MIN, TIMESTAMPTZ, Column

NO_EVENT: Final = "no change event of Debezium: it has no `op`, no `before` and no `after`"

_MARKS: Final = pa.struct([("op", pa.string()), ("ts_ms", pa.int64())])
_SOURCE: Final = pa.struct([("ts_ms", pa.int64()), ("table", pa.string()),
                            ("collection", pa.string())])


def row_columns_of(schema: str) -> tuple[Column, ...]:
    """The columns of the row in an Avro schema of change events; raises AvroSchemaError."""
    after, before = _row_nodes(_envelope(schema))
    columns = columns_of(after)
    if before is not None and [column[:2] for column in columns_of(before)] != [
            column[:2] for column in columns]:
        raise AvroSchemaError("'before' type differs from 'after' column")
    return columns


def decoded_columns(row: Sequence[Column]) -> tuple[Column, ...]:
    """The columns of DebeziumFormat, for a row of these columns."""
    record = _record(row)
    return (Column("before", record), Column("after", record), Column("op", pa.string()),
            Column("ts", TIMESTAMPTZ), Column("table", pa.string()))


class DebeziumFormat:
    """Decodes change events to before, after, op, ts and table."""

    def __init__(self, spec: Debezium, registry_client: RegistryClient | None = None) -> None:
        self.columns = decoded_columns(spec.row)
        self._inner = (
            _JsonEvents(spec.row) if isinstance(spec.inner, Json)
            else _AvroEvents(spec.inner, registry_client))

    def decode(self, data: pa.BinaryArray) -> Decoded:
        return self._inner.decode(data)


class _JsonEvents:
    """Decodes both forms at once, with and without `payload`; each message has one of them.

    NOT NULL columns are checked in `after` only; a row `before` may have only its key.
    """

    def __init__(self, row: Sequence[Column]) -> None:
        self._record = _record(row)
        strict = pa.struct([column.field for column in row])
        event = [pa.field("before", self._record), pa.field("after", strict), *_MARKS,
                 pa.field("source", _SOURCE)]
        self._names = [each.name for each in event]
        self._format = JsonFormat(Json((
            *(Column(each.name, each.type) for each in event),
            Column("payload", pa.struct(event)))))

    def decode(self, data: pa.BinaryArray) -> Decoded:
        columns, errors, absent = self._format.decode(data)
        payload = columns[-1]
        event = dict(zip(self._names, columns[:-1], strict=True))
        if payload.null_count < len(payload):
            event = {name: pc.if_else(payload.is_valid(), pc.struct_field(payload, name), array)
                     for name, array in event.items()}
        empty = pc.and_(pc.and_(event["before"].is_null(), event["after"].is_null()),
                        event["op"].is_null())
        wrong = pc.and_(empty, pc.and_not(errors.is_null(), absent))
        if pc.any(wrong).as_py():
            errors = pc.if_else(wrong, NO_EVENT, errors)
            event = dict(zip(event, null_where(wrong, [*event.values()]), strict=True))
        event["after"] = event["after"].cast(self._record)
        return Decoded(_finished(event), errors, absent)


class _AvroEvents:
    """Decodes those of the needed fields that the schema has."""

    def __init__(self, spec: Avro, client: RegistryClient | None) -> None:
        envelope = _envelope(spec.schema)
        rows = [_optional(field) for field in envelope.fields if field.name in ("before", "after")]
        sources = [SchemaField(field.name, _part(field.type, _SOURCE)) for field in envelope.fields
                   if field.name == "source"]
        reader = SchemaNode("record", envelope.name, fields=[
            *rows, *_part(envelope, _MARKS).fields,
            *(_optional(field) for field in sources if field.type.fields)])
        self._format = AvroFormat(spec, client, reader=reader)
        after, _ = _row_nodes(envelope)
        self._record = _record(columns_of(after))

    def decode(self, data: pa.BinaryArray) -> Decoded:
        columns, errors, absent = self._format.decode(data)
        nothing = [pa.field("before", self._record), pa.field("source", _SOURCE), *_MARKS]
        event = {each.name: pa.nulls(len(data), each.type) for each in nothing}
        event |= {column.name: array for column, array
                  in zip(self._format.columns, columns, strict=True)}
        return Decoded(_finished(event), errors, absent)


def _finished(event: dict[str, pa.Array]) -> list[pa.Array]:
    """The five columns of the result, from the fields of events."""
    source = event["source"]
    moments = [pc.struct_field(source, "ts_ms")] if _has(source, "ts_ms") else []
    names = [pc.struct_field(source, name) for name in ("table", "collection")
             if _has(source, name)]
    millis = pc.coalesce(*moments, event["ts_ms"])
    table = pc.coalesce(*names) if names else pa.nulls(len(source), pa.string())
    return [event["before"], event["after"], event["op"], _moment(millis), table]


def _has(source: pa.StructArray, name: str) -> bool:
    return bool(source.type.get_field_index(name) >= 0)


def _moment(millis: pa.Array) -> pa.Array:
    """Milliseconds as a timestamp; null if out of range."""
    inside = pc.and_(pc.less_equal(millis, MILLIS_MAX), pc.greater_equal(millis, MILLIS_MIN))
    kept = pc.if_else(inside, millis, pa.scalar(None, pa.int64()))
    return pc.multiply(kept, 1000).cast(TIMESTAMPTZ)


def _record(row: Sequence[Column]) -> pa.DataType:
    """The record type of a row's columns; all are nullable, as they are null without a row."""
    return pa.struct([pa.field(column.name, column.type) for column in row])


def _envelope(schema: str) -> SchemaNode:
    node = parse(schema)
    branches = node.alternatives()
    if len(branches) != 1 or branches[0].kind != "record":
        raise AvroSchemaError(
            f"Incorrect type for Debezium value, expected Record, got {node.title}")
    return branches[0]


def _row_nodes(envelope: SchemaNode) -> tuple[SchemaNode, SchemaNode | None]:
    """The record of `after`, and of `before` if there is one."""
    found = {field.name: field.type.alternatives() for field in envelope.fields}
    if "after" not in found:
        raise AvroSchemaError("'after' column missing from debezium input")
    for name in ("after", "before"):
        if name in found and [node.kind for node in found[name]] != ["record"]:
            raise AvroSchemaError(f"'{name}' column must be of type record")
    return found["after"][0], found["before"][0] if "before" in found else None


def _optional(field: SchemaField) -> SchemaField:
    """The same field, nullable, and null by default if a writer's schema lacks it."""
    node = field.type
    if not node.is_nullable:
        node = SchemaNode("union", inner=(SchemaNode("null"), *node.alternatives()))
    return SchemaField(field.name, node, None, field.aliases)


def _part(node: SchemaNode, wanted: pa.DataType) -> SchemaNode:
    """A record with those fields of another that have a wanted name and type."""
    kinds = {each.name: each.type for each in wanted}
    branches = node.alternatives()
    fields = branches[0].fields if len(branches) == 1 else []
    return SchemaNode("record", "part", fields=[
        _optional(field) for field in fields if field.name in kinds
        and [column.type for column in _columns(field.type)] == [kinds[field.name]]])


def _columns(node: SchemaNode) -> tuple[Column, ...]:
    try:
        return columns_of(node)
    except AvroSchemaError:
        return ()

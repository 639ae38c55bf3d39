"""The formats of the matrix: how they are written in statements, and how messages are.

A row is an `id` and a `name`; formats without columns of their own hold both in one.  A key is
about the same id; formats with columns have two, so that they make a record under one name.
Messages that wrap rows have a key that is part of the row.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.pipeline.spark.cases.cases import REGISTRY
from tests.pipeline.spark.cases.codecs import TEXT, Avro, Codec, Protobuf, avro, record

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Format:
    """How one format is written in statements, and how its messages are encoded."""

    name: str
    topic: str
    key_sql: str
    value_sql: str
    key: Callable[[int], Any]  # for the codec
    value: Callable[..., Any]
    key_row: Callable[[int], Row]
    value_row: Callable[[int, str], Row]
    key_columns: Sequence[str] = ("key text not null",)  # where there is one
    value_columns: Sequence[str] = ("id bigint not null", "name text")
    defined: Sequence[str] = ()  # columns that the statement must define
    key_codec: Codec = field(default=TEXT)
    value_codec: Codec = field(default=TEXT)
    is_in_registry: bool = False  # so that a bare format knows the key's


AVRO_KEY, AVRO_ROW = record("Key", kid="long", zone="string"), record(
    "Row", id="long", name=["null", "string"])
AVRO_EVENT = Avro(json.dumps({"type": "record", "name": "Event", "fields": [
    {"name": "before", "type": ["null", json.loads(AVRO_ROW)]},
    {"name": "after", "type": ["null", "Row"]},
    {"name": "op", "type": "string"},
    {"name": "ts_ms", "type": ["null", "long"]},
    {"name": "source", "type": json.loads(record("Source", ts_ms="long", table="string"))}]}))
_LONGS = {"type": "array", "items": "long"}
AVRO_CHANGES = Avro(json.dumps([
    {"type": "array", "items": json.loads(record(
        "update", data=json.loads(AVRO_ROW), time="long", diff="long"))},
    {"type": "record", "name": "progress", "namespace": "com.materialize.cdc", "fields": [
        {"name": "lower", "type": _LONGS}, {"name": "upper", "type": _LONGS},
        {"name": "counts", "type": {"type": "array", "items": json.loads(record(
            "counts", time="long", count="long"))}}]}]))
PROTOBUF_KEY = 'syntax = "proto3"; message Key { int64 kid = 1; string zone = 2; }'
PROTOBUF_ROW = 'syntax = "proto3"; message Row { int64 id = 1; string name = 2; }'


def _document(number: int, name: str) -> str:
    return json.dumps({"id": number, "name": name})


def _record(number: int, name: str) -> dict[str, Any]:
    return {"id": number, "name": name}


def _event(sent: Any, table: str, changed_ms: int) -> dict[str, Any]:
    before, after = (row and _record(*row) for row in (sent.value.before, sent.value.after))
    return {"before": before, "after": after, "op": sent.value.op, "ts_ms": sent.timestamp,
            "source": {"ts_ms": sent.timestamp - changed_ms, "table": table}}


def _updates(value: Any) -> Any:
    if isinstance(value, list):
        return [{"data": _record(*each.row), "time": each.time, "diff": each.diff}
                for each in value]
    return {"lower": [value.lower], "upper": [value.upper],
            "counts": [{"time": time, "count": count} for time, count in value.counts.items()]}


def _as_json(make: Callable[..., Any]) -> Callable[..., str]:
    return lambda *given: json.dumps(make(*given))


_TWO_KEYS = {
    "key": lambda number: {"kid": number, "zone": "z"}, "key_row": lambda number: (number, "z"),
    "key_columns": ("kid bigint not null", "zone text not null"),
    "value": _record, "value_row": lambda number, name: (number, name),
}
_ONE_KEY = {"key": lambda number: f"k{number}", "key_row": lambda number: (f"k{number}",)}
_IN_TEXT = {"value": lambda number, name: f"{number}:{name}",
            "value_row": lambda number, name: (f"{number}:{name}",)}
_IN_COLUMNS = {"value_row": lambda number, name: (str(number), name),
               "key_row": lambda number: (f"k{number}", "z")}
_AVRO = {**_TWO_KEYS, "topic": "matrix-avro", "key_codec": Avro(AVRO_KEY),
         "value_codec": Avro(AVRO_ROW)}
_PROTOBUF = {**_TWO_KEYS, "value_columns": ("id bigint not null", "name text not null")}
_BARE = Protobuf(PROTOBUF_KEY, "Key", wire=False), Protobuf(PROTOBUF_ROW, "Row", wire=False)

FORMATS: Mapping[str, Format] = {each.name: each for each in [
    Format("text", "matrix-text", "TEXT", "TEXT", **_ONE_KEY, **_IN_TEXT,
           value_columns=("text text not null",)),
    Format("bytes", "matrix-text", "BYTES", "BYTES", key=_ONE_KEY["key"], value=_IN_TEXT["value"],
           key_row=lambda number: (f"k{number}".encode(),),
           value_row=lambda number, name: (f"{number}:{name}".encode(),),
           key_columns=("key bytes not null",), value_columns=("data bytes not null",)),
    Format("json-document", "matrix-json", "JSON", "JSON", key=lambda number: f'"k{number}"',
           key_row=lambda number: (f'"k{number}"',), value=_document,
           value_row=lambda number, name: (_document(number, name),),
           value_columns=("data text not null",)),
    Format("json", "matrix-json", "JSON", "JSON", key=lambda number: f'"k{number}"',
           key_row=lambda number: (f'"k{number}"',), value=_document,
           value_row=lambda number, name: (number, name),
           defined=("id bigint NOT NULL", "name text")),
    Format("csv", "matrix-csv", "CSV WITH HEADER (kid, zone)", "CSV WITH HEADER (id, name)",
           key=lambda number: f"k{number},z", value=lambda number, name: f"{number},{name}",
           **_IN_COLUMNS, key_columns=("kid text not null", "zone text not null"),
           value_columns=("id text not null", "name text not null")),
    Format("regex", "matrix-regex", r"REGEX '(?P<kid>\w+)/(?P<zone>\w+)'",
           r"REGEX '(?P<id>\d+):(?P<name>\w+)'", key=lambda number: f"k{number}/z",
           value=_IN_TEXT["value"], **_IN_COLUMNS, key_columns=("kid text", "zone text"),
           value_columns=("id text", "name text")),
    Format("avro", key_sql=f"AVRO {REGISTRY}", value_sql=f"AVRO {REGISTRY}", **_AVRO,
           is_in_registry=True),
    Format("avro-inline", key_sql=f"AVRO USING SCHEMA '{AVRO_KEY}'",
           value_sql=f"AVRO USING SCHEMA '{AVRO_ROW}'", **_AVRO),
    Format("protobuf", "matrix-protobuf", f"PROTOBUF {REGISTRY}", f"PROTOBUF {REGISTRY}",
           **_PROTOBUF, is_in_registry=True,
           key_codec=Protobuf(PROTOBUF_KEY, "Key"), value_codec=Protobuf(PROTOBUF_ROW, "Row")),
    Format("protobuf-inline", "matrix-protobuf-bare",
           f"PROTOBUF MESSAGE 'Key' USING SCHEMA '{_BARE[0].descriptors}'",
           f"PROTOBUF MESSAGE 'Row' USING SCHEMA '{_BARE[1].descriptors}'",
           **_PROTOBUF, key_codec=_BARE[0], value_codec=_BARE[1]),
]}

_WRAPPED = {"value_row": lambda number, name: (number, name), "key_row": lambda number: (number,)}
_JSON = {**_WRAPPED, "key_sql": "JSON", "value_sql": "JSON",
         "key": lambda number: json.dumps({"id": number}),
         "defined": ("id bigint NOT NULL", "name text")}
_KEY = avro("Key", id="long")


def _wrapped_avro(topic: str, codec: Avro, value: Callable[..., Any]) -> list[Format]:
    common = {**_WRAPPED, "key": lambda number: {"id": number}, "value": value,
              "key_codec": _KEY, "value_codec": codec}
    return [Format("avro", topic, f"AVRO {REGISTRY}", f"AVRO {REGISTRY}", **common,
                   is_in_registry=True),
            Format("avro-inline", topic, f"AVRO USING SCHEMA '{_KEY.schema}'",
                   f"AVRO USING SCHEMA '{codec.schema}'", **common)]


# by the format's name, and whether it is Debezium's
WRAPPED: Mapping[tuple[str, bool], Format] = {
    **{(each.name, True): each for each in [
        Format("json", "matrix-json-events", **_JSON, value=_as_json(_event)),
        *_wrapped_avro("matrix-avro-events", AVRO_EVENT, _event)]},
    **{(each.name, False): each for each in [
        Format("json", "matrix-json-changes", **_JSON, value=_as_json(_updates)),
        *_wrapped_avro("matrix-avro-changes", AVRO_CHANGES, _updates)]}}

"""External facts of a few topics, schemas and files, at a fixed time."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from quipu.pipeline.formats.protobuf.proto_file import descriptors_of
from quipu.pipeline.formats.specs import Registry
from quipu.pipeline.plan.external_facts import RegistrySchema, Unreachable
from quipu.pipeline.source import TopicLocation

NOW_MS = 1_700_000_000_000


def record(name: str, /, **fields: object) -> str:
    return json.dumps({"type": "record", "name": name, "fields": [
        {"name": field, "type": kind} for field, kind in fields.items()]})


def debezium(**fields: object) -> str:
    row = json.loads(record("Row", **fields))
    source = json.loads(record("Source", ts_ms="long", table="string"))
    return record("Envelope", before=["null", row], after=["null", "Row"], source=source,
                  op="string", ts_ms=["null", "long"])


AVRO_SCHEMAS = {
    "t-key": record("Key", id="long"),
    "t-value": record("Value", id="long", b=["null", "string"]),
    "keyless-value": record("Value", a="long"),
    "changes-key": record("Key", id="long"),
    "changes-value": debezium(id="long", name=["null", "string"]),
    "keyless-changes-value": debezium(id="long", name="string"),
    "badkey-key": record("Key", other="long"),
    "badkey-value": debezium(id="long"),
    "badtype-key": record("Key", id="string"),
    "badtype-value": debezium(id="long"),
    "maps-value": debezium(id="long", m={"type": "map", "values": "long"}),
    "recursive-value": json.dumps({"type": "record", "name": "a", "fields": [
        {"name": "again", "type": ["null", "a"]}]}),
}
PROTOBUF_SCHEMAS = {
    "pb-key": 'syntax = "proto3"; package p; message Key { int64 id = 1; }',
    "pb-value": 'syntax = "proto3"; message Value { string a = 1; repeated int32 b = 2; }',
    "nothing-value": 'syntax = "proto3";',
}
TOPICS = {"t": 2, "u": 1, "keyless": 1, "changes": 1, "keyless-changes": 1, "badkey": 1,
          "badtype": 1, "recursive": 1, "noschema": 1, "maps": 1, "pb": 1, "nothing": 1}


@dataclass
class FakeFacts:
    """External facts in memory; `asked` lists what planning has requested."""

    topics: Mapping[str, int] = field(default_factory=lambda: TOPICS)
    schemas: Mapping[str, RegistrySchema] = field(default_factory=lambda: {
        **{subject: RegistrySchema("AVRO", text) for subject, text in AVRO_SCHEMAS.items()},
        **{subject: RegistrySchema("PROTOBUF", descriptors=descriptors_of(text))
           for subject, text in PROTOBUF_SCHEMAS.items()}})
    files: Mapping[str, bytes] = field(default_factory=lambda: {
        "value.avsc": AVRO_SCHEMAS["t-value"].encode(), "bytes": b"\xff",
        "value.pb": descriptors_of(PROTOBUF_SCHEMAS["pb-value"])})
    asked: list[str] = field(default_factory=list)

    def partitions(self, location: TopicLocation) -> Mapping[str, int]:
        self._ask(location, "partitions")
        return self._counted(location)

    def _counted(self, location: TopicLocation) -> Mapping[str, int]:
        if location.pattern is not None:
            return {topic: count for topic, count in self.topics.items()
                    if topic.startswith(location.pattern)}
        return {topic: self.topics[topic] for topic in location.topics if topic in self.topics}

    def topic_ids(self, location: TopicLocation) -> Mapping[str, UUID]:
        self._ask(location, "topic ids")
        return {topic: UUID(int=number) for number, topic in enumerate(TOPICS, 1)
                if topic in self._counted(location)}

    def offsets_at(
        self, location: TopicLocation, timestamp_ms: int,
    ) -> Mapping[str, Mapping[int, int]]:
        self._ask(location, f"offsets at {timestamp_ms}")
        return {topic: {partition: timestamp_ms // 1000 + partition for partition in range(count)}
                for topic, count in self._counted(location).items()}

    def schema(
        self, registry: Registry, subject: str, schema_id: int | None,
    ) -> RegistrySchema | None:
        self.asked.append(f"schema {subject} {schema_id}")
        if "down" in registry.url:
            raise Unreachable(f"{registry.url} does not answer")
        return self.schemas.get(subject)

    def file(self, path: str) -> bytes:
        self.asked.append(f"file {path}")
        if path not in self.files:
            raise Unreachable(f"{path}: no such file")
        return self.files[path]

    def now_ms(self) -> int:
        self.asked.append("now")
        return NOW_MS

    def _ask(self, location: TopicLocation, what: str) -> None:
        self.asked.append(what)
        if "down" in location.bootstrap:
            raise Unreachable(f"{location.bootstrap} does not answer")

"""`ExternalFacts`: what planning needs from outside, read once, when a source is created.

`pipeline/live_facts.py` reads the facts from Kafka, a schema registry, files and the clock.
`RecordingFacts` records the facts that are read, and `RecordedFacts` returns them from such a
record: so a statement and its record give the same source after a restart.
"""

import base64
from collections.abc import Mapping
from typing import NamedTuple, Protocol, cast
from uuid import UUID

from quipu.model.errors import CorruptLog, ErrorKind, QuipuError
from quipu.pipeline.formats.specs import Registry
from quipu.pipeline.source import TopicLocation

Offsets = Mapping[str, Mapping[int, int]]  # by topic and partition
FactRecord = Mapping[str, object]  # recorded facts by name; plain JSON, in the catalog


class Unreachable(QuipuError):
    """Kafka, a registry or a file cannot be read; the message says which and why."""

    kind = ErrorKind.RETRY


class RegistrySchema(NamedTuple):
    """A schema of a registry; it contains the schemas that it refers to."""

    kind: str  # AVRO, PROTOBUF or JSON
    text: str = ""  # of AVRO, JSON
    descriptors: bytes = b""  # of PROTOBUF: a serialized FileDescriptorSet, its own file last


class ExternalFacts(Protocol):
    """Facts from outside.  Each method may raise Unreachable."""

    def partitions(self, location: TopicLocation) -> Mapping[str, int]:
        """The number of partitions of each topic of a location; missing topics are left out.

        With a pattern: the topics that match it now.
        """
        ...

    def topic_ids(self, location: TopicLocation) -> Mapping[str, UUID]:
        """The ids of the topics of a location; topics without an id are left out."""
        ...

    def offsets_at(self, location: TopicLocation, timestamp_ms: int) -> Offsets:
        """The first offset at or after a time in each partition, its end if there is none."""
        ...

    def schema(
        self, registry: Registry, subject: str, schema_id: int | None,
    ) -> RegistrySchema | None:
        """A subject's latest schema, or the one with this id; None if there is none."""
        ...

    def file(self, path: str) -> bytes:
        """The content of a file."""
        ...

    def now_ms(self) -> int:
        """The current time in milliseconds since 1970."""
        ...


class RecordingFacts:
    """External facts that are recorded when they are read."""

    def __init__(self, facts: ExternalFacts) -> None:
        self._facts = facts
        self.recorded: dict[str, object] = {}

    def partitions(self, location: TopicLocation) -> Mapping[str, int]:
        found = self._facts.partitions(location)
        self.recorded["partitions"] = dict(found)
        return found

    def topic_ids(self, location: TopicLocation) -> Mapping[str, UUID]:
        found = self._facts.topic_ids(location)
        self.recorded["topic_ids"] = {topic: str(each) for topic, each in found.items()}
        return found

    def offsets_at(self, location: TopicLocation, timestamp_ms: int) -> Offsets:
        found = self._facts.offsets_at(location, timestamp_ms)
        self.recorded["offsets"] = {
            topic: {str(partition): offset for partition, offset in offsets.items()}
            for topic, offsets in found.items()}
        return found

    def schema(
        self, registry: Registry, subject: str, schema_id: int | None,
    ) -> RegistrySchema | None:
        found = self._facts.schema(registry, subject, schema_id)
        self.recorded[f"schema {subject} {schema_id}"] = found and {
            "kind": found.kind, "text": found.text,
            "descriptors": base64.b64encode(found.descriptors).decode()}
        return found

    def file(self, path: str) -> bytes:
        found = self._facts.file(path)
        self.recorded[f"file {path}"] = base64.b64encode(found).decode()
        return found

    def now_ms(self) -> int:
        found = self._facts.now_ms()
        self.recorded["now"] = found
        return found


class RecordedFacts:
    """External facts from a record; raises CorruptLog for a fact that was not recorded."""

    def __init__(self, recorded: FactRecord) -> None:
        self._recorded = recorded

    def partitions(self, location: TopicLocation) -> Mapping[str, int]:  # noqa: ARG002 one source
        return cast("Mapping[str, int]", self._fact("partitions"))

    def topic_ids(self, location: TopicLocation) -> Mapping[str, UUID]:  # noqa: ARG002 one source
        """The ids that were recorded; catalogs of Quipu 0.3 have none."""
        ids = cast("Mapping[str, str]", self._recorded.get("topic_ids", {}))
        return {topic: UUID(each) for topic, each in ids.items()}

    def offsets_at(
        self, location: TopicLocation, timestamp_ms: int,  # noqa: ARG002 one source
    ) -> Offsets:
        by_topic = cast("Mapping[str, Mapping[str, int]]", self._fact("offsets"))
        return {topic: {int(partition): offset for partition, offset in offsets.items()}
                for topic, offsets in by_topic.items()}

    def schema(
        self, registry: Registry, subject: str, schema_id: int | None,  # noqa: ARG002 one source
    ) -> RegistrySchema | None:
        found = cast("Mapping[str, str] | None", self._fact(f"schema {subject} {schema_id}"))
        if found is None:
            return None
        return RegistrySchema(found["kind"], found["text"],
                              base64.b64decode(found["descriptors"]))

    def file(self, path: str) -> bytes:
        return base64.b64decode(cast("str", self._fact(f"file {path}")))

    def now_ms(self) -> int:
        return cast("int", self._fact("now"))

    def _fact(self, name: str) -> object:
        if name not in self._recorded:
            raise CorruptLog(f"the catalog has no record of: {name}; drop the source and create "
                             "it again")
        return self._recorded[name]

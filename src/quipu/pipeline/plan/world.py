"""What planning has to know of the outside: asked once, when a source is made.

`World` is the question; the answers come from Kafka, a schema registry, files and the clock
(`pipeline/outside.py`).  `Remembering` writes them down, and `Remembered` gives them again: a
statement and what was remembered make the same source after a restart, on another day.
"""

import base64
from collections.abc import Mapping
from typing import NamedTuple, Protocol, cast
from uuid import UUID

from quipu.model.errors import CorruptLog, Kind, QuipuError
from quipu.pipeline.formats.specs import Registry
from quipu.pipeline.source import Place


class Unreachable(QuipuError):
    """Something outside gives no answer, or an answer that is none; the message says what."""

    kind = Kind.RETRY


class Schema(NamedTuple):
    """A schema of a registry; types of other schemas that it refers to are written out in it."""

    kind: str  # AVRO, PROTOBUF or JSON
    text: str = ""  # of AVRO, JSON
    descriptors: bytes = b""  # of PROTOBUF: a serialized FileDescriptorSet, its own file last


class World(Protocol):
    """Facts from outside.  Each may raise Unreachable."""

    def partitions(self, place: Place) -> Mapping[str, int]:
        """How many partitions each of the place's topics has; those that do not exist are missing.

        With a pattern: the topics that match it now.
        """
        ...

    def topic_ids(self, place: Place) -> Mapping[str, UUID]:
        """The ids of the place's topics; those that no broker tells are missing."""
        ...

    def offsets_at(self, place: Place, timestamp_ms: int) -> Mapping[str, Mapping[int, int]]:
        """By topic and partition: the first offset at or after a time, else the end."""
        ...

    def schema(self, registry: Registry, subject: str, schema_id: int | None) -> Schema | None:
        """A subject's latest schema, or the one with this number; None if there is none."""
        ...

    def file(self, path: str) -> bytes:
        """What a file holds."""
        ...

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        ...


Facts = Mapping[str, object]  # plain JSON


class Remembering:
    """A world that writes its answers down."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.facts: dict[str, object] = {}

    def partitions(self, place: Place) -> Mapping[str, int]:
        answer = self._world.partitions(place)
        self.facts["partitions"] = dict(answer)
        return answer

    def topic_ids(self, place: Place) -> Mapping[str, UUID]:
        answer = self._world.topic_ids(place)
        self.facts["topic_ids"] = {topic: str(each) for topic, each in answer.items()}
        return answer

    def offsets_at(self, place: Place, timestamp_ms: int) -> Mapping[str, Mapping[int, int]]:
        answer = self._world.offsets_at(place, timestamp_ms)
        self.facts["offsets"] = {
            topic: {str(partition): offset for partition, offset in offsets.items()}
            for topic, offsets in answer.items()}
        return answer

    def schema(self, registry: Registry, subject: str, schema_id: int | None) -> Schema | None:
        answer = self._world.schema(registry, subject, schema_id)
        self.facts[f"schema {subject} {schema_id}"] = answer and {
            "kind": answer.kind, "text": answer.text,
            "descriptors": base64.b64encode(answer.descriptors).decode()}
        return answer

    def file(self, path: str) -> bytes:
        answer = self._world.file(path)
        self.facts[f"file {path}"] = base64.b64encode(answer).decode()
        return answer

    def now_ms(self) -> int:
        answer = self._world.now_ms()
        self.facts["now"] = answer
        return answer


class Remembered:
    """A world of answers that were written down."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def partitions(self, place: Place) -> Mapping[str, int]:  # noqa: ARG002 known
        return cast("Mapping[str, int]", self._fact("partitions"))

    def topic_ids(self, place: Place) -> Mapping[str, UUID]:  # noqa: ARG002 known
        """Quipu 0.3 did not ask for them."""
        told = cast("Mapping[str, str]", self._facts.get("topic_ids", {}))
        return {topic: UUID(each) for topic, each in told.items()}

    def offsets_at(
        self, place: Place, timestamp_ms: int,  # noqa: ARG002 known
    ) -> Mapping[str, Mapping[int, int]]:
        by_topic = cast("Mapping[str, Mapping[str, int]]", self._fact("offsets"))
        return {topic: {int(partition): offset for partition, offset in offsets.items()}
                for topic, offsets in by_topic.items()}

    def schema(
        self, registry: Registry, subject: str, schema_id: int | None,  # noqa: ARG002 known
    ) -> Schema | None:
        answer = cast("Mapping[str, str] | None", self._fact(f"schema {subject} {schema_id}"))
        if answer is None:
            return None
        return Schema(answer["kind"], answer["text"], base64.b64decode(answer["descriptors"]))

    def file(self, path: str) -> bytes:
        return base64.b64decode(cast("str", self._fact(f"file {path}")))

    def now_ms(self) -> int:
        return cast("int", self._fact("now"))

    def _fact(self, name: str) -> object:
        if name not in self._facts:
            raise CorruptLog(f"the catalog does not know: {name}; drop the source and create it "
                             "again")
        return self._facts[name]

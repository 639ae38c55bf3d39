"""The outside as it is: Kafka through our client, schema registries, files and the clock.

Planning asks a `World` (plan/world.py) and does no I/O of its own; this is the real one.
"""

import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from uuid import UUID

from quipu.client.cluster import Cluster
from quipu.client.errors import ClientError, UnknownTopic
from quipu.client.settings import client_settings
from quipu.model.errors import QuipuError
from quipu.model.ids import TopicPartition
from quipu.pipeline.formats.avro import whole_schema
from quipu.pipeline.formats.avro_schema import AvroSchemaError
from quipu.pipeline.formats.protobuf import ProtobufSchemaError
from quipu.pipeline.formats.protobuf_text import descriptors_of
from quipu.pipeline.formats.specs import Registry
from quipu.pipeline.plan.world import Schema, Unreachable
from quipu.pipeline.reading.patterns import matching
from quipu.pipeline.reading.positions import known_ids
from quipu.pipeline.registry.client import (
    RegistryError,
    SchemaNotFound,
    client_for,
)
from quipu.pipeline.source import Place

FILE_SIZE_MAX = 16 << 20  # of a schema
ANSWER_MS = 15_000  # somebody waits for the answer to a statement


class Outside:
    """See above."""

    def partitions(self, place: Place) -> Mapping[str, int]:
        """How many partitions each topic has; topics that do not exist are left out."""
        with _reached(), _cluster(place) as cluster:
            names = _topics(cluster, place)
            return {name: count for name in names if (count := _count(cluster, name))}

    def topic_ids(self, place: Place) -> Mapping[str, UUID]:
        """The ids of the place's topics; those that no broker tells are missing."""
        with _reached(), _cluster(place) as cluster:
            names = _topics(cluster, place)
            cluster.know(names)  # all at once
            return known_ids(cluster.topic_ids(names))

    def offsets_at(self, place: Place, timestamp_ms: int) -> Mapping[str, Mapping[int, int]]:
        """By topic and partition: the first offset at or after a time, else the end."""
        with _reached(), _cluster(place) as cluster:
            partitions = cluster.partitions(_topics(cluster, place))
            found = cluster.at_times(dict.fromkeys(partitions, timestamp_ms))
            late = cluster.latest([each for each, offset in found.items() if offset is None])
        return _by_topic({each: late[each] if offset is None else offset
                          for each, offset in found.items()})

    def schema(self, registry: Registry, subject: str, schema_id: int | None) -> Schema | None:
        """A subject's latest schema, or the one with this number; None if there is none."""
        try:
            client = client_for(registry)
            found = client.version(subject) if schema_id is None else client.by_id(schema_id)
            if found.kind == "AVRO":
                return Schema(found.kind, whole_schema(client, found))
            if found.kind != "PROTOBUF":
                return Schema(found.kind, found.schema)
            texts = client.texts_of(found.references)
            return Schema(found.kind, descriptors=descriptors_of(found.schema, texts))
        except SchemaNotFound:
            return None
        except (RegistryError, AvroSchemaError, ProtobufSchemaError) as error:
            raise Unreachable(str(error)) from error

    def file(self, path: str) -> bytes:
        """What a file holds; it is a regular one, for a pipe could be waited for without end."""
        try:
            with open(path, "rb", opener=_at_once) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise Unreachable(f"{path} is no file: schemas are not read from pipes, "
                                      "devices or directories")
                data = file.read(FILE_SIZE_MAX + 1)
        except (OSError, ValueError) as error:
            raise Unreachable(f"{path}: {getattr(error, 'strerror', error)}") from error
        if len(data) > FILE_SIZE_MAX:
            raise Unreachable(f"{path} has more than {FILE_SIZE_MAX} bytes")
        return data

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000  # noqa: TID251 the clock itself


def _at_once(path: str, flags: int) -> int:
    """Open without waiting for whoever may write into a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


@contextmanager
def _reached() -> Iterator[None]:
    try:
        yield
    except (ClientError, QuipuError) as error:
        raise Unreachable(str(error)) from error


def _cluster(place: Place) -> Cluster:
    return Cluster(client_settings({
        "default.api.timeout.ms": str(ANSWER_MS), **place.options,
        "bootstrap.servers": place.bootstrap,
    }))


def _topics(cluster: Cluster, place: Place) -> Sequence[str]:
    return place.topics if place.pattern is None else cluster.topics(matching(place.pattern))


def _count(cluster: Cluster, topic: str) -> int:
    try:
        return len(cluster.partitions([topic]))
    except UnknownTopic:
        return 0


def _by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in offsets.items():
        found.setdefault(topic, {})[partition] = offset
    return found

"""External facts for planning, read from Kafka, schema registries, files and the clock.

Planning itself does no I/O: it calls the protocol `ExternalFacts` (plan/external_facts.py), and
this is the implementation that does.
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
from quipu.pipeline.formats.avro.format import whole_schema
from quipu.pipeline.formats.avro.schema import AvroSchemaError
from quipu.pipeline.formats.protobuf.format import ProtobufSchemaError
from quipu.pipeline.formats.protobuf.proto_file import descriptors_of
from quipu.pipeline.formats.specs import Registry
from quipu.pipeline.plan.external_facts import Offsets, RegistrySchema, Unreachable
from quipu.pipeline.reading.patterns import matching
from quipu.pipeline.reading.positions import known_ids
from quipu.pipeline.registry.client import (
    RegistryError,
    SchemaNotFound,
    client_for,
)
from quipu.pipeline.source import TopicLocation

FILE_SIZE_MAX = 16 << 20  # of a schema
CALL_MS = 15_000  # time for the calls to Kafka; a user waits for the statement


class LiveFacts:
    """`ExternalFacts` read from the clusters, registries and files that statements name."""

    def partitions(self, location: TopicLocation) -> Mapping[str, int]:
        """The number of partitions of each topic; topics that do not exist are left out."""
        with _reached(), _cluster(location) as cluster:
            names = _topics(cluster, location)
            return {name: count for name in names if (count := _count(cluster, name))}

    def topic_ids(self, location: TopicLocation) -> Mapping[str, UUID]:
        """The ids of the topics; topics for which the broker sends no id are left out."""
        with _reached(), _cluster(location) as cluster:
            names = _topics(cluster, location)
            cluster.refresh_old(names)  # one request for all topics
            return known_ids(cluster.topic_ids(names))

    def offsets_at(self, location: TopicLocation, timestamp_ms: int) -> Offsets:
        """The first offset at or after a time in each partition, its end if there is none."""
        with _reached(), _cluster(location) as cluster:
            partitions = cluster.partitions(_topics(cluster, location))
            found = cluster.at_times(dict.fromkeys(partitions, timestamp_ms))
            late = cluster.latest([each for each, offset in found.items() if offset is None])
        return _by_topic({each: late[each] if offset is None else offset
                          for each, offset in found.items()})

    def schema(
        self, registry: Registry, subject: str, schema_id: int | None,
    ) -> RegistrySchema | None:
        """A subject's latest schema, or the one with this id; None if there is none."""
        try:
            client = client_for(registry)
            found = client.version(subject) if schema_id is None else client.by_id(schema_id)
            if found.kind == "AVRO":
                return RegistrySchema(found.kind, whole_schema(client, found))
            if found.kind != "PROTOBUF":
                return RegistrySchema(found.kind, found.schema)
            texts = client.texts_of(found.references)
            return RegistrySchema(found.kind, descriptors=descriptors_of(found.schema, texts))
        except SchemaNotFound:
            return None
        except (RegistryError, AvroSchemaError, ProtobufSchemaError) as error:
            raise Unreachable(str(error)) from error

    def file(self, path: str) -> bytes:
        """The content of a regular file; a pipe is refused, because it may never end."""
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
        """The current time in milliseconds since 1970."""
        return time.time_ns() // 1_000_000  # noqa: TID251 the clock itself


def _at_once(path: str, flags: int) -> int:
    """Open without waiting for the writer of a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


@contextmanager
def _reached() -> Iterator[None]:
    """Raise any error of the client as Unreachable."""
    try:
        yield
    except (ClientError, QuipuError) as error:
        raise Unreachable(str(error)) from error


def _cluster(location: TopicLocation) -> Cluster:
    return Cluster(client_settings({
        "default.api.timeout.ms": str(CALL_MS), **location.options,
        "bootstrap.servers": location.bootstrap,
    }))


def _topics(cluster: Cluster, location: TopicLocation) -> Sequence[str]:
    if location.pattern is None:
        return location.topics
    return cluster.topics(matching(location.pattern))


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

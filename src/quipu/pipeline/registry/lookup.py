"""A schema as planning wants it: whole, with everything that it refers to."""

from typing import NamedTuple

from quipu.pipeline.formats.avro import whole_schema
from quipu.pipeline.formats.specs import Registry
from quipu.pipeline.registry.client import SchemaNotFound, client_for


class Found(NamedTuple):
    """A schema, by its kind."""

    kind: str  # AVRO, PROTOBUF or JSON
    text: str = ""  # of AVRO and JSON
    descriptors: bytes = b""  # of PROTOBUF: a serialized FileDescriptorSet, its own file last


def find_schema(registry: Registry, subject: str, schema_id: int | None = None) -> Found | None:
    """The schema of an id, or else a subject's latest; None if the registry has none."""
    client = client_for(registry)
    try:
        registered = client.version(subject) if schema_id is None else client.by_id(schema_id)
    except SchemaNotFound:
        return None
    if registered.kind == "AVRO":
        return Found("AVRO", whole_schema(client, registered))
    if registered.kind != "PROTOBUF":
        return Found(registered.kind, registered.schema)
    from quipu.pipeline.formats.protobuf_text import (  # noqa: PLC0415 loads protobuf
        descriptors_of,
    )
    imports = client.texts_of(registered.references)
    return Found("PROTOBUF", descriptors=descriptors_of(registered.schema, imports))

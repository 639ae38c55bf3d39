"""How the messages of tests are written: values as Python has them to the bytes of a format.

    TEXT                                    str, or bytes as they are
    Avro('{"type": "record", …}')           in a registry, or with wire=False without its five bytes
    Protobuf('message M {…}', "M")          in a registry, or with wire=False bare

None is no key or no value, whatever the format.
"""

import io
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import fastavro
from google.protobuf import descriptor_pb2, json_format, message_factory
from google.protobuf.descriptor_pool import DescriptorPool

from quipu.pipeline.formats.protobuf.proto_file import descriptors_of
from quipu.pipeline.registry.client import RegistryClient


class Codec(Protocol):
    """Something that makes bytes."""

    def register(self, client: RegistryClient, subject: str) -> int | None:
        """The number of the schema, if there is one in the registry."""
        ...

    def encode(self, value: Any, schema_id: int | None) -> bytes: ...


class Text:
    """Text, and bytes that are perhaps no text."""

    def register(self, client: RegistryClient, subject: str) -> None:
        """No schema."""

    def encode(self, value: Any, schema_id: int | None) -> bytes:
        assert schema_id is None
        return value if isinstance(value, bytes) else str(value).encode()


TEXT = Text()


@dataclass(frozen=True)
class Avro:
    """Avro of a schema."""

    schema: str
    wire: bool = True

    @cached_property
    def _parsed(self) -> Any:
        return fastavro.parse_schema(json.loads(self.schema))

    def register(self, client: RegistryClient, subject: str) -> int | None:
        return client.register(subject, self.schema) if self.wire else None

    def encode(self, value: Any, schema_id: int | None) -> bytes:
        if isinstance(value, bytes):  # that no codec made
            return value
        out = io.BytesIO()
        fastavro.schemaless_writer(out, self._parsed, value)
        return (b"" if schema_id is None else struct.pack(">bI", 0, schema_id)) + out.getvalue()


def record(name: str, /, **fields: object) -> str:
    """The Avro schema of a record."""
    return json.dumps({"type": "record", "name": name, "fields": [
        {"name": field, "type": kind} for field, kind in fields.items()]})


def avro(name: str, /, **fields: object) -> Avro:
    """Avro records."""
    return Avro(record(name, **fields))


@dataclass(frozen=True)
class Protobuf:
    """Protocol Buffers; the message is the first of the text."""

    text: str
    message: str
    wire: bool = True

    @property
    def descriptors(self) -> str:
        r"""As a statement has them: '\x…'."""
        return f"\\x{descriptors_of(self.text).hex()}"

    @cached_property
    def _kind(self) -> Any:
        pool = DescriptorPool()
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors_of(self.text))
        for file in files.file:
            pool.Add(file)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(self.message))

    def register(self, client: RegistryClient, subject: str) -> int | None:
        return client.register(subject, self.text, "PROTOBUF") if self.wire else None

    def encode(self, value: Mapping[str, Any], schema_id: int | None) -> bytes:
        made = json_format.ParseDict(value, self._kind()).SerializeToString()
        return made if schema_id is None else struct.pack(">bIb", 0, schema_id, 0) + made

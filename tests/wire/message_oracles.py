"""Two other people's codecs for Kafka's messages, made to take and give ours.

kio has a class per version, with times, error codes and ids of its own types; it stops at a
tagged field that it does not know.  kafka-python has a class per message, some names of its own,
and lacks UnregisterBroker, delegation tokens, share and streams groups.
"""

import dataclasses
import datetime as dt
import io
import re
from functools import cache
from importlib import import_module
from typing import Any, Final, get_args, get_type_hints

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl
from kafka.protocol.api_message import ApiMessage
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from quipu.model.ids import ZERO_UUID
from quipu.wire.layout import layout
from quipu.wire.schema import Message, Struct
from tests.wire.message_maker import OWN_TAGS

EPOCH: Final = dt.datetime.fromtimestamp(0, tz=dt.UTC)


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


# -- kio


@cache
def kio_class(message: type[Message], version: int) -> Any:
    name = message.__name__
    api, _, kind = re.sub(r"(Request|Response)$", r" \1", name).partition(" ")
    module = import_module(f"kio.schema.{snake(api)}.v{version}.{kind.lower() or 'data'}")
    return getattr(module, name)


def kio_encode(ours: Message, version: int) -> bytes:
    """Build kio's object from the values of ours, and let kio encode it."""
    kind = kio_class(type(ours), version)
    return _kio_write(kind, _to_kio(ours, kind))


def kio_reencode(data: bytes, message: type[Message], version: int) -> bytes:
    """Let kio decode, and encode what it understood."""
    kind = kio_class(message, version)
    entity, size = entity_reader(kind)(data, 0)
    assert size == len(data)
    return _kio_write(kind, entity)


def _kio_write(kind: Any, entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(kind)(buffer, entity)
    return buffer.getvalue()


def _to_kio(ours: Struct, kind: Any) -> Any:
    hints = _hints(kind)
    return kind(**{
        field.name: _value_to_kio(
            getattr(ours, field.name), hints[field.name], field.metadata.get("kafka_type"))
        for field in dataclasses.fields(kind)
    })


def _value_to_kio(value: Any, hint: Any, kafka_type: str | None) -> Any:
    if isinstance(value, list):
        return tuple(_value_to_kio(element, hint, kafka_type) for element in value)
    if isinstance(value, Struct):
        return _to_kio(value, _nested(hint))
    if isinstance(value, memoryview):
        return bytes(value)
    if kafka_type == "error_code":
        return ErrorCode(value)
    if kafka_type in {"timedelta_i32", "timedelta_i64"}:
        return dt.timedelta(milliseconds=value)
    if kafka_type == "datetime_i64":
        return None if value == -1 else EPOCH + dt.timedelta(milliseconds=value)
    if value == ZERO_UUID:
        return None
    return value


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _nested(hint: Any) -> Any:
    """The dataclass inside of `X | None` or `tuple[X, ...]`."""
    if dataclasses.is_dataclass(hint):
        return hint
    return next((kind for part in get_args(hint) if (kind := _nested(part))), None)


# -- kafka-python

_KAFKA_PYTHON: Final = (
    kafka.protocol.admin,
    kafka.protocol.consumer,
    kafka.protocol.metadata,
    kafka.protocol.producer,
    kafka.protocol.sasl,
)


@cache
def kafka_python_class(message: type[Message]) -> Any:
    """The class of the same name, or None where kafka-python has none."""
    found = (getattr(module, message.__name__, None) for module in _KAFKA_PYTHON)
    return next((kind for kind in found if kind is not None), None)


def kafka_python_encode(ours: Message, version: int) -> bytes:
    """Build kafka-python's object from the values of ours, and let kafka-python encode it."""
    kind = kafka_python_class(type(ours))
    return _kafka_python_write(_to_kafka_python(ours, kind, version), version)


def kafka_python_decode(data: bytes, message: type[Message], version: int) -> Any:
    kind = kafka_python_class(message)
    if message.KEY < 0:
        return kind.decode(data, version=version, header=False)
    # ApiMessage's own, not a subclass's: that of ApiVersions reads every error as version 0
    return ApiMessage.decode.__func__(kind, data, version=version)


def kafka_python_reencode(data: bytes, message: type[Message], version: int) -> bytes:
    """Let kafka-python decode, and encode what it understood."""
    decoded = kafka_python_decode(data, message, version)
    if message.KEY >= 0:
        decoded._header = None  # decoding leaves it unset, encoding looks at it
    return _kafka_python_write(decoded, version)


def _kafka_python_write(theirs: Any, version: int) -> bytes:
    options = {"header": False} if hasattr(type(theirs), "encode_header") else {}
    return bytes(theirs.encode(version=version, **options))


# Structs of a response that bear the names of the request's: ours cannot.
RENAMED: Final = {"QuorumTopicData": "TopicData", "QuorumPartitionData": "PartitionData",
                  "AlteredEntryData": "EntryData"}


def _to_kafka_python(ours: Struct, kind: Any, version: int) -> Any:
    """Fields are matched by place, or by tag: some have other names there."""
    shape = layout(type(ours), version)
    plain = kind._struct.untagged_fields(version)
    tagged = {field.tag: field for field in kind._struct.tagged_fields(version)._fields}
    pairs = [*zip(shape.plain, plain, strict=True),
             *((s, tagged[s.tag]) for s in shape.tagged if s.tag not in OWN_TAGS)]
    values = {}
    for slot, field in pairs:
        value = getattr(ours, slot.name)
        default = slot.kind() if slot.is_struct else slot.default
        if slot.tag is not None and value in (default, []):
            continue  # kafka-python would write the default of a struct out
        if field.name == "authorized_operations":  # a set of the bits in ours
            value = {bit for bit in range(32) if value >> bit & 1}
        values[field.name] = _value_to_kafka_python(value, kind, version)
    return kind(version=version, **values)


def _value_to_kafka_python(value: Any, kind: Any, version: int) -> Any:
    if isinstance(value, list):
        return [_value_to_kafka_python(element, kind, version) for element in value]
    if isinstance(value, Struct):
        name = type(value).__name__
        return _to_kafka_python(value, getattr(kind, RENAMED.get(name, name)), version)
    if isinstance(value, memoryview):
        return bytes(value)
    return value

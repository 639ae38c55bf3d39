"""`ProtobufFormat`: decodes messages of Protocol Buffers to columns.

    double float bool string bytes     as they are            message     record
    (s)int32 sfixed32, 64 likewise     integer, bigint        repeated    list
    uint32 fixed32                     bigint                 map         map
    uint64 fixed64                     numeric(20,0)          enum        text: the value's name,
    google.protobuf.Timestamp          timestamptz                        or its number if unknown
    google.protobuf.…Value (wrappers)  what they wrap         Struct, Value, ListValue    json

A field with presence (in a oneof, `optional`, a message) is null if it is absent; any other has its
default.  Messages are parsed one by one, by Google's library; then each column is made in one pass
over all messages.

With `framed`, messages begin with Confluent's frame: a zero, four bytes of schema id (which is not
used: the encoding allows for changes of the schema), and the index of the message in its file.

Not here: `.proto` text, as registries hold it (proto_file.py).
"""

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import descriptor_pb2, json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import Default, DescriptorPool
from google.protobuf.message import DecodeError

from quipu.pipeline.formats.avro.defaults import varint
from quipu.pipeline.formats.bounds import TooManyValues
from quipu.pipeline.formats.casts import Errors, error_array
from quipu.pipeline.formats.contract import Decoded, null_where
from quipu.pipeline.formats.protobuf.size import UNITS_MAX, Sizes
from quipu.pipeline.formats.specs import Protobuf
from quipu.pipeline.formats.time_range import checked
from quipu.pipeline.types import TIMESTAMPTZ, Column

FRAME_SIZE: Final = 5
DEPTH_MAX: Final = 64
COLUMNS_MAX: Final = 10_000
_PREFIX: Final = "protobuf deserialization error: "

Message = Any  # classes of messages are made at run time

_NUMBERS: Final = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(), FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(), FieldDescriptor.CPPTYPE_UINT64: pa.decimal128(20),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(), FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(), FieldDescriptor.CPPTYPE_ENUM: pa.string(),
}
_WRAPPERS: Final = frozenset(f"google.protobuf.{name}Value" for name in (
    "Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes"))
_JSON: Final = frozenset(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))
_TIMESTAMP: Final = "google.protobuf.Timestamp"


# The errors that messages cause in Google's library, Arrow and Python: times out of range, text
# that is not UTF-8, a Value with a number that JSON cannot write.
_FAULTS: Final = (DecodeError, json_format.Error, ValueError, TypeError, OverflowError,
                  RecursionError, pa.ArrowException)


class ProtobufSchemaError(ValueError):
    """The bytes are no descriptors, or their types cannot be columns; the message says why."""


def first_message(descriptors: bytes) -> str:
    """The full name of the first message of the last file: the message of a registry's schema."""
    files = _files(descriptors)
    if not files or not files[-1].message_type:
        raise ProtobufSchemaError("the schema has no message")
    package, name = files[-1].package, files[-1].message_type[0].name
    return f"{package}.{name}" if package else str(name)


class ProtobufFormat:
    """Decodes messages of one type."""

    def __init__(self, spec: Protobuf) -> None:
        descriptor = _descriptor(spec.descriptors, spec.message)
        self.columns = _columns(descriptor)
        self._descriptor = descriptor
        self._parse: Callable[[bytes], Message] = (
            message_factory.GetMessageClass(descriptor).FromString)
        self._empty = self._parse(b"")
        self._sizes = Sizes(descriptor)
        self._index = _index_of(descriptor) if spec.framed else None

    def decode(self, data: pa.BinaryArray) -> Decoded:
        values: list[bytes | None] = data.to_pylist()
        errors: Errors = {}
        if self._index is not None:
            values = [self._unframed(row, value, errors) for row, value in enumerate(values)]
        parts = [self._columns_of(values[rows], rows.start, errors)
                 for rows in self._groups(values, errors)]
        columns = [pa.concat_arrays(each) for each in zip(*parts, strict=True)]
        missing = np.array([value is None for value in values], bool)
        missing[list(errors)] = True
        if missing.any():
            columns = null_where(pa.array(missing), columns)
        found = Decoded(columns, error_array(errors, len(data)), data.is_null())
        return checked(found, f"{_PREFIX}failed to decode Protobuf message: ")

    def _groups(self, values: list[bytes | None], errors: Errors) -> Iterator[slice]:
        """The rows that are decoded together; a message above UNITS_MAX gets an error instead."""
        start, units = 0, 0
        for row, value in enumerate(values):
            size = 0 if value is None else len(value)
            more = self._sizes.at_most(size)
            if more > UNITS_MAX and value is not None:
                more = self._sizes.units(value, UNITS_MAX)
                if more > UNITS_MAX:
                    errors[row] = _text(TooManyValues())
                    values[row], more = None, 0
            if units + more > UNITS_MAX:
                yield slice(start, row)
                start, units = row, 0
            units += more
        yield slice(start, len(values))

    def _columns_of(
        self, values: Sequence[bytes | None], first: int, errors: Errors,
    ) -> list[pa.Array]:
        return self._arrays([self._parsed(row, value, errors)
                             for row, value in enumerate(values, first)], first, errors)

    def _parsed(self, row: int, value: bytes | None, errors: Errors) -> Message:
        """The parsed message; an empty one if it is absent, or bad, which adds an error."""
        if value is None:
            return self._empty
        try:
            return self._parse(value)
        except _FAULTS as error:
            errors[row] = _text(error)
            return self._empty

    def _arrays(self, messages: Sequence[Message], first: int, errors: Errors) -> list[pa.Array]:
        """The columns of messages; a message that fails is an error, and counts as empty.

        It is found by bisection, so that the other messages are not converted one by one.
        """
        try:
            return [_array(field, messages) for field in self._descriptor.fields]
        except _FAULTS as error:
            if len(messages) == 1:
                errors[first] = _text(error)
                return [_array(field, [self._empty]) for field in self._descriptor.fields]
        middle = len(messages) // 2
        halves = zip(self._arrays(messages[:middle], first, errors),
                     self._arrays(messages[middle:], first + middle, errors), strict=True)
        return [pa.concat_arrays(each) for each in halves]

    def _unframed(self, row: int, value: bytes | None, errors: Errors) -> bytes | None:
        if value is None:
            return None
        index = self._index
        assert index is not None
        if value[:1] == b"\0" and value.startswith(index, FRAME_SIZE):
            return value[FRAME_SIZE + len(index):]
        if len(value) < FRAME_SIZE + len(index):
            errors[row] = (f"{_PREFIX}Confluent-style protobuf datum is too few bytes: expected at "
                           f"least {FRAME_SIZE + len(index)} bytes, got {len(value)}")
        elif value[0] != 0:
            errors[row] = (f"{_PREFIX}wrong Confluent-style protobuf serialization magic: "
                           f"expected 0, got {value[0]}")
        elif index == b"\0" and value.startswith(b"\2\0", FRAME_SIZE):
            return value[FRAME_SIZE + 2:]  # the index [0] in its long form
        else:
            errors[row] = (f"{_PREFIX}unsupported Confluent-style protobuf message descriptor id: "
                           f"expected {index[0]}, but found: {value[FRAME_SIZE]}")
        return None


def _text(error: Exception) -> str:
    return f"{_PREFIX}failed to decode Protobuf message: {error}"[:1000]


def _index_of(descriptor: Descriptor) -> bytes:
    """The index of a message in Confluent's frame: its path in the file, by positions."""
    way: list[int] = []
    while descriptor is not None:
        outer = descriptor.containing_type
        siblings = (descriptor.file.message_types_by_name.values() if outer is None
                    else outer.nested_types)
        way.insert(0, [each.name for each in siblings].index(descriptor.name))
        descriptor = outer
    if way == [0]:
        return b"\0"
    return varint(len(way)) + b"".join(varint(index) for index in way)


# -- descriptors ----------------------------------------------------------------------------------

def _files(descriptors: bytes) -> list[Any]:
    try:
        return list(descriptor_pb2.FileDescriptorSet.FromString(descriptors).file)
    except DecodeError as error:
        raise ProtobufSchemaError(f"no set of file descriptors: {error}") from None


def _descriptor(descriptors: bytes, message: str) -> Descriptor:
    pool = DescriptorPool()
    files = {file.name: file for file in _files(descriptors)}
    added: set[str] = set()
    for name in files:
        _add_file(name, files, pool, added)
    try:
        return pool.FindMessageTypeByName(message.removeprefix("."))
    except KeyError:
        known = [f"{file.package}.{each.name}".removeprefix(".")
                 for file in files.values() for each in file.message_type]
        raise ProtobufSchemaError(f"there is no message {message!r}; there are "
                                  f"{', '.join(known[:20]) or 'none'}") from None


def _add_file(name: str, files: dict[str, Any], pool: DescriptorPool, added: set[str]) -> None:
    if name in added:
        return
    added.add(name)
    file = files.get(name)
    if file is None:
        file = _well_known(name)
    for dependency in file.dependency:
        _add_file(dependency, files, pool, added)
    try:
        pool.Add(file)
    except TypeError as error:
        raise ProtobufSchemaError(f"{name}: {error}") from None


def _well_known(name: str) -> Message:
    """A file that Google's library brings, such as that of Timestamp."""
    module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    try:
        if not name.startswith("google/protobuf/"):
            raise ImportError(name)
        __import__(module)
        found = descriptor_pb2.FileDescriptorProto()
        Default().FindFileByName(name).CopyToProto(found)
    except (ImportError, KeyError):
        raise ProtobufSchemaError(f"{name!r} is imported, and not among the files") from None
    return found


def _columns(descriptor: Descriptor) -> tuple[Column, ...]:
    if not descriptor.fields:
        raise ProtobufSchemaError(f"message {descriptor.full_name!r} has no fields")
    count = [0]
    return tuple(Column(field.name, _field_type(field, (descriptor,), count), field.has_presence)
                 for field in descriptor.fields)


def _is_map(field: FieldDescriptor) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def _field_type(field: FieldDescriptor, inside: tuple[Descriptor, ...],
                count: list[int]) -> pa.DataType:
    if _is_map(field):
        key, value = field.message_type.fields
        return pa.map_(_single_type(key, inside, count), _single_type(value, inside, count))
    kind = _single_type(field, inside, count)
    return pa.list_(kind) if field.is_repeated else kind


def _single_type(field: FieldDescriptor, inside: tuple[Descriptor, ...],
                 count: list[int]) -> pa.DataType:
    count[0] += 1
    if count[0] > COLUMNS_MAX or len(inside) > DEPTH_MAX:
        raise ProtobufSchemaError(f"message {inside[0].full_name!r} has more than {COLUMNS_MAX} "
                                  f"columns, or nests deeper than {DEPTH_MAX}")
    kind = field.message_type
    if kind is None:
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            is_bytes = field.type == FieldDescriptor.TYPE_BYTES
            return pa.binary() if is_bytes else pa.string()
        return _NUMBERS[field.cpp_type]
    if kind.full_name == _TIMESTAMP:
        return TIMESTAMPTZ
    if kind.full_name in _JSON:
        return pa.string()
    if kind.full_name in _WRAPPERS:
        return _single_type(kind.fields[0], inside, count)
    if any(kind is each for each in inside):
        raise ProtobufSchemaError(f"Recursive types are not supported: {kind.full_name}")
    if not kind.fields:
        return pa.struct([("present", pa.bool_())])  # Arrow and Spark require at least one field
    return pa.struct([(each.name, _field_type(each, (*inside, kind), count))
                      for each in kind.fields])


# -- columns --------------------------------------------------------------------------------------

def _array(field: FieldDescriptor, messages: Sequence[Message]) -> pa.Array:
    """One field of all messages."""
    values = list(map(attrgetter(field.name), messages))
    if _is_map(field):
        key, value = field.message_type.fields
        keys = list(chain.from_iterable(values))
        items = list(chain.from_iterable(each.values() for each in values))
        return pa.MapArray.from_arrays(
            _offsets(values), _singles(key, keys), _singles(value, items))
    if field.is_repeated:
        return pa.ListArray.from_arrays(
            _offsets(values), _singles(field, list(chain.from_iterable(values))))
    if not field.has_presence:
        return _singles(field, values)
    present = [message.HasField(field.name) for message in messages]
    if all(present):
        return _singles(field, values)
    array = _singles(field, values)
    return pc.if_else(pa.array(present, pa.bool_()), array, pa.scalar(None, array.type))


def _offsets(values: Sequence[Sequence[Any]]) -> pa.Array:
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum(list(map(len, values)), out=offsets[1:])
    return pa.array(offsets).cast(pa.int32())


def _singles(field: FieldDescriptor, values: list[Any]) -> pa.Array:
    """The array of a field's values, or of the items of a repeated field."""
    kind = field.message_type
    if kind is None:
        if field.enum_type is not None:
            names = {each.number: each.name for each in reversed(field.enum_type.values)}
            return pa.array([names.get(each) or str(each) for each in values], pa.string())
        return pa.array(values, _single_type(field, (), [0]))
    if kind.full_name == _TIMESTAMP:
        micros = [each.seconds * 1_000_000 + each.nanos // 1000 for each in values]
        return pa.array(micros, pa.int64()).cast(TIMESTAMPTZ)
    if kind.full_name in _JSON:
        return pa.array([json.dumps(json_format.MessageToDict(each)) for each in values],
                        pa.string())
    if kind.full_name in _WRAPPERS:
        return _singles(kind.fields[0], [each.value for each in values])
    if not kind.fields:
        return pa.StructArray.from_arrays([pa.array([True] * len(values), pa.bool_())],
                                          ["present"])
    return pa.StructArray.from_arrays([_array(each, values) for each in kind.fields],
                                      [each.name for each in kind.fields])

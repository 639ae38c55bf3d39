"""Encodes default values of fields, from the JSON of a schema, as a writer would.

By Avro's rules a default of a union is of the first branch; schemas that break this rule are
common, so the first branch that fits is used.  A default of bytes is a text with a character
(0-255) for each byte.
"""

import struct

from quipu.pipeline.formats.avro.schema import (
    NO_DEFAULT,
    AvroSchemaError,
    Json,
    SchemaField,
    SchemaNode,
)

_INT_MAX = {"int": 1 << 31, "long": 1 << 63}


class _Unfit(ValueError):
    """The JSON is no value of the type."""


def default_of(field: SchemaField, path: str) -> tuple[SchemaNode, bytes]:
    """The branch that a field's default belongs to, or the field's type; and the encoded value."""
    branches = field.type.inner if field.type.kind == "union" else (field.type,)
    for branch in branches:
        try:
            return branch, _encoded(branch, field.default)
        except _Unfit:
            continue
    raise AvroSchemaError(f"Reader field `{path}` has a default that is not of its type")


def varint(number: int) -> bytes:
    """A whole number in Avro's encoding: zigzag, seven bits a byte."""
    zigzag = (number << 1) ^ (number >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append((zigzag & 0x7F) | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def _encoded(node: SchemaNode, value: Json) -> bytes:
    match node.kind, value:
        case "null", None:
            return b""
        case "boolean", bool():
            return b"\1" if value else b"\0"
        case ("int" | "long"), int() if not isinstance(value, bool):
            if not -_INT_MAX[node.kind] <= value < _INT_MAX[node.kind]:
                raise _Unfit
            return varint(value)
        case ("float" | "double"), int() | float() if not isinstance(value, bool):
            return _floating(node.kind, value)
        case "string", str():
            return _blob(value.encode())
        case ("bytes" | "fixed"), str():
            return _bytes(node, value)
        case "enum", str() if value in node.symbols:
            return varint(node.symbols.index(value))
        case "array", list():
            items = [_encoded(node.inner[0], each) for each in value]
            return (varint(len(items)) + b"".join(items) if items else b"") + b"\0"
        case "map", dict():
            pairs = [_blob(key.encode()) + _encoded(node.inner[0], each)
                     for key, each in value.items()]
            return (varint(len(pairs)) + b"".join(pairs) if pairs else b"") + b"\0"
        case "record", dict():
            return b"".join(_member(field, value) for field in node.fields)
        case "union", _:
            return _in_union(node, value)
    raise _Unfit


def _member(field: SchemaField, record: dict[str, Json]) -> bytes:
    value = record.get(field.name, field.default)
    if value is NO_DEFAULT:
        raise _Unfit
    return _encoded(field.type, value)


def _in_union(node: SchemaNode, value: Json) -> bytes:
    for index, branch in enumerate(node.inner):
        try:
            return varint(index) + _encoded(branch, value)
        except _Unfit:
            continue
    raise _Unfit


def _floating(kind: str, value: float) -> bytes:
    try:
        return struct.pack("<f" if kind == "float" else "<d", value)
    except OverflowError:
        raise _Unfit from None


def _bytes(node: SchemaNode, value: str) -> bytes:
    try:
        data = value.encode("latin-1")
    except UnicodeEncodeError:
        raise _Unfit from None
    if node.kind == "bytes":
        return _blob(data)
    if len(data) != node.size:
        raise _Unfit
    return data


def _blob(data: bytes) -> bytes:
    return varint(len(data)) + data

"""A second encoder for our own definitions: plain, slow, and it reports where the lengths are.

It encodes the fields of a message one by one and shares only the definitions and the order of the
fields with the functions that quipu.wire.encoder generates.
"""

import struct
from typing import Any, Final, NamedTuple

from quipu.wire.fields import BYTES, RECORDS, STRING, UUID16
from quipu.wire.layout import FieldSlot, layout
from quipu.wire.schema import Message, Struct


class Length(NamedTuple):
    """A length, count or size within an encoded message."""

    position: int
    size: int  # in bytes; 0 for a uvarint


HOSTILE: Final = {0: b"\xff\xff\xff\xff\x07", 2: b"\x7f\xff", 4: b"\x7f\xff\xff\xff"}


class ReferenceEncoder:
    """Encodes one message; then `data` and `lengths` are filled."""

    def __init__(self, message: Message, version: int) -> None:
        self.data = bytearray()
        self.lengths: list[Length] = []
        self._version = version
        self._flexible = message.is_flexible(version)
        self._struct(message)

    def hostile(self) -> list[bytes]:
        """The message once for each length, which is replaced by the largest there can be."""
        made = []
        for position, size in self.lengths:
            end = position + (size or _uvarint_size(self.data, position))
            made.append(bytes(self.data[:position] + HOSTILE[size] + self.data[end:]))
        return made

    def _struct(self, item: Struct) -> None:
        shape = layout(type(item), self._version)
        for slot in shape.plain:
            self._value(slot, getattr(item, slot.name))
        if self._flexible:
            self._tags(item, shape.tagged)

    def _tags(self, item: Struct, slots: tuple[FieldSlot, ...]) -> None:
        parts = dict(item.unknown_tags)
        for slot in slots:
            value = getattr(item, slot.name)
            default = slot.kind() if slot.is_struct and slot.default else slot.default
            if value != ([] if slot.is_array else default):
                outer, self.data, lengths = self.data, bytearray(), len(self.lengths)
                self._value(slot, value)
                parts[slot.tag or 0], self.data = bytes(self.data), outer
                del self.lengths[lengths:]  # positions within the part; its size is tried below
        self._uvarint(len(parts))
        for tag in sorted(parts):
            self.data += _uvarint(tag)
            self._uvarint(len(parts[tag]))
            self.data += parts[tag]

    def _value(self, slot: FieldSlot, value: Any) -> None:
        if slot.is_array:
            self._length(None if value is None else len(value), 4)
            for element in value or ():
                self._one(slot, element)
        elif slot.is_struct and slot.nullable:
            self.data += b"\xff" if value is None else b"\x01"
            if value is not None:
                self._struct(value)
        else:
            self._one(slot, value)

    def _one(self, slot: FieldSlot, value: Any) -> None:
        if slot.is_struct:
            self._struct(value)
        elif slot.kind in (STRING, BYTES, RECORDS):
            data = value.encode() if isinstance(value, str) else value
            self._length(None if data is None else len(data), 2 if slot.kind is STRING else 4)
            self.data += data or b""
        elif slot.kind is UUID16:
            self.data += value.bytes
        else:
            self.data += struct.pack(">" + slot.kind.code, value)

    def _length(self, length: int | None, size: int) -> None:
        length = -1 if length is None else length
        if self._flexible:
            self._uvarint(length + 1)
        else:
            self.lengths.append(Length(len(self.data), size))
            self.data += length.to_bytes(size, "big", signed=True)

    def _uvarint(self, value: int) -> None:
        self.lengths.append(Length(len(self.data), 0))
        self.data += _uvarint(value)


def _uvarint(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80]) + _uvarint(value >> 7) if value > 0x7F else bytes([value])


def _uvarint_size(data: bytearray, position: int) -> int:
    size = 1
    while data[position + size - 1] > 0x7F:
        size += 1
    return size

"""Bounds the memory that a message of Protocol Buffers would take, before it is parsed.

Google's library allocates all fields of every record in a message, and so do columns: two bytes can
be a record of a thousand fields.  Memory is counted in units of about 16 bytes:

    a field in the message          4
    a record                        8, and the width of its type: a unit for each field, and those
                                    of records within it, unless they are repeated
    an item of a packed field       1

`Sizes.at_most` needs only the length of a message, and is a bound for every message of that length;
`Sizes.units` reads the message, and is used only for those that could be too large.
"""

from collections.abc import Iterator
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from quipu.pipeline.formats.bounds import VALUES_MAX

UNITS_MAX: Final = 2 * VALUES_MAX  # of messages that are decoded together
FIELD_UNITS: Final = 4
RECORD_UNITS: Final = 8
_VARINT, _EIGHT, _SIZED, _BEGIN, _END, _FOUR = range(6)  # how a field is written
_PACKED_SIZES: Final = {  # of an item; others have at least one byte
    FieldDescriptor.TYPE_DOUBLE: 8, FieldDescriptor.TYPE_FIXED64: 8,
    FieldDescriptor.TYPE_SFIXED64: 8, FieldDescriptor.TYPE_FLOAT: 4,
    FieldDescriptor.TYPE_FIXED32: 4, FieldDescriptor.TYPE_SFIXED32: 4,
}
_TEXTS: Final = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


class _Kind:
    """The sizes of one type of messages."""

    def __init__(self) -> None:
        self.units = RECORD_UNITS
        self.records: dict[int, _Kind] = {}  # fields that hold records, by number
        self.packed: dict[int, int] = {}  # fields that may hold several numbers: size of one


_UNKNOWN: Final = _Kind()


class Sizes:
    """Finds the sizes of messages of one type."""

    def __init__(self, descriptor: Descriptor) -> None:
        self._known: dict[str, _Kind] = {}
        self._kind = self._learn(descriptor)
        repeated = max((each.units for each in self._known.values() if each is not self._kind),
                       default=0)
        self._of_two_bytes = FIELD_UNITS + repeated  # a field takes at least two bytes

    def _learn(self, descriptor: Descriptor) -> _Kind:
        if descriptor.full_name in self._known:
            return self._known[descriptor.full_name]
        kind = self._known[descriptor.full_name] = _Kind()
        kind.units += _width(descriptor, ())
        for field in descriptor.fields:
            if field.message_type is not None:
                kind.records[field.number] = self._learn(field.message_type)
            elif field.is_repeated and field.type not in _TEXTS:
                kind.packed[field.number] = _PACKED_SIZES.get(field.type, 1)
        return kind

    def at_most(self, size: int) -> int:
        """The most units of any message of this size."""
        return self._kind.units + (size + 1) // 2 * self._of_two_bytes

    def units(self, data: bytes, most: int) -> int:
        """The units of a message; any number above `most` if there are more than that.

        A broken message counts up to the place where it is broken: parsing it will fail.
        """
        found = self._kind.units
        for units in self._parts(data):
            found += units
            if found > most:
                break
        return found

    def _parts(self, data: bytes) -> Iterator[int]:
        inside = [(len(data), self._kind)]
        at = 0
        try:
            while inside:
                end, kind = inside[-1]
                if at >= end:
                    inside.pop()
                    continue
                tag, at = _varint(data, at)
                number, how = tag >> 3, tag & 7
                if how == _END:
                    inside.pop()
                    continue
                record = kind.records.get(number)
                yield FIELD_UNITS + (record.units if record is not None else 0)
                if how == _VARINT:
                    _, at = _varint(data, at)
                elif how == _SIZED:
                    size, at = _varint(data, at)
                    if record is not None:
                        inside.append((min(at + size, end), record))
                        continue
                    if number in kind.packed:
                        yield size // kind.packed[number]
                    at += size
                elif how == _BEGIN:
                    inside.append((end, record or _UNKNOWN))
                else:
                    at += 8 if how == _EIGHT else 4
        except IndexError:  # it ends too early
            return


def _width(descriptor: Descriptor, inside: tuple[Descriptor, ...]) -> int:
    """The number of values in a record and the records within it, without repeated fields."""
    return sum(
        1 if field.message_type is None or field.is_repeated or field.message_type in inside
        else 1 + _width(field.message_type, (*inside, descriptor))
        for field in descriptor.fields)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < 0x80:
        return byte, at
    found, shift = byte & 0x7F, 7
    while shift < 64:
        byte = data[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found, at
        shift += 7
    raise IndexError

"""The smallest parts of Kafka's messages: unsigned varints, tag sections, and decoding errors.

A uvarint holds 32 bits in at most five bytes, seven bits each, the lowest first.  A tag section
is a count, then for each field its tag, its size in bytes, and its bytes; tags strictly ascend.

Every read is checked and raises `MalformedBytes`, except that reading past the end of the buffer
raises `IndexError` or `struct.error`, which the outermost caller turns into `MalformedBytes`.

Not here: signed varints, which only records use (record_batch.py).
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from struct import Struct as Packing
from typing import Any, Final
from uuid import UUID, SafeUUID

from quipu.model.errors import MalformedBytes, TooManyElements
from quipu.model.ids import ZERO_UUID

UVARINT_SIZE_MAX: Final = 5
UVARINT_MAX: Final = (1 << 32) - 1
HEADER_TAGS_MAX: Final = 100  # Kafka defines none
PACKINGS_MAX: Final = 512  # cached per run of fields; a hostile client may send ever new lengths

Tags = tuple[tuple[int, bytes], ...]  # fields that this version does not know: (tag, bytes)


def uvarint(value: int) -> bytes:
    assert 0 <= value <= UVARINT_MAX, value  # a bug of the caller, never bad input
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(data: memoryview | bytes, position: int) -> tuple[int, int]:
    """The uvarint at `position`, and the position after it."""
    return read_uvarint_rest(data, position + 1, data[position])


def read_uvarint_rest(data: memoryview | bytes, position: int, first: int) -> tuple[int, int]:
    """The uvarint whose first byte, `first`, was read; `position` is that of the second byte."""
    value = first & 0x7F
    shift = 7
    byte = first
    while byte > 0x7F:
        if shift == 7 * UVARINT_SIZE_MAX:
            raise MalformedBytes(f"uvarint longer than {UVARINT_SIZE_MAX} bytes")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    if value > UVARINT_MAX:
        raise MalformedBytes(f"uvarint {value} does not fit in 32 bits")
    return value, position


class _Uvarints(dict[int, bytes]):
    """Cached encodings of small numbers; larger ones are encoded each time."""

    def __missing__(self, value: int) -> bytes:
        return uvarint(value)


UVARINTS: Final = _Uvarints((value, uvarint(value)) for value in range(1 << 8))


def write_tags(out: list[bytes], tags: Mapping[int, bytes]) -> None:
    out.append(UVARINTS[len(tags)])
    for tag in sorted(tags):
        out.append(UVARINTS[tag])
        out.append(UVARINTS[len(tags[tag])])
        out.append(tags[tag])


def read_tag(
    data: memoryview | bytes, position: int, end: int, previous: int
) -> tuple[int, int, int]:
    """One field of a tag section: its tag, and where its bytes start and stop."""
    tag, position = read_uvarint(data, position)
    size, position = read_uvarint(data, position)
    if tag <= previous:
        raise MalformedBytes(f"tag {tag} follows tag {previous}; tags must ascend")
    if size > end - position:
        raise too_long(f"tagged field {tag}", size, position, end)
    return tag, position, position + size


def read_tags(
    data: memoryview | bytes, position: int, end: int, count: int
) -> tuple[Tags, int]:
    """A tag section of `count` unknown fields."""
    tags = []
    tag = -1
    for _ in range(count):  # with a count that is too large, the data ends first
        tag, position, stop = read_tag(data, position, end, tag)
        tags.append((tag, bytes(data[position:stop])))
        position = stop
    return tuple(tags), position


def skip_header_tags(data: memoryview, position: int) -> int:
    """The position after a header's tag section; Kafka defines no such fields: they are ignored."""
    count, position = read_uvarint(data, position)
    if count > HEADER_TAGS_MAX:
        raise MalformedBytes(
            f"a header has {count} tagged fields; at most {HEADER_TAGS_MAX} are accepted")
    return read_tags(data, position, len(data), count)[1]


@lru_cache(maxsize=4096)
def uuid_from(raw: bytes) -> UUID:
    """A UUID from its 16 bytes.  Cached, because topic ids repeat.

    Bypasses UUID's constructor, which is slow because it accepts many formats.
    """
    number = int.from_bytes(raw, "big")
    if not number:
        return ZERO_UUID
    made = object.__new__(UUID)
    object.__setattr__(made, "int", number)
    object.__setattr__(made, "is_safe", SafeUUID.unknown)
    return made


class Arrays(dict[int, Any]):
    """For each count, the function that unpacks an array of that many numbers of one type."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self._code = code

    def __missing__(self, count: int) -> Any:
        unpack = Packing(">" + _repeat(self._code, count)).unpack_from
        if len(self) < PACKINGS_MAX:
            self[count] = unpack
        return unpack


class Packings(dict[Any, Any]):
    """For each combination of array lengths, the function that packs a run of fields and arrays.

    `pieces` is the format: a text is a `struct` format, a pair (code, compact) is an array, which
    is preceded by its count as a uvarint (compact) or as 32 bits.  A null array has length -1.
    """

    def __init__(self, pieces: Sequence[str | tuple[str, bool]]) -> None:
        super().__init__()
        self._pieces = pieces

    def __missing__(self, lengths: int | tuple[int, ...]) -> Any:
        left = iter((lengths,) if isinstance(lengths, int) else lengths)
        pack = Packing(">" + "".join(
            piece if isinstance(piece, str) else _array_format(*piece, next(left))
            for piece in self._pieces)).pack
        if len(self) >= PACKINGS_MAX:
            self.clear()
        self[lengths] = pack
        return pack


def _array_format(code: str, compact: bool, length: int) -> str:  # noqa: FBT001 a piece, spread
    count = f"{len(UVARINTS[length + 1])}s" if compact else "i"
    return count + _repeat(code, max(length, 0))


def _repeat(code: str, count: int) -> str:
    return f"{count}{code}" if len(code) == 1 else code * count


def too_long(what: str, size: int, position: int, end: int) -> MalformedBytes:
    return MalformedBytes(f"{what} needs {size} bytes at position {position}, "
                          f"but {max(end - position, 0)} are left")


def too_many(what: str) -> TooManyElements:
    return TooManyElements(f"{what}: the request has more elements than max.request.elements "
                           "allows; send several smaller requests")


def not_null(what: str) -> MalformedBytes:
    return MalformedBytes(f"{what} must not be null")


def bad_length(what: str, length: int) -> MalformedBytes:
    return MalformedBytes(f"{what} has length {length}; only -1, for null, may be negative")


def bad_marker(what: str, marker: int) -> MalformedBytes:
    return MalformedBytes(f"{what} is marked {marker}; it must be 1 (present) or -1 (null)")


def bad_size(what: str, stop: int, position: int) -> MalformedBytes:
    return MalformedBytes(f"tagged field {what} says it ends at {stop} but ends at {position}")

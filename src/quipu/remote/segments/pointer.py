"""Where the footer of a segment's object lies, and its checksum: the pointer, and the trailer.

The pointer is stored with the segment's metadata, as Kafka's custom metadata of at most 128 bytes,
so that a reader gets the footer by one request.  The trailer is the last part of the object and
says the same, for whoever has the object alone.

    pointer, 24 bytes: magic "QP" | format u16 = 1 | footer position i64 | footer size u32 |
                       CRC-32C of the footer u32 | CRC-32C of these bytes so far u32
    trailer, 32 bytes: footer position i64 | footer size u32 | CRC-32C of the footer u32 |
                       format u16 = 1 | zero u16 | CRC-32C of these bytes so far u32 |
                       magic "QUIPUSEG"
All big endian.

Invariant
    remote.segments.P1  decoding uses all bytes, or raises `MalformedBytes`; what it returns lies
                        within the bounds below, whatever the bytes say
"""

from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from quipu.model.errors import MalformedBytes
from quipu.remote.segments.errors import UnknownSegmentFormat
from quipu.runtime.objects.store import Buffer

FORMAT: Final = 1
OBJECT_SIZE_MAX: Final = 1 << 40
FOOTER_SIZE_MAX: Final = 32 << 20
POINTER_MAGIC: Final = b"QP"
TRAILER_MAGIC: Final = b"QUIPUSEG"
_POINTER: Final = Struct(">2sHqIII")
_TRAILER: Final = Struct(">qIIHHI8s")
POINTER_SIZE: Final = _POINTER.size
TRAILER_SIZE: Final = _TRAILER.size
_CRC_SIZE: Final = 4
_TRAILER_COVERED: Final = 20

assert POINTER_SIZE == 24
assert TRAILER_SIZE == 32


class SegmentPointer(NamedTuple):
    """The place and the checksum of a footer."""

    footer_position: int
    footer_size: int
    footer_crc: int

    @property
    def object_size(self) -> int:
        """Bytes of the whole object."""
        return self.footer_position + self.footer_size + TRAILER_SIZE

    def encode(self) -> bytes:
        """The pointer's bytes, for the segment's metadata."""
        head = _POINTER.pack(POINTER_MAGIC, FORMAT, *self, 0)[:-_CRC_SIZE]
        return head + crc32c(head).to_bytes(_CRC_SIZE, "big")

    def encode_trailer(self) -> bytes:
        """The end of the object."""
        data = _TRAILER.pack(*self, FORMAT, 0, 0, TRAILER_MAGIC)
        return (data[:_TRAILER_COVERED]
                + crc32c(data[:_TRAILER_COVERED]).to_bytes(_CRC_SIZE, "big") + TRAILER_MAGIC)


def decode_pointer(data: Buffer) -> SegmentPointer:
    """The pointer of these bytes; raises `MalformedBytes` (remote.segments.P1)."""
    if len(data) != POINTER_SIZE:
        raise MalformedBytes(f"a segment's pointer has {POINTER_SIZE} bytes, not {len(data)}")
    magic, version, position, size, footer_crc, crc = _POINTER.unpack(data)
    if magic != POINTER_MAGIC or crc32c(data[:-_CRC_SIZE]) != crc:
        raise MalformedBytes("a segment's pointer with a bad checksum")
    return _checked(version, SegmentPointer(position, size, footer_crc))


def decode_trailer(data: Buffer) -> SegmentPointer:
    """The pointer that an object's trailer holds; raises `MalformedBytes` (remote.segments.P1)."""
    if len(data) != TRAILER_SIZE:
        raise MalformedBytes(f"a segment's trailer has {TRAILER_SIZE} bytes, not {len(data)}")
    position, size, footer_crc, version, zero, crc, magic = _TRAILER.unpack(data)
    if magic != TRAILER_MAGIC:
        raise MalformedBytes("an object that does not end with a segment's trailer")
    if crc32c(data[:_TRAILER_COVERED]) != crc or zero != 0:
        raise MalformedBytes("a segment's trailer with a bad checksum")
    return _checked(version, SegmentPointer(position, size, footer_crc))


def _checked(version: int, pointer: SegmentPointer) -> SegmentPointer:
    if version != FORMAT:
        raise UnknownSegmentFormat(f"a segment object of format {version}, this version reads "
                                   f"{FORMAT}: update this node")
    if not 0 < pointer.footer_position <= OBJECT_SIZE_MAX or not (
            0 < pointer.footer_size <= FOOTER_SIZE_MAX):
        raise MalformedBytes(f"a segment's footer of {pointer.footer_size} bytes at "
                             f"{pointer.footer_position}")
    return pointer

"""The compression codecs of record batches, with a limit on the size of the output.

Invariants
    wire.Z1  decompression never makes more than `size_max` bytes: output buffers have a fixed size
             and grow in steps up to that bound, so a small batch cannot fill the memory of a node
    wire.Z2  Kafka's own clients can read what `compress` writes: snappy in xerial blocks, lz4 with
             independent blocks (the Java client refuses linked ones)
    wire.Z3  for any bytes, decompression returns data or raises `MalformedBytes`

Snappy is read in both forms that clients send: xerial's framing and one bare block.
Memory while decompressing is at most 2 * `size_max` (a buffer and its result), plus the window of
a zstd frame, which its library limits to 128 MiB.
"""

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Final

import cramjam

from quipu.model.errors import MalformedBytes

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, lowest reader
_XERIAL_BLOCK_SIZE: Final = 32 * 1024  # of data before compression, as the Java client cuts it
_BLOCK_LENGTH: Final = struct.Struct(">i")
_OUTPUT_SIZE_FIRST: Final = 64 * 1024
_OUTPUT_GROWTH: Final = 8
_LZ4_HEADER: Final = bytes.fromhex("04224d18604082")  # independent blocks of 64 KiB, no checksums
_LZ4_END: Final = bytes(4)
_LZ4_BLOCK_SIZE: Final = 64 * 1024  # of data before compression, as the Java client cuts it
_LZ4_FRAME_HEAD: Final = 7  # bytes before the first block of a frame, if it has no content size
_LZ4_BLOCK_LENGTH: Final = struct.Struct("<I")  # the highest bit: the block is not compressed
_LZ4_LENGTH_MASK: Final = 0x7FFF_FFFF
_LEVELS: Final = {1: 6, 3: 4, 4: 3}  # by codec: gzip's, lz4's and zstd's own defaults

_Bytes = bytes | bytearray | memoryview


class Compression(IntEnum):
    """The low three bits of a batch's attributes; 5, 6 and 7 are unused."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Compression, data: _Bytes, level: int | None = None) -> bytes:
    """`data` in the form that Kafka's clients expect of `codec`; snappy has no levels.

    Releases the interpreter's lock.
    """
    if level is None:
        level = _LEVELS.get(codec, 0)
    match codec:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            return bytes(cramjam.gzip.compress(data, level=level))
        case Compression.SNAPPY:
            return _compress_xerial(data)
        case Compression.LZ4:
            return _compress_lz4(data, level)
        case Compression.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=level))


def decompress(codec: Compression, data: _Bytes, *, size_max: int) -> bytes | memoryview:
    """The decompressed bytes, at most `size_max`, or MalformedBytes (wire.Z1, wire.Z3)."""
    assert size_max >= 0, size_max
    match codec:
        case Compression.NONE:
            if len(data) > size_max:
                raise MalformedBytes(f"{len(data)} bytes of records exceed the limit of {size_max}")
            return memoryview(data)
        case Compression.GZIP:
            return _decompress_bounded(cramjam.gzip.decompress_into, codec, data, size_max)
        case Compression.SNAPPY:
            return _decompress_snappy(memoryview(data), size_max)
        case Compression.LZ4:
            return _decompress_bounded(cramjam.lz4.decompress_into, codec, data, size_max)
        case Compression.ZSTD:
            return _decompress_bounded(cramjam.zstd.decompress_into, codec, data, size_max)


def decompress_into(codec: int, data: memoryview, target: memoryview) -> int:
    """Decompress to the start of `target`; return the number of bytes written.

    The caller has checked the lengths of snappy's blocks.  Raises `cramjam.DecompressionError`,
    also if the output does not fit.  Releases the interpreter's lock.
    """
    return _INTO[codec](data, target)


def _snappy_into(data: memoryview, target: memoryview) -> int:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return int(cramjam.snappy.decompress_raw_into(data, target))
    position, filled = len(_XERIAL_HEADER), 0
    while position < len(data):
        (size,) = _BLOCK_LENGTH.unpack_from(data, position)
        position += _BLOCK_LENGTH.size + size
        filled += cramjam.snappy.decompress_raw_into(
            data[position - size : position], target[filled:])
    return filled


def _decompress_bounded(
    decompress_into: Callable[[_Bytes, bytearray], int],
    codec: Compression,
    data: _Bytes,
    size_max: int,
) -> memoryview:
    """Decompress into ever larger buffers, the last of which has `size_max` bytes (wire.Z1)."""
    name = codec.name.lower()
    if not data:
        raise MalformedBytes(f"{name}: nothing to decompress")
    size = min(max(_OUTPUT_SIZE_FIRST, 4 * len(data)), size_max)
    while True:
        output = bytearray(size)
        try:
            written = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            # Only the error's text says whether the buffer was too small, so retry with a larger
            # one after any error: bad bytes cost a few attempts, all of bounded size.
            if size >= size_max:
                raise MalformedBytes(
                    f"{name}: cannot decompress {len(data)} bytes into at most {size_max}: {error}"
                ) from error
            size = min(size * _OUTPUT_GROWTH, size_max)
        else:
            return memoryview(output)[:written]


def _compress_lz4(data: _Bytes, level: int) -> bytes:
    """One frame of independent blocks (wire.Z2).

    The library makes frames of linked blocks, or holds the interpreter's lock.  So each block is
    made as a frame of its own, of which the block is taken.
    """
    view = memoryview(data)
    out = bytearray(_LZ4_HEADER)
    for start in range(0, len(view), _LZ4_BLOCK_SIZE):
        frame = memoryview(cramjam.lz4.compress(view[start : start + _LZ4_BLOCK_SIZE], level=level))
        (length,) = _LZ4_BLOCK_LENGTH.unpack_from(frame, _LZ4_FRAME_HEAD)
        end = _LZ4_FRAME_HEAD + _LZ4_BLOCK_LENGTH.size + (length & _LZ4_LENGTH_MASK)
        out += frame[_LZ4_FRAME_HEAD:end]
    return bytes(out + _LZ4_END)


def _compress_xerial(data: _Bytes) -> bytes:
    """A header of 16 bytes, then blocks of compressed data, each preceded by its length."""
    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_SIZE]))
        out += _BLOCK_LENGTH.pack(len(block))
        out += block
    return bytes(out)


def _decompress_snappy(data: memoryview, size_max: int) -> bytes:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(data, size_max)
    position = len(_XERIAL_HEADER)
    if len(data) < position:
        raise MalformedBytes(f"snappy: header of {len(data)} bytes, needs {position}")
    out = bytearray()
    while position < len(data):
        start = position + _BLOCK_LENGTH.size
        if start > len(data):
            raise MalformedBytes(f"snappy: block length cut short at byte {position}")
        (block_size,) = _BLOCK_LENGTH.unpack_from(data, position)
        position = start + block_size
        if block_size < 0 or position > len(data):
            raise MalformedBytes(f"snappy: block of {block_size} bytes at byte {start} "
                                 f"does not fit in {len(data)}")
        out += _decompress_snappy_block(data[start:position], size_max - len(out))
    return bytes(out)


def _decompress_snappy_block(block: memoryview, size_max: int) -> bytes:
    """Decompress one bare block; its size comes first, so no memory is taken for a large one."""
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > size_max:
            raise MalformedBytes(f"snappy: block of {size} bytes exceeds the limit of {size_max}")
        output = bytearray(size)
        written = cramjam.snappy.decompress_raw_into(block, output)
    except cramjam.DecompressionError as error:
        raise MalformedBytes(f"snappy: {error}") from error
    return bytes(output[:written])


_INTO: Final[dict[int, Callable[[memoryview, memoryview], int]]] = {
    Compression.GZIP: cramjam.gzip.decompress_into,
    Compression.SNAPPY: _snappy_into,
    Compression.LZ4: cramjam.lz4.decompress_into,
    Compression.ZSTD: cramjam.zstd.decompress_into,
}

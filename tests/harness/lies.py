"""Batches with a correct checksum whose records are invalid: one of every kind.

Written from the format's description, not with the code under test: a lie is a record with one
field changed, in a batch whose checksum is computed afterwards.
"""

import gzip
import struct
import time
from collections.abc import Callable
from typing import Any

import cramjam

from quipu.wire.compression import Compression, compress
from quipu.wire.record_batch import HEADER, HEADER_SIZE, LENGTH_START, MAGIC, body_crc

CODECS = list(Compression)
COUNT = 4  # records of a batch


def varint(value: int) -> bytes:
    """Zigzag, then seven bits per byte, lowest first."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def record(index: int, **lies: Any) -> bytes:
    """One record; `lies` replace the bytes of a field by name."""
    fields = {
        "attributes": b"\0", "timestamp": varint(0), "offset": varint(index),
        "key": varint(3) + b"key", "value": varint(5) + b"value",
        "headers": varint(1) + varint(1) + b"h" + varint(2) + b"xy", "more": b"",
    }
    assert lies.keys() <= {*fields, "length"}, lies
    body = b"".join({**fields, **{name: lies[name] for name in lies if name != "length"}}.values())
    return lies.get("length", varint(len(body))) + body


def records(count: int = COUNT, lying: int = 1, **lies: Any) -> bytes:
    """Records of which one lies."""
    return b"".join(record(index, **(lies if index == lying else {})) for index in range(count))


def sealed(body: bytes, *, count: int = COUNT, codec: int = 0, timestamp: int | None = None,
           last_delta: int | None = None, attributes: int = 0, max_timestamp: int | None = None,
           packed: bytes | None = None, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytearray:
    """A batch around `body`, compressed unless `packed` says how, with a right checksum."""
    packed = compress(Compression(codec), body) if packed is None else packed
    made = int(time.time() * 1000) if timestamp is None else timestamp
    batch = bytearray(HEADER_SIZE + len(packed))
    HEADER.pack_into(
        batch, 0, 0, len(batch) - LENGTH_START, -1, MAGIC, 0, attributes | codec,
        count - 1 if last_delta is None else last_delta, made,
        made if max_timestamp is None else max_timestamp, *producer, count)
    batch[HEADER_SIZE:] = packed
    struct.pack_into(">I", batch, 17, body_crc(memoryview(batch)))
    return batch


def true_batch(codec: int = 0, count: int = COUNT, **header: Any) -> bytearray:
    """A batch that does not lie."""
    return sealed(records(count), count=count, codec=codec, **header)


# Lies of records, that a batch of any codec can carry.
BODIES: dict[str, tuple[bytes, int]] = {  # what lies, and the count that the header gives
    "garbage": (b"\xa5\x17" * 60, COUNT),
    "nothing but zeros": (bytes(200), COUNT),
    "a record less than counted": (records(COUNT - 1), COUNT),
    "a record more than counted": (records(COUNT + 1), COUNT),
    "a length beyond the batch": (records(length=varint(5000)), COUNT),
    "a length of nothing": (records(length=varint(0)), COUNT),
    "a negative length": (records(length=varint(-5)), COUNT),
    "a length that does not end": (records(length=b"\xff" * 6), COUNT),
    "attributes": (records(attributes=b"\x01"), COUNT),
    "a timestamp out of range": (records(timestamp=varint((1 << 63) - 1)), COUNT),
    "a timestamp that does not end": (records(timestamp=b"\xff" * 11), COUNT),
    "an offset twice": (records(offset=varint(0)), COUNT),
    "an offset left out": (records(offset=varint(2)), COUNT),
    "offsets in reverse": (b"".join(record(index) for index in reversed(range(COUNT))), COUNT),
    "a negative offset": (records(offset=varint(-1)), COUNT),
    "a key beyond its record": (records(key=varint(900) + b"key"), COUNT),
    "a key of negative size": (records(key=varint(-2) + b"key"), COUNT),
    "a value beyond its record": (records(value=varint(900) + b"value"), COUNT),
    "a value of two billion bytes": (records(value=varint(2**31 - 1)), COUNT),
    "more headers than there are": (records(headers=varint(30)), COUNT),
    "two billion headers": (records(headers=varint(2**31 - 1)), COUNT),
    "a header without a name": (records(headers=varint(1) + varint(-1) + varint(0)), COUNT),
    "a header's name beyond its record": (records(headers=varint(1) + varint(99)), COUNT),
    "a header's value beyond its record": (
        records(headers=varint(1) + varint(1) + b"h" + varint(99)), COUNT),
    "a header's name that is no text": (
        records(headers=varint(1) + varint(2) + b"\xc3\x28" + varint(0)), COUNT),
    "bytes after the headers": (records(more=b"more"), COUNT),
    "bytes after the last record": (records() + b"more", COUNT),
    "the last record cut": (records()[:-2], COUNT),
}
HUGE_COUNTS = {"two billion records": 2**31 - 1, "a million records": 1_000_000}


def lying_batches(codec: int) -> dict[str, bytearray]:
    """One of every kind, for a codec."""
    found = {name: sealed(body, count=count, codec=codec)
             for name, (body, count) in BODIES.items()}
    for name, count in HUGE_COUNTS.items():
        found[name] = sealed(records(), count=count, codec=codec)
    found["no records at all"] = sealed(b"", codec=codec)
    found["more offsets than records"] = sealed(records(), last_delta=COUNT + 5, codec=codec)
    found["fewer offsets than records"] = sealed(records(), last_delta=0, codec=codec)
    found["no records counted"] = sealed(records(), count=0, codec=codec)
    found["unknown attributes"] = sealed(records(), attributes=0x40, codec=codec)
    found["high attributes"] = sealed(records(), attributes=0x1000, codec=codec)
    found["a control batch"] = sealed(records(), attributes=0x20, codec=codec)
    if codec:
        found |= {name: sealed(b"", codec=codec, packed=packed)
                  for name, packed in lying_frames(codec).items()}
    return found


def lying_frames(codec: int) -> dict[str, bytes]:
    """Compressed bytes that libraries decompress differently, or not at all."""
    body = records()
    whole = compress(Compression(codec), body)
    half = body.index(record(2))
    frames = {
        "not compressed": body,
        "an empty frame": b"",
        "a frame cut": whole[:-3],
        "garbage after a frame": whole + b"\0garbage",
        "garbage in a frame": whole[:20] + bytes(byte ^ 0x55 for byte in whole[20:]),
        "two frames": compress(Compression(codec), body[:half])
        + compress(Compression(codec), body[half:]),
    }
    if codec == Compression.GZIP:
        frames["an empty frame, then all"] = gzip.compress(b"") + gzip.compress(body)
        frames["a size that lies"] = whole[:-4] + struct.pack("<I", len(body) - 1)
        frames["a size beyond all"] = whole[:-4] + struct.pack("<I", 2**32 - 1)
    if codec == Compression.SNAPPY:
        raw = bytes(cramjam.snappy.compress_raw(body))
        frames["a bare block that claims gigabytes"] = b"\xff\xff\xff\xff\x0f" + raw[2:]
        frames["blocks of nothing"] = whole[:16] + (struct.pack(">i", 1) + b"\0") * 500 + whole[16:]
        frames["a negative block"] = whole + struct.pack(">i", -1)
    if codec in (Compression.LZ4, Compression.ZSTD):
        skippable = struct.pack("<II", 0x184D2A50, 4) + b"skip"
        frames["a skippable frame, then all"] = skippable + whole
    return frames


def bomb(codec: int, size: int) -> bytes:
    """A body that holds `size` bytes of nothing, as small as the codec can."""
    if codec == Compression.ZSTD:  # blocks of one byte repeated, of 128 KiB each
        blocks, rest = divmod(size, 128 << 10)
        sizes = [128 << 10] * blocks + ([rest] if rest else [])
        head = struct.pack("<IBB", 0xFD2FB528, 0, 0x58)
        return head + b"".join(
            struct.pack("<I", length << 3 | 1 << 1 | (number == len(sizes)))[:3] + b"\0"
            for number, length in enumerate(sizes, 1))
    if codec == Compression.GZIP:
        return gzip.compress(bytes(size), 9)
    if codec == Compression.LZ4:
        frame = cramjam.lz4.Compressor(block_linked=False)
        frame.compress(bytes(size))
        return bytes(frame.finish())
    make: Callable[..., bytes] = compress
    return make(Compression(codec), bytes(size))

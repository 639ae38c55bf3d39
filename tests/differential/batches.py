"""Batches for Produce: mostly fine ones of every codec, and each kind of fault now and then.

None is null: Kafka 4.2 does not respond to a Produce request with null records at all.
"""

import struct
from typing import Final

from quipu.wire.compression import Compression
from quipu.wire.record_batch import (
    CONTROL_BIT,
    Record,
    body_crc,
    encode_batch,
)
from tests.differential.both import Both
from tests.differential.world import FIXED_TOPICS, Producer, World

_COUNT, _LAST_DELTA, _MAGIC, _CRC, _LENGTH = 57, 23, 16, 17, 8
_ATTRIBUTES: Final = 21


def batch(world: World, topic: str, partition: int, *, faults: bool) -> memoryview | Both:
    """What a Produce request has for one partition; `faults` if it may be refused for its form."""
    if world.chance(0.25):
        producer = _producer(world)
        if producer is not None:
            return _idempotent(world, producer, topic, partition)
    codecs = [each for each in Compression if faults or each is not Compression.ZSTD]
    plain = _plain(world, topic, codecs)
    is_there = topic in FIXED_TOPICS and partition == 0
    if faults and is_there and world.chance(0.15):
        return _spoiled(world, plain)
    return memoryview(plain)


def _records(world: World, topic: str) -> list[Record]:
    stamps = (world.now_ms, world.now_ms, 1_000, 5_000, 0)
    odd_stamps = (-1, world.now_ms + 10**9, world.now_ms - 10**9)
    keys: tuple[bytes | None, ...] = (b"k1", b"k2", b"")
    if topic != "compacted" or world.chance(0.1):
        keys += (None, None)
    values = (b"v", b"value " * 5, None, b"")
    return [
        Record(key=world.pick_of(keys), value=world.mostly(values, (b"x" * 700,), odds=0.05),
               headers=world.mostly(((),), ((("h", b"1"), ("n", None)),), odds=0.2),
               timestamp=world.mostly(stamps, odd_stamps, odds=0.06))
        for _ in range(world.pick(1, 1, 2, 3))]


def _plain(world: World, topic: str, codecs: list[Compression]) -> bytearray:
    codec = world.mostly((Compression.NONE,), codecs, odds=0.3)
    return encode_batch(_records(world, topic), compression=codec)


def _producer(world: World) -> Producer | None:
    return world.pick_of(world.producers) if world.producers else None


def _idempotent(world: World, producer: Producer, topic: str, partition: int) -> Both:
    """A batch with a sequence number: the next one, an old one, or one after a gap."""
    records = _records(world, topic)
    at = topic, partition
    expected = producer.next.get(at, 0)
    kind = world.mostly(("next",), ("repeat", "gap", "epoch", "old"), odds=0.25)
    sequence, epoch = expected, 0
    match kind:
        case "next":
            producer.last[at], producer.next[at] = expected, expected + len(records)
        case "repeat":
            sequence = producer.last.get(at, 0)
        case "gap":
            sequence = expected + 5
        case "epoch":
            epoch = 3  # above the last one: the partition takes it for the producer's next epoch
            sequence = world.pick(1, 7)
        case "old":
            sequence = max(0, expected - 20)
    return Both(*(
        memoryview(encode_batch(records, producer_id=producer_id, producer_epoch=epoch,
                                base_sequence=sequence))
        for producer_id in producer.producer_id))


def _spoiled(world: World, good: bytearray) -> memoryview:
    kind = world.pick("empty", "crc", "magic", "count", "delta", "two", "cut", "control",
                      "zstd", "offset", "length")
    data = bytearray(good)
    match kind:
        case "empty":
            return memoryview(b"")
        case "crc":
            data[_CRC] ^= 1
            return memoryview(data)
        case "magic":
            data[_MAGIC] = world.pick(0, 1, 3)
            return memoryview(data)
        case "two":
            return memoryview(data + good)
        case "cut":
            return memoryview(data[:-3])
        case "length":
            struct.pack_into(">i", data, _LENGTH, len(data))
            return memoryview(data)
        case "count":
            struct.pack_into(">i", data, _COUNT, world.pick(0, 5, -1))
        case "delta":
            struct.pack_into(">i", data, _LAST_DELTA, world.pick(7, -1))
        case "offset":
            struct.pack_into(">q", data, 0, 5)
        case "control":
            _add_bits(data, CONTROL_BIT)
        case "zstd":
            data = encode_batch([Record(key=b"k", value=b"v", timestamp=1)],
                                compression=Compression.ZSTD)
    struct.pack_into(">I", data, _CRC, body_crc(memoryview(data)))
    return memoryview(data)


def _add_bits(data: bytearray, bits: int) -> None:
    (attributes,) = struct.unpack_from(">h", data, _ATTRIBUTES)
    struct.pack_into(">h", data, _ATTRIBUTES, attributes | bits)

"""Random messages of any class and version, from the definitions and a seed.

Fields that a version lacks keep their defaults, so that a message survives the journey through
that version unchanged.  Values are any that fit, and often those at the edge, save for the few
that one of the oracles cannot hold: error codes it has no name for, times beyond its calendar, and
tagged fields of our own, which have tests of their own.
"""

import random
from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

from quipu.model.errors import Code
from quipu.wire.fields import BOOL, BYTES, FLOAT64, RECORDS, STRING, UINT16, UUID16
from quipu.wire.layout import FieldSlot, layout
from quipu.wire.messages import OWN_KEY_FIRST, REQUESTS, RESPONSES
from quipu.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from quipu.wire.schema import Message, Struct

CODES: Final = [int(code) for code in Code]
YEAR_2100_MS: Final = 4_102_444_800_000
TEXTS: Final = ("", "a", "topic-1", "grüße", "トピック", "🦙" * 5, "x" * 127, "y" * 300)
# Tags from here on are fields of our own in Kafka's messages, which no oracle knows.
OWN_TAGS: Final = range(100, 1000)
CALENDAR: Final = {  # times and durations of 64 bits
    "log_append_time", "retention_time", "session_lifetime", "max_lifetime", "renew_period",
    "expiry_time_period", "duration_filter"}
NEVER_NEGATIVE: Final = {  # times that the calendar of one oracle cannot leave out
    "issue_timestamp", "expiry_timestamp", "max_timestamp", "transaction_start_time"}
WIDTHS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}

ALL: Final = [
    (message, version)
    for pair in zip(REQUESTS.values(), RESPONSES.values(), strict=True)
    for message in pair
    for version in message.VERSIONS
]
APIS: Final = [(message, version) for message, version in ALL if message.KEY < OWN_KEY_FIRST]
OWN: Final = [(message, version) for message, version in ALL if message.KEY >= OWN_KEY_FIRST]
PAYLOADS: Final = [
    (message, version)
    for message in (ConsumerProtocolSubscription, ConsumerProtocolAssignment)
    for version in message.VERSIONS
]


def name_of(value: object) -> str:
    """What pytest calls a parameter."""
    return value.__name__ if isinstance(value, type) else f"v{value}"


def make(
    struct: type[Struct], version: int, rng: random.Random, *, flexible: bool, tags: bool = False
) -> Any:
    """One struct; with `tags`, perhaps with tagged fields that nobody knows."""
    shape = layout(struct, version)
    values = {
        slot.name: _value(slot, version, rng, flexible=flexible, tags=tags)
        for slot in (*shape.plain, *shape.tagged)
        if slot.tag is None or (slot.tag not in OWN_TAGS and rng.random() < 0.7)
    }
    made = struct(**values)
    if tags and flexible and rng.random() < 0.5:
        made.unknown_tags = tuple(
            (tag, rng.randbytes(rng.choice((0, 1, 200))))
            for tag in sorted(rng.sample(range(OWN_TAGS.stop, 1 << 20), rng.randint(1, 3))))
    return made


def messages(
    message: type[Message], version: int, count: int, *, tags: bool = False
) -> Iterator[Any]:
    """Messages of one class and version; the same ones each time."""
    rng = random.Random(f"{message.__name__} {version} {tags}")
    for _ in range(count):
        yield make(message, version, rng, flexible=message.is_flexible(version), tags=tags)


def _value(slot: FieldSlot, version: int, rng: random.Random, *, flexible: bool, tags: bool) -> Any:
    if slot.nullable and rng.random() < 0.25:
        return None
    if not slot.is_array:
        return _one(slot, version, rng, flexible=flexible, tags=tags)
    count = rng.choice((0, 1, 1, 2, 3, 130 if slot.is_fixed else 4))
    return [_one(slot, version, rng, flexible=flexible, tags=tags) for _ in range(count)]


def _one(slot: FieldSlot, version: int, rng: random.Random, *, flexible: bool, tags: bool) -> Any:
    if slot.is_struct:
        tags = tags and slot.tag is None  # no oracle reads tags within tags
        return make(slot.kind, version, rng, flexible=flexible, tags=tags)
    kind = slot.kind
    if kind is BOOL:
        return rng.random() < 0.5
    if kind is UUID16:
        return UUID(int=rng.choice((0, rng.getrandbits(128))))
    if kind is STRING:
        return rng.choice(TEXTS)
    if kind is BYTES:
        return rng.randbytes(rng.choice((0, 1, 17, 200)))
    if kind is RECORDS:
        return memoryview(rng.randbytes(rng.choice((0, 1, 61, 300))))
    if kind is FLOAT64:
        return rng.choice((0.0, -1.5, 1e300, rng.random()))
    if kind is UINT16:
        return rng.choice((0, 1, 0xFFFF, rng.getrandbits(16)))
    return _number(slot.name, WIDTHS[kind.name], rng)


def _number(name: str, width: int, rng: random.Random) -> int:
    if name == "error_code":
        return rng.choice(CODES)
    if name in CALENDAR:
        return rng.choice((-1, 0, 1, rng.randrange(YEAR_2100_MS)))
    if name in NEVER_NEGATIVE and width == WIDTHS["int64"]:
        return rng.choice((0, 1, rng.randrange(YEAR_2100_MS)))
    low, high = -(1 << (width - 1)), (1 << (width - 1)) - 1
    return rng.choice((low, -1, 0, 1, high, rng.randint(low, high)))

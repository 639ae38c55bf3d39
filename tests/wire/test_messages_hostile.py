"""Messages as an enemy would send them: cut short, altered, with absurd lengths."""

import random
import tracemalloc
from collections.abc import Iterator
from typing import Final

import pytest

from quipu.model.errors import MalformedBytes
from quipu.wire.messages.k03_metadata import MetadataRequest
from quipu.wire.messages.k12_heartbeat import HeartbeatRequest
from quipu.wire.messages.k75_describe_topic_partitions import DescribeTopicPartitionsRequest
from quipu.wire.schema import Message
from tests.wire.message_maker import ALL, PAYLOADS, messages, name_of
from tests.wire.reference_codec import ReferenceEncoder

MEMORY_MAX: Final = 1 << 20  # bytes, for messages of at most a few thousand
CUTS_MAX: Final = 400  # per message: all of them, for all but the longest
MUTATIONS: Final = 60

every_message = pytest.mark.parametrize(("message", "version"), ALL + PAYLOADS, ids=name_of)


@every_message
def test_a_message_cut_anywhere_is_malformed(message: type[Message], version: int) -> None:
    """K8: wire.M1: of a message without its last bytes, however many, nothing is made."""
    for ours in messages(message, version, 2, tags=True):
        data = memoryview(ours.encode(version))
        step = len(data) // CUTS_MAX + 1
        for size in range(0, len(data), step):
            with pytest.raises(MalformedBytes):
                message.decode(data[:size], version)


@every_message
def test_bytes_left_over_are_malformed(message: type[Message], version: int) -> None:
    """K8: wire.M1: a message that ends early is not what its sender thought it was."""
    for ours in messages(message, version, 2):
        with pytest.raises(MalformedBytes, match="more bytes follow"):
            message.decode(ours.encode(version) + b"\0", version)


@every_message
def test_altered_bytes_are_malformed_or_another_message(
    message: type[Message], version: int
) -> None:
    """K8: nothing but MalformedBytes is raised, and what is understood says the same again."""
    rng = random.Random(f"{message.__name__} {version}")
    for ours in messages(message, version, 2, tags=True):
        for data in _mutations(ours.encode(version), rng):
            try:
                other = message.decode(data, version)
            except MalformedBytes:
                continue
            again = other.encode(version)  # compared as bytes: a float may be no number
            assert message.decode(again, version).encode(version) == again


def _mutations(data: bytes, rng: random.Random) -> Iterator[bytes]:
    for _ in range(MUTATIONS if data else 0):
        altered = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 5))):
            altered[rng.randrange(len(altered))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        yield bytes(altered)


@every_message
def test_the_largest_length_in_any_place_costs_nothing(
    message: type[Message], version: int
) -> None:
    """K8: wire.M2: each length in turn claims 2^31 bytes; no memory is allocated for it."""
    hostile = []
    for ours in messages(message, version, 2, tags=True):
        reference = ReferenceEncoder(ours, version)
        assert reference.data == ours.encode(version)
        hostile += reference.hostile()[:CUTS_MAX]
    tracemalloc.start()
    try:
        for data in hostile:
            with pytest.raises(MalformedBytes):
                message.decode(data, version)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < MEMORY_MAX


CASES = [
    ("a string that is not UTF-8", HeartbeatRequest, 0, b"\0\1\xff" + bytes(6), "UTF-8"),
    ("null where it must not be", HeartbeatRequest, 0, b"\xff\xff" + bytes(6), "must not be null"),
    ("a length below -1", HeartbeatRequest, 3, bytes(8) + b"\xff\xfe", "length -2"),
    ("compact null", HeartbeatRequest, 4, b"\0" + bytes(6), "must not be null"),
    ("a uvarint of six bytes", HeartbeatRequest, 4, b"\xff" * 6, "longer than 5"),
    ("a uvarint of 35 bits", HeartbeatRequest, 4, b"\xff" * 4 + b"\x7f", "32 bits"),
    ("tags that descend", MetadataRequest, 9, b"\0\0\0\0\2\7\0\6\0", "ascend"),
    ("a tag twice", MetadataRequest, 9, b"\0\0\0\0\2\7\0\7\0", "ascend"),
    ("a tag larger than the message", MetadataRequest, 9, b"\0\0\0\0\1\7\x7f", "127 bytes"),
    ("a struct neither present nor null", DescribeTopicPartitionsRequest, 0,
     b"\1\0\0\0\0\7\0", "marked 7"),
]


@pytest.mark.parametrize(
    ("message", "version", "data", "why"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_what_is_wrong_is_told(
    message: type[Message], version: int, data: bytes, why: str
) -> None:
    """K8: the line in the log names what was wrong with the request."""
    with pytest.raises(MalformedBytes, match=why):
        message.decode(data, version)

"""Every message in every version, against two codecs that other people wrote."""

import subprocess
import sys
from typing import Any, Final, get_args

import pytest

from quipu.wire.fields import STRING
from quipu.wire.layout import layout
from quipu.wire.messages import OWN_KEY_FIRST, REQUESTS, RESPONSES
from quipu.wire.messages.k03_metadata import MetadataResponse
from quipu.wire.messages.k75_describe_topic_partitions import DescribeTopicPartitionsResponse
from quipu.wire.schema import Message, Struct
from tests.wire.message_maker import APIS, OWN, PAYLOADS, messages, name_of
from tests.wire.message_oracles import (
    kafka_python_class,
    kafka_python_decode,
    kafka_python_encode,
    kafka_python_reencode,
    kio_encode,
    kio_reencode,
)

MESSAGES_PER_VERSION: Final = 6
WITHOUT_KAFKA_PYTHON: Final = {  # key: lowest, highest and first flexible version
    38: (1, 3, 2), 39: (1, 2, 2), 40: (1, 2, 2), 41: (1, 3, 2), 64: (0, 0, 0), 77: (1, 1, 1),
    80: (0, 1, 0), 81: (0, 0, 0), 89: (0, 0, 0), 90: (0, 1, 0), 91: (0, 0, 0), 92: (0, 0, 0)}

every_message = pytest.mark.parametrize(("message", "version"), APIS + PAYLOADS, ids=name_of)
every_known_to_both = pytest.mark.parametrize(
    ("message", "version"),
    [(m, v) for m, v in APIS + PAYLOADS if m.KEY not in WITHOUT_KAFKA_PYTHON],
    ids=name_of,
)


@every_message
def test_kio_reads_what_we_write_and_writes_what_we_read(
    message: type[Message], version: int
) -> None:
    """K2, K12: both encoders make the same bytes of the same values; and decoding loses nothing."""
    for ours in messages(message, version, MESSAGES_PER_VERSION):
        data = ours.encode(version)

        assert kio_encode(ours, version) == data
        assert kio_reencode(data, message, version) == data
        assert message.decode(data, version) == ours


@every_known_to_both
def test_kafka_python_reads_what_we_write_and_writes_what_we_read(
    message: type[Message], version: int
) -> None:
    """K2, K12: the same against the second oracle, which shares no code with the first."""
    for ours in messages(message, version, MESSAGES_PER_VERSION):
        data = ours.encode(version)

        assert kafka_python_encode(ours, version) == data
        assert kafka_python_reencode(data, message, version) == data


@pytest.mark.parametrize(
    ("message", "version"), [(m, v) for m, v in APIS if m.is_flexible(v)], ids=name_of)
def test_tagged_fields_that_nobody_knows_are_kept(message: type[Message], version: int) -> None:
    """K12: wire.M3: newer clients may send fields of their own; what we understand is the same."""
    for ours in messages(message, version, MESSAGES_PER_VERSION, tags=True):
        data = ours.encode(version)
        again = message.decode(data, version)

        assert again == ours
        assert again.encode(version) == data
        if message.KEY not in WITHOUT_KAFKA_PYTHON:
            _check_against_kafka_python(ours, data, version)


def _check_against_kafka_python(ours: Message, data: bytes, version: int) -> None:
    """It reads the fields that it does not know apart, and does not write them again."""
    theirs = kafka_python_decode(data, type(ours), version)
    known = {f"_{tag}": value for tag, value in ours.unknown_tags}

    assert (theirs.unknown_tags or {}) == known
    assert kafka_python_reencode(data, type(ours), version) == _without_tags(ours).encode(version)


def _without_tags(struct: Struct) -> Any:
    values = {name: getattr(struct, name) for name in type(struct).FIELDS}
    for name, value in values.items():
        if isinstance(value, Struct):
            values[name] = _without_tags(value)
        elif isinstance(value, list):
            values[name] = [_without_tags(v) if isinstance(v, Struct) else v for v in value]
    return type(struct)(**values)


@pytest.mark.parametrize(
    ("message", "version"),
    [(m, v) for m, v in APIS if m is MetadataResponse and v >= 12]
    + [(m, v) for m, v in APIS if m is DescribeTopicPartitionsResponse], ids=name_of)
def test_tagged_fields_of_our_own_are_passed_over_by_others(
    message: type[Message], version: int
) -> None:
    """D24: a client reads the topics of a response, and stops at no field that it does not know."""
    for ours in messages(message, version, MESSAGES_PER_VERSION):
        plain = ours.encode(version)
        for topic in ours.topics:
            topic.is_diskless = True
        data = ours.encode(version)

        assert len(data) == len(plain) + 3 * len(ours.topics)
        assert message.decode(data, version) == ours
        assert kafka_python_reencode(data, message, version) == plain


@pytest.mark.parametrize(("message", "version"), OWN, ids=name_of)
def test_messages_of_our_own_come_back_as_they_were(message: type[Message], version: int) -> None:
    """K12: nobody else has a codec for them; what we write, we read."""
    for ours in messages(message, version, MESSAGES_PER_VERSION, tags=True):
        assert message.decode(ours.encode(version), version) == ours


NOT_IN_4_2 = {22: 5, 35: 4}  # the last version; kafka-python knows the next one


@pytest.mark.parametrize(
    "message", [m for m in (*REQUESTS.values(), *RESPONSES.values()) if m.KEY < OWN_KEY_FIRST],
    ids=name_of)
def test_versions_are_those_of_kafka_4_2(message: type[Message]) -> None:
    """K12: lowest, highest and first flexible version, as Kafka's own definitions have them."""
    theirs = kafka_python_class(message)
    if theirs is None:
        assert message.KEY in WITHOUT_KAFKA_PYTHON
        lowest, highest, flexible = WITHOUT_KAFKA_PYTHON[message.KEY]
        assert (range(lowest, highest + 1), flexible) == (message.VERSIONS, message.FLEXIBLE_SINCE)
        return
    first, _, last = theirs.json["validVersions"].partition("-")
    last = NOT_IN_4_2.get(message.KEY, int(last or first))

    assert message.KEY == theirs.API_KEY
    assert range(int(first), last + 1) == message.VERSIONS
    assert all(
        message.is_flexible(version) == theirs.flexible_version_q(version)
        for version in message.VERSIONS)


def test_requests_and_responses_come_in_pairs() -> None:
    """K12: every key has both directions, with the same versions."""
    assert REQUESTS.keys() == RESPONSES.keys()
    for key, request in REQUESTS.items():
        response = RESPONSES[key]
        assert (key, request.VERSIONS) == (response.KEY, response.VERSIONS)
        assert request.FLEXIBLE_SINCE == response.FLEXIBLE_SINCE


@every_message
def test_annotations_say_what_fields_hold(message: type[Message], version: int) -> None:
    """A type checker believes the annotations; here they are compared with the fields."""
    seen, waiting = set(), [message]
    while waiting:
        struct: Any = waiting.pop()
        seen.add(struct)
        for slot in layout(struct, version).plain:
            hint = struct.__annotations__[slot.name]
            parts = get_args(hint) if type(None) in get_args(hint) else (hint,)
            is_array = any(getattr(part, "__origin__", None) is list for part in parts)

            assert (type(None) in parts) or not slot.nullable, (struct, slot.name)
            assert is_array == slot.is_array, (struct, slot.name)
            assert slot.kind is not STRING or is_array or str in parts, (struct, slot.name)
            if slot.is_struct and slot.kind not in seen:
                waiting.append(slot.kind)


def test_importing_the_definitions_compiles_nothing() -> None:
    """Codecs are made on first use: a node starts without paying for what nobody asks."""
    script = (
        "import quipu.wire.messages, quipu.wire.frame\n"
        "from quipu.wire.encoder import compile_encoder\n"
        "from quipu.wire.decoder import compile_decoder\n"
        "print(compile_encoder.cache_info().currsize, compile_decoder.cache_info().currsize)\n")
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)

    assert done.stdout.split() == [b"0", b"0"]

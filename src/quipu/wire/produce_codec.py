"""Encodes Produce responses, and finds where the body of a request starts, for the hot path.

messages/k00_produce.py defines the message; a test checks that both make the same bytes.
`fast.parse_produce` decodes a Produce request.
"""

from collections.abc import Generator, Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812 the library's own name is too short to read
from typing import Final, NamedTuple

from quipu.model.errors import MalformedBytes
from quipu.wire.leader_codec import NO_LEADERS, Endpoint, Leaders, tagged_endpoints, tagged_leader
from quipu.wire.primitives import UVARINTS, skip_header_tags

HEADER_START: Final = 8  # after api key, api version and correlation id
STEP_PARTS: Final = 64  # partitions of a large response that are encoded in one step
VERSION_FLEXIBLE: Final = 9
VERSION_LEADERS: Final = 10
VERSION_TOPIC_IDS: Final = 13

_client_id_size = Struct(">h")
_frame_head = Struct(">ii")  # size, correlation id
_frame_head_flexible = Struct(">iiB")  # ... and the header's tagged fields: none
_count = Struct(">i")
_string_size = Struct(">h")
_partition_v0 = Struct(">ihq")  # index, error code, base offset
_partition_v2 = Struct(">ihqq")  # ... log append time
_partition_v5 = Struct(">ihqqq")  # ... log start offset
_throttle = Struct(">i")

# After a partition's numbers: no record errors, no message, no tagged fields of partition and
# topic, no throttling, no tagged fields.
_ONE_PART_END: Final = b"\x01\0\0\0\0\0\0\0\0"
_ONE_PART_SIZE: Final = 5 + 2 + _partition_v5.size + len(_ONE_PART_END)  # without the topic


class ProducedPart(NamedTuple):
    """The result of appending one partition's batch, as a Produce response reports it."""

    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: tuple[tuple[int, str], ...] = ()  # index of a record, what is wrong with it


def body_position(frame: memoryview, *, flexible: bool) -> int:
    """Where the body of a request starts, past its header."""
    try:
        (size,) = _client_id_size.unpack_from(frame, HEADER_START)
        position: int = HEADER_START + 2 + (max(0, size))
        if size < -1 or position > len(frame):
            raise MalformedBytes(f"a client id of {size} bytes does not fit in {len(frame)}")
        return skip_header_tags(frame, position) if flexible else position
    except (StructError, IndexError):
        raise MalformedBytes(f"a request header ends early, at byte {len(frame)}") from None


def encode_one_part(
    correlation_id: int, version: int, topic: str | bytes, part: ProducedPart
) -> bytes:
    """The frame for one partition, which most responses have; takes a third of the time."""
    index, code, base_offset, append_time, log_start, message, record_errors = part
    if version < VERSION_FLEXIBLE or message is not None or record_errors:
        return encode_produce_response(correlation_id, version, [(topic, [part])])
    if isinstance(topic, bytes):
        name = topic
    else:
        text = topic.encode()
        name = UVARINTS[len(text) + 1] + text
    return b"".join((
        _frame_head_flexible.pack(len(name) + _ONE_PART_SIZE, correlation_id, 0), b"\x02", name,
        b"\x02", _partition_v5.pack(index, code, base_offset, append_time, log_start),
        _ONE_PART_END))


def encode_produce_response(
    correlation_id: int,
    version: int,
    topics: list[tuple[str | bytes, list[ProducedPart]]],
    *,
    leaders: Leaders = NO_LEADERS,
    endpoints: Sequence[Endpoint] = (),
) -> bytes:
    """The whole frame; a topic is its name, or its id as 16 bytes from v13 on.

    `leaders` are the current leaders of partitions that this node does not lead, from v10 on.
    """
    steps = produce_response_steps(
        correlation_id, version, topics, leaders=leaders, endpoints=endpoints)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            frame: bytes = stop.value
            return frame


def produce_response_steps(
    correlation_id: int,
    version: int,
    topics: list[tuple[str | bytes, list[ProducedPart]]],
    *,
    leaders: Leaders = NO_LEADERS,
    endpoints: Sequence[Endpoint] = (),
) -> Generator[None, None, bytes]:
    """`encode_produce_response` as a generator that yields after every STEP_PARTS partitions."""
    assert version >= VERSION_LEADERS or not leaders, version
    flexible = version >= VERSION_FLEXIBLE
    out = bytearray(9 if flexible else 8)
    out += UVARINTS[len(topics) + 1] if flexible else _count.pack(len(topics))
    number = 0
    for topic, parts in topics:
        if isinstance(topic, bytes):
            out += topic
        else:
            name = topic.encode()
            out += UVARINTS[len(name) + 1] if flexible else _string_size.pack(len(name))
            out += name
        out += UVARINTS[len(parts) + 1] if flexible else _count.pack(len(parts))
        for part in parts:
            _encode_part(out, version, part, leaders.get((topic, part.partition)))
            number += 1
            if number % STEP_PARTS == 0:
                yield
        if flexible:
            out.append(0)
    if version >= 1:
        out += _throttle.pack(0)
    if flexible:
        out += tagged_endpoints(endpoints)
        _frame_head_flexible.pack_into(out, 0, len(out) - 4, correlation_id, 0)
    else:
        _frame_head.pack_into(out, 0, len(out) - 4, correlation_id)
    return bytes(out)


def _encode_part(
    out: bytearray, version: int, part: ProducedPart, leader: tuple[int, int] | None
) -> None:
    index, code, base_offset, append_time, log_start, message, record_errors = part
    if version >= 5:
        out += _partition_v5.pack(index, code, base_offset, append_time, log_start)
    elif version >= 2:
        out += _partition_v2.pack(index, code, base_offset, append_time)
    else:
        out += _partition_v0.pack(index, code, base_offset)
    if version >= VERSION_FLEXIBLE:
        out += UVARINTS[len(record_errors) + 1]
        for place, about in record_errors:
            out += _count.pack(place)
            _compact_text(out, about)
            out.append(0)
        _compact_text(out, message)
        out += b"\0" if leader is None else b"\x01" + tagged_leader(0, leader)
    elif version == 8:
        out += _count.pack(len(record_errors))
        for place, about in record_errors:
            out += _count.pack(place)
            _text(out, about)
        _text(out, message)


def _compact_text(out: bytearray, text: str | None) -> None:
    if text is None:
        out.append(0)
    else:
        data = text.encode()
        out += UVARINTS[len(data) + 1]
        out += data


def _text(out: bytearray, text: str | None) -> None:
    if text is None:
        out += _string_size.pack(-1)
    else:
        data = text.encode()[:0x7FFF]
        out += _string_size.pack(len(data))
        out += data

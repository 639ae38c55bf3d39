"""The hot path's functions in plain Python, used where nothing was compiled.

Three of them are here; `check_batch`, `stamp`, `encode_one_part` and `encode_one_fetched` are
those of record_batch.py, stored_batch.py, produce_codec.py and fetch_codec.py.
`_fast.pyx` has the same functions in C; tests check that both return the same for the same bytes.
The compiled ones call these whenever the bytes are not valid, so that errors are raised in one
place.

Not here: which of the two is used (fast.py), requests other than Produce and Fetch (messages/).
"""

from struct import Struct
from struct import error as StructError  # noqa: N812 the library's own name is too short to read
from typing import Final, NoReturn

from quipu.model.batch_types import DATA
from quipu.model.errors import MalformedBytes
from quipu.wire.fetch_codec import FetchCall, FetchedFrom, encode_one_fetched
from quipu.wire.messages.k01_fetch import FetchRequest
from quipu.wire.produce_codec import body_position, encode_one_part
from quipu.wire.record_batch import BATCH_LENGTH_MIN, LENGTH_START, check_batch
from quipu.wire.stored_batch import PREFIX_SIZE, STORED_HEADER_SIZE, stamp

__all__ = [
    "FETCH_SIZE_MAX", "PRODUCE_PARTITIONS_MAX", "Part", "check_batch", "encode_one_fetched",
    "encode_one_part", "parse_fetch", "parse_produce", "slices", "stamp",
]

Part = tuple[str | bytes, int, int, int]  # topic name or id, partition, start, end

PRODUCE_PARTITIONS_MAX: Final = 10_000  # in one request: bounds the objects that a frame makes
FETCH_SIZE_MAX: Final = 2 << 20  # bytes of a request: some 60,000 partitions; bounds likewise
FETCH_ODD_SIZE_MAX: Final = 256 << 10  # of a request that the compiled function cannot decode
GATHER_SIZE_MAX: Final = 4_096  # batches smaller than this on average are copied into one buffer
UVARINT_SIZE_MAX: Final = 5
VERSION_MIN: Final = 3
VERSION_FLEXIBLE: Final = 9  # from here on: compact lengths and tagged fields
VERSION_TOPIC_IDS: Final = 13  # from here on: topic ids
TOPIC_ID_SIZE: Final = 16
FETCH_VERSION_MIN: Final = 4
FETCH_VERSION_FLEXIBLE: Final = 12
FETCH_VERSION_TOPIC_IDS: Final = 13
FETCH_VERSION_REPLICA_STATE: Final = 15  # the id is in a tagged field from here on
FETCH_VERSION_MAX: Final = 18

_int16 = Struct(">h")
_int32 = Struct(">i")
_acks_timeout = Struct(">hi")
_walk = Struct(">4xB11xqi11xi")  # type, baseOffset, batchLength, lastOffsetDelta


def parse_produce(
    frame: memoryview, position: int, version: int, parts_max: int = PRODUCE_PARTITIONS_MAX
) -> tuple[str | None, int, int, list[Part]]:
    """Decode a Produce request, v3 to v13, whose body starts at `position` and ends with `frame`.

    With position -1, `frame` begins with the request's header and the body follows it.
    Returns (transactional_id, acks, timeout_ms, parts); a part is (topic, partition, start, end):
    the topic's name, or its id as 16 bytes from v13 on, and where in `frame` its records are
    (start = end = -1 for null).  Nothing is copied.  If there are more than `parts_max` parts, none
    are returned and decoding stops there: the time is bounded for any frame.
    """
    assert VERSION_MIN <= version <= VERSION_TOPIC_IDS, version
    if position == -1:
        position = body_position(frame, flexible=version >= VERSION_FLEXIBLE)
    try:
        if version < VERSION_FLEXIBLE:
            return _parse_legacy(frame, position, parts_max)
        return _parse_flexible(
            frame, position, parts_max, with_ids=version >= VERSION_TOPIC_IDS)
    except (StructError, IndexError):
        raise MalformedBytes(f"a produce request ends early, at byte {len(frame)}") from None


def _parse_legacy(
    frame: memoryview, position: int, parts_max: int
) -> tuple[str | None, int, int, list[Part]]:
    parts: list[Part] = []
    transactional_id, position = _string(frame, position)
    acks, timeout_ms = _acks_timeout.unpack_from(frame, position)
    topic_count, position = _count(frame, position + 6)
    for _ in range(topic_count):
        topic, position = _string(frame, position)
        if topic is None:
            raise MalformedBytes("a produce request names a topic null")
        partition_count, position = _count(frame, position)
        for _ in range(partition_count):
            (partition,) = _int32.unpack_from(frame, position)
            (size,) = _int32.unpack_from(frame, position + 4)
            start, end = _span(frame, position + 8, size)
            position += 8 if size < 0 else 8 + size
            if len(parts) == parts_max < PRODUCE_PARTITIONS_MAX:
                return transactional_id, acks, timeout_ms, []
            _add(parts, (topic, partition, start, end))
    return transactional_id, acks, timeout_ms, _finished(frame, position, parts)


def _parse_flexible(
    frame: memoryview, position: int, parts_max: int, *, with_ids: bool
) -> tuple[str | None, int, int, list[Part]]:
    parts: list[Part] = []
    topic: str | bytes | None
    transactional_id, position = _compact_string(frame, position)
    acks, timeout_ms = _acks_timeout.unpack_from(frame, position)
    topic_count, position = _compact_count(frame, position + 6)
    for _ in range(topic_count):
        if with_ids:
            start, end = _span(frame, position, TOPIC_ID_SIZE)
            topic, position = bytes(frame[start:end]), end
        else:
            topic, position = _compact_string(frame, position)
        if topic is None:
            raise MalformedBytes("a produce request names a topic null")
        partition_count, position = _compact_count(frame, position)
        for _ in range(partition_count):
            (partition,) = _int32.unpack_from(frame, position)
            size, position = _uvarint(frame, position + 4)
            start, end = _span(frame, position, size - 1)
            position = _skip_tags(frame, position if size == 0 else end)
            if len(parts) == parts_max < PRODUCE_PARTITIONS_MAX:
                return transactional_id, acks, timeout_ms, []
            _add(parts, (topic, partition, start, end))
        position = _skip_tags(frame, position)
    position = _skip_tags(frame, position)
    return transactional_id, acks, timeout_ms, _finished(frame, position, parts)


def parse_fetch(frame: memoryview, position: int, version: int) -> FetchCall:
    """Decode a Fetch request, v4 to v18; `frame` and `position` as for `parse_produce`."""
    assert FETCH_VERSION_MIN <= version <= FETCH_VERSION_MAX, version
    if len(frame) > FETCH_SIZE_MAX:
        raise MalformedBytes(f"a fetch request of {len(frame)} bytes; send {FETCH_SIZE_MAX}")
    if position == -1:
        position = body_position(frame, flexible=version >= FETCH_VERSION_FLEXIBLE)
    request = FetchRequest.decode(frame[position:], version)
    with_ids = version >= FETCH_VERSION_TOPIC_IDS
    targets = [
        FetchedFrom(
            topic.topic_id.bytes if with_ids else topic.topic, part.partition, part.fetch_offset,
            part.partition_max_bytes, part.current_leader_epoch, part.last_fetched_epoch)
        for topic in request.topics for part in topic.partitions
    ]
    forgotten = [
        (topic.topic_id.bytes if with_ids else topic.topic, partition)
        for topic in request.forgotten_topics_data for partition in topic.partitions
    ]
    return FetchCall(
        request.max_wait, request.min_bytes, request.max_bytes, request.isolation_level,
        request.session_id, request.session_epoch, targets, forgotten,
        request.replica_id if version < FETCH_VERSION_REPLICA_STATE
        else request.replica_state.replica_id, request.rack_id)


def slices(
    mapping: memoryview,
    position: int,
    *,
    offset: int,
    end_offset: int,
    limit: int,
    min_one: bool,
) -> tuple[list[memoryview], int, int]:
    """Collect the stored batches in `mapping` from `position` on that clients see.

    Takes whole data batches from the one that holds `offset` up to `end_offset` (exclusive), as
    long as they fit in `limit` bytes; with `min_one` the first one may be larger.  Returns
    (buffers, size, next position): buffers are slices of `mapping` without the stored prefixes, or
    one copy of all when the batches are small, because a copy is then cheaper than many buffers.
    The next position is that of the first batch not taken, or the end of the mapping.  Checksums
    are not checked: these bytes were checked when they were written or recovered.
    """
    view = memoryview(mapping)
    mapping_size = len(view)
    buffers: list[memoryview] = []
    taken_size = 0
    while position < mapping_size:
        if mapping_size - position < STORED_HEADER_SIZE:
            _broken(position, f"{mapping_size - position} bytes are less than a header")
        batch_type, base_offset, length, last_delta = _walk.unpack_from(view, position)
        start = position + PREFIX_SIZE
        end = start + LENGTH_START + length
        if length < BATCH_LENGTH_MIN or end > mapping_size:
            _broken(position, f"it claims a length of {length}")
        if batch_type == DATA and base_offset + last_delta >= offset:
            if base_offset >= end_offset:
                break
            if taken_size + end - start > limit and (buffers or not min_one):
                break
            buffers.append(view[start:end])
            taken_size += end - start
        position = end
    if len(buffers) > 1 and taken_size < len(buffers) * GATHER_SIZE_MAX:
        buffers = [memoryview(b"".join(buffers))]
    return buffers, taken_size, position


def _broken(position: int, why: str) -> NoReturn:
    raise MalformedBytes(f"no stored batch at position {position}: {why}")


def _add(parts: list[Part], part: Part) -> None:
    if len(parts) == PRODUCE_PARTITIONS_MAX:
        raise MalformedBytes(
            f"a produce request names more than {PRODUCE_PARTITIONS_MAX} partitions; send fewer"
        )
    parts.append(part)


def _finished(frame: memoryview, position: int, parts: list[Part]) -> list[Part]:
    if position != len(frame):
        raise MalformedBytes(f"{len(frame) - position} bytes after the end of a produce request")
    return parts


def _span(frame: memoryview, start: int, size: int) -> tuple[int, int]:
    """Start and end of `size` bytes at `start`; (-1, -1) for the size that means null."""
    if size == -1:
        return -1, -1
    if not 0 <= size <= len(frame) - start:
        raise MalformedBytes(f"need {size} bytes at byte {start}, have {len(frame) - start}")
    return start, start + size


def _text(frame: memoryview, start: int, end: int) -> str:
    try:
        return str(frame[start:end], "utf-8")
    except UnicodeDecodeError:
        raise MalformedBytes(f"the string at byte {start} is not UTF-8") from None


def _string(frame: memoryview, position: int) -> tuple[str | None, int]:
    (size,) = _int16.unpack_from(frame, position)
    start, end = _span(frame, position + 2, size)
    return (None, position + 2) if start < 0 else (_text(frame, start, end), end)


def _compact_string(frame: memoryview, position: int) -> tuple[str | None, int]:
    size = frame[position]
    if 0 < size < 0x80 and position + size <= len(frame):  # short and whole: the usual case
        return _text(frame, position + 1, position + size), position + size
    size, position = _uvarint(frame, position)
    start, end = _span(frame, position, size - 1)
    return (None, position) if start < 0 else (_text(frame, start, end), end)


def _count(frame: memoryview, position: int) -> tuple[int, int]:
    """The length of an array, which is not null and has at least a byte for every entry."""
    (count,) = _int32.unpack_from(frame, position)
    _span(frame, position + 4, count if count >= 0 else -2)
    return count, position + 4


def _compact_count(frame: memoryview, position: int) -> tuple[int, int]:
    count = frame[position]
    if 0 < count < 0x80 and position + count <= len(frame):
        return count - 1, position + 1
    count, position = _uvarint(frame, position)
    _span(frame, position, count - 1 if count > 0 else -2)
    return count - 1, position


def _skip_tags(frame: memoryview, position: int) -> int:
    if frame[position] == 0:
        return position + 1
    count, position = _uvarint(frame, position)
    for _ in range(count):  # a tag takes two bytes: with a wrong count, the data ends first
        _, position = _uvarint(frame, position)
        size, position = _uvarint(frame, position)
        _, position = _span(frame, position, size)
    return position


def _uvarint(frame: memoryview, position: int) -> tuple[int, int]:
    byte = frame[position]
    if byte < 0x80:
        return byte, position + 1
    value = 0
    for index in range(UVARINT_SIZE_MAX):
        byte = frame[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if value >= 1 << 32:
                raise MalformedBytes(f"the number at byte {position} does not fit in 32 bits")
            return value, position + index + 1
    raise MalformedBytes(f"the number at byte {position} is longer than {UVARINT_SIZE_MAX} bytes")

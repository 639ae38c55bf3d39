"""Encodes Fetch responses: headers around slices of the log, which are sent as they are on disk.

messages/k01_fetch.py defines the message; a test checks that both make the same bytes.
`fast.parse_fetch` decodes a Fetch request.
"""

from collections.abc import Generator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from quipu.wire.leader_codec import NO_LEADERS, Endpoint, Leaders, tagged_endpoints, tagged_leader
from quipu.wire.primitives import UVARINTS
from quipu.wire.produce_codec import STEP_PARTS

Buffer = bytes | bytearray | memoryview

VERSION_FLEXIBLE: Final = 12
VERSION_ENDPOINTS: Final = 16

_frame_head = Struct(">ii")  # size, correlation id
_frame_head_flexible = Struct(">iiB")  # ... and the header's tagged fields: none
_throttle = Struct(">i")
_session = Struct(">ihi")  # throttle time, error code, session id
_count = Struct(">i")
_string_size = Struct(">h")
_partition_v4 = Struct(">ihqq")  # index, error code, high watermark, last stable offset
_partition_v5 = Struct(">ihqqq")  # ... log start offset
_preferred = Struct(">i")
_epoch_end = Struct(">iq")

NULL_COUNT: Final = _count.pack(-1)
EMPTY_COUNT: Final = _count.pack(0)


class FetchedFrom(NamedTuple):
    """The offset from which a client reads one partition."""

    topic: str | bytes  # its name, or its id as 16 bytes from v13 on
    partition: int
    offset: int
    size_max: int
    leader_epoch: int
    last_fetched_epoch: int


class FetchCall(NamedTuple):
    """The fields of a Fetch request that matter to a node that serves consumers."""

    max_wait: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    targets: list[FetchedFrom]
    forgotten: list[tuple[str | bytes, int]]  # topic and partition
    replica_id: int = -1  # -2 for a reader that also wants uncommitted records
    rack_id: str = ""  # where the consumer is; empty if it does not say


class FetchedPart(NamedTuple):
    """The part of a Fetch response for one partition."""

    partition: int
    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: list[memoryview] = []  # noqa: RUF012 never changed: an empty default
    size: int = 0  # of all records
    preferred_read_replica: int = -1
    diverging_epoch: int = -1
    diverging_end_offset: int = -1


def encode_one_fetched(
    correlation_id: int,
    version: int,
    topic: str | bytes,
    part: FetchedPart,
    *,
    session_id: int,
    committed_only: bool,
) -> list[Buffer]:
    """The frame for one partition, as consumers at the end of a log mostly get it."""
    return encode_fetch_response(
        correlation_id, version, session_id=session_id, committed_only=committed_only,
        topics=[(topic, [part])])


def encode_fetch_response(
    correlation_id: int,
    version: int,
    *,
    error_code: int = 0,
    session_id: int = 0,
    committed_only: bool = False,
    topics: list[tuple[str | bytes, list[FetchedPart]]],
    leaders: Leaders = NO_LEADERS,
    endpoints: Sequence[Endpoint] = (),
) -> list[Buffer]:
    """The frame as a list of buffers: headers, and between them the records' own buffers.

    `leaders` are the current leaders of partitions that this node does not lead; they are sent
    from v12 on, and their addresses, `endpoints`, from v16 on.
    """
    steps = fetch_response_steps(
        correlation_id, version, error_code=error_code, session_id=session_id,
        committed_only=committed_only, topics=topics, leaders=leaders, endpoints=endpoints)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            buffers: list[Buffer] = stop.value
            return buffers


def fetch_response_steps(
    correlation_id: int,
    version: int,
    *,
    error_code: int = 0,
    session_id: int = 0,
    committed_only: bool = False,
    topics: list[tuple[str | bytes, list[FetchedPart]]],
    leaders: Leaders = NO_LEADERS,
    endpoints: Sequence[Endpoint] = (),
) -> Generator[None, None, list[Buffer]]:
    """`encode_fetch_response` as a generator that yields after every STEP_PARTS partitions."""
    flexible = version >= VERSION_FLEXIBLE
    out = bytearray(9 if flexible else 8)
    out += _session.pack(0, error_code, session_id) if version >= 7 else _throttle.pack(0)
    out += UVARINTS[len(topics) + 1] if flexible else _count.pack(len(topics))
    buffers: list[Buffer] = [out]
    size = number = 0
    for topic, parts in topics:
        if isinstance(topic, bytes):
            out += topic
        else:
            name = topic.encode()
            out += UVARINTS[len(name) + 1] if flexible else _string_size.pack(len(name))
            out += name
        out += UVARINTS[len(parts) + 1] if flexible else _count.pack(len(parts))
        for part in parts:
            _encode_part(out, version, part, committed_only=committed_only)
            if part.size:
                buffers += part.records
                size += part.size
                size += len(out)
                out = bytearray()
                buffers.append(out)
            if flexible:
                _encode_part_tags(out, part, leaders.get((topic, part.partition)))
            number += 1
            if number % STEP_PARTS == 0:
                yield
        if flexible:
            out.append(0)
    if flexible:
        out += tagged_endpoints(endpoints if version >= VERSION_ENDPOINTS else ())
    size += len(out)
    first = buffers[0]
    assert isinstance(first, bytearray)
    if flexible:
        _frame_head_flexible.pack_into(first, 0, size - 4, correlation_id, 0)
    else:
        _frame_head.pack_into(first, 0, size - 4, correlation_id)
    return buffers if out else buffers[:-1]


def _encode_part(out: bytearray, version: int, part: FetchedPart, *, committed_only: bool) -> None:
    """Encode the fields of a partition up to and including the length of its records."""
    index, code, high_watermark, stable, log_start = part[:5]
    if version >= 5:
        out += _partition_v5.pack(index, code, high_watermark, stable, log_start)
    else:
        out += _partition_v4.pack(index, code, high_watermark, stable)
    if version >= VERSION_FLEXIBLE:
        out.append(1 if committed_only else 0)  # aborted transactions: none, or not asked for
        out += _preferred.pack(part.preferred_read_replica)
        out += UVARINTS[part.size + 1]
        return
    out += EMPTY_COUNT if committed_only else NULL_COUNT
    if version >= 11:
        out += _preferred.pack(part.preferred_read_replica)
    out += _count.pack(part.size)


def _encode_part_tags(
    out: bytearray, part: FetchedPart, leader: tuple[int, int] | None
) -> None:
    diverges = part.diverging_epoch >= 0 or part.diverging_end_offset >= 0
    out.append(diverges + (leader is not None))
    if diverges:
        out += b"\x00\x0d"  # number 0, of 13 bytes: the last epoch and end in common
        out += _epoch_end.pack(part.diverging_epoch, part.diverging_end_offset)
        out.append(0)
    if leader is not None:
        out += tagged_leader(1, leader)

"""Requests that are encoded once and sent many times, and responses read with little work.

A load generator shares the machine with the broker that it measures, so it must use little CPU: a
Produce frame is encoded before the run, a Fetch frame gets its offset patched in, and of a response
only the size, the error code and the headers of its batches are read.

Not here: sockets (closed_loop.py, open_loop.py, tail.py).
"""

import random
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple, cast

from quipu.bench.errors import BenchError
from quipu.model.errors import Code
from quipu.wire.compression import Compression
from quipu.wire.frame import decode_response, encode_request, encode_response
from quipu.wire.messages.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from quipu.wire.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
)
from quipu.wire.record_batch import HEADER_SIZE, Record, encode_batch

CLIENT_ID: Final = "quipu-bench"
PRODUCE_VERSIONS: Final = range(9, 13)  # flexible, with topic names
FETCH_VERSION: Final = 12
TIMESTAMP_MS: Final = 1_700_000_000_000
PRODUCE_TIMEOUT_MS: Final = 30_000
FETCH_OVERHEAD_MAX: Final = 1_024  # of a response to a Fetch, beside the records

_offset = Struct(">q")
_batch = Struct(">qi11xi")  # baseOffset, batchLength, lastOffsetDelta
_BATCH_HEAD: Final = 12  # bytes before those that batchLength counts
_OFFSET_MARK: Final = 0x51_49_50_55_4D_41_52_4B  # placeholder of the fetch offset in a template


class ProduceBatch(NamedTuple):
    """A record batch that is sent many times, and how many records it has."""

    data: bytes
    record_count: int


def make_batch(*, record_size: int, batch_size: int, compression: str = "none") -> ProduceBatch:
    """As many records of `record_size` bytes as fit in `batch_size` bytes, at least one.

    Values compress to about half, as text does; `batch_size` counts before compression.
    """
    rng = random.Random(1)  # noqa: S311 the same bytes in every run
    values = [rng.randbytes((record_size + 1) // 2).hex().encode()[:record_size] for _ in range(64)]
    one = len(encode_batch([Record(None, values[0], timestamp=TIMESTAMP_MS)])) - HEADER_SIZE
    count = max(1, (batch_size - HEADER_SIZE) // (one + 2))  # + 2: later offsets take more bytes
    records = [Record(None, values[n % 64], timestamp=TIMESTAMP_MS) for n in range(count)]
    codec = Compression[compression.upper()]
    return ProduceBatch(bytes(encode_batch(records, compression=codec)), count)


# --- Produce ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceFrame:
    """A Produce request for one partition, and the layout of a response without an error."""

    data: bytes
    version: int
    acks: int
    record_count: int
    batch_size: int
    response_size: int  # of the whole frame
    error_position: int  # of the error code within the frame
    sample: bytes  # a response without an error, for the bare servers

    @property
    def response(self) -> Struct:
        """Unpacks (size, error code) of a response."""
        return Struct(f">i{self.error_position - 4}xh")

    def explain(self, frame: bytes) -> str:
        """The error in a response as text; `frame` starts with its size."""
        try:
            _, response = decode_response(memoryview(frame)[4:], ProduceRequest.KEY, self.version)
            (topic,) = cast("ProduceResponse", response).responses
            (part,) = topic.partition_responses
            return f"{Code(part.error_code).name}: {part.error_message or 'no message'}"
        except Exception as error:  # noqa: BLE001 any bytes may come
            return f"bytes that are no Produce v{self.version} response ({error})"


def produce_frame(
    topic: str, partition: int, batch: ProduceBatch, *, acks: int, version: int
) -> ProduceFrame:
    """Encode a request once, for a run that sends it many times."""
    data = PartitionProduceData(index=partition, records=memoryview(batch.data))
    request = ProduceRequest(
        acks=acks,
        timeout=PRODUCE_TIMEOUT_MS,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    part = PartitionProduceResponse(index=partition, log_start_offset=0)
    response = ProduceResponse(
        responses=[TopicProduceResponse(name=topic, partition_responses=[part])]
    )
    sample = encode_response(0, response, version)
    part.error_code = 0x7A7A
    marked = encode_response(0, response, version)
    error_position = next(at for at in range(len(sample)) if sample[at] != marked[at])
    return ProduceFrame(
        data=encode_request(request, version, correlation_id=0, client_id=CLIENT_ID),
        version=version,
        acks=acks,
        record_count=batch.record_count,
        batch_size=len(batch.data),
        response_size=len(sample),
        error_position=error_position,
        sample=sample,
    )


# --- Fetch ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchFrame:
    """A Fetch request for one partition; `at` sets its offset."""

    template: bytes
    offset_position: int
    topic_size: int

    def at(self, offset: int) -> bytes:
        """The request that starts to read at `offset`."""
        position = self.offset_position
        return self.template[:position] + _offset.pack(offset) + self.template[position + 8 :]


def fetch_frame(
    topic: str, partition: int, *, size_max: int, wait_ms: int = 500, min_size: int = 1
) -> FetchFrame:
    """Encode a request once, for a run that sends it many times."""
    wanted = FetchPartition(
        partition=partition, fetch_offset=_OFFSET_MARK, partition_max_bytes=size_max
    )
    request = FetchRequest(
        max_wait=wait_ms,
        min_bytes=min_size,
        max_bytes=size_max,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    template = encode_request(request, FETCH_VERSION, correlation_id=0, client_id=CLIENT_ID)
    position = template.index(_offset.pack(_OFFSET_MARK))
    return FetchFrame(template=template, offset_position=position, topic_size=len(topic.encode()))


class FetchSummary(NamedTuple):
    """The counts and offsets of a Fetch response."""

    next_offset: int  # after the last batch; the requested offset if there are no batches
    record_count: int
    records_size: int
    high_watermark: int


_fetch_head = Struct(">4x4xB4xhi")  # size, correlation id, tags, throttle time, error, session id
_fetch_part = Struct(">4xhq16x")  # index, error, high watermark, last stable and log start offset


def read_fetch(response: memoryview, offset: int, topic_size: int) -> FetchSummary:
    """The counts of a whole response (v12, one partition), which starts with its size.

    Only the headers of batches are read: records are neither decoded nor checked.
    """
    _, error_code, _ = _fetch_head.unpack_from(response)
    if error_code == 0:
        position = _fetch_head.size + 1  # + 1: one topic
        position = _uvarint(response, position)[1] + topic_size + 1  # + 1: one partition
        error_code, high_watermark = _fetch_part.unpack_from(response, position)
        aborted_count, position = _uvarint(response, position + _fetch_part.size)
        if error_code == 0 and aborted_count <= 1:
            size, position = _uvarint(response, position + 4)  # + 4: preferred read replica
            return _walk(response, position, position + max(0, size - 1), offset, high_watermark)
    raise BenchError(f"the broker refused to fetch from offset {offset}: {_name(error_code)}")


def _walk(
    response: memoryview, position: int, end: int, offset: int, high_watermark: int
) -> FetchSummary:
    start = position
    record_count = 0
    next_offset = offset
    while end - position >= HEADER_SIZE:
        base_offset, length, last_delta = _batch.unpack_from(response, position)
        position += _BATCH_HEAD + length
        if length <= 0 or position > end:  # Kafka may cut the last batch short
            break
        next_offset = base_offset + last_delta + 1
        record_count += next_offset - max(base_offset, offset)
    return FetchSummary(next_offset, record_count, end - start, high_watermark)


def _uvarint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _name(code: int) -> str:
    try:
        return Code(code).name
    except ValueError:
        return f"error {code}"

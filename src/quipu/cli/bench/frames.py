"""Requests made once and sent many times, and answers read with as little work as can be.

A load generator shares the machine with the broker that it measures, so it must cost little: a
Produce frame is encoded before the run, a Fetch frame gets its offset patched in, and of an
answer only what matters is looked at: its size, its error code, and the headers of its batches.

Not here: sockets (closed_loop.py, open_loop.py, tail.py).
"""

import random
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple, cast

from quipu.cli.bench.control import CLIENT_ID, FETCH_VERSION, BenchError
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

TIMESTAMP_MS: Final = 1_700_000_000_000
PRODUCE_TIMEOUT_MS: Final = 30_000
FETCH_OVERHEAD_MAX: Final = 1_024  # of an answer to a Fetch, beside the records

_offset = Struct(">q")
_batch = Struct(">qi11xi")  # baseOffset, batchLength, lastOffsetDelta
_BATCH_HEAD: Final = 12  # bytes before those that batchLength counts
_OFFSET_MARK: Final = 0x51_49_50_55_4D_41_52_4B  # stands for the fetch offset in a template


class Batch(NamedTuple):
    """A record batch to send again and again."""

    data: bytes
    record_count: int


def make_batch(*, record_size: int, batch_size: int, compression: str = "none") -> Batch:
    """As many records of `record_size` bytes as fit in `batch_size` bytes, at least one.

    Values compress to about half, as text does; `batch_size` counts before compression.
    """
    rng = random.Random(1)  # noqa: S311 the same bytes in every run
    values = [rng.randbytes((record_size + 1) // 2).hex().encode()[:record_size] for _ in range(64)]
    one = len(encode_batch([Record(None, values[0], timestamp=TIMESTAMP_MS)])) - HEADER_SIZE
    count = max(1, (batch_size - HEADER_SIZE) // (one + 2))  # + 2: later offsets take more bytes
    records = [Record(None, values[n % 64], timestamp=TIMESTAMP_MS) for n in range(count)]
    codec = Compression[compression.upper()]
    return Batch(bytes(encode_batch(records, compression=codec)), count)


# --- Produce ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceFrame:
    """A Produce request for one partition, and how its answer looks when all is well."""

    data: bytes
    version: int
    acks: int
    record_count: int
    batch_size: int
    response_size: int  # of the whole frame
    error_position: int  # of the error code within it
    sample: bytes  # an answer that says yes, for servers that only pretend

    @property
    def answer(self) -> Struct:
        """Unpacks (size, error code) of an answer."""
        return Struct(f">i{self.error_position - 4}xh")

    def explain(self, frame: bytes) -> str:
        """What a broker said that is not yes; `frame` starts with its size."""
        try:
            _, answer = decode_response(memoryview(frame)[4:], ProduceRequest.KEY, self.version)
            (topic,) = cast("ProduceResponse", answer).responses
            (part,) = topic.partition_responses
            return f"{Code(part.error_code).name}: {part.error_message or 'no message'}"
        except Exception as error:  # noqa: BLE001 any bytes may come
            return f"an answer that is no Produce v{self.version} response ({error})"


def produce_frame(
    topic: str, partition: int, batch: Batch, *, acks: int, version: int
) -> ProduceFrame:
    """Encode the request that a run repeats."""
    data = PartitionProduceData(index=partition, records=memoryview(batch.data))
    request = ProduceRequest(
        acks=acks,
        timeout=PRODUCE_TIMEOUT_MS,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    part = PartitionProduceResponse(index=partition, log_start_offset=0)
    answer = ProduceResponse(
        responses=[TopicProduceResponse(name=topic, partition_responses=[part])]
    )
    sample = encode_response(0, answer, version)
    part.error_code = 0x7A7A
    marked = encode_response(0, answer, version)
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
    """A Fetch request for one partition; `at` gives it an offset."""

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
    """Encode the request that a run repeats."""
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


class Fetched(NamedTuple):
    """What an answer to a Fetch holds."""

    next_offset: int  # the one to ask for next; what was asked for if nothing came
    record_count: int
    records_size: int
    high_watermark: int


_fetch_head = Struct(">4x4xB4xhi")  # size, correlation id, tags, throttle time, error, session id
_fetch_part = Struct(">4xhq16x")  # index, error, high watermark, last stable and log start offset


def read_fetch(answer: memoryview, offset: int, topic_size: int) -> Fetched:
    """Look at a whole answer (v12, one partition), which starts with its size.

    A record batch is a header here: records are neither decoded nor checked.
    """
    _, error_code, _ = _fetch_head.unpack_from(answer)
    if error_code == 0:
        position = _fetch_head.size + 1  # + 1: one topic
        position = _uvarint(answer, position)[1] + topic_size + 1  # + 1: one partition
        error_code, high_watermark = _fetch_part.unpack_from(answer, position)
        aborted_count, position = _uvarint(answer, position + _fetch_part.size)
        if error_code == 0 and aborted_count <= 1:
            size, position = _uvarint(answer, position + 4)  # + 4: preferred read replica
            return _walk(answer, position, position + max(0, size - 1), offset, high_watermark)
    raise BenchError(f"the broker refused to fetch from offset {offset}: {_name(error_code)}")


def _walk(answer: memoryview, position: int, end: int, offset: int, high_watermark: int) -> Fetched:
    start = position
    record_count = 0
    next_offset = offset
    while end - position >= HEADER_SIZE:
        base_offset, length, last_delta = _batch.unpack_from(answer, position)
        position += _BATCH_HEAD + length
        if length <= 0 or position > end:  # Kafka may cut the last batch short
            break
        next_offset = base_offset + last_delta + 1
        record_count += next_offset - max(base_offset, offset)
    return Fetched(next_offset, record_count, end - start, high_watermark)


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

"""Kafka's record batch: golden bytes, two clients as oracles, and every way to be wrong."""

import contextlib
import struct
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.model.errors import Code, MalformedBytes, RequestError
from quipu.wire.compression import Compression
from quipu.wire.record_batch import (
    CONTROL_BIT,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    VARLONG_SIZE_MAX,
    BatchHeader,
    Record,
    TimestampType,
    body_crc,
    check_batch,
    decode_records,
    encode_batch,
    parse_header,
    read_varint,
    set_log_append_time,
    write_varint,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in an old way
    from kafka.record.default_records import DefaultRecordBatch as PythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as PythonBuilder

SIZE_MAX = 1 << 20

# Two records at 1000 and 1007 ms: (k, v, one header) and (null, null, a header without value).
GOLDEN_RECORDS = [
    Record(b"k", b"v", (("h", b"x"),), 1000, 5),
    Record(None, None, (("n", None),), 1007, 6),
]
GOLDEN = bytes.fromhex(
    "00 00 00 00 00 00 00 05"  # baseOffset 5
    "00 00 00 48"  # batchLength 72, from the next byte on
    "00 00 00 03"  # partitionLeaderEpoch 3
    "02"  # magic
    "64 65 00 96"  # crc
    "00 00"  # attributes
    "00 00 00 01"  # lastOffsetDelta 1
    "00 00 00 00 00 00 03 e8"  # baseTimestamp 1000
    "00 00 00 00 00 00 03 ef"  # maxTimestamp 1007
    "00 00 00 00 00 00 00 2a"  # producerId 42
    "00 01"  # producerEpoch 1
    "00 00 00 09"  # baseSequence 9
    "00 00 00 02"  # count
    "18 00 00 00 02 6b 02 76 02 02 68 02 78"  # 12 bytes: deltas 0 0, k, v, 1 header h = x
    "12 00 0e 02 01 01 02 02 6e 01"  # 9 bytes: deltas 7 1, null, null, 1 header n = null
)

header_names = st.text(max_size=8)
optional_bytes = st.none() | st.binary(max_size=40)
timestamps = st.integers(0, 2**62)
records = st.lists(
    st.builds(
        Record,
        key=optional_bytes,
        value=optional_bytes,
        headers=st.lists(st.tuples(header_names, optional_bytes), max_size=3).map(tuple),
        timestamp=timestamps,
    ),
    min_size=1,
    max_size=8,
)


def numbered(some: list[Record], base_offset: int) -> list[Record]:
    return [record._replace(offset=base_offset + index) for index, record in enumerate(some)]


def produced(**changes: int) -> bytearray:
    """A batch as a producer sends it, with header fields changed and the checksum made right."""
    batch = encode_batch([Record(b"k", b"v", (), 1_000 + i) for i in range(3)])
    header = parse_header(memoryview(batch))._replace(**changes)
    HEADER.pack_into(batch, 0, *header)
    if "crc" not in changes:
        struct.pack_into(">I", batch, 17, body_crc(memoryview(batch)))
    return batch


def test_golden_bytes() -> None:
    """T8: every byte of a batch, written down, is what we write and what we read."""
    encoded = encode_batch(
        GOLDEN_RECORDS, base_offset=5, leader_epoch=3, producer_id=42, producer_epoch=1,
        base_sequence=9)

    assert bytes(encoded).hex(" ") == GOLDEN.hex(" ")
    assert parse_header(memoryview(GOLDEN)) == BatchHeader(
        base_offset=5, batch_length=72, leader_epoch=3, magic=2, crc=0x64650096, attributes=0,
        last_offset_delta=1, base_timestamp=1000, max_timestamp=1007, producer_id=42,
        producer_epoch=1, base_sequence=9, count=2)
    assert list(decode_records(memoryview(GOLDEN), size_max=SIZE_MAX)) == GOLDEN_RECORDS


@given(some=records, base_offset=st.integers(0, 2**62), codec=st.sampled_from(Compression))
@settings(max_examples=80, deadline=None)
def test_records_survive_a_round_trip(
    some: list[Record], base_offset: int, codec: Compression
) -> None:
    """K2: whatever the records are, what was encoded is what is decoded."""
    batch = memoryview(encode_batch(some, base_offset=base_offset, compression=codec))
    header = parse_header(batch)

    assert list(decode_records(batch, size_max=SIZE_MAX)) == numbered(some, base_offset)
    assert header.count == len(some) == header.last_offset_delta + 1
    assert header.max_timestamp == max(record.timestamp for record in some)
    assert header.compression == codec
    assert header.size == len(batch)
    assert header.crc == body_crc(batch)


def read_by(batch_class: Any, data: bytes) -> list[Record]:
    batch = batch_class(data)
    assert batch.validate_crc()
    return [
        Record(record.key, record.value, tuple(record.headers), record.timestamp, record.offset)
        for record in batch
    ]


@pytest.mark.parametrize("codec", Compression)
@given(some=records)
@settings(max_examples=15, deadline=None)
def test_aiokafka_reads_what_we_write(codec: Compression, some: list[Record]) -> None:
    """K2: a stock client as oracle, all four compressions and none."""
    batch = encode_batch(some, base_offset=7, compression=codec)

    assert read_by(AiokafkaBatch, bytes(batch)) == numbered(some, 7)


@pytest.mark.parametrize("codec", Compression)
@given(some=records)
@settings(max_examples=15, deadline=None)
def test_we_read_what_aiokafka_writes(codec: Compression, some: list[Record]) -> None:
    """K2: the other direction; the batch also passes the check of the produce path."""
    builder = AiokafkaBuilder(2, int(codec), 0, -1, -1, -1, SIZE_MAX)
    for index, record in enumerate(some):
        builder.append(index, record.timestamp, record.key, record.value, list(record.headers))
    data = memoryview(bytes(builder.build()))

    check_batch(data, size_max=SIZE_MAX)
    assert list(decode_records(data, size_max=SIZE_MAX)) == numbered(some, 0)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
@given(some=records)
@settings(max_examples=15, deadline=None)
def test_kafka_python_agrees_both_ways(codec: Compression, some: list[Record]) -> None:
    """K2: a second client; it brings no snappy, lz4 or zstd of its own."""
    builder = PythonBuilder(2, int(codec), False, 42, 1, 9, SIZE_MAX)
    for index, record in enumerate(some):
        builder.append(index, record.timestamp, record.key, record.value, list(record.headers))
    data = memoryview(bytes(builder.build()))

    assert check_batch(data, size_max=SIZE_MAX).base_sequence == 9
    assert list(decode_records(data, size_max=SIZE_MAX)) == numbered(some, 0)
    ours = bytes(encode_batch(some, base_offset=7, compression=codec))
    assert read_by(PythonBatch, ours) == numbered(some, 7)


class Refused(NamedTuple):
    why: str
    code: Code
    change: dict[str, int]


REFUSED = [
    Refused("message format 0", Code.INVALID_RECORD, {"magic": 0}),
    Refused("message format 1", Code.INVALID_RECORD, {"magic": 1}),
    Refused("a format from the future", Code.CORRUPT_MESSAGE, {"magic": 3}),
    Refused("wrong checksum", Code.CORRUPT_MESSAGE, {"crc": 12345}),
    Refused("shorter than it says", Code.INVALID_RECORD, {"batch_length": 5_000}),
    Refused("length below a header", Code.CORRUPT_MESSAGE, {"batch_length": 48}),
    Refused("negative length", Code.CORRUPT_MESSAGE, {"batch_length": -1}),
    Refused("no records", Code.INVALID_RECORD, {"count": 0, "last_offset_delta": -1}),
    Refused("negative count", Code.INVALID_RECORD, {"count": -3, "last_offset_delta": -4}),
    Refused("count and last offset disagree", Code.INVALID_RECORD, {"count": 2}),
    Refused("base offset set", Code.INVALID_RECORD, {"base_offset": 1}),
    Refused("codec 5", Code.UNSUPPORTED_COMPRESSION_TYPE, {"attributes": 5}),
    Refused("codec 6", Code.UNSUPPORTED_COMPRESSION_TYPE, {"attributes": 6}),
    Refused("codec 7", Code.UNSUPPORTED_COMPRESSION_TYPE, {"attributes": 7}),
    Refused("control batch", Code.INVALID_RECORD, {"attributes": CONTROL_BIT}),
    Refused("broker's timestamps", Code.INVALID_TIMESTAMP, {"attributes": LOG_APPEND_TIME_BIT}),
    Refused("transaction without producer", Code.INVALID_RECORD,
            {"attributes": TRANSACTIONAL_BIT}),
    Refused("producer without sequence", Code.INVALID_RECORD,
            {"producer_id": 1, "producer_epoch": 0, "base_sequence": -1}),
    Refused("producer without epoch", Code.INVALID_RECORD,
            {"producer_id": 1, "producer_epoch": -1, "base_sequence": 0}),
    Refused("producer id below -1", Code.INVALID_RECORD,
            {"producer_id": -2, "producer_epoch": 0, "base_sequence": 0}),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.why)
def test_a_wrong_batch_is_refused_with_kafkas_code(case: Refused) -> None:
    """K2, K8: wire.R1: each rule has the error code that a Kafka broker returns."""
    with pytest.raises(RequestError) as refusal:
        check_batch(memoryview(produced(**case.change)), size_max=SIZE_MAX)

    assert refusal.value.code == case.code


def test_two_batches_in_one_partition_are_refused() -> None:
    """K2: since Produce v3 there is exactly one."""
    with pytest.raises(RequestError, match="more than one batch") as refusal:
        check_batch(memoryview(produced() + produced()), size_max=SIZE_MAX)

    assert refusal.value.code == Code.INVALID_RECORD


def test_a_batch_over_the_limit_is_refused_before_its_checksum_is_computed() -> None:
    """K2: size limits; a wrong checksum does not show."""
    batch = produced(crc=1)

    with pytest.raises(RequestError) as refusal:
        check_batch(memoryview(batch), size_max=len(batch) - 1)

    assert refusal.value.code == Code.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("attributes", [0, 1, 2, 3, 4, TRANSACTIONAL_BIT, TRANSACTIONAL_BIT | 4])
def test_a_right_batch_passes(attributes: int) -> None:
    """K2: every codec, plain and of an idempotent or transactional producer."""
    batch = produced(attributes=attributes, producer_id=7, producer_epoch=0, base_sequence=0)

    header = check_batch(memoryview(batch), size_max=len(batch))

    assert header == parse_header(memoryview(batch))
    assert header.is_transactional == bool(attributes & TRANSACTIONAL_BIT)
    assert not header.is_control


def test_every_truncation_is_refused() -> None:
    """K8: a prefix of a batch is never a batch."""
    batch = produced()
    for size in range(len(batch)):
        with pytest.raises(RequestError) as refusal:
            check_batch(memoryview(batch)[:size], size_max=SIZE_MAX)
        assert refusal.value.code == Code.INVALID_RECORD


def test_every_flipped_bit_is_refused_but_the_epochs() -> None:
    """K8: the one field that no rule looks at is the epoch, which the broker sets itself."""
    batch = produced(producer_id=7, producer_epoch=0, base_sequence=0)
    passed = set()
    for bit in range(8 * len(batch)):
        flipped = bytearray(batch)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            check_batch(memoryview(flipped), size_max=SIZE_MAX)
        except RequestError:
            continue
        passed.add(bit // 8)

    assert passed == {12, 13, 14, 15}  # partitionLeaderEpoch


def test_log_append_time_covers_every_record() -> None:
    """K2: the broker's timestamp replaces all, the checksum is right, other clients see it."""
    batch = encode_batch(GOLDEN_RECORDS, compression=Compression.LZ4)

    header = set_log_append_time(memoryview(batch), 5_000)

    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.max_timestamp == 5_000
    assert header.crc == body_crc(memoryview(batch))
    assert {r.timestamp for r in decode_records(memoryview(batch), size_max=SIZE_MAX)} == {5_000}
    assert {r.timestamp for r in read_by(AiokafkaBatch, bytes(batch))} == {5_000}


def test_a_decompressed_batch_is_bounded() -> None:
    """K8: 10 MB of zeros packed into a few kB are not unpacked."""
    bomb = encode_batch([Record(None, bytes(10_000_000))], compression=Compression.ZSTD)

    with pytest.raises(MalformedBytes):
        list(decode_records(memoryview(bomb), size_max=SIZE_MAX))


def rebuilt(body: bytes, count: int = 1) -> memoryview:
    """A batch with this for its records."""
    batch = bytearray(GOLDEN[:HEADER_SIZE]) + body
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 57, count)
    return memoryview(batch)


MALFORMED = {
    "a record longer than the batch": rebuilt(bytes.fromhex("18 00 00 00 02 6b 02 76 00")),
    "a negative record length": rebuilt(bytes.fromhex("01 00 00 00 02 6b 02 76 00")),
    "a key longer than its record": rebuilt(bytes.fromhex("10 00 00 00 7e 6b 02 76 00")),
    "a key of length -2": rebuilt(bytes.fromhex("10 00 00 00 03 6b 02 76 00")),
    "bytes after the headers": rebuilt(bytes.fromhex("12 00 00 00 02 6b 02 76 00 00")),
    "bytes after the last record": rebuilt(bytes.fromhex("10 00 00 00 02 6b 02 76 00 00")),
    "an offset past the last": rebuilt(bytes.fromhex("10 00 00 04 02 6b 02 76 00")),
    "a negative offset delta": rebuilt(bytes.fromhex("10 00 00 01 02 6b 02 76 00")),
    "more headers than bytes": rebuilt(bytes.fromhex("10 00 00 00 02 6b 02 76 7e")),
    "a header without a name": rebuilt(bytes.fromhex("14 00 00 00 02 6b 02 76 02 01 01")),
    "a number that does not end": rebuilt(bytes.fromhex("ff ff ff ff ff ff ff ff")),
    "a number of 33 bits": rebuilt(bytes.fromhex("ff ff ff ff 7f 00 00 00")),
    "fewer bytes than records": rebuilt(bytes.fromhex("10 00 00 00 02 6b 02 76 00"), count=2),
    "a negative count": rebuilt(bytes.fromhex("10 00 00 00 02 6b 02 76 00"), count=-1),
}


@pytest.mark.parametrize("why", MALFORMED)
def test_malformed_records_are_refused(why: str) -> None:
    """K8: wire.R2: no length in a record is believed."""
    with pytest.raises(MalformedBytes):
        list(decode_records(MALFORMED[why], size_max=SIZE_MAX))


@given(body=st.binary(max_size=60), count=st.integers(-1, 4), codec=st.integers(0, 7))
@settings(max_examples=150, deadline=None)
def test_junk_is_malformed_or_records(body: bytes, count: int, codec: int) -> None:
    """K8: decoding foreign bytes ends in records or in MalformedBytes, never otherwise."""
    batch = bytearray(rebuilt(body, count=count))
    struct.pack_into(">h", batch, 21, codec)
    with contextlib.suppress(MalformedBytes):
        assert len(list(decode_records(memoryview(batch), size_max=10_000))) == count


@pytest.mark.parametrize("cut", [lambda b: b[:60], lambda b: b[:-1], lambda b: b + b"\x00"])
def test_a_batch_of_the_wrong_size_has_no_records(cut: Callable[[bytes], bytes]) -> None:
    """K8: shorter than a header, cut, or followed by something."""
    with pytest.raises(MalformedBytes):
        list(decode_records(memoryview(cut(GOLDEN)), size_max=SIZE_MAX))


@given(value=st.integers(-(2**63), 2**63 - 1))
def test_numbers_survive_a_round_trip(value: int) -> None:
    """T8: zigzag varints of 64 bits."""
    out = bytearray()
    write_varint(out, value)

    assert read_varint(memoryview(out), 0, VARLONG_SIZE_MAX) == (value, len(out))
    assert len(out) <= VARLONG_SIZE_MAX


def test_a_header_name_that_is_not_text_is_shown_not_refused() -> None:
    """K2: brokers never looked at it, so logs may hold one."""
    body = bytes.fromhex("18 00 00 00 02 6b 02 76 02 02 ff 02 78")
    (record,) = decode_records(rebuilt(body), size_max=SIZE_MAX)

    assert record.headers == (("�", b"x"),)

"""Frames made beforehand say what the messages' own definitions would say."""

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quipu.bench.errors import BenchError
from quipu.bench.frames import (
    ProduceBatch,
    fetch_frame,
    make_batch,
    produce_frame,
    read_fetch,
)
from quipu.wire.frame import decode_request, encode_response
from quipu.wire.messages.k00_produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from quipu.wire.messages.k01_fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from quipu.wire.record_batch import check_batch, decode_records


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_batch_is_one_that_a_broker_takes(compression: str) -> None:
    """K2: whole records up to the size asked for, in every compression."""
    batch = make_batch(record_size=100, batch_size=4096, compression=compression)
    header = check_batch(memoryview(bytearray(batch.data)), size_max=4096)

    assert header.count == batch.record_count == len(
        list(decode_records(memoryview(batch.data), size_max=1 << 20)))
    assert 4096 - 110 * 2 < batch.record_count * 109 <= 4096


def test_a_batch_has_at_least_one_record() -> None:
    """K2: a batch size below that of a record means one record per batch."""
    assert make_batch(record_size=100, batch_size=1).record_count == 1


@pytest.mark.parametrize("version", [9, 10, 11, 12])
def test_a_produce_frame_is_a_produce_request(version: int) -> None:
    """K12: in each version that the generator may choose."""
    batch = make_batch(record_size=10, batch_size=200)
    frame = produce_frame("a-topic", 3, batch, acks=-1, version=version)
    header, request = decode_request(memoryview(frame.data)[4:])
    (topic,) = cast("ProduceRequest", request).topic_data

    assert (header.api_key, header.api_version) == (0, version)
    assert (topic.name, topic.partition_data[0].index) == ("a-topic", 3)
    assert topic.partition_data[0].records == batch.data


@pytest.mark.parametrize("version", [9, 12])
def test_the_error_of_an_answer_is_found_where_it_is(version: int) -> None:
    """K2: the generator looks at two bytes of a response, and they are the error code."""
    frame = produce_frame("t", 3, ProduceBatch(b"x" * 70, 1), acks=1, version=version)
    part = PartitionProduceResponse(index=3, error_code=10, log_start_offset=0)
    response = encode_response(0, ProduceResponse(
        responses=[TopicProduceResponse(name="t", partition_responses=[part])]), version)

    assert frame.response.unpack_from(frame.sample) == (len(frame.sample) - 4, 0)
    assert frame.response.unpack_from(response) == (len(response) - 4, 10)
    assert frame.explain(response) == "MESSAGE_TOO_LARGE: no message"
    assert "no Produce v" in frame.explain(b"\0\0\0\x02ab")


@given(offset=st.integers(0, 2**62))
def test_a_fetch_frame_asks_from_any_offset(offset: int) -> None:
    """K2: only the offset changes between two requests."""
    frame = fetch_frame("a-topic", 5, size_max=1000)
    _, request = decode_request(memoryview(frame.at(offset))[4:])
    (topic,) = cast("FetchRequest", request).topics

    assert topic.partitions[0].fetch_offset == offset
    assert (topic.topic, topic.partitions[0].partition) == ("a-topic", 5)


def fetch_response(records: bytes, *, error_code: int = 0) -> memoryview:
    part = PartitionData(
        partition_index=0, error_code=error_code, high_watermark=500, last_stable_offset=500,
        log_start_offset=0, aborted_transactions=[], records=memoryview(records))
    return memoryview(encode_response(9, FetchResponse(
        responses=[FetchableTopicResponse(topic="topic", partitions=[part])]), 12))


@pytest.mark.parametrize("count", [0, 1, 3, 200])
def test_an_answer_to_a_fetch_tells_where_to_go_on(count: int) -> None:
    """K2: the next offset is the one after the last whole batch."""
    batch = make_batch(record_size=10, batch_size=200)
    records = b"".join(
        (index * batch.record_count).to_bytes(8, "big") + batch.data[8:] for index in range(count))
    found = read_fetch(fetch_response(records), 1 if count else 0, topic_size=5)

    assert found.next_offset == count * batch.record_count
    assert found.record_count == max(0, found.next_offset - 1)  # one was before what was asked for
    assert (found.records_size, found.high_watermark) == (len(records), 500)


def test_a_batch_cut_short_is_not_counted() -> None:
    """K2: Kafka may send a part of the last batch; it is asked for again."""
    batch = make_batch(record_size=10, batch_size=200)
    found = read_fetch(fetch_response(batch.data + batch.data[:-1]), 0, topic_size=5)

    assert found.next_offset == batch.record_count


def test_a_refused_fetch_is_an_error_with_its_name() -> None:
    """K2: OFFSET_OUT_OF_RANGE, not a wrong number in a report."""
    with pytest.raises(BenchError, match="offset 7: OFFSET_OUT_OF_RANGE"):
        read_fetch(fetch_response(b"", error_code=1), 7, topic_size=5)

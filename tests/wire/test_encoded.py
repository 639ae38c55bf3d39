"""Arrays that are encoded while they are built say the same as lists, and are counted."""

import pytest

from quipu.model.errors import MalformedBytes, TooManyElements
from quipu.wire.frame import decode_request_header, encode_response, encode_response_body
from quipu.wire.messages.k03_metadata import MetadataRequest
from quipu.wire.messages.k09_offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from quipu.wire.primitives import uvarint


class Count:
    """A meter without a bound."""

    def __init__(self) -> None:
        self.size = 0
        self.most = 0

    def spend(self, size: int) -> None:
        self.size += size
        self.most = max(self.most, self.size)


def plain(groups: int) -> OffsetFetchResponse:
    return OffsetFetchResponse(groups=[
        OffsetFetchResponseGroup(group_id=f"g{group}", topics=[
            OffsetFetchResponseTopics(name="t", partitions=[
                OffsetFetchResponsePartitions(
                    partition_index=index, committed_offset=index * group, metadata="m")
                for index in range(5)])])
        for group in range(groups)])


def built(groups: int, version: int, meter: Count) -> OffsetFetchResponse:
    """The same, element by element."""
    response = OffsetFetchResponse(groups=OffsetFetchResponse.encoded_array(
        OffsetFetchResponseGroup, version, meter).as_list())
    for group in plain(groups).groups:
        topics = OffsetFetchResponse.encoded_array(OffsetFetchResponseTopics, version, meter)
        for topic in group.topics:
            partitions = OffsetFetchResponse.encoded_array(
                OffsetFetchResponsePartitions, version, meter)
            for partition in topic.partitions:
                partitions.append(partition)
            topic.partitions = partitions.as_list()
            topics.append(topic)
        group.topics = topics.as_list()
        response.groups.append(group)
    return response


@pytest.mark.parametrize("version", [8, 9, 10])
@pytest.mark.parametrize("groups", [0, 1, 40])
def test_an_array_that_was_encoded_reads_the_same(version: int, groups: int) -> None:
    """K8: and every byte of it was counted once, while it was built."""
    meter = Count()
    response = built(groups, version, meter)
    size = meter.size
    encoded = response.encode(version)

    assert encoded == plain(groups).encode(version)
    assert len(encoded) - 20 < size <= len(encoded)
    assert meter.most <= 2 * size, "an inner array is counted no more when an outer one has it"
    assert meter.size == 0, "the message has the bytes now"


def test_a_frame_in_buffers_is_the_same_frame() -> None:
    """K8: a large response is sent without another copy."""
    whole = encode_response(7, plain(3), 8)
    response = built(3, 8, Count())
    buffers = encode_response_body(7, type(response), 8, response.encode_chunks(8))
    assert b"".join(buffers) == whole


def test_elements_are_counted_while_they_are_decoded() -> None:
    """K8: of all arrays together, before anything is made for them."""
    data = bytearray(MetadataRequest(topics=[]).encode(12))
    assert MetadataRequest.decode_prefix(bytes(data), 12, elements_max=0)
    partitions = plain(2).encode(8)
    whole = 2 + 2 + 10  # groups, topics, partitions
    assert OffsetFetchResponse.decode_prefix(partitions, 8, elements_max=whole)
    with pytest.raises(TooManyElements, match=r"max\.request\.elements"):
        OffsetFetchResponse.decode_prefix(partitions, 8, elements_max=whole - 1)


def test_unknown_tags_are_counted_and_read_in_linear_time() -> None:
    """K8: a struct may be followed by as many tags as bytes allow; they are elements, too."""
    body = MetadataRequest(topics=[]).encode(12)
    assert body.endswith(b"\0")
    count = 100_000
    tags = b"".join(uvarint(tag) + b"\0" for tag in range(count))
    data = body[:-1] + uvarint(count) + tags
    request, _ = MetadataRequest.decode_prefix(data, 12)
    assert len(request.unknown_tags) == count
    with pytest.raises(TooManyElements):
        MetadataRequest.decode_prefix(data, 12, elements_max=count - 1)


def test_a_header_has_few_tags() -> None:
    """K8: Kafka defines none; a hundred thousand are no header."""
    start = b"\0\x03\0\x0c" + b"\0\0\0\x01" + b"\xff\xff"
    few = uvarint(3) + b"".join(uvarint(tag) + b"\0" for tag in range(3))
    _, position = decode_request_header(memoryview(start + few))
    assert position == len(start) + len(few)
    many = uvarint(100_000) + b"".join(uvarint(tag) + b"\0" for tag in range(100_000))
    with pytest.raises(MalformedBytes, match="tagged fields"):
        decode_request_header(memoryview(start + many))

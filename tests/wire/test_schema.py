"""The behaviour of message classes."""

from uuid import UUID

import pytest

from quipu.wire.fields import INT32, array, int16, int32, parse_versions, string
from quipu.wire.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from quipu.wire.messages.k01_fetch import FetchRequest, ReplicaState
from quipu.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from quipu.wire.schema import Message, Struct


class Item(Struct):
    """A struct with a field that came and one that went."""

    number: int = int32()
    old: int = int16("0-1", default=-1)
    new: str | None = string("1+", nullable="2+", default="new")


class Example(Message, versions="0-3", flexible="3+"):
    """A message of our own."""

    items: list[Item] | None = array(Item, nullable="2+")
    numbers: list[int] = array(INT32, "1+")
    label: str = string("3+", default="none", tag=0)


EXAMPLE = Example(items=[Item(number=7, old=8, new="x")], numbers=[1, 2], label="y")
CASES = [
    (0, "00000001 00000007 0008"),
    (1, "00000001 00000007 0008 000178 00000002 00000001 00000002"),
    (2, "00000001 00000007 000178 00000002 00000001 00000002"),
    (3, "02 00000007 0278 00 03 00000001 00000002 01 00 02 0279"),
]


@pytest.mark.parametrize(("version", "wanted"), CASES)
def test_bytes_are_what_the_definition_says(version: int, wanted: str) -> None:
    """K2: written out by hand once, for every construct of the notation."""
    assert EXAMPLE.encode(version) == bytes.fromhex(wanted)


def test_fields_that_a_version_lacks_read_as_their_defaults() -> None:
    """K12: wire.M4."""
    assert Example.decode(EXAMPLE.encode(0), 0) == Example(items=[Item(number=7, old=8)])
    assert Example.decode(EXAMPLE.encode(2), 2) == Example(
        items=[Item(number=7, new="x")], numbers=[1, 2])


def test_a_tagged_field_with_its_default_is_not_written() -> None:
    """K12: Kafka does not write it either."""
    assert Example(label="none").encode(3) == bytes.fromhex("01 01 00")


def test_defaults_are_not_shared() -> None:
    """A list that one message fills stays empty in the next."""
    first, second = FetchRequest(), FetchRequest()
    first.topics.append(second)  # type: ignore[arg-type]
    first.replica_state.replica_id = 5

    assert second.topics == []
    assert second.replica_state == ReplicaState(replica_id=-1)
    assert MetadataRequest().topics == []
    assert MetadataRequest(topics=None).topics is None


def test_a_name_that_is_no_field_is_refused() -> None:
    """Misspelled names fail at once, in constructors and in assignments."""
    with pytest.raises(TypeError):
        MetadataRequest(topic=[])  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        MetadataRequest().topic = []  # type: ignore[attr-defined]


def test_messages_compare_and_show_by_value() -> None:
    """Tests and logs read them."""
    one = MetadataRequestTopic(name="a", topic_id=UUID(int=1))

    assert one == MetadataRequestTopic(name="a", topic_id=UUID(int=1))
    assert one != MetadataRequestTopic(name="b", topic_id=UUID(int=1))
    assert one != "a"
    assert repr(Item(number=1)) == "Item(number=1, old=-1, new='new')"
    assert repr(Item(unknown_tags=((1, b"x"),))).endswith("unknown_tags=((1, b'x'),))")
    with pytest.raises(TypeError):
        hash(one)


def test_records_are_a_view_of_the_request() -> None:
    """K2: what a producer sent is not copied before it is stored."""
    batch = PartitionProduceData(index=3, records=memoryview(b"batches"))
    request = ProduceRequest(
        topic_data=[TopicProduceData(name="t", partition_data=[batch])])
    data = bytearray(request.encode(9))
    records = ProduceRequest.decode(memoryview(data), 9).topic_data[0].partition_data[0].records
    data[data.index(b"batches")] = ord("B")

    assert records == b"Batches"


def test_a_version_that_is_not_defined_is_our_bug() -> None:
    """K12: the broker looks at what it supports before it decodes."""
    with pytest.raises(AssertionError, match="no version 4"):
        EXAMPLE.encode(4)
    with pytest.raises(AssertionError, match="no version -1"):
        Example.decode(b"", -1)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("", range(0)), ("3", range(3, 4)), ("0-7", range(8)), ("9+", range(9, 1 << 15))])
def test_versions_are_read_as_kafka_writes_them(text: str, wanted: range) -> None:
    assert parse_versions(text) == wanted

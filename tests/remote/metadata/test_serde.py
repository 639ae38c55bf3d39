"""Metadata as bytes: Kafka's, and whatever else lies in a store."""

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quipu.model.errors import MalformedBytes
from quipu.remote.metadata.epoch_state import SegmentReference
from quipu.remote.metadata.segment_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
)
from quipu.remote.metadata.serde import (
    VALUE_SIZE_MAX,
    EpochHeader,
    EpochReference,
    KafkaSerde,
    MetadataValue,
    PartitionHeader,
    UnreferencedSegment,
    read_value,
)
from quipu.remote.metadata.states import (
    COPY_FINISHED,
    PARTITION_MARKED,
    PARTITION_STARTED,
    RemoteLogSegmentState,
)
from tests.remote.metadata.segments import segment

TOPIC_ID = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
SEGMENT_ID = UUID("11121314-1516-1718-191a-1b1c1d1e1f20")
PARTITION = TopicIdPartition(TOPIC_ID, 3, "foo")
SEGMENT = segment(PARTITION, 0, 100, {0: 0, 1: 20, 2: 80}, id=SEGMENT_ID)
UPDATE = RemoteLogSegmentMetadataUpdate(
    segment_id=RemoteLogSegmentId(PARTITION, SEGMENT_ID), event_timestamp_ms=7, broker_id=1,
    state=COPY_FINISHED)
DELETION = RemotePartitionDeleteMetadata(
    partition=PARTITION, state=PARTITION_MARKED, event_timestamp_ms=7, broker_id=1)
HEADER = PartitionHeader(partition=PARTITION, leader_epoch=4, broker_id=1, incarnation=SEGMENT_ID)

VALUES: list[MetadataValue] = [
    SEGMENT, replace(SEGMENT, custom_metadata=bytes(range(4)), state=COPY_FINISHED),
    replace(SEGMENT, custom_metadata=b"", txn_index_empty=True),
    UPDATE, replace(UPDATE, custom_metadata=b"\0\1\2\3"), DELETION, HEADER,
    replace(HEADER, deletion=replace(DELETION, state=PARTITION_STARTED)),
    EpochHeader(2, 100), EpochReference(2, SegmentReference(80, 100, SEGMENT_ID)),
    UnreferencedSegment(2, SEGMENT_ID), PARTITION,
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_survives_the_way_there_and_back(value: MetadataValue) -> None:
    """R7, R14: with and without custom metadata, and with an empty transaction index."""
    serde = KafkaSerde()
    assert serde.deserialize(serde.serialize(value)) == value


def test_the_bytes_are_those_that_kafka_stores() -> None:
    """R1, R14: the frame, and every field where Kafka has it."""
    identity = b"\x04foo" + TOPIC_ID.bytes + b"\0\0\0\3\0"
    assert KafkaSerde().serialize(replace(UPDATE, custom_metadata=b"ab")) == (
        b"\x01\x01\x00" + identity + SEGMENT_ID.bytes + b"\0"
        + b"\0\0\0\1" + b"\0\0\0\0\0\0\0\7" + b"\x03ab" + b"\1\0")
    assert KafkaSerde().serialize(DELETION) == (
        b"\x01\x02\x00" + identity + b"\0\0\0\1" + b"\0\0\0\0\0\0\0\7" + b"\0\0")
    small = replace(SEGMENT, end_offset=9, event_timestamp_ms=7, segment_size_bytes=5,
                    segment_leader_epochs={6: 0}, txn_index_empty=True)
    assert KafkaSerde().serialize(small) == (
        b"\x01\x00\x00" + identity + SEGMENT_ID.bytes + b"\0"
        + bytes(8) + b"\0\0\0\0\0\0\0\x09" + bytes(4) + b"\xff" * 8 + b"\0\0\0\0\0\0\0\7"
        + b"\x02\0\0\0\6" + bytes(8) + b"\0" + b"\0\0\0\5" + b"\0\0" + b"\x01\x00\x01\x01")


def _framed(value: MetadataValue, at: int, byte: int) -> bytes:
    data = bytearray(KafkaSerde().serialize(value))
    data[at] = byte
    return bytes(data)


HOSTILE = [
    ("nothing", b""), ("half a frame", b"\x01\x00"), ("an endless number", b"\xff" * 20),
    ("frame 0", _framed(SEGMENT, 0, 0)), ("frame 2", _framed(SEGMENT, 0, 2)),
    ("an unknown record", _framed(SEGMENT, 1, 77)), ("a snapshot", _framed(SEGMENT, 1, 3)),
    ("an unknown version", _framed(SEGMENT, 2, 1)),
    ("bytes after the end", KafkaSerde().serialize(SEGMENT) + b"\0"),
    ("a cut record", KafkaSerde().serialize(SEGMENT)[:-1]),
    ("a state that is none", _framed(SEGMENT, -2, 9)),
    ("a deletion in no state", _framed(DELETION, -2, 3)),
    ("a topic name that is no text", _framed(DELETION, 4, 0xFF)),
    ("too many bytes", bytes(VALUE_SIZE_MAX + 1)),
    ("a negative epoch", KafkaSerde().serialize(EpochHeader(-1, 5))),
    ("a reference that runs backwards",
     KafkaSerde().serialize(EpochReference(1, SegmentReference(5, 4, SEGMENT_ID)))),
]


@pytest.mark.parametrize("data", [each[1] for each in HOSTILE], ids=[each[0] for each in HOSTILE])
def test_foreign_bytes_are_refused(data: bytes) -> None:
    """R7: remote.S1: with MalformedBytes, and nothing else."""
    with pytest.raises(MalformedBytes):
        KafkaSerde().deserialize(data)


@given(st.sampled_from(VALUES), st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)),
                                         max_size=4), st.integers(0, 200))
def test_changed_bytes_give_a_valid_value_or_malformed_bytes(
    value: MetadataValue, changes: list[tuple[int, int]], size: int
) -> None:
    """R7: remote.S1: and a value that is returned can be stored again."""
    serde = KafkaSerde()
    data = bytearray(serde.serialize(value))
    for at, byte in changes:
        data[at % len(data)] = byte
    try:
        found = serde.deserialize(bytes(data[:size] if size % 2 else data))
    except MalformedBytes:
        return
    assert serde.deserialize(serde.serialize(found)) == found


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    """R7: remote.S1: behind every known record type."""
    for kind in (0, 1, 2, 100, 101, 102, 103):
        try:
            KafkaSerde().deserialize(bytes([1, kind, 0]) + data)
        except MalformedBytes:
            continue


def test_a_value_of_another_type_is_malformed_and_the_key_is_named() -> None:
    """R7: a header where a segment should be."""
    with pytest.raises(MalformedBytes, match=r"'a/b' is a PartitionHeader, not a Remote"):
        read_value(KafkaSerde(), type(SEGMENT), "a/b", KafkaSerde().serialize(HEADER))
    with pytest.raises(MalformedBytes, match=r"'a/b'.*too few"):
        read_value(KafkaSerde(), type(SEGMENT), "a/b", b"")
    assert RemoteLogSegmentState(0).name == "COPY_SEGMENT_STARTED"

"""Records of `__consumer_offsets`: bytes that Kafka's tools decode, and that stay what they are."""

from uuid import UUID

import pytest

from quipu.broker.coordinators.record_log import KeyedRecord
from quipu.broker.groups.events import GroupProtocol, GroupSnapshot, MemberSnapshot
from quipu.broker.groups.kafka_records import (
    CommittedOffset,
    RecordKey,
    decode_key,
    decode_offset,
    group_records,
    group_tombstones,
    offset_record,
    offset_tombstone,
)
from quipu.broker.groups.records import UnknownGroupRecord
from quipu.model.errors import MalformedBytes
from quipu.model.ids import ZERO_UUID, TimestampMs

TOPIC = UUID(int=0x1234)
KEPT = CommittedOffset(TOPIC, 7, 2, "m", TimestampMs(9))
MEMBER = MemberSnapshot(
    "m-1", "A", "client", "/10.0.0.1", 10, 20,
    (GroupProtocol("roundrobin", b"?"), GroupProtocol("range", b"\x00")), b"x")
STABLE = GroupSnapshot("g", "Stable", 3, "consumer", "range", "m-1", (MEMBER,))
EMPTY = GroupSnapshot("g", "Empty", 4, "consumer", None, None, ())

OFFSET_KEY = "0001 0001 67 0001 74 00000001"
GROUP_KEY = "0002 0001 67"
STATE_KEY = "5155 0001 67"


def written(text: str) -> bytes:
    return bytes.fromhex(text.replace(" ", ""))


# Kafka 4.2 writes the same bytes, but for what follows its own fields in an offset.
OFFSETS = [
    (KEPT, True,
     ("0004 0000000000000007 00000002 026d 0000000000000009 "
     "01 00 10 00000000000000000000000000001234")),
    (KEPT, False,
     ("0004 0000000000000007 00000002 026d 0000000000000009 "
     "01 d5a201 10 00000000000000000000000000001234")),
    (KEPT._replace(expires_ms=TimestampMs(11)), False,
     ("0004 0000000000000007 00000002 026d 0000000000000009 "
     "02 d5a201 10 00000000000000000000000000001234 d6a201 08 000000000000000b")),
]


@pytest.mark.parametrize(("kept", "by_id", "value"), OFFSETS)
def test_an_offset_is_written_as_kafka_writes_it(
    kept: CommittedOffset, by_id: bool, value: str
) -> None:
    """K3: key and value of version 4; what Kafka has no field for is in tags that it skips."""
    # Shows broker.groups.K1.
    record = offset_record("g", ("t", 1), kept, by_id=by_id)
    assert record == KeyedRecord(written(OFFSET_KEY), written(value))
    assert decode_key(written(OFFSET_KEY)) == RecordKey(1, "g", ("t", 1))
    assert decode_offset(written(value)) == kept


@pytest.mark.parametrize(("value", "kept"), [
    ("0000 0000000000000007 0001 6d 0000000000000009", KEPT._replace(leader_epoch=-1)),
    ("0001 0000000000000007 0001 6d 0000000000000009 000000000000000b",
     KEPT._replace(leader_epoch=-1, expires_ms=TimestampMs(11))),
    ("0003 0000000000000007 00000002 0001 6d 0000000000000009", KEPT),
])
def test_offsets_of_earlier_kafkas_are_read(value: str, kept: CommittedOffset) -> None:
    """K3: each version that Kafka has written, without the id of the topic."""
    assert decode_offset(written(value)) == kept._replace(topic_id=ZERO_UUID)


def test_a_group_is_written_as_kafka_writes_it() -> None:
    """K3: members with the metadata of the chosen protocol; all of it is in a record of our own."""
    ours, kafkas = group_records(STABLE, 5)
    assert ours.key == written(STATE_KEY)
    assert decode_key(ours.key) == RecordKey(0x5155, "g")
    assert kafkas == KeyedRecord(written(GROUP_KEY), written(
        "0003 0008 636f6e73756d6572 00000003 0005 72616e6765 0003 6d2d31 0000000000000005 "
        "00000001 0003 6d2d31 0001 41 0006 636c69656e74 0009 2f31302e302e302e31 "
        "00000014 0000000a 00000001 00 00000001 78"))
    assert group_records(EMPTY, 5)[1].value == written(
        "0003 0008 636f6e73756d6572 00000004 ffff ffff 0000000000000005 00000000")


def test_a_group_that_is_not_assigned_yet_is_written_for_us_alone() -> None:
    """K3: Kafka writes a group when it is created, and then only when its leader has assigned."""
    begun = STABLE._replace(state="CompletingRebalance")
    assert [record.key for record in group_records(begun, 5)] == [written(STATE_KEY)]
    created = group_records(begun._replace(generation=1), 5)[1]
    assert created == KeyedRecord(written(GROUP_KEY), written(
        "0003 0000 00000000 ffff ffff 0000000000000005 00000000"))


def test_tombstones_have_keys_alone() -> None:
    """K3: of an offset, and of a group."""
    assert offset_tombstone("g", ("t", 1)) == KeyedRecord(written(OFFSET_KEY), None)
    assert group_tombstones("g") == [
        KeyedRecord(written(GROUP_KEY), None), KeyedRecord(written(STATE_KEY), None)]


@pytest.mark.parametrize("key", ["", "00", "0001 0001 67", GROUP_KEY + "00"])
def test_a_broken_key_is_refused(key: str) -> None:
    """K8: bytes that are no key raise an error that says so."""
    with pytest.raises(MalformedBytes):
        decode_key(written(key))


def test_records_of_a_newer_program_are_not_skipped() -> None:
    """T7: state that was built without them would be wrong."""
    # Shows broker.groups.K2.
    with pytest.raises(UnknownGroupRecord, match="a newer one wrote it"):
        decode_key(written("0003 0001 67"))
    with pytest.raises(UnknownGroupRecord, match="a newer one wrote it"):
        decode_offset(written("0005 00"))

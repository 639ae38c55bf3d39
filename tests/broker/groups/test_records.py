"""Records of the group log: bytes that stay what they are."""

from uuid import UUID

import pytest

from quipu.broker.groups.events import GroupProtocol, GroupSnapshot, MemberSnapshot
from quipu.broker.groups.records import (
    ForgottenOffset,
    GroupChanged,
    GroupDeleted,
    OffsetRecord,
    OffsetsCommitted,
    OffsetsDeleted,
    Record,
    UnknownGroupRecord,
    decode_record,
    encode_record,
    record_of,
    snapshot_of,
)
from quipu.model.errors import MalformedBytes

TOPIC = UUID(int=0x1234)
MEMBER = MemberSnapshot(
    "m-1", "A", "client", "/10.0.0.1", 10, 20, (GroupProtocol("range", b"\x00"),), b"x")
IMAGE = GroupSnapshot("g", "Stable", 3, "consumer", "range", "m-1", (MEMBER,))

# type, version, body; a change to one of these needs a new version, not a new golden line
GOLDEN: list[tuple[Record, str]] = [
    (GroupDeleted(group_id="g"), "0200 0267 00"),
    (OffsetsDeleted(group_id="g", partitions=[ForgottenOffset(topic_id=TOPIC, partition=1)]),
     "0400 0267 02 00000000000000000000000000001234 00000001 00 00"),
    (OffsetsCommitted(group_id="g", offsets=[OffsetRecord(
        topic_id=TOPIC, partition=1, offset=7, leader_epoch=2, metadata="m", committed_ms=9)]),
     ("0300 0267 02 00000000000000000000000000001234 00000001 0000000000000007 "
      "00000002 026d 0000000000000009 ffffffffffffffff 00 00")),
    (record_of(IMAGE, 5),
     ("0100 0267 0000000000000005 07537461626c65 00000003 09636f6e73756d6572 "
      "0672616e6765 046d2d31 02 046d2d31 0241 07636c69656e74 0a2f31302e302e302e31 "
      "0000000a 00000014 02 0672616e6765 0200 00 0278 00 00")),
]


@pytest.mark.parametrize(("record", "data"), GOLDEN, ids=lambda case: type(case).__name__)
def test_a_record_is_written_as_ever(record: Record, data: str) -> None:
    """T7: what an older program wrote can be read."""
    # Shows broker.groups.R1.
    assert encode_record(record).hex() == data.replace(" ", "")
    assert decode_record(bytes.fromhex(data)) == record


def test_a_group_is_read_back_as_it_was() -> None:
    """T7: everything of a group that has to outlive the process is in its record."""
    record = decode_record(encode_record(record_of(IMAGE, 5)))

    assert isinstance(record, GroupChanged)
    assert snapshot_of(record) == IMAGE


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x01\x00", b"\x02\x00\x02g\x00tail"])
def test_a_broken_record_is_refused(data: bytes) -> None:
    """K8: bytes that are not a record raise an error that says so."""
    with pytest.raises(MalformedBytes):
        decode_record(data)


@pytest.mark.parametrize("data", [b"\x63\x00", b"\x01\x63"])
def test_a_record_of_a_newer_program_is_not_skipped(data: bytes) -> None:
    """T7: state that was built without it would be wrong."""
    # Shows broker.groups.R2.
    with pytest.raises(UnknownGroupRecord, match="a newer one wrote it"):
        decode_record(data)

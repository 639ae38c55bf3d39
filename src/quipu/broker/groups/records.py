"""The commands that groups and their offsets were kept as, and still are read from.

    record   type u8 · version u8 · body    (big endian; the body is a flexible message)

Invariants
    broker.groups.R1  a type or a version is never given another meaning; a new one gets the next
                      number
    broker.groups.R2  a type or version that this program does not know is refused, never skipped:
                      without it the offsets could be wrong
    broker.groups.R3  a record has the new state, not a change of it; applying one record, or the
                      end of the log, again changes nothing

A topic is named by its id, which is never reused: when a topic is deleted its offsets are invalid,
and no record is needed for that.

`GroupChanged` is also a value of today's records (kafka_records.py).  Number 5 is taken: a log that
has it has records instead of commands (coordinators/record_log.py).

Not here: what a record does to the state (registry.py).
"""

from typing import Final
from uuid import UUID

from quipu.broker.groups.events import GroupProtocol, GroupSnapshot, MemberSnapshot
from quipu.model.errors import Code, MalformedBytes, QuipuError
from quipu.wire.fields import array, binary, int32, int64, string, uuid
from quipu.wire.schema import Message, Struct

HEAD_SIZE: Final = 2


class ProtocolRecord(Struct):
    """A protocol that a member supports."""

    name: str = string()
    metadata: bytes = binary()


class MemberRecord(Struct):
    """A member of a group."""

    member_id: str = string()
    instance_id: str | None = string(nullable="0+", default=None)
    client_id: str = string()
    client_host: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32()
    protocols: list[ProtocolRecord] = array(ProtocolRecord)
    assignment: bytes = binary()


class GroupChanged(Message, key=1, versions="0", flexible="0+"):
    """The state of a group and its members (broker.groups.R3)."""

    group_id: str = string()
    timestamp_ms: int = int64()
    state: str = string()
    generation: int = int32()
    protocol_type: str | None = string(nullable="0+", default=None)
    protocol: str | None = string(nullable="0+", default=None)
    leader: str | None = string(nullable="0+", default=None)
    members: list[MemberRecord] = array(MemberRecord)


class GroupDeleted(Message, key=2, versions="0", flexible="0+"):
    """A group was deleted, with its offsets."""

    group_id: str = string()


class OffsetRecord(Struct):
    """The committed offset of one partition."""

    topic_id: UUID = uuid()
    partition: int = int32()
    offset: int = int64()
    leader_epoch: int = int32(default=-1)
    metadata: str = string()
    committed_ms: int = int64()
    expires_ms: int = int64(default=-1)


class OffsetsCommitted(Message, key=3, versions="0", flexible="0+"):
    """A group has committed offsets of some partitions; others do not change."""

    group_id: str = string()
    offsets: list[OffsetRecord] = array(OffsetRecord)


class ForgottenOffset(Struct):
    """A partition whose offset was deleted."""

    topic_id: UUID = uuid()
    partition: int = int32()


class OffsetsDeleted(Message, key=4, versions="0", flexible="0+"):
    """A group's offsets of some partitions were deleted."""

    group_id: str = string()
    partitions: list[ForgottenOffset] = array(ForgottenOffset)


Record = GroupChanged | GroupDeleted | OffsetsCommitted | OffsetsDeleted

TYPES: Final[dict[int, type[Record]]] = {
    kind.KEY: kind for kind in (GroupChanged, GroupDeleted, OffsetsCommitted, OffsetsDeleted)
}
assert len(TYPES) == 4  # broker.groups.R1: no number twice


class UnknownGroupRecord(QuipuError):
    """A record that a newer version of the program wrote."""

    code = Code.UNSUPPORTED_VERSION


def encode_record(record: Record) -> bytes:
    version = record.VERSIONS[-1]
    return bytes((record.KEY, version)) + record.encode(version)


def decode_record(data: bytes) -> Record:
    """The record in `data`; `UnknownGroupRecord` if a newer program wrote it (broker.groups.R2)."""
    if len(data) < HEAD_SIZE:
        raise MalformedBytes(f"a group record of {len(data)} bytes has no type and version")
    number, version = data[0], data[1]
    kind = TYPES.get(number)
    if kind is None or version not in kind.VERSIONS:
        name = f"type {number}" if kind is None else f"{kind.__name__} version {version}"
        raise UnknownGroupRecord(
            f"the group log holds a record of {name}, which this program does not know: "
            "a newer one wrote it; start that one, or restore the data directory from before")
    return kind.decode(memoryview(data)[HEAD_SIZE:], version)


def record_of(snapshot: GroupSnapshot, timestamp_ms: int) -> GroupChanged:
    """The record of a group's snapshot."""
    return GroupChanged(
        group_id=snapshot.group_id, timestamp_ms=timestamp_ms, state=snapshot.state,
        generation=snapshot.generation, protocol_type=snapshot.protocol_type,
        protocol=snapshot.protocol, leader=snapshot.leader,
        members=[_member_record(member) for member in snapshot.members])


def _member_record(member: MemberSnapshot) -> MemberRecord:
    return MemberRecord(
        member_id=member.member_id, instance_id=member.instance_id, client_id=member.client_id,
        client_host=member.client_host, session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=[ProtocolRecord(name=p.name, metadata=p.metadata) for p in member.protocols],
        assignment=member.assignment)


def snapshot_of(record: GroupChanged) -> GroupSnapshot:
    """The snapshot in a group's record."""
    return GroupSnapshot(
        record.group_id, record.state, record.generation, record.protocol_type, record.protocol,
        record.leader, tuple(_member_snapshot(member) for member in record.members))


def _member_snapshot(member: MemberRecord) -> MemberSnapshot:
    return MemberSnapshot(
        member.member_id, member.instance_id, member.client_id, member.client_host,
        member.session_timeout_ms, member.rebalance_timeout_ms,
        tuple(GroupProtocol(p.name, bytes(p.metadata)) for p in member.protocols),
        bytes(member.assignment))

"""The changes to groups and their offsets, as they are written to the group log.

    record   type u8 · version u8 · body    (big endian; the body is a flexible message)

Invariants
    R1  a type or a version is never given another meaning; a new one gets the next number
    R2  a type or version that this program does not know is refused, never skipped: offsets read
        without it would be wrong
    R3  a record is absolute: it says what holds from now on, not what to add; applying one
        again, or a whole tail of the log again, changes nothing

A topic is named by its id, which is never used again: when a topic is deleted its offsets mean
nothing any more, and no record needs to say so.

Not here: what a record does to the state (registry.py).
"""

from typing import Final
from uuid import UUID

from quipu.broker.groups.events import GroupImage, MemberImage, Protocol
from quipu.model.errors import Code, MalformedBytes, QuipuError
from quipu.wire.fields import array, binary, int32, int64, string, uuid
from quipu.wire.schema import Message, Struct

HEAD_SIZE: Final = 2


class ProtocolRecord(Struct):
    """A protocol that a member knows."""

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
    """A group and its members, whole."""

    group_id: str = string()
    timestamp_ms: int = int64()
    state: str = string()
    generation: int = int32()
    protocol_type: str | None = string(nullable="0+", default=None)
    protocol: str | None = string(nullable="0+", default=None)
    leader: str | None = string(nullable="0+", default=None)
    members: list[MemberRecord] = array(MemberRecord)


class GroupDeleted(Message, key=2, versions="0", flexible="0+"):
    """A group is gone, and its offsets with it."""

    group_id: str = string()


class OffsetRecord(Struct):
    """How far a group has read one partition."""

    topic_id: UUID = uuid()
    partition: int = int32()
    offset: int = int64()
    leader_epoch: int = int32(default=-1)
    metadata: str = string()
    committed_ms: int = int64()
    expires_ms: int = int64(default=-1)


class OffsetsCommitted(Message, key=3, versions="0", flexible="0+"):
    """How far a group has read some partitions; others stay as they are."""

    group_id: str = string()
    offsets: list[OffsetRecord] = array(OffsetRecord)


class PartitionRecord(Struct):
    """A partition whose offset is forgotten."""

    topic_id: UUID = uuid()
    partition: int = int32()


class OffsetsDeleted(Message, key=4, versions="0", flexible="0+"):
    """A group's offsets of some partitions are gone."""

    group_id: str = string()
    partitions: list[PartitionRecord] = array(PartitionRecord)


Record = GroupChanged | GroupDeleted | OffsetsCommitted | OffsetsDeleted

TYPES: Final[dict[int, type[Record]]] = {
    kind.KEY: kind for kind in (GroupChanged, GroupDeleted, OffsetsCommitted, OffsetsDeleted)
}
assert len(TYPES) == 4  # R1: no number twice


class UnknownRecord(QuipuError):
    """Something about groups that a newer program wrote."""

    code = Code.UNSUPPORTED_VERSION


def encode_record(record: Record) -> bytes:
    version = record.VERSIONS[-1]
    return bytes((record.KEY, version)) + record.encode(version)


def decode_record(data: bytes) -> Record:
    """The record in `data`; `UnknownRecord` if a newer program wrote it (R2)."""
    if len(data) < HEAD_SIZE:
        raise MalformedBytes(f"a group record of {len(data)} bytes has no type and version")
    number, version = data[0], data[1]
    kind = TYPES.get(number)
    if kind is None or version not in kind.VERSIONS:
        name = f"type {number}" if kind is None else f"{kind.__name__} version {version}"
        raise UnknownRecord(
            f"the group log holds a record of {name}, which this program does not know: "
            "a newer one wrote it; start that one, or restore the data directory from before")
    return kind.decode(memoryview(data)[HEAD_SIZE:], version)


def record_of(image: GroupImage, timestamp_ms: int) -> GroupChanged:
    """What is written about a group."""
    return GroupChanged(
        group_id=image.group_id, timestamp_ms=timestamp_ms, state=image.state,
        generation=image.generation, protocol_type=image.protocol_type, protocol=image.protocol,
        leader=image.leader, members=[_member_record(member) for member in image.members])


def _member_record(member: MemberImage) -> MemberRecord:
    return MemberRecord(
        member_id=member.member_id, instance_id=member.instance_id, client_id=member.client_id,
        client_host=member.client_host, session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=[ProtocolRecord(name=p.name, metadata=p.metadata) for p in member.protocols],
        assignment=member.assignment)


def image_of(record: GroupChanged) -> GroupImage:
    """The group that was written."""
    return GroupImage(
        record.group_id, record.state, record.generation, record.protocol_type, record.protocol,
        record.leader, tuple(_member_image(member) for member in record.members))


def _member_image(member: MemberRecord) -> MemberImage:
    return MemberImage(
        member.member_id, member.instance_id, member.client_id, member.client_host,
        member.session_timeout_ms, member.rebalance_timeout_ms,
        tuple(Protocol(p.name, bytes(p.metadata)) for p in member.protocols),
        bytes(member.assignment))

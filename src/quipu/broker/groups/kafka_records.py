"""Groups and their offsets as records of `__consumer_offsets`, in Kafka's own format.

    key                                  value                          who reads it
    i16 1 · group, topic, partition      OffsetCommitValue, version 4   Kafka's tools, and we
    i16 2 · group                        GroupMetadataValue, version 3  Kafka's tools
    i16 20821 · group                    GroupChanged (records.py)      we

The first number of a key is the type of the record, and a record without a value is a tombstone.
Kafka's decoders skip types that they do not know; those of Kafka are small numbers.  What we keep
beyond Kafka's fields is in tagged fields, which its decoders skip too, and in the third record:
every protocol of a member, and a generation from its beginning on.  Kafka writes a group when it
is created, when its leader has assigned and when its last member has left; so we write the second
record for these moments alone.

Invariants
    broker.groups.K1  a type, a version or a tag is never given another meaning
    broker.groups.K2  a type or version that this program does not know is refused, never skipped:
                      without it the offsets could be wrong
    broker.groups.K3  a record has the new state of its key; so applying records again, or only the
                      last one of each key, gives the same state

An offset has the id of its topic, which is never reused: an offset of an id that no topic has is
void, whether its tombstone is in the log already or not.

Not here: what a record does to the state (registry.py), the log (coordinators/record_log.py).
"""

from functools import lru_cache
from struct import Struct as Packing
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from quipu.broker.coordinators.record_log import KeyedRecord
from quipu.broker.groups.events import GroupSnapshot, MemberSnapshot
from quipu.broker.groups.records import UnknownGroupRecord, encode_record, record_of
from quipu.broker.groups.states import State
from quipu.model.errors import MalformedBytes
from quipu.model.ids import NO_TIMESTAMP, ZERO_UUID, TimestampMs
from quipu.wire.fields import array, binary, int32, int64, string, uuid
from quipu.wire.schema import Message, Struct

OFFSET_COMMIT_BEFORE: Final = 0  # the same key, as Kafka wrote it before 0.8.3
OFFSET_COMMIT: Final = 1
GROUP_METADATA: Final = 2
GROUP_STATE: Final = 20821  # "QU": of our own
OFFSET_VALUE_VERSION: Final = 4  # that Kafka 4.2 writes
GROUP_VALUE_VERSION: Final = 3  # that Kafka 4.2 writes
TOPIC_ID_TAG: Final = 20821
EXPIRES_TAG: Final = 20822

_INT16: Final = Packing(">h")
_INT32: Final = Packing(">i")
_INT64: Final = Packing(">q")
# An offset as it nearly always is: its head, then metadata below 127 bytes, a timestamp, and a tag.
_OFFSET_HEAD: Final = Packing(">hqiB")  # version, offset, leader epoch, size of the metadata + 1
_ID_SIZE: Final = 16
_ID_TAG: Final = bytes.fromhex("01d5a20110")  # one tag, TOPIC_ID_TAG, of _ID_SIZE bytes
_SHORT: Final = 0x7F  # sizes below it are one byte

OffsetKey: TypeAlias = tuple[str, int]  # topic, partition


class CommittedOffset(NamedTuple):
    """The committed offset of one partition."""

    topic_id: UUID
    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: TimestampMs
    expires_ms: TimestampMs = NO_TIMESTAMP  # -1: by the broker's retention


class OffsetCommitKey(Message, key=OFFSET_COMMIT, versions="0-1"):
    """The partition whose offset a group has committed."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Message, versions="0-4", flexible="4+"):
    """A committed offset."""

    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1)
    topic_id: UUID = uuid("4+", tag=0)  # if the client named the topic by its id
    known_topic_id: UUID = uuid("4+", tag=TOPIC_ID_TAG)  # else
    expires_ms: int = int64("4+", tag=EXPIRES_TAG, default=-1)


class GroupMetadataKey(Message, key=GROUP_METADATA, versions="2"):
    """A group; also the key of GROUP_STATE, whose type is another."""

    group: str = string()


class MemberMetadata(Struct):
    """A member of a group, with its subscription by the chosen protocol."""

    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+")
    session_timeout: int = int32()
    subscription: bytes = binary()
    assignment: bytes = binary()


class GroupMetadataValue(Message, versions="0-3"):
    """A group and its members."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+", default=None)
    leader: str | None = string(nullable="0+", default=None)
    current_state_timestamp: int = int64("2+", default=-1)
    members: list[MemberMetadata] = array(MemberMetadata)


class RecordKey(NamedTuple):
    """A decoded key."""

    kind: int
    group_id: str
    offset: OffsetKey | None = None  # of an OFFSET_COMMIT


# -- encoding


def offset_record(
    group_id: str, key: OffsetKey, kept: CommittedOffset, *, by_id: bool = False
) -> KeyedRecord:
    """The record of a committed offset (broker.groups.K3), with its topic's id (broker.groups.K1).

    `by_id`: the client named the topic by its id.
    """
    metadata = kept.metadata.encode()
    if not by_id and kept.expires_ms < 0 and len(metadata) < _SHORT:
        return KeyedRecord(_offset_key(group_id, key), b"".join((
            _OFFSET_HEAD.pack(OFFSET_VALUE_VERSION, kept.offset, kept.leader_epoch,
                              len(metadata) + 1),
            metadata, _INT64.pack(kept.committed_ms), _ID_TAG, kept.topic_id.bytes)))
    value = OffsetCommitValue(
        offset=kept.offset, leader_epoch=kept.leader_epoch, metadata=kept.metadata,
        commit_timestamp=kept.committed_ms, expires_ms=kept.expires_ms,
        topic_id=kept.topic_id if by_id else ZERO_UUID,
        known_topic_id=ZERO_UUID if by_id else kept.topic_id)
    return KeyedRecord(
        _offset_key(group_id, key),
        _INT16.pack(OFFSET_VALUE_VERSION) + value.encode(OFFSET_VALUE_VERSION))


def offset_tombstone(group_id: str, key: OffsetKey) -> KeyedRecord:
    """Deletes a committed offset."""
    return KeyedRecord(_offset_key(group_id, key), None)


def group_records(snapshot: GroupSnapshot, timestamp_ms: int) -> list[KeyedRecord]:
    """The records of a group that has changed: Kafka's, if it would write one now, and ours."""
    records = [KeyedRecord(_group_key(GROUP_STATE, snapshot.group_id),
                           encode_record(record_of(snapshot, timestamp_ms)))]
    value = _group_value(snapshot, timestamp_ms)
    if value is not None:
        records.append(KeyedRecord(
            _group_key(GROUP_METADATA, snapshot.group_id),
            _INT16.pack(GROUP_VALUE_VERSION) + value.encode(GROUP_VALUE_VERSION)))
    return records


def group_tombstones(group_id: str) -> list[KeyedRecord]:
    """Delete a group; its offsets have tombstones of their own."""
    return [KeyedRecord(_group_key(kind, group_id), None) for kind in (GROUP_METADATA, GROUP_STATE)]


def _offset_key(group_id: str, key: OffsetKey) -> bytes:
    group, topic = group_id.encode(), key[0].encode()
    return b"".join((_INT16.pack(OFFSET_COMMIT), _INT16.pack(len(group)), group,
                     _INT16.pack(len(topic)), topic, _INT32.pack(key[1])))


def _group_key(kind: int, group_id: str) -> bytes:
    return _INT16.pack(kind) + GroupMetadataKey(group=group_id).encode(GROUP_METADATA)


def _group_value(snapshot: GroupSnapshot, timestamp_ms: int) -> GroupMetadataValue | None:
    if snapshot.state == State.COMPLETING_REBALANCE:
        if snapshot.generation > 1:
            return None  # the group of the last generation stays, as on Kafka
        return GroupMetadataValue(current_state_timestamp=timestamp_ms)  # it was created
    return GroupMetadataValue(
        protocol_type=snapshot.protocol_type or "", generation=snapshot.generation,
        protocol=snapshot.protocol, leader=snapshot.leader if snapshot.members else None,
        current_state_timestamp=timestamp_ms,
        members=[_member(member, snapshot.protocol) for member in snapshot.members])


def _member(member: MemberSnapshot, protocol: str | None) -> MemberMetadata:
    return MemberMetadata(
        member_id=member.member_id, group_instance_id=member.instance_id,
        client_id=member.client_id, client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms, session_timeout=member.session_timeout_ms,
        subscription=next((each.metadata for each in member.protocols if each.name == protocol),
                          b""),
        assignment=member.assignment)


# -- decoding


def decode_key(data: bytes) -> RecordKey:
    """The type and the key of a record (broker.groups.K2)."""
    kind = _number(data)
    if kind in {OFFSET_COMMIT, OFFSET_COMMIT_BEFORE}:
        group, topic = _group_and_topic(data[_INT16.size : -_INT32.size])
        return RecordKey(kind, group, (topic, _INT32.unpack_from(data, len(data) - 4)[0]))
    if kind in {GROUP_METADATA, GROUP_STATE}:
        key = GroupMetadataKey.decode(memoryview(data)[_INT16.size:], GROUP_METADATA)
        return RecordKey(kind, key.group)
    raise UnknownGroupRecord(
        f"the group log holds a record of type {kind}, which this program does not know: "
        "a newer one wrote it; start that one, or restore the data directory from before")


@lru_cache(maxsize=10_000)
def _group_and_topic(data: bytes) -> tuple[str, str]:
    """What the keys of a group's offsets of one topic begin with: mostly that of the last key."""
    key = OffsetCommitKey.decode(data + bytes(_INT32.size), OFFSET_COMMIT)
    return key.group, key.topic


def decode_offset(data: bytes) -> CommittedOffset:
    """The value of an offset's record (broker.groups.K2)."""
    return _decode_usual(data) or _decode_any(data)


def _decode_usual(data: bytes) -> CommittedOffset | None:
    """An offset that `offset_record` wrote without a message; None if it is another."""
    if len(data) < _OFFSET_HEAD.size or data[-_ID_SIZE - len(_ID_TAG) : -_ID_SIZE] != _ID_TAG:
        return None
    version, offset, leader_epoch, size = _OFFSET_HEAD.unpack_from(data)
    end = _OFFSET_HEAD.size + size - 1
    if (version != OFFSET_VALUE_VERSION or not 0 < size <= _SHORT
            or len(data) != end + _INT64.size + len(_ID_TAG) + _ID_SIZE):
        return None
    return CommittedOffset(
        _topic_id(data[-_ID_SIZE:]), offset, leader_epoch,
        data[_OFFSET_HEAD.size : end].decode(), TimestampMs(_INT64.unpack_from(data, end)[0]))


@lru_cache(maxsize=10_000)
def _topic_id(data: bytes) -> UUID:
    """One object for each topic, however many offsets name it."""
    return UUID(bytes=data)


def _decode_any(data: bytes) -> CommittedOffset:
    version = _number(data)
    if version not in OffsetCommitValue.VERSIONS:
        raise UnknownGroupRecord(
            f"the group log holds an offset of version {version}, which this program does not "
            "know: a newer one wrote it; start that one, or restore the data directory from before")
    value = OffsetCommitValue.decode(memoryview(data)[_INT16.size:], version)
    topic_id = value.topic_id if value.topic_id != ZERO_UUID else value.known_topic_id
    expires_ms = value.expires_ms if version == OFFSET_VALUE_VERSION else value.expire_timestamp
    return CommittedOffset(
        topic_id, value.offset, value.leader_epoch, value.metadata,
        TimestampMs(value.commit_timestamp), TimestampMs(expires_ms))


def _number(data: bytes) -> int:
    if len(data) < _INT16.size:
        raise MalformedBytes(f"a group record of {len(data)} bytes has no type or version")
    number: int = _INT16.unpack_from(data)[0]
    return number

"""The batch that begins an epoch: who the members of the chain were, and in which state.

    key     "chain"
    value   layout u8 = 1 | epoch i32 | version i64 | count u16, per member: node id i32 | state u8

Nobody needs to read it to replicate: that it is there says all.  It tells people what happened.
"""

from struct import Struct
from struct import error as StructError  # noqa: N812 the library's own name is too short
from typing import Final

from quipu.model.chains import Member, MemberState, ReplicaSet
from quipu.model.errors import MalformedBytes
from quipu.model.ids import Epoch, NodeId
from quipu.wire.record_batch import Record

KEY: Final = b"chain"
LAYOUT: Final = 1

_HEAD: Final = Struct(">BiqH")
_MEMBER: Final = Struct(">iB")


def configuration_record(replica_set: ReplicaSet, now_ms: int) -> Record:
    """The one record of the batch."""
    members = [_MEMBER.pack(node_id, state) for node_id, state in replica_set.members]
    head = _HEAD.pack(LAYOUT, replica_set.epoch, replica_set.version, len(members))
    return Record(KEY, head + b"".join(members), (), now_ms)


def decode_configuration(value: bytes) -> ReplicaSet:
    """What the record says; raises `MalformedBytes`."""
    try:
        layout, epoch, version, count = _HEAD.unpack_from(value)
        if layout != LAYOUT or len(value) != _HEAD.size + count * _MEMBER.size or not count:
            raise MalformedBytes(f"configuration of layout {layout}, {len(value)} bytes")
        return ReplicaSet(epoch=Epoch(epoch), version=version, members=tuple(
            Member(NodeId(node_id), MemberState(state))
            for node_id, state in _MEMBER.iter_unpack(value[_HEAD.size :])))
    except (StructError, ValueError, AssertionError) as error:
        raise MalformedBytes(f"a configuration that cannot be: {error}") from error

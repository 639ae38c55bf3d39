"""The configuration batch, which begins an epoch: the members of the chain and their states.

    key     "chain"
    value   layout u8 = 1 | epoch i32 | version i64 | count u16, per member: node id i32 | state u8

Replication does not read its contents, which are for people; only its presence matters.
"""

from struct import Struct
from struct import error as StructError  # noqa: N812 the library's own name is too short
from typing import Final

from quipu.model.chains import MemberState, ReplicaMember, ReplicaSet
from quipu.model.errors import MalformedBytes
from quipu.model.ids import Epoch, NodeId
from quipu.wire.record_batch import Record

KEY: Final = b"chain"
LAYOUT: Final = 1

_HEAD: Final = Struct(">BiqH")
_MEMBER: Final = Struct(">iB")


def configuration_record(replica_set: ReplicaSet, now_ms: int) -> Record:
    """Return the one record of the batch."""
    members = [_MEMBER.pack(node_id, state) for node_id, state in replica_set.members]
    head = _HEAD.pack(LAYOUT, replica_set.epoch, replica_set.version, len(members))
    return Record(KEY, head + b"".join(members), (), now_ms)


def decode_configuration(value: bytes) -> ReplicaSet:
    """Return the replica set in a record; raises `MalformedBytes`."""
    try:
        layout, epoch, version, count = _HEAD.unpack_from(value)
        if layout != LAYOUT or len(value) != _HEAD.size + count * _MEMBER.size or not count:
            raise MalformedBytes(f"a configuration of layout {layout} and {len(value)} bytes")
        return ReplicaSet(epoch=Epoch(epoch), version=version, members=tuple(
            ReplicaMember(NodeId(node_id), MemberState(state))
            for node_id, state in _MEMBER.iter_unpack(value[_HEAD.size :])))
    except (StructError, ValueError, AssertionError) as error:
        raise MalformedBytes(f"an invalid configuration: {error}") from error

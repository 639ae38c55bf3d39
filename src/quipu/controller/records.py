"""The changes to cluster metadata, as they are written to the metadata log.

    record   type u16 · version u16 · body    (big endian; the body is a flexible message)

Invariants
    controller.R1  a type or a version is never given another meaning; a new one gets the next
                   number
    controller.R2  a type or version that this program does not know is refused, never skipped:
                   state built without it would be wrong
    controller.R3  optional additions are tagged fields: an older program reads past them
    controller.P4  partitions whose kind of placement this program does not know are refused too:
                   they are never taken for partitions on a chain
    controller.R4  a type of record that is newer than METADATA_LEVEL 0 is written only once all
                   registered brokers have said that they can read it

Not here: what a record does to the state (state.py).
"""

import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import Final, Literal
from uuid import UUID

from quipu.model.errors import Code, ErrorKind, MalformedBytes, QuipuError
from quipu.model.ids import NO_NODE
from quipu.wire.fields import INT32, array, boolean, int8, int32, int64, string, uuid
from quipu.wire.schema import Message, Struct

_HEAD: Final = struct.Struct(">HH")

# Which records a program can read (controller.R4); a broker says so when it registers.
#   0  types 1 to 13
#   1  DerivedChainChanged and ChainRemoved
METADATA_LEVEL: Final = 1
LEVEL_OF_DERIVED_CHAINS: Final = 1


class ClusterCreated(Message, key=1, versions="0", flexible="0+"):
    """The first record of a cluster."""

    cluster_id: str = string()


class ListenerRecord(Struct):
    """Where clients reach one listener of a broker."""

    name: str = string()
    host: str = string()
    port: int = int32()


class BrokerRegistered(Message, key=2, versions="0", flexible="0+"):
    """A broker registered, for the first time, with another address, or as another process."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)
    name: str = string(tag=0)
    peer_host: str = string(tag=1)
    peer_port: int = int32(tag=2)
    incarnation: UUID = uuid(tag=3)
    epoch: int = int64(tag=4)
    fenced: bool = boolean(tag=5)  # a broker registered before there was fencing never is
    stopping: bool = boolean(tag=6)
    lease_ms: int = int32(tag=7)  # how long it may lead without a response; 0: for its session
    directory_id: UUID = uuid(tag=8)  # where its logs are; zeros: it did not say
    listeners: list[ListenerRecord] = array(ListenerRecord, tag=9)  # none: PLAINTEXT at host:port
    fenced_at_ms: int = int64(tag=10)  # 0: it is not fenced, or it is not known since when
    given_up: bool = boolean(tag=11)  # see racks.py
    metadata_level: int = int32(tag=12)  # which records it can read: see METADATA_LEVEL


class PlacementKind(IntEnum):
    """How partitions are placed, as a record says it; never given another meaning."""

    UNSTATED = 0  # by a version that knew only chains, and partitions from before there were any
    CHAIN = 1  # on a chain
    LEGACY = 2  # on nodes that the record names one by one, from before there were chains
    DISKLESS = 3  # in object storage; the record names the replicas


class PartitionRecord(Struct):
    """A partition whose replicas are named: a diskless one, or from before there were chains."""

    replicas: list[int] = array(INT32)
    isr: list[int] = array(INT32)
    leader: int = int32()
    leader_epoch: int = int32()
    partition_epoch: int = int32()


class PartitionRun(Struct):
    """Partitions that are placed alike, one after the other, within a record about their topic.

    Those of the legacy and of the diskless kind are the next of the record's `partitions`.
    """

    count: int = int32()
    chain: str = string()
    moving_to: str | None = string(nullable="0+", default=None)
    joined: bool = boolean()
    epoch: int = int32()
    version: int = int32()
    kind: int = int8(tag=0)  # a PlacementKind (controller.R3)
    sealed: bool = boolean(tag=1)  # of the chain kind alone


class ConfigRecord(Struct):
    """One setting, within a record about its topic."""

    name: str = string()
    value: str = string()


class TopicCreated(Message, key=3, versions="0", flexible="0+"):
    """A topic, whole: its partitions from 0 on and its own settings."""

    name: str = string()
    topic_id: UUID = uuid()
    partitions: list[PartitionRecord] = array(PartitionRecord)
    configs: list[ConfigRecord] = array(ConfigRecord)
    runs: list[PartitionRun] = array(PartitionRun, tag=0)  # none: `partitions` are all


class TopicDeleted(Message, key=4, versions="0", flexible="0+"):
    """A topic is gone, with its partitions and settings."""

    topic_id: UUID = uuid()


class PartitionsAdded(Message, key=5, versions="0", flexible="0+"):
    """A topic has more partitions, after the ones it had."""

    topic_id: UUID = uuid()
    partitions: list[PartitionRecord] = array(PartitionRecord)
    runs: list[PartitionRun] = array(PartitionRun, tag=0)  # none: `partitions` are all


class ConfigChanged(Message, key=6, versions="0", flexible="0+"):
    """One setting of a resource was set, or (value null) is inherited again."""

    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable="0+", default=None)


class ProducerIdsReserved(Message, key=7, versions="0", flexible="0+"):
    """Producer ids below `next_producer_id` have been given to some broker."""

    node_id: int = int32()
    next_producer_id: int = int64()


class BrokerFencingChanged(Message, key=8, versions="0", flexible="0+"):
    """A broker is fenced (heartbeats are missing, it is not ready, or stops) or no longer is."""

    node_id: int = int32()
    fenced: bool = boolean()
    stopping: bool = boolean()
    fenced_at_ms: int = int64(tag=0)  # 0: it is not fenced, or it is not known since when
    given_up: bool = boolean(tag=1)  # see racks.py


class BrokerUnregistered(Message, key=9, versions="0", flexible="0+"):
    """A broker is gone for good."""

    node_id: int = int32()


class ChainMemberRecord(Struct):
    """A member of a chain, within a record about the chain."""

    node_id: int = int32()
    state: int = int8()
    incarnation: UUID = uuid()
    directory_id: UUID = uuid(tag=0)  # of that process; zeros: it did not say


class ChainChanged(Message, key=10, versions="0", flexible="0+"):
    """A chain as it is from now on, whole; the first one of its name makes it."""

    name: str = string()
    epoch: int = int32()
    version: int = int32()
    members: list[ChainMemberRecord] = array(ChainMemberRecord)


class PartitionsMoved(Message, key=11, versions="0", flexible="0+"):
    """Some partitions of a topic are on another chain, or on their way to one, or are back.

    Those of the diskless kind have other replicas.
    """

    topic_id: UUID = uuid()
    partitions: list[int] = array(INT32)
    chain: str = string()
    moving_to: str | None = string(nullable="0+", default=None)
    joined: bool = boolean()
    epoch: int = int32()
    version: int = int32()
    kind: int = int8(tag=0)  # a PlacementKind
    replicas: list[int] = array(INT32, tag=1)  # of the diskless kind alone
    leader: int = int32(tag=2, default=NO_NODE)  # as well; NO_NODE: the one before, if it can be
    sealed: bool = boolean(tag=3)  # of the chain kind alone


class NumbersUsed(Message, key=12, versions="0", flexible="0+"):
    """Epochs and versions below these have been given to something, perhaps since deleted."""

    next_epoch: int = int32()
    next_version: int = int32()


class PartitionDetached(Message, key=13, versions="0", flexible="0+"):
    """Some replica of a partition has failed: its members, whole, are these and not its chain's.

    Without members it is like the others of its chain again, under this epoch and version.
    """

    topic_id: UUID = uuid()
    partition: int = int32()
    epoch: int = int32()
    version: int = int32()
    members: list[ChainMemberRecord] = array(ChainMemberRecord)
    failed: list[int] = array(INT32)  # nodes that have reported a failure, and not its repair


class DerivedChainChanged(Message, key=14, versions="0", flexible="0+"):
    """A derived chain as it is from now on, whole; the first one of its name makes it."""

    name: str = string()
    epoch: int = int32()
    version: int = int32()
    members: list[ChainMemberRecord] = array(ChainMemberRecord)
    order: list[int] = array(INT32)  # its nodes in the order that is preferred


class ChainRemoved(Message, key=15, versions="0", flexible="0+"):
    """A chain that no partition is on is gone."""

    name: str = string()


Record = (
    ClusterCreated | BrokerRegistered | TopicCreated | TopicDeleted | PartitionsAdded
    | ConfigChanged | ProducerIdsReserved | BrokerFencingChanged | BrokerUnregistered
    | ChainChanged | PartitionsMoved | NumbersUsed | PartitionDetached | DerivedChainChanged
    | ChainRemoved
)

TYPES: Final[dict[int, type[Record]]] = {
    kind.KEY: kind
    for kind in (ClusterCreated, BrokerRegistered, TopicCreated, TopicDeleted, PartitionsAdded,
                 ConfigChanged, ProducerIdsReserved, BrokerFencingChanged, BrokerUnregistered,
                 ChainChanged, PartitionsMoved, NumbersUsed, PartitionDetached,
                 DerivedChainChanged, ChainRemoved)
}
assert len(TYPES) == 15  # controller.R1: no number twice


_PLACEMENT_KINDS: Final = frozenset(PlacementKind)


class UnknownRecord(QuipuError):
    """Metadata that a newer program wrote."""

    kind = ErrorKind.INVALID
    code = Code.UNSUPPORTED_VERSION


StatedKind = Literal[PlacementKind.CHAIN, PlacementKind.LEGACY, PlacementKind.DISKLESS]


def placement_kind(placed: PartitionRun | PartitionsMoved) -> StatedKind:
    """The kind of placement that a record means; it has been decoded, so the kind is known."""
    kind = PlacementKind(placed.kind)
    if kind is PlacementKind.UNSTATED:
        return PlacementKind.CHAIN if placed.chain else PlacementKind.LEGACY
    return kind


def encode_record(record: Record) -> bytes:
    version = record.VERSIONS[-1]
    return _HEAD.pack(record.KEY, version) + record.encode(version)


def decode_record(data: bytes | memoryview) -> Record:
    """The record in `data`; `UnknownRecord` if a newer program wrote it (controller.R2)."""
    if len(data) < _HEAD.size:
        raise MalformedBytes(f"a metadata record of {len(data)} bytes has no type and version")
    number, version = _HEAD.unpack_from(data)
    kind = TYPES.get(number)
    if kind is None or version not in kind.VERSIONS:
        name = f"type {number}" if kind is None else f"{kind.__name__} version {version}"
        raise UnknownRecord(
            f"the metadata log holds a record of {name}, which this program does not know: "
            "a newer one wrote it; start that one, or restore the data directory from before")
    record = kind.decode(memoryview(data)[_HEAD.size:], version)
    _check_placements(record)
    return record


def _check_placements(record: Record) -> None:
    """Raise `UnknownRecord` for a kind of placement that is not known here (controller.P4)."""
    placed: Iterable[PartitionRun | PartitionsMoved] = ()
    if isinstance(record, TopicCreated | PartitionsAdded):
        placed = record.runs
    elif isinstance(record, PartitionsMoved):
        placed = (record,)
    for each in placed:
        if each.kind not in _PLACEMENT_KINDS:
            raise UnknownRecord(
                f"the metadata log holds a {type(record).__name__} whose partitions are placed by "
                f"kind {each.kind}, which this program does not know: a newer one wrote it; start "
                "that one, or restore the data directory from before")

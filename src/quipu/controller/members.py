"""Brokers, chains, and where partitions are: the values that the state is made of.

A partition is on a chain, and what clients are told of it (leader, replicas, ISR, epochs) follows
from that chain; nothing of it is stored twice.  While it moves, two chains hold it:

    settled    chain A                the members of A
    copying    A, moving to B         A as it is, then B's members, which sync
    joined     A, moving to B         A and B serve, one after the other
    settled    chain B

Where a replica of it has failed, its members are its own (`own`, detached.py) and not its chain's.

Invariants
    H1 to H3 of model/chains hold for each chain, and for each partition's replica set
    D1  a partition's epoch is the greatest of its own and those of the chains whose serving
        members serve it; its version, of its own and those of all chains that hold it.  All of
        these numbers come from two counters of the cluster, so both only ever grow
    D2  a partition's leader is the head of its chain, while that very process of it is up
    D3  a partition that is detached from its chain has a chain of its own in its place; D1 and D2
        are about that one
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, NamedTuple
from uuid import UUID

from quipu.controller.records import (
    BrokerRegistered,
    ChainChanged,
    ChainMemberRecord,
    PartitionDetached,
    PartitionRecord,
    PartitionRun,
)
from quipu.model.chains import Member, MemberState, ReplicaSet
from quipu.model.ids import ZERO_UUID, Epoch, NodeId
from quipu.model.topics import is_internal

NO_CHAIN: Final = ""  # the chain of a partition from before there were chains


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """A broker that has registered."""

    node_id: NodeId
    host: str
    port: int
    rack: str | None
    name: str = ""
    peer_host: str = ""
    peer_port: int = 0
    incarnation: UUID = ZERO_UUID  # of the process
    epoch: int = 0  # of the registration; what a broker shows when it speaks to the controller
    fenced: bool = False  # the controller does not count on it
    stopping: bool = False  # it said that it is going away, and is fenced until it comes back
    lease_ms: int = 0  # how long it may lead after a heartbeat; 0: it takes its whole session
    directory_id: UUID = ZERO_UUID  # where its logs are

    @property
    def process(self) -> "Process":
        return Process(self.incarnation, self.directory_id)


class Process(NamedTuple):
    """A process of a broker, and the data directory that it has."""

    incarnation: UUID
    directory_id: UUID = ZERO_UUID  # zeros: it is not known


class ChainMember(NamedTuple):
    """One node's part in a chain, and the process of it that has this part."""

    node_id: NodeId
    state: MemberState
    incarnation: UUID
    directory_id: UUID = ZERO_UUID  # of that process

    @property
    def process(self) -> Process:
        return Process(self.incarnation, self.directory_id)

    def under(self, process: Process) -> "ChainMember":
        """The same part, of another process."""
        return self._replace(incarnation=process.incarnation, directory_id=process.directory_id)

    def has_directory_of(self, process: Process) -> bool:
        """Has `process` the logs that the process of this part had, as far as is known?"""
        return ZERO_UUID in (self.directory_id, process.directory_id) or (
            self.directory_id == process.directory_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """A chain at one moment."""

    name: str
    epoch: Epoch
    version: int
    members: tuple[ChainMember, ...]
    replica_set: ReplicaSet = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "replica_set", ReplicaSet(
            epoch=self.epoch, version=self.version,
            members=tuple(Member(member.node_id, member.state) for member in self.members)))

    @property
    def serving(self) -> tuple[ChainMember, ...]:
        return self.within(MemberState.SERVING)

    @property
    def head(self) -> ChainMember:
        return self.members[0]

    @property
    def nodes(self) -> tuple[NodeId, ...]:
        """Every member, offline ones included."""
        return self.replica_set.replicas

    def within(self, state: MemberState) -> tuple[ChainMember, ...]:
        return tuple(member for member in self.members if member.state is state)

    def find(self, node_id: NodeId) -> ChainMember | None:
        return next((member for member in self.members if member.node_id == node_id), None)


class Place(NamedTuple):
    """Where a partition is: what is stored of it."""

    chain: str = NO_CHAIN
    moving_to: str | None = None
    joined: bool = False  # both chains serve it
    epoch: Epoch = Epoch(0)  # of its last switch between chains
    version: int = 0  # of its last change, its creation included
    own: Chain | None = None  # its members, while it is detached from `chain` (D3)
    failed: tuple[NodeId, ...] = ()  # of them, whose replica has failed


class PartitionState(NamedTuple):
    """Who holds one partition, and who leads it, as follows from its place and the chains."""

    leader: NodeId
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    leader_epoch: Epoch
    partition_epoch: int
    place: Place
    replica_set: ReplicaSet

    @property
    def chain(self) -> str:
        return self.place.chain

    @property
    def moving_to(self) -> str | None:
        return self.place.moving_to


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic: its partitions by number, and its own settings."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionState, ...]
    configs: Mapping[str, str]

    @property
    def is_internal(self) -> bool:
        return is_internal(self.name)

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas)

    @property
    def chains(self) -> set[str]:
        """Every chain that holds some of it, or is about to."""
        places = {partition.place for partition in self.partitions}
        return {name for place in places for name in (place.chain, place.moving_to) if name}


def replica_set_at(place: Place, chains: Mapping[str, Chain]) -> ReplicaSet:
    """The members of a partition that is at `place` (D1)."""
    here = place.own or chains[place.chain]
    if place.moving_to is not None:
        return _replica_set_between(place, here, chains[place.moving_to])
    if here.epoch >= place.epoch and here.version >= place.version:
        return here.replica_set
    return dataclasses.replace(here.replica_set, epoch=max(here.epoch, place.epoch),
                               version=max(here.version, place.version))


def _replica_set_between(place: Place, here: Chain, there: Chain) -> ReplicaSet:
    arriving = [
        Member(node_id, MemberState.SYNCING if state is MemberState.SERVING and not place.joined
               else state)
        for node_id, state in there.replica_set.members
    ]
    members = sorted([*here.replica_set.members, *arriving], key=lambda member: member.state)
    epochs = (place.epoch, here.epoch, there.epoch if place.joined else place.epoch)
    return ReplicaSet(epoch=max(epochs), members=tuple(members),
                      version=max(place.version, here.version, there.version))


def partition_at(place: Place, replica_set: ReplicaSet, leader: NodeId) -> PartitionState:
    """A partition at `place`, as clients see it."""
    return PartitionState(
        leader=leader, replicas=replica_set.replicas, isr=replica_set.serving,
        leader_epoch=replica_set.epoch, partition_epoch=replica_set.version,
        place=place, replica_set=replica_set)


# -- as records


def broker_record(broker: BrokerState) -> BrokerRegistered:
    """The record that makes `broker`."""
    return BrokerRegistered(
        node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack,
        name=broker.name, peer_host=broker.peer_host, peer_port=broker.peer_port,
        incarnation=broker.incarnation, epoch=broker.epoch, fenced=broker.fenced,
        stopping=broker.stopping, lease_ms=broker.lease_ms, directory_id=broker.directory_id)


def chain_record(chain: Chain) -> ChainChanged:
    """The record that makes `chain` what it is."""
    return ChainChanged(
        name=chain.name, epoch=chain.epoch, version=chain.version,
        members=[_member_record(member) for member in chain.members])


def own_name(key: tuple[UUID, int]) -> str:
    """What the chain of a detached partition is called, among those that wait."""
    return f"{key[0]}-{key[1]}"


def detached_record(
    key: tuple[UUID, int],
    own: Chain | None,
    failed: tuple[NodeId, ...],
    *,
    epoch: int = 0,
    version: int = 0,
) -> PartitionDetached:
    """The record that gives a partition members of its own, or (None) takes them away again."""
    members = () if own is None else own.members
    return PartitionDetached(
        topic_id=key[0], partition=key[1], failed=list(failed),
        epoch=epoch if own is None else own.epoch, version=version if own is None else own.version,
        members=[_member_record(member) for member in members])


def _member_record(member: ChainMember) -> ChainMemberRecord:
    return ChainMemberRecord(node_id=member.node_id, state=member.state,
                             incarnation=member.incarnation, directory_id=member.directory_id)


def partition_records(
    partitions: Sequence[PartitionState],
) -> tuple[list[PartitionRecord], list[PartitionRun]]:
    """What is stored of a topic's partitions, within a record about it."""
    chainless = [
        PartitionRecord(
            replicas=list(partition.replicas), isr=list(partition.isr), leader=partition.leader,
            leader_epoch=partition.leader_epoch, partition_epoch=partition.partition_epoch)
        for partition in partitions if partition.chain == NO_CHAIN]
    if len(chainless) == len(partitions):
        return chainless, []
    places = groupby(partition.place if partition.chain != NO_CHAIN else Place()
                     for partition in partitions)
    return chainless, [partition_run(place, sum(1 for _ in run)) for place, run in places]


def partition_run(place: Place, count: int) -> PartitionRun:
    """`count` partitions at one place."""
    return PartitionRun(count=count, chain=place.chain, moving_to=place.moving_to,
                        joined=place.joined, epoch=place.epoch, version=place.version)

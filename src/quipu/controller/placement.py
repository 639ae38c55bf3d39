"""The placement of a partition: one of a closed set of kinds, and the replica set of each.

    ChainPlacement    on a chain; its members are the partition's replicas
    LegacyPlacement   on nodes that are named one by one: written by versions without chains, and
                      read until the partition is moved to a chain; nothing new is placed like this
    DisklessPlacement of a diskless topic: it has a replica in each rack, and one of them leads; a
                      replica holds nothing, and any broker serves it (diskless.py)

A partition on a chain stores nothing of its replicas: leader, replicas, ISR and epochs are derived
from the chain.  While it moves, two chains hold it, which may have nodes in common:

    settled    chain A                the members of A
    copying    A, moving to B         A as it is, then B's other members, which sync
    joined     A, moving to B         who serves in A or in B serves: A's first, then B's others
    settled    chain B

A partition that is about to become diskless is *sealed*: its chain serves it, and takes no writes
(migration.py).

A partition one of whose replicas has failed is *detached* from its chain: it has members of its own
(`own_chain`, see failed_replicas.py) until all of them have the state that they have in the chain.

Code that depends on the kind uses `match` and `assert_never`, so that a new kind is a type error
wherever it is forgotten.  A record states the kind (`records.PlacementKind`); one that this version
does not know is refused, and never taken for another (controller.P4).

Invariants
    controller.P1  a partition's epoch is the greatest of its own and those of the chains whose
                   serving members serve it; its version, of its own and those of all chains that
                   hold it.  All of these numbers come from two counters of the cluster, so both
                   only ever grow
    controller.P2  a partition's leader is the head of its chain, while that very process is up
    controller.P3  a detached partition has a chain of its own in its chain's place; controller.P1
                   and controller.P2 are about that one

Not here: which chain a new topic is placed on (placer.py).
"""

import dataclasses
from collections.abc import Callable, Collection, Container, Mapping
from typing import NamedTuple, TypeAlias, assert_never
from uuid import UUID
from zlib import crc32

from quipu.controller.members import Chain
from quipu.model.chains import MemberState, ReplicaMember, ReplicaSet
from quipu.model.ids import NO_NODE, Epoch, NodeId


class ChainPlacement(NamedTuple):
    """A partition on a chain: what the metadata stores of it."""

    chain: str
    moving_to: str | None = None
    joined: bool = False  # both chains serve it
    epoch: Epoch = Epoch(0)  # of its last switch between chains
    version: int = 0  # of its last change, its creation included
    own_chain: Chain | None = None  # its members, while it is detached from `chain`
    failed: tuple[NodeId, ...] = ()  # of them, whose replica has failed
    sealed: bool = False  # it takes no writes: it is about to become diskless (migration.py)


class LegacyPlacement(NamedTuple):
    """A partition from before there were chains: its record names its replicas."""

    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    leader: NodeId
    epoch: Epoch = Epoch(0)
    version: int = 0


class DisklessPlacement(NamedTuple):
    """A partition of a diskless topic."""

    replicas: tuple[NodeId, ...]  # in the order of preference
    leader: NodeId  # one of them; it stays until it is down, removed, or another is elected
    version: int = 0  # of its last change, its creation included
    epoch: Epoch = Epoch(0)  # the leader epoch, for ever (controller.D2)


Placement: TypeAlias = ChainPlacement | LegacyPlacement | DisklessPlacement


def chains_of(placement: Placement) -> tuple[str, ...]:
    """The chains that hold a partition, or are about to."""
    match placement:
        case ChainPlacement(moving_to=None):
            return (placement.chain,)
        case ChainPlacement():
            assert placement.moving_to is not None
            return (placement.chain, placement.moving_to)
        case LegacyPlacement() | DisklessPlacement():
            return ()
        case _:
            assert_never(placement)


def is_served_by(placement: Placement, chain: str) -> bool:
    """Whether the members that serve in `chain` serve a partition."""
    match placement:
        case ChainPlacement():
            is_here = placement.chain == chain and placement.own_chain is None
            return is_here or (placement.joined and placement.moving_to == chain)
        case LegacyPlacement() | DisklessPlacement():
            return False
        case _:
            assert_never(placement)


def replica_set_of(placement: Placement, chains: Mapping[str, Chain]) -> ReplicaSet:
    """The members of a partition (controller.P1)."""
    match placement:
        case ChainPlacement():
            return _chain_replica_set(placement, chains)
        case LegacyPlacement():
            serving = sorted(placement.isr, key=lambda node_id: node_id != placement.leader)
            rest = [node_id for node_id in placement.replicas if node_id not in placement.isr]
            return ReplicaSet(epoch=placement.epoch, version=placement.version, members=(
                *(ReplicaMember(node_id, MemberState.SERVING) for node_id in serving),
                *(ReplicaMember(node_id, MemberState.OFFLINE) for node_id in rest)))
        case DisklessPlacement():
            return ReplicaSet(epoch=placement.epoch, version=placement.version, members=tuple(
                ReplicaMember(node_id, MemberState.SERVING) for node_id in placement.replicas))
        case _:
            assert_never(placement)


def assigned_order(
    placement: ChainPlacement, replica_set: ReplicaSet,
    preferred: Callable[[str], tuple[NodeId, ...]],
) -> tuple[NodeId, ...]:
    """The replicas in the order that is preferred; `preferred` gives that of a chain."""
    if placement.moving_to is None and placement.own_chain is None:
        return preferred(placement.chain)
    nodes = [node_id for name in reversed(chains_of(placement)) for node_id in preferred(name)]
    return tuple(sorted(replica_set.replicas, key=nodes.index))  # the target's first, as in Kafka


def elected(placement: DisklessPlacement, up: Container[NodeId]) -> DisklessPlacement:
    """`placement` with a leader that is up, if one of its replicas is (controller.D3)."""
    if placement.leader in up:
        return placement
    first = next((node_id for node_id in placement.replicas if node_id in up), placement.leader)
    return placement if first == placement.leader else placement._replace(leader=first)


def acting_leader(
    placement: DisklessPlacement, topic_id: UUID, partition: int, up: Collection[NodeId]
) -> NodeId:
    """The broker that clients are shown as the leader, if the brokers `up` are live.

    The leader of `placement`, as `elected` returns it; if none of its replicas is up, a broker that
    follows from topic id and partition (controller.D1).
    """
    if placement.leader in up:
        return placement.leader
    if not up:
        return NO_NODE
    return sorted(up)[crc32(partition.to_bytes(4, "big"), crc32(topic_id.bytes)) % len(up)]


def _chain_replica_set(placement: ChainPlacement, chains: Mapping[str, Chain]) -> ReplicaSet:
    here = placement.own_chain or chains[placement.chain]  # controller.P3
    if placement.moving_to is not None:
        return _replica_set_between(placement, here, chains[placement.moving_to])
    if here.epoch >= placement.epoch and here.version >= placement.version and (
            not placement.sealed):
        return here.replica_set
    return dataclasses.replace(here.replica_set, epoch=max(here.epoch, placement.epoch),
                               version=max(here.version, placement.version),
                               is_sealed=placement.sealed)


def _replica_set_between(placement: ChainPlacement, here: Chain, there: Chain) -> ReplicaSet:
    """The members of a partition that moves; each node is one of them once.

    Who serves, and in which order, follows from who serves in the chains, and so does the epoch
    (model.H3).
    """
    joined = placement.joined
    serving = dict.fromkeys((*here.replica_set.serving, *(
        there.replica_set.serving if joined else ())))
    rest: dict[NodeId, MemberState] = {}
    for node_id, state in (*here.replica_set.members, *there.replica_set.members):
        if node_id not in serving:
            rest.setdefault(node_id, max(state, MemberState.SYNCING))
    members = (*(ReplicaMember(node_id, MemberState.SERVING) for node_id in serving),
               *sorted(map(ReplicaMember._make, rest.items()), key=lambda member: member.state))
    epochs = (placement.epoch, here.epoch, there.epoch if joined else placement.epoch)
    return ReplicaSet(epoch=max(epochs), members=members,
                      version=max(placement.version, here.version, there.version),
                      arriving=frozenset(there.nodes) - frozenset(here.nodes))

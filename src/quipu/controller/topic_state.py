"""Topics and their partitions as the state holds them and clients see them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, assert_never
from uuid import UUID

from quipu.controller.members import Chain
from quipu.controller.placement import (
    ChainPlacement,
    DisklessPlacement,
    LegacyPlacement,
    Placement,
    chains_of,
)
from quipu.model.chains import ReplicaSet
from quipu.model.ids import Epoch, NodeId
from quipu.model.topics import is_internal


class PartitionState(NamedTuple):
    """The replicas and the leader of one partition, derived from its placement and the chains.

    `replicas` are in the order that is preferred, as in Kafka: the first is the preferred leader.
    The order of now, along which records are sent, is that of `replica_set`.
    """

    leader: NodeId
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    leader_epoch: Epoch
    partition_epoch: int
    placement: Placement
    replica_set: ReplicaSet

    @property
    def moving_to(self) -> str | None:
        """The chain that the partition is being moved to."""
        match self.placement:
            case ChainPlacement():
                return self.placement.moving_to
            case LegacyPlacement() | DisklessPlacement():
                return None
            case _:
                assert_never(self.placement)

    @property
    def is_sealed(self) -> bool:
        """Whether the partition takes no writes, because it is about to become diskless."""
        return isinstance(self.placement, ChainPlacement) and self.placement.sealed

    @property
    def own_chain(self) -> Chain | None:
        """The members of a partition that is detached from its chain; None if it is not."""
        match self.placement:
            case ChainPlacement():
                return self.placement.own_chain
            case LegacyPlacement() | DisklessPlacement():
                return None
            case _:
                assert_never(self.placement)

    @property
    def failed_replicas(self) -> tuple[NodeId, ...]:
        """The nodes whose replica has failed."""
        match self.placement:
            case ChainPlacement():
                return self.placement.failed
            case LegacyPlacement() | DisklessPlacement():
                return ()
            case _:
                assert_never(self.placement)


def partition_state(
    placement: Placement, replica_set: ReplicaSet, leader: NodeId, replicas: tuple[NodeId, ...]
) -> PartitionState:
    """A partition as clients see it; `replicas` as they are preferred."""
    match placement:
        case ChainPlacement() | DisklessPlacement():
            isr = replica_set.serving
        case LegacyPlacement():  # in the order in which its record names them
            isr = placement.isr
        case _:
            assert_never(placement)
    assert len(replicas) == len(replica_set.members), (placement, replicas)
    return PartitionState(
        leader=leader, replicas=replicas, isr=isr, leader_epoch=replica_set.epoch,
        partition_epoch=replica_set.version, placement=placement, replica_set=replica_set)


def diskless_replicas(partitions: Iterable[PartitionState]) -> Iterator[tuple[NodeId, ...]]:
    """The replicas of each of `partitions` that is diskless."""
    for partition in partitions:
        if isinstance(partition.placement, DisklessPlacement):
            yield partition.replicas


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
    def is_diskless(self) -> bool:
        """Whether its records are in object storage alone; all partitions are placed alike."""
        return isinstance(self.partitions[0].placement, DisklessPlacement)

    @property
    def is_migrating(self) -> bool:
        """Whether it is about to become diskless; all of its partitions are, or none."""
        return self.partitions[0].is_sealed

    @property
    def replication_factor(self) -> int:
        """The number of replicas; those that a partition is being moved to do not count."""
        first = self.partitions[0]
        return len(set(first.replicas) - first.replica_set.arriving) or len(first.replicas)

    @property
    def chains(self) -> set[str]:
        """Every chain that holds some of it, or is about to."""
        placements = {partition.placement for partition in self.partitions}
        return {name for placement in placements for name in chains_of(placement)}

"""Values of the state as records, and records as values: both directions side by side.

Not here: what a record does to the state (state.py), the records of a whole state (snapshot.py).
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import assert_never
from uuid import UUID

from quipu.controller.members import BrokerState, Chain, ChainMember
from quipu.controller.placement import (
    ChainPlacement,
    DisklessPlacement,
    LegacyPlacement,
    Placement,
)
from quipu.controller.records import (
    BrokerRegistered,
    ChainChanged,
    ChainMemberRecord,
    DerivedChainChanged,
    ListenerRecord,
    PartitionDetached,
    PartitionRecord,
    PartitionRun,
    PartitionsAdded,
    PartitionsMoved,
    PlacementKind,
    TopicCreated,
    placement_kind,
)
from quipu.controller.topic_state import PartitionState
from quipu.model.chains import MemberState
from quipu.model.ids import Epoch, NodeId
from quipu.model.listeners import ListenerEndpoint

# -- brokers and chains


def broker_record(broker: BrokerState) -> BrokerRegistered:
    """The record that makes `broker`."""
    return BrokerRegistered(
        node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack,
        name=broker.name, peer_host=broker.peer_host, peer_port=broker.peer_port,
        incarnation=broker.incarnation, epoch=broker.epoch, fenced=broker.fenced,
        stopping=broker.stopping, lease_ms=broker.lease_ms, directory_id=broker.directory_id,
        fenced_at_ms=broker.fenced_at_ms, given_up=broker.given_up,
        metadata_level=broker.metadata_level,
        listeners=[ListenerRecord(name=each.listener, host=each.host, port=each.port)
                   for each in broker.listeners])


def chain_record(chain: Chain) -> ChainChanged | DerivedChainChanged:
    """The record that makes `chain` what it is."""
    members = [_member_record(member) for member in chain.members]
    if chain.is_derived:
        return DerivedChainChanged(name=chain.name, epoch=chain.epoch, version=chain.version,
                                   members=members, order=list(chain.order))
    return ChainChanged(
        name=chain.name, epoch=chain.epoch, version=chain.version, members=members)


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
    assert own is not None or not failed, (key, failed)  # an attached partition has none
    members = () if own is None else own.members
    return PartitionDetached(
        topic_id=key[0], partition=key[1], failed=list(failed),
        epoch=epoch if own is None else own.epoch, version=version if own is None else own.version,
        members=[_member_record(member) for member in members])


def _member_record(member: ChainMember) -> ChainMemberRecord:
    return ChainMemberRecord(node_id=member.node_id, state=member.state,
                             incarnation=member.incarnation, directory_id=member.directory_id)


def broker_of(record: BrokerRegistered) -> BrokerState:
    """The broker that `record` registers."""
    return BrokerState(
        node_id=NodeId(record.node_id), host=record.host, port=record.port, rack=record.rack,
        name=record.name, peer_host=record.peer_host, peer_port=record.peer_port,
        incarnation=record.incarnation, epoch=record.epoch, fenced=record.fenced,
        stopping=record.stopping, lease_ms=record.lease_ms, directory_id=record.directory_id,
        fenced_at_ms=record.fenced_at_ms, given_up=record.given_up,
        metadata_level=record.metadata_level,
        listeners=tuple(ListenerEndpoint(each.name, each.host, each.port)
                        for each in record.listeners))


def chain_of(record: ChainChanged | DerivedChainChanged | PartitionDetached) -> Chain:
    """The chain that `record` describes, or the members that a detached partition has."""
    name = (own_name((record.topic_id, record.partition))
            if isinstance(record, PartitionDetached) else record.name)
    order = _nodes(record.order) if isinstance(record, DerivedChainChanged) else ()
    return Chain(
        name=name, epoch=Epoch(record.epoch), version=record.version, order=order,
        members=tuple(
            ChainMember(NodeId(member.node_id), MemberState(member.state), member.incarnation,
                        member.directory_id) for member in record.members))


# -- placements of partitions


def partition_records(
    partitions: Sequence[PartitionState],
) -> tuple[list[PartitionRecord], list[PartitionRun]]:
    """What a record about a topic stores of its partitions."""
    named: list[PartitionRecord] = []
    runs: list[PartitionRun] = []
    for placement, same in groupby(partition.placement for partition in partitions):
        count = sum(1 for _ in same)
        match placement:
            case ChainPlacement():
                runs.append(chain_run(placement, count))
            case LegacyPlacement():
                named += [_legacy_record(placement)] * count
                if runs and runs[-1].kind == PlacementKind.LEGACY:
                    runs[-1].count += count
                else:
                    runs.append(PartitionRun(count=count, kind=PlacementKind.LEGACY))
            case DisklessPlacement():
                named += [_diskless_record(placement)] * count
                last = runs[-1] if runs else None
                if last is not None and last.kind == PlacementKind.DISKLESS and (
                        last.epoch, last.version) == (placement.epoch, placement.version):
                    last.count += count
                else:
                    runs.append(PartitionRun(
                        count=count, kind=PlacementKind.DISKLESS, epoch=placement.epoch,
                        version=placement.version))
            case _:
                assert_never(placement)
    assert sum(run.count for run in runs) == len(partitions), (runs, len(partitions))
    return named, runs


def chain_run(placement: ChainPlacement, count: int) -> PartitionRun:
    """`count` partitions that are placed alike on a chain."""
    assert count > 0, placement
    assert placement.chain, placement
    return PartitionRun(
        count=count, kind=PlacementKind.CHAIN, chain=placement.chain,
        moving_to=placement.moving_to, joined=placement.joined, epoch=placement.epoch,
        version=placement.version, sealed=placement.sealed)


def _legacy_record(placement: LegacyPlacement) -> PartitionRecord:
    return PartitionRecord(
        replicas=list(placement.replicas), isr=list(placement.isr), leader=placement.leader,
        leader_epoch=placement.epoch, partition_epoch=placement.version)


def _diskless_record(placement: DisklessPlacement) -> PartitionRecord:
    return PartitionRecord(replicas=list(placement.replicas), isr=list(placement.replicas),
                           leader=placement.leader)


def placements_of(record: TopicCreated | PartitionsAdded) -> Iterator[tuple[Placement, int]]:
    """Where a record puts its partitions, in their order: a placement, and how many have it."""
    named = iter(record.partitions)
    for run in record.runs:
        assert run.count > 0, record
        kind = placement_kind(run)
        match kind:
            case PlacementKind.CHAIN:
                yield _chain_placement(run), run.count
            case PlacementKind.LEGACY:
                for _ in range(run.count):
                    yield _legacy_placement(next(named)), 1
            case PlacementKind.DISKLESS:
                for _ in range(run.count):
                    yield _diskless_placement(next(named), run), 1
            case _:
                assert_never(kind)
    if not record.runs:  # all of them are legacy
        yield from ((_legacy_placement(partition), 1) for partition in named)
    assert next(named, None) is None, record  # each partition is in one run


def added_count(record: TopicCreated | PartitionsAdded) -> int:
    """How many partitions a record makes."""
    return sum(run.count for run in record.runs) if record.runs else len(record.partitions)


def moved_placement(record: PartitionsMoved) -> ChainPlacement | DisklessPlacement:
    """Where a record moves partitions to; the leader of a diskless one may be NO_NODE."""
    kind = placement_kind(record)
    if kind is PlacementKind.DISKLESS:
        return DisklessPlacement(_nodes(record.replicas), NodeId(record.leader), record.version,
                                 Epoch(record.epoch))
    assert kind is PlacementKind.CHAIN, record  # nothing becomes legacy
    return _chain_placement(record)


def _chain_placement(run: PartitionRun | PartitionsMoved) -> ChainPlacement:
    return ChainPlacement(run.chain, run.moving_to, run.joined, Epoch(run.epoch), run.version,
                          sealed=run.sealed)


def _legacy_placement(record: PartitionRecord) -> LegacyPlacement:
    assert record.leader in record.isr, record
    return LegacyPlacement(
        replicas=_nodes(record.replicas), isr=_nodes(record.isr), leader=NodeId(record.leader),
        epoch=Epoch(record.leader_epoch), version=record.partition_epoch)


def _diskless_placement(record: PartitionRecord, run: PartitionRun) -> DisklessPlacement:
    return DisklessPlacement(
        _nodes(record.replicas), NodeId(record.leader), run.version, Epoch(run.epoch))


def _nodes(node_ids: Iterable[int]) -> tuple[NodeId, ...]:
    return tuple(map(NodeId, node_ids))

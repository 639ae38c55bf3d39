"""Partitions one of whose replicas has failed: detached from their chain until it is repaired.

A node reports which of its logs have failed: each of its heartbeats names all of them.  Such a
partition gets members of its own, in the states that they have for this partition alone; the chain
and every other partition on it go on as they are.

    attached --a replica fails--> detached: the failed one is offline, the others serve
    detached --its node reports that the log is open again--> the replica syncs
    detached --it has caught up (`promote`)--> it serves
    detached --no replica has failed, and all members are as in the chain--> attached

What holds for chains (controller.C1 to controller.C3, model.H1 to model.H3) holds for the members
of a detached partition, by the same code: a node whose replica has failed is not up for it.

Invariants
    controller.F1  the last member that serves a partition is never taken off, failed or not: no
                   other member has every record that was acknowledged.  Then this partition is
                   unavailable, and no other is
    controller.F2  a failure counts for the process that reported it; a restarted one has to report
                   it again
    controller.F3  a process acts on a log that it has opened again only under a later version, and
                   where it serves only under a later epoch
    controller.F4  a partition on its way to another chain stays where it is if a replica fails
                   there, on a new node or on one that it has already: the move is called off
"""

import dataclasses
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import assert_never

from quipu.controller.conversions import detached_record, own_name
from quipu.controller.decision import Decision, Numbers
from quipu.controller.members import BrokerProcess, Chain, ChainMember
from quipu.controller.placement import ChainPlacement, DisklessPlacement, LegacyPlacement
from quipu.controller.reconcile import promoted, reconciled, with_members
from quipu.controller.records import PartitionsMoved, PlacementKind, Record
from quipu.controller.state import ClusterState, Key
from quipu.controller.topic_state import PartitionState
from quipu.model.chains import MemberState
from quipu.model.ids import NodeId

Up = Mapping[NodeId, BrokerProcess]


def report(state: ClusterState, node_id: NodeId, failed: AbstractSet[Key]) -> Decision[None]:
    """The changes if `failed` are all partitions whose log has failed at the node `node_id`."""
    assert node_id in state.brokers, node_id
    changes = _Changes(state, state.up(), Numbers(state))
    records: list[Record] = []
    for key in sorted(failed):
        partition = state.find_partition(key)
        if partition is None:
            continue
        match partition.placement:
            case ChainPlacement():
                records += changes.fail(key, partition, partition.placement, node_id)
            case LegacyPlacement():
                pass  # no other node could serve it
            case DisklessPlacement():
                pass  # every node serves it
            case _:
                assert_never(partition.placement)
    for key, placement in state.detached_partitions():
        if node_id in marks(placement, changes.up) and key not in failed:
            records += changes.mend(key, placement, node_id)
    return Decision(records, [])


def records_for(
    state: ClusterState,
    up: Up,
    numbers: Numbers,
    changed: Iterable[Chain] = (),
    cold_wait_over: AbstractSet[str] = frozenset(),
) -> Iterable[Record]:
    """The changes of detached partitions if `up` are the processes that are up.

    `changed`: the chains that the same decision changes, as they are after it.
    """
    changes = _Changes(state, up, numbers, changed)
    for key, placement in state.detached_partitions():
        own = own_chain(placement, changes.chains[placement.chain])
        members = reconciled(own, up_for(placement, up), waited=own.name in cold_wait_over)
        yield from changes.become(key, placement, members)


def cold(state: ClusterState, up: Up) -> Iterable[str]:
    """Detached partitions whose serving processes have all ended, and some members are back."""
    for _, placement in state.detached_partitions():
        own, here = own_chain(placement, state.chains[placement.chain]), up_for(placement, up)
        if reconciled(own, here, waited=True) != reconciled(own, here, waited=False):
            yield own.name


def promote(state: ClusterState, key: Key, node_id: NodeId, version: int) -> Decision[None]:
    """Let the first syncing member of a detached partition serve: it has every record.

    Nothing changes if the report is about another version than the partition's; see
    `chains.promote`.
    """
    partition = state.find_partition(key)
    if partition is None or partition.partition_epoch != version:
        return Decision([], [])
    placement = partition.placement
    if not isinstance(placement, ChainPlacement) or placement.own_chain is None:
        return Decision([], [])  # it is not detached
    own = placement.own_chain
    syncing = own.within(MemberState.SYNCING)[:1]
    if [member.node_id for member in syncing] != [node_id] or not all(
            map(state.is_live, (*own.serving, *syncing))):
        return Decision([], [])
    changes = _Changes(state, state.up(), Numbers(state))
    members = promoted(own, syncing[0], Numbers(state)).members
    assert state.is_detached(key), key
    assert {member.node_id for member in members} == set(own.nodes), (key, members)
    return Decision(list(changes.become(key, placement, members)), [])


def elect(
    state: ClusterState, key: Key, members: tuple[ChainMember, ...], numbers: Numbers
) -> Iterable[Record]:
    """Give a detached partition the members that an election has made (elections.py)."""
    partition = state.find_partition(key)
    assert partition is not None, key
    assert isinstance(partition.placement, ChainPlacement), partition
    assert state.is_detached(key), key
    return _Changes(state, state.up(), numbers).become(key, partition.placement, members)


def marks(placement: ChainPlacement, up: Up) -> tuple[NodeId, ...]:
    """The nodes whose replica has failed at the process that they have now (controller.F2)."""
    own = placement.own_chain
    if own is None:
        return ()
    processes = {member.node_id: member.process for member in own.members}
    return tuple(node_id for node_id in placement.failed
                 if up.get(node_id) in (None, processes[node_id]))


def up_for(placement: ChainPlacement, up: Up) -> dict[NodeId, BrokerProcess]:
    """The processes that are up for a partition: not those whose replica of it has failed."""
    failed = marks(placement, up)
    return {node_id: process for node_id, process in up.items() if node_id not in failed}


def own_chain(placement: ChainPlacement, chain: Chain) -> Chain:
    """The members of a detached partition, and nodes that have joined its chain since."""
    own = placement.own_chain
    assert own is not None, placement
    assert chain.name == placement.chain, (placement, chain)
    known = set(own.nodes)
    joined = [member._replace(state=MemberState.OFFLINE) for member in chain.members
              if member.node_id not in known]
    if not joined:
        return own
    return dataclasses.replace(own, members=(*own.members, *joined))


class _Changes:
    """The changes of one decision."""

    def __init__(
        self, state: ClusterState, up: Up, numbers: Numbers, changed: Iterable[Chain] = ()
    ) -> None:
        self.chains = {**state.chains, **{chain.name: chain for chain in changed}}
        self.up = up
        self.numbers = numbers

    def fail(
        self, key: Key, partition: PartitionState, placement: ChainPlacement, node_id: NodeId
    ) -> Iterable[Record]:
        """Detach a partition whose log has failed at `node_id`, or call its move off."""
        chain = self.chains[placement.chain]
        known = marks(placement, self.up)
        if node_id in known:
            return
        if (placement.moving_to is not None
                and self.chains[placement.moving_to].find(node_id) is not None):
            yield PartitionsMoved(  # controller.F4
                topic_id=key[0], partitions=[key[1]], chain=placement.chain,
                epoch=self.numbers.epoch() if placement.joined else placement.epoch,
                version=self.numbers.version(), kind=PlacementKind.CHAIN)
            placement = placement._replace(moving_to=None, joined=False)
        if chain.find(node_id) is None:
            return
        own = own_chain(placement, chain) if placement.own_chain is not None else Chain(
            name=own_name(key), epoch=partition.leader_epoch, version=partition.partition_epoch,
            members=chain.members)
        member = own.find(node_id)
        if member is None or self.up.get(node_id) != member.process:
            return  # its process is no member yet: it reports again when it is
        placement = placement._replace(own_chain=own, failed=(*known, node_id))
        assert node_id in marks(placement, self.up), (key, node_id)  # controller.F2
        members = reconciled(own, up_for(placement, self.up), waited=False)
        assert members[0].state is MemberState.SERVING, (key, members)  # controller.F1
        yield detached_record(key, with_members(own, members, self.numbers), placement.failed)

    def mend(self, key: Key, placement: ChainPlacement, node_id: NodeId) -> Iterable[Record]:
        """Take back a failure: `node_id` has opened its log of this partition again."""
        assert node_id in placement.failed, (key, node_id)
        failed = tuple(each for each in marks(placement, self.up) if each != node_id)
        placement = placement._replace(failed=failed)
        own = own_chain(placement, self.chains[placement.chain])
        members = reconciled(own, up_for(placement, self.up), waited=False)
        yield from self.become(key, placement, members, again=node_id)

    def become(
        self,
        key: Key,
        placement: ChainPlacement,
        members: tuple[ChainMember, ...],
        *,
        again: NodeId | None = None,
    ) -> Iterable[Record]:
        """Attach a partition if its members are as in the chain; else detach it with `members`.

        `again`: the node that has opened its log again, so that the version changes, and, if it
        serves, the epoch too (controller.F3).
        """
        own, failed = placement.own_chain, marks(placement, self.up)
        assert own is not None, key
        assert members[0].state is MemberState.SERVING, (key, members)  # controller.F1
        if not failed and set(members) == set(self.chains[placement.chain].members):
            yield detached_record(key, None, (), epoch=self.numbers.epoch(),
                                  version=self.numbers.version())
        elif again is not None or members != own.members or failed != placement.failed:
            changed = with_members(own, members, self.numbers)
            if changed.epoch == own.epoch and again in changed.replica_set.serving:
                changed = dataclasses.replace(changed, epoch=self.numbers.epoch())
            assert changed.version > own.version, (key, changed)  # controller.F3
            assert changed.epoch > own.epoch or again not in changed.replica_set.serving, key
            yield detached_record(key, changed, failed)

"""Partitions one of whose replicas has failed: detached from their chain until it is mended.

A node tells which of its logs have failed (its heartbeats do, all of them each time).  Such a
partition gets members of its own, in the states that they have for this partition alone; the chain
and every other partition on it go on as they are.

    attached --a replica fails--> detached: the failed one is offline, the others serve
    detached --it says that the log is open again--> the replica syncs
    detached --it has caught up (`promote`)--> it serves
    detached --nobody has failed, and all are what they are in the chain--> attached

What holds for chains (chains.py, C1 to C3, and H1 to H3 of model/chains) holds for the members of a
detached partition, by the same code: a node whose replica has failed is not up for this partition.

Invariants
    F1  the last member that serves a partition is never taken off, failed or not: nobody else has
        every record that was acknowledged.  Then the partition is unavailable, and no other is
    F2  a failure counts for the process that told of it; a restarted one is asked anew
    F3  a process acts on a log that it has opened again only under a later version, and where it
        serves only under a later epoch
    F4  a partition on its way to another chain stays where it is if a replica fails there: the move
        is called off
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from quipu.controller.decision import Decision, Numbers
from quipu.controller.members import (
    NO_CHAIN,
    Chain,
    ChainMember,
    PartitionState,
    Place,
    Process,
    detached_record,
    own_name,
)
from quipu.controller.records import PartitionsMoved, Record
from quipu.controller.reviewing import promoted, reviewed, with_members
from quipu.controller.state import ClusterState, Key
from quipu.model.chains import MemberState
from quipu.model.ids import NodeId

Up = Mapping[NodeId, Process]


def report(state: ClusterState, node_id: NodeId, failed: AbstractSet[Key]) -> Decision[None]:
    """What follows if `failed` are all partitions whose log has failed at the process `node_id`."""
    changes = _Changes(state, state.up(), Numbers(state))
    records: list[Record] = []
    for key in sorted(failed):
        partition = state.find_partition(key)
        if partition is not None and partition.chain != NO_CHAIN:
            records += changes.fail(key, partition, node_id)
    for key, place in state.detached():
        if node_id in marks(place, changes.up) and key not in failed:
            records += changes.mend(key, place, node_id)
    return Decision(records, [])


def follow(
    state: ClusterState,
    up: Up,
    numbers: Numbers,
    changed: Iterable[Chain] = (),
    cold_wait_over: AbstractSet[str] = frozenset(),
) -> Iterable[Record]:
    """What changes in detached partitions if `up` are the processes that are up.

    `changed`: chains as the decision makes them that this is a part of.
    """
    changes = _Changes(state, up, numbers, changed)
    for key, place in state.detached():
        own = own_chain(place, changes.chains[place.chain])
        members = reviewed(own, up_for(place, up), waited=own.name in cold_wait_over)
        yield from changes.become(key, place, members)


def cold(state: ClusterState, up: Up) -> Iterable[str]:
    """Detached partitions of which no serving process has lived on, and some have come back."""
    for _, place in state.detached():
        own, here = own_chain(place, state.chains[place.chain]), up_for(place, up)
        if reviewed(own, here, waited=True) != reviewed(own, here, waited=False):
            yield own.name


def promote(state: ClusterState, key: Key, node_id: NodeId, version: int) -> Decision[None]:
    """The first that syncs has every record of a detached partition: it serves from now on.

    Nothing if that was seen in another version than the partition's; see `chains.promote`.
    """
    partition = state.find_partition(key)
    if partition is None or partition.place.own is None or partition.partition_epoch != version:
        return Decision([], [])
    own = partition.place.own
    syncing = own.within(MemberState.SYNCING)[:1]
    if [member.node_id for member in syncing] != [node_id] or not all(
            map(state.is_live, (*own.serving, *syncing))):
        return Decision([], [])
    changes = _Changes(state, state.up(), Numbers(state))
    members = promoted(own, syncing[0], Numbers(state)).members
    return Decision(list(changes.become(key, partition.place, members)), [])


def elect(
    state: ClusterState, key: Key, members: tuple[ChainMember, ...], numbers: Numbers
) -> Iterable[Record]:
    """A detached partition whose members an election has made these (elections.py)."""
    partition = state.find_partition(key)
    assert partition is not None
    return _Changes(state, state.up(), numbers).become(key, partition.place, members)


def marks(place: Place, up: Up) -> tuple[NodeId, ...]:
    """The nodes whose replica has failed, as far as it is known of the processes there are (F2)."""
    own = place.own
    if own is None:
        return ()
    processes = {member.node_id: member.process for member in own.members}
    return tuple(node_id for node_id in place.failed
                 if up.get(node_id) in (None, processes[node_id]))


def up_for(place: Place, up: Up) -> dict[NodeId, Process]:
    """Who is up for a partition: nodes whose replica of it has failed are not."""
    failed = marks(place, up)
    return {node_id: process for node_id, process in up.items() if node_id not in failed}


def own_chain(place: Place, chain: Chain) -> Chain:
    """The members of a detached partition, and nodes that have joined its chain since."""
    own = place.own
    assert own is not None
    known = set(own.nodes)
    joined = [member._replace(state=MemberState.OFFLINE) for member in chain.members
              if member.node_id not in known]
    if not joined:
        return own
    return Chain(name=own.name, epoch=own.epoch, version=own.version,
                 members=(*own.members, *joined))


class _Changes:
    """The changes of one decision."""

    def __init__(
        self, state: ClusterState, up: Up, numbers: Numbers, changed: Iterable[Chain] = ()
    ) -> None:
        self.chains = {**state.chains, **{chain.name: chain for chain in changed}}
        self.up = up
        self.numbers = numbers

    def fail(self, key: Key, partition: PartitionState, node_id: NodeId) -> Iterable[Record]:
        """`node_id` has a log of this partition that has failed."""
        place, chain = partition.place, self.chains[partition.chain]
        if chain.find(node_id) is None:
            if (place.moving_to is not None
                    and self.chains[place.moving_to].find(node_id) is not None):
                yield PartitionsMoved(  # F4
                    topic_id=key[0], partitions=[key[1]], chain=place.chain,
                    epoch=self.numbers.epoch() if place.joined else place.epoch,
                    version=self.numbers.version())
            return
        known = marks(place, self.up)
        if node_id in known:
            return
        own = own_chain(place, chain) if place.own is not None else Chain(
            name=own_name(key), epoch=partition.leader_epoch, version=partition.partition_epoch,
            members=chain.members)
        member = own.find(node_id)
        if member is None or self.up.get(node_id) != member.process:
            return  # its process has no part in the partition yet: it tells again when it has
        place = place._replace(own=own, failed=(*known, node_id))
        members = reviewed(own, up_for(place, self.up), waited=False)
        yield detached_record(key, with_members(own, members, self.numbers), place.failed)

    def mend(self, key: Key, place: Place, node_id: NodeId) -> Iterable[Record]:
        """`node_id` has opened its log of this partition again."""
        failed = tuple(each for each in marks(place, self.up) if each != node_id)
        place = place._replace(failed=failed)
        own = own_chain(place, self.chains[place.chain])
        members = reviewed(own, up_for(place, self.up), waited=False)
        yield from self.become(key, place, members, again=node_id)

    def become(
        self,
        key: Key,
        place: Place,
        members: tuple[ChainMember, ...],
        *,
        again: NodeId | None = None,
    ) -> Iterable[Record]:
        """Attached if its members are what they are in the chain, else detached with these.

        `again`: who has opened its log again, so the version changes, and, if it serves, the epoch
        too (F3).
        """
        own, failed = place.own, marks(place, self.up)
        assert own is not None
        if not failed and set(members) == set(self.chains[place.chain].members):
            yield detached_record(key, None, (), epoch=self.numbers.epoch(),
                                  version=self.numbers.version())
        elif again is not None or members != own.members or failed != place.failed:
            changed = with_members(own, members, self.numbers)
            if changed.epoch == own.epoch and again in changed.replica_set.serving:
                changed = Chain(name=own.name, epoch=self.numbers.epoch(), members=members,
                                version=changed.version)
            yield detached_record(key, changed, failed)

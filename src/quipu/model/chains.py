"""The replicas of a partition, their states and their order: types for chain, controller, broker.

    head -> ... -> tail -> syncing ...        offline

The head takes writes and sends them along the path.  Serving members (in-sync replicas) come first;
a record is committed when the last of them, the tail, has it.  Syncing members come next: they
are sent everything, but no write waits for them.  Offline members are not on the path.

Invariants
    model.H1  a node is a member once; serving members come first, then syncing ones, then offline
              ones
    model.H2  there is always a serving member, even if its process is down: only serving members
              have every acknowledged record
    model.H3  one epoch has the same serving members in the same order everywhere, and is sealed
              everywhere or nowhere; `version` grows with every change, the epoch only when one of
              these changes
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, Self

from quipu.model.ids import Epoch, NodeId

ALL_REPLICAS: Final = 0  # min.insync.replicas: every replica, for writes with any acks


def least_in_sync(setting: int | None, replica_count: int) -> int:
    """The number of replicas that must be in sync for a write with acks=all to be accepted.

    `setting` is min.insync.replicas.  Not set: all replicas but one, so that any one node may fail.
    More replicas than there are cannot be asked for, as in Kafka.
    """
    assert replica_count > 0, replica_count
    if setting is None:
        return max(replica_count - 1, 1)
    return replica_count if setting == ALL_REPLICAS else min(setting, replica_count)


class MemberState(IntEnum):
    """The state of a member of a chain; stored and sent as these numbers."""

    SERVING = 0  # in sync: has every committed record; writes wait for its acknowledgement
    SYNCING = 1  # catching up: is sent the records that it lacks, and new ones
    OFFLINE = 2  # cannot be reached, or has not come back yet


class ReplicaMember(NamedTuple):
    """One node of a replica set, and its state there."""

    node_id: NodeId
    state: MemberState


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSet:
    """The members of a partition's chain at one moment."""

    epoch: Epoch
    version: int
    members: tuple[ReplicaMember, ...]
    is_sealed: bool = False  # the head takes no batches of clients in this epoch
    arriving: frozenset[NodeId] = frozenset()  # become replicas when a move to them is complete

    def __post_init__(self) -> None:
        states = [member.state for member in self.members]
        assert states == sorted(states), self.members  # model.H1
        assert len({member.node_id for member in self.members}) == len(states), self.members
        assert states, "a chain has members"
        assert states[0] is MemberState.SERVING, self.members  # model.H2

    @classmethod
    def alone(cls, node_id: NodeId, *, epoch: Epoch, version: int = 0) -> Self:
        """A chain of one."""
        return cls(epoch=epoch, version=version,
                   members=(ReplicaMember(node_id, MemberState.SERVING),))

    @property
    def replicas(self) -> tuple[NodeId, ...]:
        """Every member, offline ones included."""
        return tuple(member.node_id for member in self.members)

    @property
    def serving(self) -> tuple[NodeId, ...]:
        return self._in(MemberState.SERVING)

    @property
    def syncing(self) -> tuple[NodeId, ...]:
        return self._in(MemberState.SYNCING)

    @property
    def path(self) -> tuple[NodeId, ...]:
        """The members that records are sent along: serving ones, then syncing ones."""
        return tuple(member.node_id for member in self.members
                     if member.state is not MemberState.OFFLINE)

    @property
    def head(self) -> NodeId:
        return self.members[0].node_id

    @property
    def tail(self) -> NodeId:
        return self.serving[-1]

    def state_of(self, node_id: NodeId) -> MemberState | None:
        """The state of `node_id`; None if it is not a member."""
        for member in self.members:
            if member.node_id == node_id:
                return member.state
        return None

    def predecessor(self, node_id: NodeId) -> NodeId | None:
        """The member that sends to `node_id`; None for the head and for nodes off the path."""
        return self._neighbour(node_id, -1)

    def successor(self, node_id: NodeId) -> NodeId | None:
        """The serving or syncing member that `node_id` sends to; None if there is none."""
        return self._neighbour(node_id, 1)

    def _neighbour(self, node_id: NodeId, step: int) -> NodeId | None:
        path = self.path
        if node_id not in path:
            return None
        place = path.index(node_id) + step
        return path[place] if 0 <= place < len(path) else None

    def _in(self, state: MemberState) -> tuple[NodeId, ...]:
        return tuple(member.node_id for member in self.members if member.state is state)


def member_key(name: str) -> tuple[str, int]:
    """The chain in a node's name, and the node's number in that chain; a key to sort names by.

    `a-10` sorts after `a-2`.  A name without a number gives ("", -1): it is in no chain.
    """
    chain, dash, number = name.rpartition("-")
    is_number = number.isascii() and number.isdecimal() and str(int(number)) == number
    return (chain, int(number)) if dash and is_number else ("", -1)

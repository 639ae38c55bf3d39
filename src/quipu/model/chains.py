"""Who holds a partition, and in which order: words that chains, controller and brokers share.

    head -> ... -> tail -> syncing ...        offline

Writes enter at the head and travel along the path.  The members that serve come first; their last
one, the tail, is where a record becomes committed.  After it come members that are catching up:
they are sent everything and nobody waits for them.  Offline members are on no path.

Invariants
    H1  a node is a member once; serving members come first, then syncing ones, then offline ones
    H2  there is always a serving member, even if its process is down: nobody else has every
        record that was acknowledged
    H3  the same epoch always has the same serving members in the same order; `version` grows
        with every change, the epoch only when who serves or their order changes
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Self

from quipu.model.ids import Epoch, NodeId


class MemberState(IntEnum):
    """What a member of a chain is good for; stored and sent as these numbers."""

    SERVING = 0  # has every committed record, and its acknowledgement is waited for
    SYNCING = 1  # is being sent what it lacks, and everything new
    OFFLINE = 2  # cannot be reached, or has not come back yet


class Member(NamedTuple):
    """One node's part in a chain."""

    node_id: NodeId
    state: MemberState


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSet:
    """The members of a partition's chain at one moment."""

    epoch: Epoch
    version: int
    members: tuple[Member, ...]

    def __post_init__(self) -> None:
        states = [member.state for member in self.members]
        assert states == sorted(states), self.members  # H1
        assert len({member.node_id for member in self.members}) == len(states), self.members
        assert states, "a chain has members"
        assert states[0] is MemberState.SERVING, self.members  # H2

    @classmethod
    def alone(cls, node_id: NodeId, *, epoch: Epoch, version: int = 0) -> Self:
        """A chain of one."""
        return cls(epoch=epoch, version=version,
                   members=(Member(node_id, MemberState.SERVING),))

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
        """Where records travel: serving members, then syncing ones."""
        return tuple(member.node_id for member in self.members
                     if member.state is not MemberState.OFFLINE)

    @property
    def head(self) -> NodeId:
        return self.members[0].node_id

    @property
    def tail(self) -> NodeId:
        return self.serving[-1]

    def state_of(self, node_id: NodeId) -> MemberState | None:
        """What `node_id` is here; None if it is no member."""
        for member in self.members:
            if member.node_id == node_id:
                return member.state
        return None

    def predecessor(self, node_id: NodeId) -> NodeId | None:
        """Who sends to `node_id`; nobody to the head, nor to whoever is on no path."""
        return self._neighbour(node_id, -1)

    def successor(self, node_id: NodeId) -> NodeId | None:
        """To whom `node_id` sends, be it serving or syncing."""
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
    """The chain that a node's name says it belongs to, and its number there.

    Names are in the order of these keys: `a-10` comes after `a-2`.  A name without a number
    belongs to no chain.
    """
    chain, dash, number = name.rpartition("-")
    is_number = number.isascii() and number.isdecimal() and str(int(number)) == number
    return (chain, int(number)) if dash and is_number else ("", -1)

"""The voters, and how they change: one at a time.  So any majority of the old voters and any of the
new ones share a node, and neither can commit an entry that the other does not learn of.

Invariants
    raft.C1  a configuration is in force from the moment when its entry is in the log, committed
             or not
    raft.C2  a leader begins a change only when every earlier configuration, and an entry of its
             own term, is committed: its first entry, which repeats the configuration, is both
    raft.C3  when a configuration is truncated from the log, the one before is in force again
    raft.C4  new voters, and a majority of the voters after the change, have every committed entry
             before the change is proposed: no commit waits for them to catch up
    raft.C5  a configuration is durable at the leader before it is sent to any other node: else a
             voter that it removes could hold more than those that remain, and neither win an
             election nor let them win
    raft.C6  a leader does not remove itself, for the same reason
"""

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Final, NamedTuple

from quipu.model.errors import MalformedBytes
from quipu.model.ids import NodeId, RaftIndex
from quipu.raft.settings import VOTERS_MAX

_HEADER: Final = Struct(">BH")  # format, number of voters
_VOTER: Final = Struct(">i")
_FORMAT: Final = 1


class Configuration(NamedTuple):
    """The voters, in ascending order."""

    voters: tuple[NodeId, ...]

    @classmethod
    def of(cls, voters: Iterable[int]) -> "Configuration":
        """Return the configuration of these voters, in any order."""
        ordered = tuple(NodeId(voter) for voter in sorted(set(voters)))
        assert 1 <= len(ordered) <= VOTERS_MAX, ordered
        return cls(ordered)

    @property
    def majority(self) -> int:
        """Return how many voters are more than half."""
        return len(self.voters) // 2 + 1

    def has_majority(self, nodes: Iterable[NodeId]) -> bool:
        """Whether a majority of the voters is among `nodes`."""
        return len(set(nodes).intersection(self.voters)) >= self.majority

    def is_single_change_from(self, other: "Configuration") -> bool:
        """Whether the voters differ from those of `other` by one node at most."""
        return len(set(self.voters) ^ set(other.voters)) <= 1

    def majority_index(self, ends: Mapping[NodeId, int]) -> RaftIndex:
        """Return the highest number that a majority of voters has reached; a missing one is 0."""
        reached = sorted((ends.get(voter, 0) for voter in self.voters), reverse=True)
        assert reached, self
        assert reached[-1] >= 0, reached
        return RaftIndex(reached[self.majority - 1])

    def encode(self) -> bytes:
        assert 1 <= len(self.voters) <= VOTERS_MAX, self.voters
        voters = b"".join(_VOTER.pack(voter) for voter in self.voters)
        return _HEADER.pack(_FORMAT, len(self.voters)) + voters

    @classmethod
    def decode(cls, data: bytes | memoryview) -> "Configuration":
        """Return the configuration in `data`; raises `MalformedBytes`."""
        if len(data) < _HEADER.size:
            raise MalformedBytes(f"configuration of {len(data)} bytes")
        version, count = _HEADER.unpack_from(data)
        if version != _FORMAT:
            raise MalformedBytes(f"configuration of unknown format {version}")
        if not 1 <= count <= VOTERS_MAX or len(data) != _HEADER.size + count * _VOTER.size:
            raise MalformedBytes(f"configuration of {count} voters in {len(data)} bytes")
        voters = tuple(NodeId(voter) for (voter,) in _VOTER.iter_unpack(data[_HEADER.size:]))
        if list(voters) != sorted(set(voters)) or voters[0] < 0:
            raise MalformedBytes(f"voters out of order: {voters}")
        return cls(voters)


def configuration_steps(
    now: Configuration, target: Configuration, last: NodeId
) -> list[Configuration]:
    """Return the changes from `now` to `target`, one voter each: additions, then removals.

    If `last` is removed, it is removed last.
    """
    steps, voters = [], set(now.voters)
    for node in sorted(set(target.voters) - set(now.voters)):
        voters.add(node)
        steps.append(Configuration.of(voters))
    for node in sorted(set(now.voters) - set(target.voters), key=lambda node: (node == last, node)):
        voters.remove(node)
        steps.append(Configuration.of(voters))
    assert bool(steps) == (now != target), (steps, target)
    assert not steps or steps[-1] == target, (steps, target)
    assert not steps or steps[0].is_single_change_from(now), (steps, now)
    return steps

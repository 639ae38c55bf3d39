"""Who votes.  A change adds or removes one node, so any two majorities of the old and the new
set share a node, and neither can decide anything that the other does not learn of.

Invariants
    C1  a configuration holds from the moment when its entry is in the log, decided or not
    C2  a leader begins a change only when every earlier configuration, and an entry of its own
        term, is committed: its first entry, which repeats the configuration, is both
    C3  when a configuration is cut from the log, the one before holds again
    C4  a new voter, and a majority of the new voters, has all that is decided before they are:
        nobody waits for them to catch up
    C5  a configuration is durable at the leader before anyone else gets it: else whoever it leaves
        out could hold more than those who are left, and neither lead nor let them
    C6  a leader does not leave itself out, for the same reason
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
        ordered = tuple(NodeId(voter) for voter in sorted(set(voters)))
        assert 1 <= len(ordered) <= VOTERS_MAX, ordered
        return cls(ordered)

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    def has_majority(self, nodes: Iterable[NodeId]) -> bool:
        """Are most voters among `nodes`?"""
        return len(set(nodes).intersection(self.voters)) >= self.majority

    def is_next_to(self, other: "Configuration") -> bool:
        """Does one node, at most, make the difference?"""
        return len(set(self.voters) ^ set(other.voters)) <= 1

    def agreed(self, ends: Mapping[NodeId, int]) -> RaftIndex:
        """The highest number that most voters have reached; who is not in `ends` is at 0."""
        reached = sorted((ends.get(voter, 0) for voter in self.voters), reverse=True)
        return RaftIndex(reached[self.majority - 1])

    def encode(self) -> bytes:
        voters = b"".join(_VOTER.pack(voter) for voter in self.voters)
        return _HEADER.pack(_FORMAT, len(self.voters)) + voters

    @classmethod
    def decode(cls, data: bytes | memoryview) -> "Configuration":
        """Raises `MalformedBytes`."""
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


def steps(now: Configuration, target: Configuration, last: NodeId) -> list[Configuration]:
    """The way from `now` to `target`, one node at a time: first those who come, then who go.

    If `last` has to go, it goes last.
    """
    way, voters = [], set(now.voters)
    for node in sorted(set(target.voters) - set(now.voters)):
        voters.add(node)
        way.append(Configuration.of(voters))
    for node in sorted(set(now.voters) - set(target.voters), key=lambda node: (node == last, node)):
        voters.remove(node)
        way.append(Configuration.of(voters))
    return way

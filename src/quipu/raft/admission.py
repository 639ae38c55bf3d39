"""Which messages a node rejects before it handles them.

Every node that knows the cluster's secret can send messages: also one that was set up by mistake,
one that was removed long ago, or one whose memory is bad.  The term in such a message would be
durable a moment later, and no restart would undo it: a term of 2^63 ends all elections.  So, before
a message is handled:

    raft.M1  a term or an index is at most TERM_MAX or INDEX_MAX (codec.py), and no higher than this
             node's own by more than TERM_JUMP_MAX or INDEX_JUMP_MAX (model/bounds).  A node whose
             log is empty has none of its own, and accepts terms up to FIRST_TERM_MAX
    raft.M2  votes, requests for them, and what a leader sends are accepted from voters, as this
             node's log names them, committed or not (raft.C1).  From another node only when this
             one has had no leader for NON_VOTER_PATIENCE election timeouts: then its log may be
             old, and the voters may be others (while the log is empty, at once)
    raft.M3  observers respond to what they are sent; that an observer's term is higher makes a
             leader step down only after OBSERVER_PATIENCE election timeouts of leading.  A node
             that was a voter once can have a higher term, and would never get the log otherwise

To reject a message is the same as to lose it, and any message may be lost: so no rule here can
break another invariant.  A voter that sends wrong numbers within these bounds is believed.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from quipu.model.bounds import FIRST_TERM_MAX, INDEX_JUMP_MAX, TERM_JUMP_MAX
from quipu.model.ids import NodeId
from quipu.raft.leader import LeaderState
from quipu.raft.messages import (
    AppendEntriesResponse,
    InstallSnapshot,
    InstallSnapshotResponse,
    Message,
    Observe,
    RaftHeartbeatResponse,
)
from quipu.raft.settings import OBSERVER_PATIENCE

if TYPE_CHECKING:
    from quipu.raft.core import Raft

NON_VOTER_PATIENCE: Final = 3  # election timeouts


class Checks(Protocol):
    """Checks a leader's commands before they are appended.

    Raises `MalformedBytes` for commands that the state machine could not apply: they would fail
    again at every start.
    """

    def check_commands(self, commands: Sequence[bytes]) -> None:
        """Check the commands of one entry."""
        ...

    def check_snapshot(self, items: Sequence[bytes]) -> None:
        """Check the items of a snapshot."""
        ...


class NoChecks:
    """Accepts all commands: for a quorum without a state machine."""

    def check_commands(self, commands: Sequence[bytes]) -> None:
        """Accept all of them."""

    def check_snapshot(self, items: Sequence[bytes]) -> None:
        """Accept all of them."""


_RESPONSES: Final = (AppendEntriesResponse, RaftHeartbeatResponse, InstallSnapshotResponse)


def rejection_reason(raft: "Raft", sender: NodeId, message: Message) -> str | None:
    """Return why `message` is rejected; None if it is accepted."""
    if isinstance(message, Observe) or message.term < raft.term:
        return None  # it changes no term and no entry
    return _implausible_number(raft, message) or _not_from_voter(raft, sender, message)


def _implausible_number(raft: "Raft", message: Message) -> str | None:
    """Return why a number in `message` cannot be true (raft.M1)."""
    last_index = raft.log.last_index
    term_max = max(raft.term, FIRST_TERM_MAX) if raft.log.is_empty else raft.term + TERM_JUMP_MAX
    if message.term > term_max:
        return (f"term {message.term} cannot be: this node is in term {raft.term}, and none above "
                f"{term_max} is plausible")
    if isinstance(message, InstallSnapshot) and message.index > last_index + INDEX_JUMP_MAX:
        return f"a snapshot of entry {message.index} cannot be: the log here ends at {last_index}"
    return None


def _not_from_voter(raft: "Raft", sender: NodeId, message: Message) -> str | None:
    """Return why `sender` may not send `message` to this node (raft.M2, raft.M3)."""
    if raft.log.may_vote(sender) or sender == raft.leader or raft.log.is_empty:
        return None
    role = raft.role
    timeout_ms = raft.timing.election_timeout_ms
    if isinstance(message, _RESPONSES):
        if message.term == raft.term or (
                isinstance(role, LeaderState) and sender in role.replication.peers
                and raft.now_ms - role.began_ms >= OBSERVER_PATIENCE * timeout_ms):
            return None  # raft.M3
    elif not isinstance(role, LeaderState) and (
            raft.now_ms - raft.had_leader_ms >= NON_VOTER_PATIENCE * timeout_ms):
        return None  # raft.M2
    return (f"a {type(message).__name__} of node {sender}, which does not vote; voters are "
            f"{', '.join(map(str, raft.configuration.voters))}")

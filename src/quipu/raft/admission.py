"""Whose messages a node believes, and which numbers: what is not plausible is never taken in.

Whoever knows the cluster's secret can send messages, also a node that was set up by mistake, one
of long ago, or one whose memory is bad.  What such a message says is durable a moment later, and
no restart undoes it: a term of 2^63 ends all elections.  So, before anything else:

    M1  a term or an index is at most TERM_MAX or INDEX_MAX (codec.py), and no higher than this
        node's own by more than TERM_JUMP_MAX or INDEX_JUMP_MAX (model/bounds).  A node whose log
        is empty has none of its own, and takes terms up to FIRST_TERM_MAX
    M2  a vote, a question for one, and what a leader sends are taken from voters, as this node's
        log names them, decided or not (C3).  From another node only when this one has followed
        nobody, nor led, for STRANGER_PATIENCE election timeouts: then its log may be old, and the
        voters others (the same holds at once while the log is empty)
    M3  whoever observes answers what it is sent; that its term is higher than the leader's ends a
        reign only after OBSERVER_PATIENCE election timeouts of it.  It happens to a node that was
        a voter once, and would never get the log otherwise

A message that is not taken is as good as lost, and any message may be lost: so nothing here can
break what the other invariants promise.  A voter that lies within these bounds is believed.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from quipu.model.bounds import FIRST_TERM_MAX, INDEX_JUMP_MAX, TERM_JUMP_MAX
from quipu.model.ids import NodeId
from quipu.raft.leader import Leader
from quipu.raft.messages import (
    AppendReply,
    HeartbeatReply,
    Install,
    InstallReply,
    Message,
    Observe,
)
from quipu.raft.settings import OBSERVER_PATIENCE

if TYPE_CHECKING:
    from quipu.raft.core import Raft

STRANGER_PATIENCE: Final = 3  # election timeouts



class Checks(Protocol):
    """Looks at what another node says was decided, before it is kept.

    Raises `MalformedBytes` for what could not be applied: it would fail at every start.
    """

    def check_commands(self, commands: Sequence[bytes]) -> None:
        """One entry."""
        ...

    def check_image(self, items: Sequence[bytes]) -> None:
        """A state as a whole."""
        ...


class NoChecks:
    """Takes everything: what commands mean is not known."""

    def check_commands(self, commands: Sequence[bytes]) -> None:
        """All of them are good."""

    def check_image(self, items: Sequence[bytes]) -> None:
        """It is good."""


_REPLIES: Final = (AppendReply, HeartbeatReply, InstallReply)


def refusal(raft: "Raft", sender: NodeId, message: Message) -> str | None:
    """Why `message` is not to be taken; None if it is."""
    if isinstance(message, Observe) or message.term < raft.term:
        return None  # it says nothing that would be believed
    return _absurdity(raft, message) or _strangeness(raft, sender, message)


def _absurdity(raft: "Raft", message: Message) -> str | None:
    """M1."""
    last_index = raft.log.last_index
    term_max = max(raft.term, FIRST_TERM_MAX) if raft.log.is_empty else raft.term + TERM_JUMP_MAX
    if message.term > term_max:
        return (f"term {message.term} cannot be: this node is in term {raft.term}, and none above "
                f"{term_max} is plausible")
    if isinstance(message, Install) and message.index > last_index + INDEX_JUMP_MAX:
        return f"an image of entry {message.index} cannot be: the log here ends at {last_index}"
    return None


def _strangeness(raft: "Raft", sender: NodeId, message: Message) -> str | None:
    """M2, M3."""
    if raft.log.may_vote(sender) or sender == raft.leader or raft.log.is_empty:
        return None
    role = raft.role
    if isinstance(message, _REPLIES):
        if message.term == raft.term or (
                isinstance(role, Leader) and sender in role.replication.peers
                and raft.now_ms - role.began_ms
                >= OBSERVER_PATIENCE * raft.timing.election_timeout_ms):
            return None
    elif not isinstance(role, Leader) and (
            raft.now_ms - raft.led_ms >= STRANGER_PATIENCE * raft.timing.election_timeout_ms):
        return None
    return (f"a {type(message).__name__} of node {sender}, which is no voter; voters are "
            f"{', '.join(map(str, raft.configuration.voters))}")

"""The messages between the nodes of a quorum, and what their logs hold.

Every message carries its sender's term.  Ranges are half-open, but for what begins with `last_`
and for `prev_index`, which is the index of the entry before the first.

    request           response                   for
    VoteRequest       VoteResponse               an election: first as a pre-vote, then the vote
    AppendEntries     AppendEntriesResponse      entries to append; carries the commit index
    RaftHeartbeat     RaftHeartbeatResponse      proof that a majority still follows (reads.py)
    InstallSnapshot   InstallSnapshotResponse    a chunk of a snapshot, where entries are gone
    TimeoutNow        -                          start an election at once: a leadership transfer
    Observe           -                          a node that does not vote asks for the log
"""

from typing import Final, NamedTuple

from quipu.model.batch_types import CONFIGURATION, CONTROLLER, BatchType
from quipu.model.ids import NO_NODE, NodeId, RaftIndex, Term
from quipu.raft.membership import Configuration

NO_INDEX: Final = RaftIndex(0)  # the index before the first
NO_TERM: Final = Term(0)  # the term before the first leader's
NO_ROUND: Final = 0  # of a heartbeat without a response
ENTRY_TYPES: Final = (CONFIGURATION, CONTROLLER)


class RaftEntry(NamedTuple):
    """Commands of one type (T6) at one index of the log: committed and applied together."""

    index: RaftIndex  # type: ignore[assignment]  # hides tuple.index, which an entry does not need
    term: Term
    batch_type: BatchType
    commands: tuple[bytes, ...]

    @property
    def size(self) -> int:
        commands = self[3]
        return len(commands[0]) if len(commands) == 1 else sum(map(len, commands))


class HardState(NamedTuple):
    """What a voter keeps over restarts, beside its log."""

    term: Term = NO_TERM
    vote: NodeId = NO_NODE  # the node that it voted for in this term
    is_blank: bool = False  # it started with an empty disk, and has not caught up since (raft.R5)


NO_STATE: Final = HardState()


class Snapshot(NamedTuple):
    """The whole state as of one index; replaces the entries up to there."""

    index: RaftIndex  # type: ignore[assignment]  # of the last entry that it covers
    term: Term  # of that entry
    configuration: Configuration
    items: tuple[bytes, ...]


class VoteRequest(NamedTuple):
    """A candidate asks for a vote, or a pre-vote, in `term`."""

    term: Term
    last_index: RaftIndex
    last_term: Term
    is_pre_vote: bool  # asks whether the vote would be granted; changes no node's term
    is_transfer: bool  # the leader asked for this election, so raft.E2 does not apply


class VoteResponse(NamedTuple):
    """The vote or pre-vote, granted or not."""

    term: Term  # that of the request if granted, else the voter's own
    is_granted: bool
    is_pre_vote: bool
    leaderless_ms: int = 0  # the voter has followed no leader for at least this long (raft.E4)


class AppendEntries(NamedTuple):
    """Entries that follow `prev_index`."""

    term: Term
    prev_index: RaftIndex
    prev_term: Term
    commit_index: RaftIndex
    last_index: RaftIndex  # of the leader's log
    entries: tuple[RaftEntry, ...]


class AppendEntriesResponse(NamedTuple):
    """The log matches the leader's up to `index`, durably; or it does not match there.

    Then the logs can match at `hint_index` at most.
    """

    term: Term
    is_success: bool
    index: RaftIndex  # type: ignore[assignment]  # without success, the request's `prev_index`
    hint_index: RaftIndex
    hint_term: Term
    is_blank: bool  # the sender started with an empty disk, and has not caught up yet


class RaftHeartbeat(NamedTuple):
    """The sender leads; a response of the same round says that the receiver follows it."""

    term: Term
    commit_index: RaftIndex  # as far as the follower is known to have the entries
    round: int


class RaftHeartbeatResponse(NamedTuple):
    """The sender follows the leader that sent the heartbeat of this round."""

    term: Term
    round: int


class InstallSnapshot(NamedTuple):
    """A chunk of a snapshot."""

    term: Term
    index: RaftIndex  # type: ignore[assignment]  # of the snapshot
    index_term: Term
    configuration: Configuration
    last_index: RaftIndex  # of the leader's log
    size: int  # of the whole snapshot
    position: int  # of this chunk
    data: bytes


class InstallSnapshotResponse(NamedTuple):
    """The first `position` bytes of the snapshot have arrived."""

    term: Term
    index: RaftIndex  # type: ignore[assignment]  # of the snapshot
    position: int


class TimeoutNow(NamedTuple):
    """Start an election at once: the leader transfers its leadership."""

    term: Term


class Observe(NamedTuple):
    """The sender asks for the log, though it does not vote."""

    term: Term


Message = (VoteRequest | VoteResponse | AppendEntries | AppendEntriesResponse | RaftHeartbeat
           | RaftHeartbeatResponse | InstallSnapshot | InstallSnapshotResponse | TimeoutNow
           | Observe)


class OutgoingMessage(NamedTuple):
    """A message and its receiver."""

    to: NodeId
    message: Message

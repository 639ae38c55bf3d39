"""What the nodes of a quorum say to each other, and what their log holds.

Every message carries its sender's term.  Ranges are half-open, but for what begins with `last_`
and for `prev_index`, which is that of the entry before.

    who asks        who answers      for
    Vote            VoteReply        leading: as a question first (`is_pre_vote`), then in earnest
    Append          AppendReply      entries to keep; says also how far the leader has decided
    Heartbeat       HeartbeatReply   I still lead, and do you still follow? (reads, check-quorum)
    Install         InstallReply     a piece of an image, for one whose next entry is gone
    TimeoutNow      -                lead in my place, at once
    Observe         -                send me the log, though I do not vote
"""

from typing import Final, NamedTuple

from quipu.model.batch_types import CONFIGURATION, CONTROLLER, BatchType
from quipu.model.ids import NO_NODE, NodeId, RaftIndex, Term
from quipu.raft.membership import Configuration

NOTHING: Final = RaftIndex(0)  # the index before the first
NO_TERM: Final = Term(0)  # before the first leader's
NO_ROUND: Final = 0  # of a heartbeat that wants no answer
KINDS: Final = (CONFIGURATION, CONTROLLER)


class Entry(NamedTuple):
    """One decision: commands of one type (T6), kept and applied together."""

    index: RaftIndex  # type: ignore[assignment]  # hides tuple.index, which an entry does not need
    term: Term
    kind: BatchType
    commands: tuple[bytes, ...]

    @property
    def size(self) -> int:
        commands = self[3]
        return len(commands[0]) if len(commands) == 1 else sum(map(len, commands))


class HardState(NamedTuple):
    """What a voter must never forget."""

    term: Term = NO_TERM
    vote: NodeId = NO_NODE  # to whom it gave its vote in this term
    is_blank: bool = False  # has it nothing, and has not caught up with a leader since it began?


NO_STATE: Final = HardState()


class Image(NamedTuple):
    """A state as a whole, and where in the log it belongs."""

    index: RaftIndex  # type: ignore[assignment]  # of the last entry that it holds
    term: Term  # of that entry
    configuration: Configuration
    items: tuple[bytes, ...]


class Vote(NamedTuple):
    """Will you vote for me in `term`?"""

    term: Term
    last_index: RaftIndex
    last_term: Term
    is_pre_vote: bool  # only asking: nobody's term moves
    is_transfer: bool  # the leader itself wants it: no need to be loyal to it


class VoteReply(NamedTuple):
    """My vote."""

    term: Term  # that of the question if granted, else the voter's own
    is_granted: bool
    is_pre_vote: bool
    silence_ms: int = 0  # for so long at least the voter has followed nobody, nor led (E4)


class Append(NamedTuple):
    """Entries that follow `prev_index`."""

    term: Term
    prev_index: RaftIndex
    prev_term: Term
    committed: RaftIndex
    last_index: RaftIndex  # of the leader's log
    entries: tuple[Entry, ...]


class AppendReply(NamedTuple):
    """I have your log up to `index`, durably; or I do not, and it is no use to try above `hint`."""

    term: Term
    is_ok: bool
    index: RaftIndex  # type: ignore[assignment]  # if not ok, the `prev_index` that was asked for
    hint: RaftIndex
    hint_term: Term
    is_blank: bool  # I had lost everything, and do not have all of yours yet


class Heartbeat(NamedTuple):
    """I lead."""

    term: Term
    committed: RaftIndex  # as far as the follower is known to have the entries
    round: int


class HeartbeatReply(NamedTuple):
    """I follow."""

    term: Term
    round: int


class Install(NamedTuple):
    """A piece of an image."""

    term: Term
    index: RaftIndex  # type: ignore[assignment]  # of the image
    index_term: Term
    configuration: Configuration
    last_index: RaftIndex  # of the leader's log
    size: int  # of all pieces
    position: int  # of this one
    data: bytes


class InstallReply(NamedTuple):
    """I have this much of the image."""

    term: Term
    index: RaftIndex  # type: ignore[assignment]  # of the image
    position: int


class TimeoutNow(NamedTuple):
    """Become leader at once."""

    term: Term


class Observe(NamedTuple):
    """Send me the log."""

    term: Term


Message = (Vote | VoteReply | Append | AppendReply | Heartbeat | HeartbeatReply | Install
           | InstallReply | TimeoutNow | Observe)


class Send(NamedTuple):
    """A message and whom it is for."""

    to: NodeId
    message: Message

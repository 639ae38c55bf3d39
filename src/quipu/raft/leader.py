"""The role of the one who decides: takes proposals, has them kept, counts who has them.

Invariants
    A1  the first entry of a reign repeats the configuration; when it is committed, so is all
        before it, and the leader knows all that was ever decided
    A2  an entry is committed when a majority of the voters that the log's newest configuration
        names has it, durably, and it is of this term (R4); the leader counts itself like the rest
    A3  a leader that a majority has not answered for an election timeout steps down
    A4  a leader votes; to be removed, it lets another lead first (C6)
"""

from typing import TYPE_CHECKING

from quipu.model.batch_types import CONFIGURATION, BatchType
from quipu.model.ids import NodeId, RaftIndex
from quipu.raft.messages import (
    AppendReply,
    Entry,
    HeartbeatReply,
    InstallReply,
    Message,
    Observe,
    TimeoutNow,
)
from quipu.raft.reads import Reads
from quipu.raft.replication import Replication
from quipu.raft.settings import COMMANDS_MAX, ENTRY_SIZE_MAX, UNCOMMITTED_SIZE_MAX

if TYPE_CHECKING:
    from quipu.raft.core import Raft


class Leader:
    """Leads in its term."""

    is_loyal = True

    def __init__(self, raft: "Raft", *, others_led_ms: int, predecessor: NodeId | None) -> None:
        self.leader: NodeId | None = raft.node_id
        self.others_led_ms = others_led_ms  # no earlier leader was confirmed after that (E4)
        self.predecessor = predecessor  # who led before, as far as this node knows
        self.replication = Replication(raft)
        self.term_start = RaftIndex(0)  # A1: the index of the first entry
        self.began_ms = raft.now_ms
        self._raft = raft
        self._reads = Reads(raft.last_read)
        self._heartbeat_ms = raft.now_ms
        undecided = raft.log.slice(raft.log.committed + 1, raft.log.last_index + 1)
        self._uncommitted_size = sum(entry.size for entry in undecided)
        self._transfer_to: NodeId | None = None
        self._transfer_deadline_ms = 0

    def start(self) -> None:
        """Begin with an entry that says nothing new (A1), and tell everyone."""
        index = self.propose(CONFIGURATION, (self._raft.configuration.encode(),))
        assert index is not None
        self.term_start = index

    @property
    def has_begun(self) -> bool:
        """Is an entry of this reign committed (A1)?"""
        return self._raft.log.committed >= self.term_start

    # --- what is asked of it ----------------------------------------------------------------

    def propose(self, kind: BatchType, commands: tuple[bytes, ...]) -> RaftIndex | None:
        """Take an entry in; None if too much is undecided, or another is about to lead."""
        raft = self._raft
        entry = Entry(RaftIndex(raft.log.last_index + 1), raft.term, kind, commands)
        size = entry.size
        assert 0 < len(commands) <= COMMANDS_MAX, len(commands)
        assert size <= ENTRY_SIZE_MAX, size
        is_full = self._uncommitted_size > UNCOMMITTED_SIZE_MAX
        if self._transfer_to is not None or (is_full and kind != CONFIGURATION):
            return None
        raft.log.append((entry,))
        self._uncommitted_size += size
        if kind == CONFIGURATION:
            self.replication.adjust()
        return entry.index

    def read(self) -> int | None:
        """Begin a read; None if too many wait."""
        number = self._reads.ask(self._raft.log.committed if self.has_begun else None)
        self._raft.last_read = self._reads.last_number
        return number

    def transfer(self, to: NodeId | None) -> NodeId | None:
        """Let `to`, or whoever is furthest, lead as soon as it has every entry."""
        to = to if to is not None else self.replication.furthest()
        if to not in self._raft.configuration.voters or to not in self.replication.peers:
            return None
        self._transfer_to = to
        self._transfer_deadline_ms = self._raft.now_ms + self._raft.timing.election_timeout_ms
        self._hand_over()
        return to

    # --- time, and the end of a turn --------------------------------------------------------

    def tick(self) -> None:
        raft = self._raft
        if not raft.configuration.has_majority(self.replication.heard_lately()):
            raft.follow(raft.term, None)  # A3
            return
        if raft.now_ms >= self._transfer_deadline_ms:
            self._transfer_to = None
        if raft.now_ms >= self._heartbeat_ms:
            self.replication.drop_silent()
            self._reads.is_round_due = True

    def flush(self) -> None:
        raft = self._raft
        if self._reads.is_round_due:
            self._heartbeat_ms = raft.now_ms + raft.timing.heartbeat_interval_ms
            self.replication.heartbeat(self._reads.next_round())
            self._confirm()
        self.replication.flush()

    def persisted(self) -> None:
        self._count()

    def peer_up(self, node_id: NodeId) -> None:
        """Nothing sent before counts; say at once who leads."""
        self.replication.lost_sight(node_id)
        self._reads.is_round_due = True

    def peer_down(self, node_id: NodeId) -> None:
        """Nothing to do: a node that stays away is noticed by its missing answers."""

    def vote_refused(self, sender: NodeId) -> None:
        """`sender` asked for a vote out of turn.

        If it is no voter it has not heard that it was removed: it is sent the log again.
        """
        if sender not in self._raft.configuration.voters:
            self.replication.add(sender)

    # --- what others say --------------------------------------------------------------------

    def handle(self, sender: NodeId, message: Message) -> None:
        match message:
            case AppendReply():
                if self.replication.appended(sender, message):
                    self._count()
                    self._hand_over()
            case HeartbeatReply():
                self.replication.answered(sender, message)
                self._confirm()
            case InstallReply():
                self.replication.received(sender, message)
            case Observe():
                self.replication.add(sender)
            case _:
                pass  # an answer to what this node asked in another role

    def _count(self) -> None:
        """Commit what a majority has (A2)."""
        raft, log = self._raft, self._raft.log
        had = log.committed
        agreed = raft.configuration.agreed(self.replication.matches())
        if log.find_term(agreed) != raft.term or not log.commit(agreed):
            return
        self._uncommitted_size -= sum(entry.size for entry in log.slice(had + 1, agreed + 1))
        self._reads.begin(log.committed)

    def _confirm(self) -> None:
        agreed = self._raft.configuration.agreed(self.replication.rounds(self._reads.round))
        self._raft.reads += self._reads.confirm(agreed)

    def _hand_over(self) -> None:
        to = self._transfer_to
        if to is not None and self.replication.peers[to].match == self._raft.log.last_index:
            self._raft.send(to, TimeoutNow(self._raft.term))

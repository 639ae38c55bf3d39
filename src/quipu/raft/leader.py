"""The role that takes proposals, replicates them and advances the commit index.

Invariants
    raft.A1  the first entry of a leader's term repeats the configuration; when it is committed, so
             is every entry before it, and the leader knows all that was ever committed
    raft.A2  an entry is committed when a majority of the voters of the log's newest configuration
             has it, durably, and it is of this term (raft.R4); the leader counts itself likewise
    raft.A3  a leader to which a majority has not responded for an election timeout steps down
    raft.A4  a leader is a voter; to be removed, it transfers its leadership first (raft.C6)
"""

from typing import TYPE_CHECKING

from quipu.model.batch_types import CONFIGURATION, BatchType
from quipu.model.ids import NodeId, RaftIndex
from quipu.raft.messages import (
    AppendEntriesResponse,
    InstallSnapshotResponse,
    Message,
    Observe,
    RaftEntry,
    RaftHeartbeatResponse,
    TimeoutNow,
)
from quipu.raft.reads import PendingReads
from quipu.raft.replication import LogReplication
from quipu.raft.settings import COMMANDS_MAX, ENTRY_SIZE_MAX, UNCOMMITTED_SIZE_MAX

if TYPE_CHECKING:
    from quipu.raft.core import Raft


class LeaderState:
    """Leads in its term."""

    has_live_leader = True

    def __init__(
        self, raft: "Raft", *, voters_had_leader_ms: int, previous_leader: NodeId | None
    ) -> None:
        assert raft.vote == raft.node_id, (raft.vote, raft.node_id)  # raft.R1
        assert voters_had_leader_ms <= raft.now_ms, (voters_had_leader_ms, raft.now_ms)  # raft.E4
        self.leader: NodeId | None = raft.node_id
        self.voters_had_leader_ms = voters_had_leader_ms  # raft.E4: none was confirmed after it
        self.previous_leader = previous_leader  # as far as this node knows
        self.replication = LogReplication(raft)
        self.term_start = RaftIndex(0)  # raft.A1: index of the first entry
        self.began_ms = raft.now_ms
        self._raft = raft
        self._pending_reads = PendingReads(raft.last_read_number)
        self._heartbeat_ms = raft.now_ms
        uncommitted = raft.log.slice(raft.log.commit_index + 1, raft.log.last_index + 1)
        self._uncommitted_size = sum(entry.size for entry in uncommitted)
        self._transfer_to: NodeId | None = None
        self._transfer_deadline_ms = 0

    def invariants(self) -> None:
        """Assert what holds between two steps."""
        raft, log = self._raft, self._raft.log
        assert raft.vote == raft.node_id, (raft.vote, raft.node_id)  # raft.R1
        assert raft.node_id in log.configuration.voters, log.configuration  # raft.A4
        assert not raft.is_blank  # raft.R5
        assert log.last_term == raft.term, (log.last_term, raft.term)  # raft.A1, raft.R3
        assert self.term_start <= log.last_index, (self.term_start, log.last_index)  # raft.A1
        assert self._uncommitted_size >= 0, self._uncommitted_size
        assert self._transfer_to is None or self._transfer_to in self.replication.peers, (
            self._transfer_to)
        self._pending_reads.invariants()
        self.replication.invariants()

    def start(self) -> None:
        """Propose an entry that repeats the configuration (raft.A1)."""
        assert self._raft.role is self
        index = self.propose(CONFIGURATION, (self._raft.configuration.encode(),))
        assert index is not None
        assert index > self._raft.log.commit_index, (index, self._raft.log.commit_index)
        self.term_start = index

    @property
    def has_committed_in_term(self) -> bool:
        """Whether an entry of this leader's term is committed (raft.A1)."""
        return self._raft.log.commit_index >= self.term_start

    # --- proposals, reads, transfers --------------------------------------------------------

    def propose(self, kind: BatchType, commands: tuple[bytes, ...]) -> RaftIndex | None:
        """Append an entry; None if too much is uncommitted, or a transfer is under way."""
        raft = self._raft
        entry = RaftEntry(RaftIndex(raft.log.last_index + 1), raft.term, kind, commands)
        size = entry.size
        assert 0 < len(commands) <= COMMANDS_MAX, len(commands)
        assert size <= ENTRY_SIZE_MAX, size
        is_full = self._uncommitted_size > UNCOMMITTED_SIZE_MAX
        if self._transfer_to is not None or (is_full and kind != CONFIGURATION):
            return None
        raft.log.append((entry,))  # raft.R3: a leader only ever appends
        assert raft.log.last_index == entry.index, (raft.log.last_index, entry.index)
        self._uncommitted_size += size
        if kind == CONFIGURATION:
            self.replication.add_voters()
        return entry.index

    def read_index(self) -> int | None:
        """Begin a linearizable read and return its number; None if too many wait."""
        number = self._pending_reads.add(
            self._raft.log.commit_index if self.has_committed_in_term else None)  # raft.D2
        self._raft.last_read_number = self._pending_reads.last_number
        assert number is None or number == self._raft.last_read_number, number
        return number

    def transfer_leadership(self, to: NodeId | None) -> NodeId | None:
        """Have `to`, or the most up-to-date voter, start an election once it has every entry."""
        to = to if to is not None else self.replication.most_up_to_date_voter()
        if to not in self._raft.configuration.voters or to not in self.replication.peers:
            return None
        assert to != self._raft.node_id, to
        assert self._raft.role is self, self._raft.role
        self._transfer_to = to
        self._transfer_deadline_ms = self._raft.now_ms + self._raft.timing.election_timeout_ms
        self._finish_transfer()
        return to

    # --- time, and the end of a turn --------------------------------------------------------

    def tick(self) -> None:
        """Step down without a majority; else end a late transfer, and send due heartbeats."""
        raft = self._raft
        assert raft.role is self, raft.role
        if not raft.configuration.has_majority(self.replication.recently_active()):
            raft.step_down()  # raft.A3
            return
        if raft.now_ms >= self._transfer_deadline_ms:
            self._transfer_to = None
        if raft.now_ms >= self._heartbeat_ms:
            self.replication.drop_silent_observers()
            self._pending_reads.is_round_due = True

    def flush(self) -> None:
        """Send heartbeats if they are due, and to each follower what it lacks."""
        raft = self._raft
        if self._pending_reads.is_round_due:
            self._heartbeat_ms = raft.now_ms + raft.timing.heartbeat_interval_ms
            assert self._heartbeat_ms > raft.now_ms, self._heartbeat_ms
            self.replication.heartbeat(self._pending_reads.next_round())
            self._confirm_reads()
        self.replication.flush()

    def persisted(self) -> None:
        """Count again: more of this node's own log is durable (raft.A2)."""
        self._advance_commit_index()

    def peer_up(self, node_id: NodeId) -> None:
        """Probe where its log ends, and send heartbeats at once: messages may be lost."""
        self.replication.probe_again(node_id)
        self._pending_reads.is_round_due = True

    def peer_down(self, node_id: NodeId) -> None:
        """Do nothing: a node that stays down is noticed by its missing responses."""

    def vote_request_rejected(self, sender: NodeId) -> None:
        """Send the log to `sender` if it does not vote: it does not know that it was removed."""
        if sender not in self._raft.configuration.voters:
            self.replication.add(sender)

    # --- responses --------------------------------------------------------------------------

    def handle(self, sender: NodeId, message: Message) -> None:
        match message:
            case AppendEntriesResponse():
                if self.replication.handle_append_response(sender, message):
                    self._advance_commit_index()
                    self._finish_transfer()
            case RaftHeartbeatResponse():
                self.replication.handle_heartbeat_response(sender, message)
                self._confirm_reads()
            case InstallSnapshotResponse():
                self.replication.handle_snapshot_response(sender, message)
            case Observe():
                self.replication.add(sender)
            case _:
                pass  # a response to a request that this node has sent in another role

    def _advance_commit_index(self) -> None:
        """Commit what a majority has durably, if it is of this term (raft.A2)."""
        raft, log = self._raft, self._raft.log
        before = log.commit_index
        if before == log.last_index:
            return
        majority_index = raft.configuration.majority_index(self.replication.matches())
        assert majority_index <= log.last_index, (majority_index, log.last_index)  # raft.A2
        if log.find_term(majority_index) != raft.term or not log.commit(majority_index):  # raft.R4
            return
        assert log.commit_index > before, (log.commit_index, before)
        assert log.commit_index == majority_index, (log.commit_index, majority_index)  # raft.A2
        assert log.commit_index >= self.term_start, (log.commit_index, self.term_start)  # raft.R4
        committed = log.slice(before + 1, log.commit_index + 1)
        self._uncommitted_size -= sum(entry.size for entry in committed)
        assert self._uncommitted_size >= 0, self._uncommitted_size
        self._pending_reads.term_committed(log.commit_index)

    def _confirm_reads(self) -> None:
        """Confirm the reads whose heartbeats a majority has responded to (raft.D1)."""
        rounds = self.replication.rounds(self._pending_reads.round)
        confirmed_round = self._raft.configuration.majority_index(rounds)
        assert confirmed_round <= self._pending_reads.round, confirmed_round  # raft.D1
        self._raft.read_states += self._pending_reads.confirm(confirmed_round)

    def _finish_transfer(self) -> None:
        """Have the target of a transfer start its election, if it has every entry."""
        to = self._transfer_to
        assert to != self._raft.node_id, to
        if to is not None and self.replication.peers[to].match_index == self._raft.log.last_index:
            self._raft.send(to, TimeoutNow(self._raft.term))

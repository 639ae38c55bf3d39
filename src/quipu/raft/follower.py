"""The role that appends a leader's entries, and notices when there is no leader.

A follower that does not vote is an observer: it asks the voters for the log with `Observe`, and
never becomes a candidate.

Invariants
    raft.F1  an entry is appended only if the one before it is the leader's too: so logs that match
             at one index match at all before it
    raft.F2  an entry is acknowledged only when it is durable (raft.R2), and only to the leader that
             has sent it
"""

from typing import TYPE_CHECKING

from quipu.model.batch_types import CONTROLLER
from quipu.model.ids import NodeId, RaftIndex, Term
from quipu.raft.candidate import early_election_pause_ms, election_pause_ms
from quipu.raft.messages import (
    NO_INDEX,
    NO_ROUND,
    NO_TERM,
    AppendEntries,
    AppendEntriesResponse,
    InstallSnapshot,
    InstallSnapshotResponse,
    Message,
    Observe,
    RaftHeartbeat,
    RaftHeartbeatResponse,
    TimeoutNow,
)
from quipu.raft.snapshot import SnapshotReceiver

if TYPE_CHECKING:
    from quipu.raft.core import Raft


class FollowerState:
    """Follows the leader of its term, or waits for one."""

    def __init__(self, raft: "Raft", *, leader: NodeId | None) -> None:
        self.leader = leader
        self._raft = raft
        self._heard_ms = raft.now_ms  # when the leader was last heard, if there is one
        self._deadline_ms = raft.now_ms + election_pause_ms(raft)
        self._observe_ms = raft.now_ms  # when an observer without a leader asks for the log next
        self._snapshot_receiver = SnapshotReceiver()

    def invariants(self) -> None:
        """Assert what holds between two steps."""
        raft = self._raft
        assert self.leader != raft.node_id, self.leader
        assert self._heard_ms <= raft.now_ms, (self._heard_ms, raft.now_ms)
        assert self._deadline_ms >= self._heard_ms + raft.timing.election_timeout_ms, (
            self._deadline_ms, self._heard_ms)  # raft.E2
        assert self.leader is None or raft.had_leader_ms >= self._heard_ms, (
            raft.had_leader_ms, self._heard_ms)  # raft.E4

    @property
    def has_live_leader(self) -> bool:
        """Whether a leader was heard within the election timeout (raft.E2)."""
        silence_ms = self._raft.now_ms - self._heard_ms
        return self.leader is not None and silence_ms < self._raft.timing.election_timeout_ms

    def tick(self) -> None:
        raft = self._raft
        if not raft.is_voter:
            self._observe()
        elif raft.now_ms >= self._deadline_ms:
            raft.campaign()

    def handle(self, sender: NodeId, message: Message) -> None:
        match message:
            case AppendEntries():
                self._heard_leader()
                self._append(sender, message)
            case RaftHeartbeat():
                self._heard_leader()
                self._heartbeat(sender, message)
            case InstallSnapshot():
                self._heard_leader()
                self._install(sender, message)
            case TimeoutNow():
                if sender == self.leader and self._raft.is_voter and not self._raft.is_blank:
                    self._raft.become_candidate(is_transfer=True)
            case _:
                pass  # a response to a request that this node has sent in another role

    def persisted(self) -> None:
        """Do nothing: the driver sends what has become durable."""

    def peer_up(self, node_id: NodeId) -> None:
        """Ask for the log at once, as an observer without a leader."""
        raft = self._raft
        if self.leader is None and not raft.is_voter and node_id in self._observe_targets():
            raft.send(node_id, Observe(raft.term))

    def peer_down(self, node_id: NodeId) -> None:
        """Start an election soon if the leader's connection is lost, not before raft.E2 allows."""
        raft = self._raft
        if node_id == self.leader:
            before_ms = self._deadline_ms
            early_ms = self._heard_ms + early_election_pause_ms(raft)
            self._deadline_ms = min(self._deadline_ms, early_ms)
            assert self._deadline_ms <= before_ms, (self._deadline_ms, before_ms)

    def vote_request_rejected(self, sender: NodeId) -> None:
        """Do nothing: only a leader sends its log to a node that does not know of its removal."""

    def flush(self) -> None:
        """Do nothing: every message is sent when it is made."""

    # --- what the leader sends --------------------------------------------------------------

    def _heard_leader(self) -> None:
        raft = self._raft
        assert self.leader is not None
        assert self._heard_ms <= raft.now_ms, (self._heard_ms, raft.now_ms)
        self._heard_ms = raft.had_leader_ms = raft.now_ms
        self._deadline_ms = raft.now_ms + election_pause_ms(raft)

    def _heartbeat(self, leader: NodeId, message: RaftHeartbeat) -> None:
        raft, log = self._raft, self._raft.log
        assert leader == self.leader, (leader, self.leader)
        assert message.term == raft.term, (message.term, raft.term)
        if message.commit_index > log.last_index:  # this node had these entries, and has lost them
            self._reject(leader, message.commit_index, NO_TERM, is_blank=True)
        else:
            log.commit(message.commit_index)
            assert log.commit_index >= message.commit_index, message.commit_index
        if message.round != NO_ROUND:
            raft.send_when_durable(leader, RaftHeartbeatResponse(raft.term, message.round))

    def _append(self, leader: NodeId, message: AppendEntries) -> None:
        raft, log = self._raft, self._raft.log
        assert message.term == raft.term, (message.term, raft.term)
        if message.prev_index < log.commit_index:
            self._acknowledge(leader, log.commit_index)  # committed entries are the same everywhere
            return
        if log.find_term(message.prev_index) != message.prev_term:
            self._reject(leader, message.prev_index, message.prev_term,
                         is_blank=raft.is_blank and log.is_empty)
            return
        for entry in message.entries:
            if entry.batch_type == CONTROLLER and log.find_term(entry.index) != entry.term:
                raft.checks.check_commands(entry.commands)  # raft.R6
        commit_index = log.commit_index
        log.merge(message.entries)  # raft.F1
        last_index = RaftIndex(message.prev_index + len(message.entries))
        log.commit(min(message.commit_index, last_index))
        assert log.commit_index >= commit_index, (log.commit_index, commit_index)  # raft.G3
        self._caught_up(message.last_index)
        self._acknowledge(leader, last_index)

    def _install(self, leader: NodeId, chunk: InstallSnapshot) -> None:
        raft, log = self._raft, self._raft.log
        assert chunk.term == raft.term, (chunk.term, raft.term)
        if chunk.index <= log.commit_index:
            self._acknowledge(leader, log.commit_index)
            return
        if log.find_term(chunk.index) == chunk.index_term:
            log.commit(chunk.index)  # this log has the entries: the snapshot is not needed
            self._acknowledge(leader, chunk.index)
            return
        position, snapshot = self._snapshot_receiver.receive(chunk)
        if snapshot is None:
            raft.send_when_durable(
                leader, InstallSnapshotResponse(raft.term, chunk.index, position))
            return
        raft.checks.check_snapshot(snapshot.items)  # raft.R6
        raft.install(snapshot)
        assert log.last_index == chunk.index, (log.last_index, chunk.index)
        assert log.last_term == chunk.index_term, (log.last_term, chunk.index_term)
        self._caught_up(chunk.last_index)
        self._acknowledge(leader, chunk.index)

    def _reject(
        self, leader: NodeId, index: RaftIndex, term: Term, *, is_blank: bool
    ) -> None:
        """Respond that the log does not match the leader's at `index`."""
        hint_index, hint_term = self._raft.log.find_conflict_hint(index, term)
        assert hint_index <= index, (hint_index, index)
        assert hint_index <= self._raft.log.last_index, (hint_index, self._raft.log.last_index)
        self._raft.send_when_durable(leader, AppendEntriesResponse(
            self._raft.term, is_success=False, index=index, hint_index=hint_index,
            hint_term=hint_term, is_blank=is_blank))

    def _acknowledge(self, leader: NodeId, index: RaftIndex) -> None:
        raft, log = self._raft, self._raft.log
        assert leader == self.leader, (leader, self.leader)  # raft.F2
        assert index <= log.last_index, (index, log.last_index)  # raft.F2
        assert index >= log.commit_index, (index, log.commit_index)
        raft.send_when_durable(leader, AppendEntriesResponse(  # raft.F2
            raft.term, is_success=True, index=index, hint_index=NO_INDEX, hint_term=NO_TERM,
            is_blank=raft.is_blank))

    def _caught_up(self, last_index: RaftIndex) -> None:
        """Vote without the limit of raft.R5 once the log reaches the leader's `last_index`."""
        if self._raft.log.last_index >= last_index:
            self._raft.is_blank = False  # raft.R5

    # --- observing --------------------------------------------------------------------------

    def _observe(self) -> None:
        """While there is no leader, send `Observe` to every node that may lead."""
        raft = self._raft
        assert not raft.is_voter, raft.configuration
        if raft.now_ms < self._observe_ms or self.has_live_leader:
            return
        self.leader = None
        self._observe_ms = raft.now_ms + raft.timing.election_timeout_ms // 2
        assert not self.has_live_leader
        for source in self._observe_targets():
            raft.send(source, Observe(raft.term))

    def _observe_targets(self) -> list[NodeId]:
        """Return the nodes that may lead: known voters, initial voters, every node ever reached.

        The voters may have changed while this node was away.
        """
        raft = self._raft
        known = {*raft.configuration.voters, *raft.initial_voters.voters, *raft.peers_seen}
        return sorted(known - {raft.node_id})

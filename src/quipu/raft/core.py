"""Raft: one node's part.  What goes in, what comes out, and the state that outlives a role.

                         has no leader                  gets a majority
    follower / observer -------------------> candidate ----------------> leader
             ^    hears a leader or a higher term    |                     |
             +---------------------------------------+---------------------+
                                               or a majority no longer responds

A role (follower.py, candidate.py, leader.py) handles messages and the passing of time; this module
keeps term, vote and log, and the messages and read states that the driver takes with `ready`.

Invariants
    raft.R1  the term only grows; a vote, once given in a term, stays
    raft.R2  what a message promises is durable before it leaves: such messages are handed out as
             `messages_when_durable`, to be sent after `persisted` of the same number; only a
             leader's requests, and requests for pre-votes and for the log, are sent at once
    raft.R3  a leader only appends to its own log
    raft.R4  a leader commits by majority only entries of its own term; older ones with them
    raft.R5  a node that started with an empty disk (is_blank) votes only for candidates whose log
             is empty too, until it has caught up with a leader: it may have lost entries that it
             had acknowledged
    raft.R6  implausible messages are rejected, as are those that only voters may send if they come
             from other nodes (admission.py); commands that `Checks` reject are neither appended nor
             acknowledged

A message of another node may be wrong in any way: it is rejected, or has no effect, and never fails
an assertion.  An assertion that fails is a bug of this room or of its driver.

The time is in milliseconds since any fixed moment; it never falls.
"""

from collections.abc import Callable, Sequence
from typing import Final

from quipu.model.batch_types import CONFIGURATION, CONTROLLER
from quipu.model.ids import NO_NODE, NodeId, RaftIndex, Term
from quipu.raft.admission import Checks, NoChecks, rejection_reason
from quipu.raft.candidate import CandidateState, handle_vote_request
from quipu.raft.follower import FollowerState
from quipu.raft.leader import LeaderState
from quipu.raft.log import RaftLog, SafetyLost
from quipu.raft.membership import Configuration
from quipu.raft.messages import (
    NO_INDEX,
    NO_TERM,
    AppendEntries,
    AppendEntriesResponse,
    HardState,
    InstallSnapshot,
    InstallSnapshotResponse,
    Message,
    Observe,
    OutgoingMessage,
    RaftHeartbeat,
    RaftHeartbeatResponse,
    Snapshot,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from quipu.raft.reads import ReadState
from quipu.raft.ready import Ready, StoredState
from quipu.raft.settings import Timing

COMMITTED_MAX: Final = 1024  # entries that one `ready` hands out
_SENT_AT_ONCE: Final = frozenset({  # raft.R2; a VoteRequest only as a pre-vote
    AppendEntries, RaftHeartbeat, InstallSnapshot, TimeoutNow, Observe, VoteRequest})
_SENT_WHEN_DURABLE: Final = frozenset({
    AppendEntriesResponse, RaftHeartbeatResponse, InstallSnapshotResponse, VoteRequest,
    VoteResponse})
Role = FollowerState | CandidateState | LeaderState


class Raft:
    """One node of a quorum."""

    def __init__(
        self,
        node_id: NodeId,
        voters: Sequence[NodeId],
        stored: StoredState,
        *,
        timing: Timing,
        chance: Callable[[], float],
        now_ms: int = 0,
        checks: Checks | None = None,
    ) -> None:
        """`voters` apply unless the stored log names others; `chance` returns numbers in [0, 1)."""
        assert node_id >= 0, node_id
        assert now_ms >= 0, now_ms
        self.node_id = node_id
        self.initial_voters = Configuration.of(voters)
        self.timing = timing
        self.now_ms = now_ms
        self.term, self.vote, self.is_blank = stored.hard_state
        if stored.is_nothing and self.initial_voters.voters != (node_id,):
            self.is_blank = True  # raft.R5
        self.log = RaftLog(stored.snapshot_index, stored.snapshot_term,
                           stored.configuration or self.initial_voters, stored.entries)
        self.chance = chance
        self.checks = checks or NoChecks()
        self.peers_seen: set[NodeId] = set()  # nodes that could ever be reached
        self.had_leader_ms = now_ms  # raft.E4: when it last followed or led, or may have
        self._last_leader: NodeId | None = None  # the last leader that this node has known
        self._hard_state = HardState(self.term, self.vote, stored.hard_state.is_blank)
        self._number = 0  # of the last `ready`
        self._persisted = 0
        self._vote_number = 0  # of the `ready` that handed the last hard state out
        self._messages: list[OutgoingMessage] = []
        self._messages_when_durable: list[OutgoingMessage] = []
        self._snapshot: Snapshot | None = None
        self.read_states: list[ReadState] = []
        self.last_read_number = 0  # of the last read that was begun
        self.wants_snapshot = False
        self.role: Role = FollowerState(self, leader=None)
        assert self.log.last_term <= self.term, (self.log.last_term, self.term)
        self.invariants()

    def invariants(self) -> None:
        """Assert what holds between two calls; each call that changes state ends with this."""
        term, vote, _ = self._hard_state
        now_ms, number, log = self.now_ms, self._number, self.log
        assert self.term >= term, (self.term, term)  # raft.R1
        assert self.term > term or vote == self.vote or vote == NO_NODE, (  # noqa: PLR1714 faster
            self.vote, vote)  # raft.R1
        assert log.last_term <= self.term, (log.last_term, self.term)  # raft.R1
        assert self._persisted <= number, (self._persisted, number)  # raft.R2
        assert self._vote_number <= number, (self._vote_number, number)  # raft.R2
        assert self.had_leader_ms <= now_ms, (self.had_leader_ms, now_ms)  # raft.E4
        assert self._snapshot is None or self._snapshot[0] == log.snapshot_index, self._snapshot
        log.invariants()
        self.role.invariants()

    # --- state ------------------------------------------------------------------------------

    @property
    def leader(self) -> NodeId | None:
        """The leader of this term, as far as this node knows."""
        return self.role.leader

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, LeaderState)

    @property
    def configuration(self) -> Configuration:
        return self.log.configuration

    @property
    def is_voter(self) -> bool:
        return self.node_id in self.log.configuration.voters

    @property
    def is_alone(self) -> bool:
        """Whether this node is the only voter."""
        return self.log.configuration.voters == (self.node_id,)

    @property
    def can_campaign(self) -> bool:
        """Whether this node is a voter that may vote for itself (raft.R5)."""
        return self.is_voter and (self.log.is_empty or not self.is_blank)

    @property
    def is_vote_durable(self) -> bool:
        """Whether a restart would find the present term and vote."""
        return self._is_hard_state_written and self._persisted >= self._vote_number

    # --- input ------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Do what is due at `now_ms`."""
        self.now_ms = max(self.now_ms, now_ms)
        self.role.tick()
        self.invariants()

    def step(self, sender: NodeId, message: Message) -> str | None:
        """Handle a message; return why it was rejected, None if it was not (raft.R6)."""
        if sender == self.node_id:
            return None
        term = self.term
        reason = rejection_reason(self, sender, message)
        if reason is not None:
            if isinstance(message, VoteRequest):
                self.role.vote_request_rejected(sender)
            assert self.term == term, (self.term, term)  # raft.R6
            return reason
        if isinstance(message, Observe):  # its term says nothing: an observer may be far behind
            self.role.handle(sender, message)
        elif message.term > self.term:
            self._step_later_term(sender, message)
        elif message.term < self.term:
            self._step_earlier_term(sender, message)
        else:
            self._handle(sender, message)
        assert self.term >= term, (self.term, term)  # raft.R1
        self.invariants()
        return None

    def propose(self, commands: Sequence[bytes]) -> RaftIndex | None:
        """Append `commands` as one entry and return its index; None if this node cannot now.

        The proposal is committed if an entry of this index and this term is handed out.
        """
        if not isinstance(self.role, LeaderState):
            return None
        index = self.role.propose(CONTROLLER, tuple(commands))
        assert index is None or index == self.log.last_index, (index, self.log.last_index)
        assert index is None or self.log.last_term == self.term, self.log.last_term  # raft.R3
        self.invariants()
        return index

    def change_configuration(self, configuration: Configuration) -> RaftIndex | None:
        """Add or remove one voter and return the index of the entry; None if this node cannot now.

        It cannot if it does not lead, if an earlier change is not committed, if too few of the new
        voters have caught up, or if it is the one to be removed: then `transfer_leadership` first.
        """
        if not isinstance(self.role, LeaderState):
            return None
        if self.log.configuration_index > self.log.commit_index:
            return None  # raft.C2
        assert configuration.is_single_change_from(self.configuration), (
            configuration, self.configuration)
        fit = self.role.replication.able_to_vote()
        new = set(configuration.voters) - set(self.configuration.voters)
        if not new <= set(fit) or not configuration.has_majority(fit):
            return None  # raft.C4
        if self.node_id not in configuration.voters:
            return None  # raft.C6
        index = self.role.propose(CONFIGURATION, (configuration.encode(),))
        assert index is None or self.configuration == configuration, configuration  # raft.C1
        assert index is None or self.log.configuration_index == index, index  # raft.C1
        self.invariants()
        return index

    def read_index(self) -> int | None:
        """Begin a linearizable read and return its number; None if this node cannot now.

        A `ReadState` with this number is handed out when the read is confirmed; never, if this node
        steps down before.
        """
        if not isinstance(self.role, LeaderState):
            return None
        before = self.last_read_number
        number = self.role.read_index()
        assert number is None or number > before, (number, before)
        self.invariants()
        return number

    def campaign(self) -> None:
        """Start an election now, with a pre-vote, if this node may be elected."""
        if not self.can_campaign or self.is_leader:
            return
        term = self.term
        if self.is_alone:  # there is no other voter to ask
            self.become_candidate()
            assert self.is_leader, self.role
        else:
            self.role = candidate = CandidateState(self, is_pre_vote=True)
            candidate.start()
            assert self.term == term, (self.term, term)  # a pre-vote changes no term
        self.invariants()

    def transfer_leadership(self, to: NodeId | None = None) -> NodeId | None:
        """Have another voter lead: `to`, or the most up-to-date one; return which, if any."""
        assert to != self.node_id, to
        chosen = self.role.transfer_leadership(to) if isinstance(self.role, LeaderState) else None
        assert chosen is None or chosen in self.configuration.voters, chosen
        assert chosen != self.node_id, chosen
        self.invariants()
        return chosen

    def persisted(self, number: int) -> None:
        """Note that what the `ready` of this number, and those before, handed out is durable."""
        assert number >= self._persisted, (number, self._persisted)  # raft.R2
        assert number <= self._number, (number, self._number)  # raft.R2
        self._persisted = number
        self.log.persisted(number)
        self.role.persisted()
        self.invariants()

    def snapshot_made(self, snapshot: Snapshot) -> None:
        """Take the snapshot that `wants_snapshot` had asked for."""
        assert snapshot.index <= self.log.last_applied, (snapshot.index, self.log.last_applied)
        assert snapshot.term <= self.term, (snapshot.term, self.term)
        assert self.log.find_term(snapshot.index) in (None, snapshot.term), snapshot.index
        self.wants_snapshot = False
        if isinstance(self.role, LeaderState):
            self.role.replication.snapshot_made(snapshot)
        self.invariants()

    def compact(self, index: RaftIndex) -> None:
        """Drop entries up to `index`, which a durable snapshot covers."""
        last_index = self.log.last_index
        self.log.compact(index)
        assert self.log.snapshot_index >= index, (self.log.snapshot_index, index)
        assert self.log.last_index == last_index, (self.log.last_index, last_index)
        self.invariants()

    def peer_up(self, node_id: NodeId) -> None:
        """Note that messages to `node_id` arrive again: earlier ones may be lost."""
        self.peers_seen.add(node_id)
        self.role.peer_up(node_id)
        self.invariants()

    def peer_down(self, node_id: NodeId) -> None:
        """Note that the connection to `node_id` is lost."""
        self.role.peer_down(node_id)
        self.invariants()

    # --- output -----------------------------------------------------------------------------

    def ready(self) -> Ready:
        """Return what is to be done now.  Nothing is handed out twice."""
        self.role.flush()
        self._number += 1
        changed = None
        if not self._is_hard_state_written:
            changed = HardState(self.term, self.vote, self.is_blank)
            assert changed.term >= self._hard_state.term, (changed, self._hard_state)  # raft.R1
            self._hard_state, self._vote_number = changed, self._number
        ready = Ready(
            number=self._number, messages=self._messages, hard_state=changed,
            snapshot=self._snapshot, entries=self.log.take_unwritten(self._number),
            messages_when_durable=self._messages_when_durable,
            committed_entries=self.log.take_committed(COMMITTED_MAX),
            read_states=self.read_states, wants_snapshot=self.wants_snapshot)
        self._messages, self._messages_when_durable = [], []
        self._snapshot, self.read_states = None, []
        assert self.log.written == self.log.last_index, self.log.written  # all is handed out
        assert self._number > self._persisted, (self._number, self._persisted)  # raft.R2
        self.invariants()
        return ready

    def send(self, to: NodeId, message: Message) -> None:
        """Send at once: the message promises nothing that is not durable (raft.R2)."""
        assert to != self.node_id, to
        assert type(message) in _SENT_AT_ONCE, message  # raft.R2
        assert message.term >= self.term, message  # a pre-vote asks for the next term
        self._messages.append(OutgoingMessage(to, message))

    def send_when_durable(self, to: NodeId, message: Message) -> None:
        """Send when everything so far is durable (raft.R2)."""
        assert to != self.node_id, to
        assert type(message) in _SENT_WHEN_DURABLE, message  # raft.R2
        assert message.term >= self.term, message  # a pre-vote is granted for the next term
        self._messages_when_durable.append(OutgoingMessage(to, message))

    # --- transitions, for the roles ---------------------------------------------------------

    def become_follower(self, term: Term, leader: NodeId | None) -> None:
        """Follow `leader`, or wait for one, in `term`."""
        assert leader != self.node_id, leader
        if self.is_leader:
            self.had_leader_ms = self.now_ms  # raft.E4
        if leader is not None:
            self._last_leader = leader
        self._enter_term(term)
        self.role = FollowerState(self, leader=leader)
        assert self.term == term, (self.term, term)
        assert not self.is_leader

    def step_down(self) -> None:
        """Stop leading, and wait for a leader of this term or a later one."""
        assert self.is_leader, self.role
        self.become_follower(self.term, None)

    def become_candidate(self, *, is_transfer: bool = False) -> None:
        """Begin a new term, vote for this node and ask the others for their votes."""
        assert self.is_voter, self.configuration
        assert not self.is_leader
        self._enter_term(Term(self.term + 1))
        assert self.vote == NO_NODE, self.vote  # raft.R1
        self.vote = self.node_id
        self.role = candidate = CandidateState(self, is_pre_vote=False, is_transfer=is_transfer)
        candidate.start()

    def become_leader(self) -> None:
        """Lead in this term, which a majority has voted for."""
        assert isinstance(self.role, CandidateState), self.role
        assert not self.role.is_pre_vote, self.role
        assert self.vote == self.node_id, self.vote  # raft.R1
        assert self.is_voter, self.configuration  # raft.A4
        self.is_blank = False
        self.role = leader = LeaderState(
            self, voters_had_leader_ms=self.role.voters_had_leader_ms,
            previous_leader=self._last_leader)
        self._last_leader = self.node_id
        leader.start()
        assert leader.term_start == self.log.last_index, leader.term_start  # raft.A1

    def grant_vote(self, to: NodeId) -> None:
        """Vote for `to` in this term."""
        assert to != self.node_id, to
        assert self.vote in (NO_NODE, to), (self.vote, to)  # raft.R1
        assert not self.is_leader, self.role  # it has voted for itself
        self.vote = to
        self.become_follower(self.term, None)  # and wait for it to lead
        assert self.vote == to, (self.vote, to)  # raft.R1

    def install(self, snapshot: Snapshot) -> None:
        """Replace log and state by a snapshot of the leader's."""
        assert snapshot.index > self.log.commit_index, (snapshot.index, self.log.commit_index)
        assert snapshot.term <= self.term, (snapshot.term, self.term)
        assert not self.is_leader, self.role  # raft.R3
        self.log.reset_to_snapshot(snapshot.index, snapshot.term, snapshot.configuration)
        self._snapshot = snapshot
        assert self.log.commit_index == snapshot.index, (self.log.commit_index, snapshot.index)

    def _enter_term(self, term: Term) -> None:
        assert term >= self.term, (term, self.term)  # raft.R1
        if term > self.term:
            self.term, self.vote = term, NO_NODE  # raft.R1

    @property
    def _is_hard_state_written(self) -> bool:
        """Whether the present term and vote were handed out to be written."""
        return (self.term, self.vote, self.is_blank) == self._hard_state

    # --- messages by their term -------------------------------------------------------------

    def _handle(self, sender: NodeId, message: Message) -> None:
        """Handle a message of this term."""
        assert message.term == self.term, (message.term, self.term)
        if isinstance(message, VoteRequest):
            handle_vote_request(self, sender, message)
        elif not isinstance(message, AppendEntries | RaftHeartbeat | InstallSnapshot):
            self.role.handle(sender, message)
        else:
            if self.leader not in (None, sender):
                raise SafetyLost(f"nodes {self.leader} and {sender} both lead in term {self.term}; "
                                 "has a voter lost its disk or been given an old copy of it?")
            if not isinstance(self.role, FollowerState) or self.leader is None:
                self.become_follower(self.term, sender)
            self.role.handle(sender, message)

    def _step_later_term(self, sender: NodeId, message: Message) -> None:
        """Handle a message of a later term: this node's is over, unless it is a pre-vote's."""
        assert message.term > self.term, (message.term, self.term)
        if isinstance(message, VoteRequest):
            if self.role.has_live_leader and not message.is_transfer:
                self.role.vote_request_rejected(sender)
                return
            if message.is_pre_vote:  # a pre-vote changes no node's term
                handle_vote_request(self, sender, message)
                return
        if isinstance(message, VoteResponse) and message.is_pre_vote and message.is_granted:
            self.role.handle(sender, message)
            return
        if isinstance(message, TimeoutNow):
            return  # from a leader that this node has not heard
        from_leader = isinstance(message, AppendEntries | RaftHeartbeat | InstallSnapshot)
        self.become_follower(message.term, sender if from_leader else None)
        self._handle(sender, message)

    def _step_earlier_term(self, sender: NodeId, message: Message) -> None:
        """Respond to requests of an earlier term, so that their sender learns of this one."""
        assert message.term < self.term, (message.term, self.term)
        if isinstance(message, AppendEntries | RaftHeartbeat | InstallSnapshot):
            self.send_when_durable(sender, AppendEntriesResponse(
                self.term, is_success=False, index=NO_INDEX, hint_index=NO_INDEX, hint_term=NO_TERM,
                is_blank=False))
        elif isinstance(message, VoteRequest) and message.is_pre_vote:
            self.send_when_durable(sender, VoteResponse(
                self.term, is_granted=False, is_pre_vote=True))

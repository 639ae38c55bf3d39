"""Elections: the role that asks for votes, and the rules by which a node grants its vote.

A candidate first asks for pre-votes, which say whether it would be elected.  It begins a new term
only with a majority of them: so a node that cannot win, because it was cut off or removed, does not
depose a leader.

Invariants
    raft.E1  a vote is granted only to a candidate whose log holds every entry that this node's
             does (it is up to date)
    raft.E2  a node that hears from a leader grants no vote and no pre-vote within the election
             timeout after it heard; so a leader that a majority hears is not deposed
    raft.E3  a candidate counts its own vote only when that is durable
    raft.E4  a vote carries for how long its voter has had no leader.  A majority that responded to
             an earlier leader has one of these voters in it, and that one responds to no earlier
             leader after its vote: so no earlier leader was confirmed by a majority (raft.A2,
             reads.py) after `voters_had_leader_ms`, the last moment at which one of the voters can
             have had a leader.  That holds over restarts (a process that has just started may have
             followed a moment ago) and transfers (the voters followed until now)
"""

from typing import TYPE_CHECKING

from quipu.model.ids import NO_NODE, NodeId, Term
from quipu.raft.messages import Message, Observe, VoteRequest, VoteResponse

if TYPE_CHECKING:
    from quipu.raft.core import Raft


class CandidateState:
    """Asks for votes, or pre-votes, in one term."""

    leader: NodeId | None = None
    has_live_leader = False

    def __init__(self, raft: "Raft", *, is_pre_vote: bool, is_transfer: bool = False) -> None:
        assert not (is_pre_vote and is_transfer), "a transfer needs no pre-vote"
        self.is_pre_vote = is_pre_vote
        self._raft = raft
        self._is_transfer = is_transfer
        self._votes: dict[NodeId, bool] = {raft.node_id: True} if is_pre_vote else {}  # raft.E3
        self.voters_had_leader_ms = raft.had_leader_ms  # raft.E4; its own vote is one of them
        self._deadline_ms = raft.now_ms + election_pause_ms(raft) // 2  # no leader: retry soon
        assert self.voters_had_leader_ms <= raft.now_ms, self.voters_had_leader_ms  # raft.E4

    def invariants(self) -> None:
        """Assert what holds between two steps."""
        raft = self._raft
        assert raft.is_voter, raft.configuration
        assert self.is_pre_vote or raft.vote == raft.node_id, (raft.vote, raft.node_id)  # raft.R1
        assert self.voters_had_leader_ms <= raft.now_ms, self.voters_had_leader_ms  # raft.E4
        assert self.voters_had_leader_ms >= raft.had_leader_ms, self.voters_had_leader_ms  # raft.E4
        assert (raft.node_id not in self._votes or self.is_pre_vote or raft.is_vote_durable
                or raft.is_alone), self._votes  # raft.E3

    def start(self) -> None:
        """Ask every voter; before a pre-vote, also ask other known nodes for the log."""
        raft = self._raft
        assert raft.role is self
        assert raft.is_voter, raft.configuration
        for voter in raft.configuration.voters:
            self._request_vote(voter)
        if self.is_pre_vote:  # this node may have been removed, and not know
            for node_id in sorted(raft.peers_seen.difference(raft.configuration.voters)):
                raft.send(node_id, Observe(raft.term))
        self._count_votes()

    def tick(self) -> None:
        if self._raft.now_ms >= self._deadline_ms:
            self._raft.campaign()

    def handle(self, sender: NodeId, message: Message) -> None:
        assert self._raft.role is self, self._raft.role
        if isinstance(message, VoteResponse) and message.is_pre_vote == self.is_pre_vote:
            if message.is_granted:
                self.voters_had_leader_ms = max(
                    self.voters_had_leader_ms, self._raft.now_ms - message.leaderless_ms)  # raft.E4
            self._votes.setdefault(sender, message.is_granted)
            self._count_votes()

    def persisted(self) -> None:
        """Count again: this node's own vote may be durable now."""
        self._count_votes()

    def peer_up(self, node_id: NodeId) -> None:
        """Ask again: the request may be lost."""
        if node_id in self._raft.configuration.voters and node_id not in self._votes:
            self._request_vote(node_id)

    def peer_down(self, node_id: NodeId) -> None:
        """Do nothing: the other voters may be a majority."""

    def vote_request_rejected(self, sender: NodeId) -> None:
        """Do nothing: only a leader sends its log to a node that does not know of its removal."""

    def flush(self) -> None:
        """Do nothing: every message is sent when it is made."""

    def _request_vote(self, voter: NodeId) -> None:
        raft = self._raft
        assert raft.role is self, raft.role
        assert voter in raft.configuration.voters, voter
        if voter == raft.node_id:
            return
        last_index, last_term = raft.log.last_index, raft.log.last_term
        if self.is_pre_vote:
            raft.send(voter, VoteRequest(
                Term(raft.term + 1), last_index, last_term, is_pre_vote=True, is_transfer=False))
        else:
            raft.send_when_durable(voter, VoteRequest(
                raft.term, last_index, last_term, is_pre_vote=False,
                is_transfer=self._is_transfer))

    def _count_votes(self) -> None:
        """Become leader with a majority of votes; become follower if a majority refuses."""
        raft = self._raft
        assert raft.role is self, raft.role
        assert raft.is_voter, raft.configuration
        if not self.is_pre_vote and (raft.is_vote_durable or raft.is_alone):
            self._votes[raft.node_id] = True  # raft.E3; alone: it is durable before any entry
        granted = [voter for voter, is_granted in self._votes.items() if is_granted]
        refused = [voter for voter, is_granted in self._votes.items() if not is_granted]
        if raft.configuration.has_majority(granted):
            if self.is_pre_vote:
                raft.become_candidate()
            else:
                raft.become_leader()
        elif raft.configuration.has_majority(refused):
            raft.become_follower(raft.term, None)


def election_pause_ms(raft: "Raft") -> int:
    """Return how long to wait for a leader: random, so that not all start elections together."""
    pause_ms = int(raft.timing.election_timeout_ms * (1 + raft.chance()))
    assert pause_ms >= raft.timing.election_timeout_ms, pause_ms  # raft.E2
    return pause_ms


def early_election_pause_ms(raft: "Raft") -> int:
    """Return how long to wait for a leader whose connection is lost.

    Not less than the election timeout: until then the others hold on to it (raft.E2), and a
    pre-vote would be in vain.  Only the random wait beyond it is shorter.
    """
    pause_ms = raft.timing.election_timeout_ms + int(
        raft.timing.heartbeat_interval_ms * (0.5 + raft.chance()))
    assert pause_ms >= raft.timing.election_timeout_ms, pause_ms  # raft.E2
    return pause_ms


def handle_vote_request(raft: "Raft", sender: NodeId, request: VoteRequest) -> None:
    """Respond to a candidate of this node's term, or to a pre-vote for a later one."""
    assert request.term == raft.term or (request.is_pre_vote and request.term > raft.term), request
    is_free = raft.vote in (NO_NODE, sender) or (
        request.is_pre_vote and request.term > raft.term)  # raft.R1
    is_granted = (
        is_free
        and (request.is_transfer or not raft.role.has_live_leader)  # raft.E2
        and raft.log.is_up_to_date(request.last_index, request.last_term)  # raft.E1
        and not (raft.is_blank and request.last_index > 0))  # raft.R5
    if is_granted and not request.is_pre_vote:
        raft.grant_vote(sender)
    elif is_granted and isinstance(raft.role, CandidateState) and raft.role.is_pre_vote and (
            sender < raft.node_id):
        raft.become_follower(raft.term, None)  # of two candidates at once, the lower id goes on
    assert not is_granted or request.is_pre_vote or raft.vote == sender, raft.vote  # raft.R1
    assert not is_granted or not raft.is_blank or request.last_index == 0, request  # raft.R5
    assert raft.had_leader_ms <= raft.now_ms, raft.had_leader_ms  # raft.E4
    raft.send_when_durable(sender, VoteResponse(
        request.term if is_granted else raft.term, is_granted=is_granted,
        is_pre_vote=request.is_pre_vote, leaderless_ms=raft.now_ms - raft.had_leader_ms))

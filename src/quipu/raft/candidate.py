"""Elections: the role of one who wants to lead, and who is given a vote.

A candidate first asks in a pre-vote whether it would be elected.  Only then does it begin a new
term, so that a node that cannot win, because it was cut off or removed, does not depose a leader.

Invariants
    E1  a vote goes to those only whose log holds all that this node's does (up to date)
    E2  a node that hears from a leader stays loyal to it: it grants no vote and no pre-vote within
        the election timeout after it was heard; a leader steps down (leader.py) when it hears from
        too few
    E3  the own vote counts when it is durable
    E4  a voter says with its vote for how long it has followed nobody.  A majority that answered
        an earlier leader has one of these voters in it, and that one answers no earlier leader
        after its vote: so no earlier leader was confirmed by a majority (reads.py, A2) after
        `others_led_ms`, the last moment at which one of the voters can have followed.  That
        counts restarts (a process that just started may have followed a moment ago) and
        transfers (the voters followed until now), and needs nobody's loyalty
"""

from typing import TYPE_CHECKING

from quipu.model.ids import NO_NODE, NodeId, Term
from quipu.raft.messages import Message, Observe, Vote, VoteReply

if TYPE_CHECKING:
    from quipu.raft.core import Raft


class Candidate:
    """Asks for votes."""

    leader: NodeId | None = None
    is_loyal = False

    def __init__(self, raft: "Raft", *, is_pre_vote: bool, is_transfer: bool = False) -> None:
        self.is_pre_vote = is_pre_vote
        self._raft = raft
        self._is_transfer = is_transfer
        self._votes: dict[NodeId, bool] = {raft.node_id: True} if is_pre_vote else {}  # E3
        self.others_led_ms = raft.led_ms  # E4; this node's own vote is one of them
        self._deadline_ms = raft.now_ms + election_pause_ms(raft) // 2  # nobody leads: be quick

    def start(self) -> None:
        """Ask every voter; in a pre-vote, ask the others too whether one of them leads."""
        raft = self._raft
        for voter in raft.configuration.voters:
            self._ask(voter)
        if self.is_pre_vote:  # this node may have been removed, and not have heard so
            for node_id in sorted(raft.met.difference(raft.configuration.voters)):
                raft.send(node_id, Observe(raft.term))
        self._count()

    def tick(self) -> None:
        if self._raft.now_ms >= self._deadline_ms:
            self._raft.campaign()

    def handle(self, sender: NodeId, message: Message) -> None:
        if isinstance(message, VoteReply) and message.is_pre_vote == self.is_pre_vote:
            if message.is_granted:
                self.others_led_ms = max(
                    self.others_led_ms, self._raft.now_ms - message.silence_ms)  # E4
            self._votes.setdefault(sender, message.is_granted)
            self._count()

    def persisted(self) -> None:
        self._count()

    def peer_up(self, node_id: NodeId) -> None:
        """Ask again: the question may be lost."""
        if node_id in self._raft.configuration.voters and node_id not in self._votes:
            self._ask(node_id)

    def peer_down(self, node_id: NodeId) -> None:
        """Nothing to do: a node that is gone does not vote, and the others may be enough."""

    def vote_refused(self, sender: NodeId) -> None:
        """Nothing to do if `sender` asked for a vote out of turn."""

    def flush(self) -> None:
        """Nothing was put off."""

    def _ask(self, voter: NodeId) -> None:
        raft = self._raft
        if voter == raft.node_id:
            return
        if self.is_pre_vote:
            raft.send(voter, Vote(Term(raft.term + 1), raft.log.last_index, raft.log.last_term,
                                  is_pre_vote=True, is_transfer=False))
        else:
            raft.promise(voter, Vote(raft.term, raft.log.last_index, raft.log.last_term,
                                     is_pre_vote=False, is_transfer=self._is_transfer))

    def _count(self) -> None:
        raft = self._raft
        if not self.is_pre_vote and (raft.is_vote_durable or raft.is_alone):
            self._votes[raft.node_id] = True  # E3; alone, nothing is decided before it is durable
        granted = [voter for voter, is_granted in self._votes.items() if is_granted]
        refused = [voter for voter, is_granted in self._votes.items() if not is_granted]
        if raft.configuration.has_majority(granted):
            if self.is_pre_vote:
                raft.become_candidate()
            else:
                raft.lead()
        elif raft.configuration.has_majority(refused):
            raft.follow(raft.term, None)


def election_pause_ms(raft: "Raft") -> int:
    """How long to wait for a leader: by chance, so that not all lose patience together."""
    return int(raft.timing.election_timeout_ms * (1 + raft.chance()))


def early_election_pause_ms(raft: "Raft") -> int:
    """How long to wait for a leader whose connection is lost.

    Not less than the election timeout: until then the others are loyal to it (E2), and a pre-vote
    would be in vain.  Only the wait beyond it, which chance spreads, is shorter.
    """
    return raft.timing.election_timeout_ms + int(
        raft.timing.heartbeat_interval_ms * (0.5 + raft.chance()))


def consider(raft: "Raft", sender: NodeId, vote: Vote) -> None:
    """Answer a candidate whose term is this node's, or who asks in a pre-vote for a later one."""
    is_free = raft.vote in (NO_NODE, sender) or (vote.is_pre_vote and vote.term > raft.term)
    is_granted = (
        is_free
        and (vote.is_transfer or not raft.role.is_loyal)  # E2
        and raft.log.is_up_to_date(vote.last_index, vote.last_term)  # E1
        and not (raft.is_blank and vote.last_index > 0))  # R5
    if is_granted and not vote.is_pre_vote:
        raft.grant(sender)
    elif is_granted and isinstance(raft.role, Candidate) and raft.role.is_pre_vote and (
            sender < raft.node_id):
        raft.follow(raft.term, None)  # of two that lose patience together, one gives way
    raft.promise(sender, VoteReply(vote.term if is_granted else raft.term, is_granted=is_granted,
                                   is_pre_vote=vote.is_pre_vote,
                                   silence_ms=raft.now_ms - raft.led_ms))

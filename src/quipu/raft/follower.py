"""The role of one who is led: keeps the leader's entries, and notices when there is no leader.

A follower that does not vote is an observer: it asks the voters to be sent the log, and never
wants to lead.

Invariants
    F1  an entry is kept only if the one before it is the leader's too: so logs that agree at one
        index agree on all before it
    F2  what is acknowledged is durable (R2), and was the leader's when it was written
"""

from typing import TYPE_CHECKING

from quipu.model.batch_types import CONTROLLER
from quipu.model.ids import NodeId, RaftIndex, Term
from quipu.raft.candidate import early_election_pause_ms, election_pause_ms
from quipu.raft.image import Gathering
from quipu.raft.messages import (
    NO_ROUND,
    NO_TERM,
    NOTHING,
    Append,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    Install,
    InstallReply,
    Message,
    Observe,
    TimeoutNow,
)

if TYPE_CHECKING:
    from quipu.raft.core import Raft


class Follower:
    """Follows whoever leads in its term."""

    def __init__(self, raft: "Raft", *, leader: NodeId | None) -> None:
        self.leader = leader
        self._raft = raft
        self._heard_ms = raft.now_ms  # the leader, if there is one
        self._deadline_ms = raft.now_ms + election_pause_ms(raft)
        self._observe_ms = raft.now_ms  # when to ask for the log, being an observer without leader
        self._gathering = Gathering()

    @property
    def is_loyal(self) -> bool:
        """Was a leader heard of lately (E2)?"""
        silence_ms = self._raft.now_ms - self._heard_ms
        return self.leader is not None and silence_ms < self._raft.timing.election_timeout_ms

    def tick(self) -> None:
        raft = self._raft
        if not raft.is_voter:
            self._observe()
        elif raft.now_ms >= self._deadline_ms and (raft.log.is_empty or not raft.is_blank):
            raft.campaign()

    def handle(self, sender: NodeId, message: Message) -> None:
        match message:
            case Append():
                self._hear()
                self._append(sender, message)
            case Heartbeat():
                self._hear()
                self._heartbeat(sender, message)
            case Install():
                self._hear()
                self._install(sender, message)
            case TimeoutNow():
                if sender == self.leader and self._raft.is_voter and not self._raft.is_blank:
                    self._raft.become_candidate(is_transfer=True)
            case _:
                pass  # an answer to what this node asked in another role

    def persisted(self) -> None:
        """What it has promised leaves now; there is no more to it."""

    def peer_up(self, node_id: NodeId) -> None:
        """Ask at once, if there is something to ask."""
        raft = self._raft
        if self.leader is None and not raft.is_voter and node_id in self._sources():
            raft.send(node_id, Observe(raft.term))

    def peer_down(self, node_id: NodeId) -> None:
        """Without a way to the leader there is no use in patience beyond what E2 asks for."""
        raft = self._raft
        if node_id == self.leader:
            early_ms = self._heard_ms + early_election_pause_ms(raft)
            self._deadline_ms = min(self._deadline_ms, early_ms)

    def vote_refused(self, sender: NodeId) -> None:
        """Nothing to do if `sender` asked for a vote out of turn."""

    def flush(self) -> None:
        """Nothing was put off."""

    # --- what the leader sends --------------------------------------------------------------

    def _hear(self) -> None:
        self._heard_ms = self._raft.led_ms = self._raft.now_ms
        self._deadline_ms = self._raft.now_ms + election_pause_ms(self._raft)

    def _heartbeat(self, leader: NodeId, message: Heartbeat) -> None:
        raft, log = self._raft, self._raft.log
        if message.committed > log.last_index:  # it believes that this is here: it was, and is lost
            self._refuse(leader, message.committed, NO_TERM, is_blank=True)
        else:
            log.commit(message.committed)
        if message.round != NO_ROUND:
            raft.promise(leader, HeartbeatReply(raft.term, message.round))

    def _append(self, leader: NodeId, message: Append) -> None:
        raft, log = self._raft, self._raft.log
        if message.prev_index < log.committed:
            self._acknowledge(leader, log.committed)  # what is decided is the same everywhere
            return
        if log.find_term(message.prev_index) != message.prev_term:
            self._refuse(leader, message.prev_index, message.prev_term,
                         is_blank=raft.is_blank and log.is_empty)
            return
        for entry in message.entries:
            if entry.kind == CONTROLLER and log.find_term(entry.index) != entry.term:
                raft.checks.check_commands(entry.commands)  # R6
        log.merge(message.entries)  # F1
        last_index = RaftIndex(message.prev_index + len(message.entries))
        log.commit(min(message.committed, last_index))
        self._caught_up(message.last_index)
        self._acknowledge(leader, last_index)

    def _install(self, leader: NodeId, piece: Install) -> None:
        raft, log = self._raft, self._raft.log
        if piece.index <= log.committed:
            self._acknowledge(leader, log.committed)
            return
        if log.find_term(piece.index) == piece.index_term:
            log.commit(piece.index)  # the entries are here: no need for the image
            self._acknowledge(leader, piece.index)
            return
        position, image = self._gathering.take(piece)
        if image is None:
            raft.promise(leader, InstallReply(raft.term, piece.index, position))
            return
        raft.checks.check_image(image.items)  # R6
        raft.install(image)
        self._caught_up(piece.last_index)
        self._acknowledge(leader, piece.index)

    def _refuse(
        self, leader: NodeId, index: RaftIndex, term: Term, *, is_blank: bool
    ) -> None:
        """The leader's entry at `index` is not here."""
        hint, hint_term = self._raft.log.conflict_hint(index, term)
        self._raft.promise(leader, AppendReply(
            self._raft.term, is_ok=False, index=index, hint=hint, hint_term=hint_term,
            is_blank=is_blank))

    def _acknowledge(self, leader: NodeId, index: RaftIndex) -> None:
        self._raft.promise(leader, AppendReply(  # F2
            self._raft.term, is_ok=True, index=index, hint=NOTHING, hint_term=NO_TERM,
            is_blank=self._raft.is_blank))

    def _caught_up(self, last_index: RaftIndex) -> None:
        """A leader's log ended at `last_index`: is all of it here (R5)?"""
        if self._raft.log.last_index >= last_index:
            self._raft.is_blank = False

    # --- observing --------------------------------------------------------------------------

    def _observe(self) -> None:
        """Look for a leader, again and again, while there is none."""
        raft = self._raft
        if raft.now_ms < self._observe_ms or self.is_loyal:
            return
        self.leader = None
        self._observe_ms = raft.now_ms + raft.timing.election_timeout_ms // 2
        for source in self._sources():
            raft.send(source, Observe(raft.term))

    def _sources(self) -> list[NodeId]:
        """Who may lead: those who vote now, as far as is known, those who did first, and whoever
        was met: the voters may have changed while this node was away.
        """
        raft = self._raft
        known = {*raft.configuration.voters, *raft.first_voters.voters, *raft.met}
        return sorted(known - {raft.node_id})

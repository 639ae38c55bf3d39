"""Raft: the whole of one node's part.  What goes in, what comes out, and the node's own state.

                         hears of no leader             gets a majority
    follower / observer -------------------> candidate ----------------> leader
             ^    hears of a leader or a higher term |                     |
             +---------------------------------------+---------------------+
                                                        or loses its majority

A role (follower.py, candidate.py, leader.py) answers messages and the passing of time; this module
keeps what outlives a role: term, vote, log, and what waits to be carried out.

Invariants
    R1  the term only grows; a vote, once given in a term, stays
    R2  what a message promises is durable before the message leaves: promises go out in `after`,
        and only after `persisted` of the same number; only what a leader asks of others, and a
        candidate in a pre-vote, goes out at once
    R3  a leader never changes or removes an entry of its own log
    R4  a leader decides by majority only entries of its own term; older ones with them
    R5  a node that has lost everything (is_blank) helps to elect only those who have nothing
        either, until it has all that a leader had: it may have promised to keep something
    R6  nothing implausible is taken in, and nothing of strangers that only voters may say
        (admission.py); commands that `Checks` refuse are neither kept nor acknowledged

The time is in milliseconds since any fixed moment; it never falls.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from quipu.model.batch_types import CONFIGURATION, CONTROLLER
from quipu.model.ids import NO_NODE, NodeId, RaftIndex, Term
from quipu.raft.admission import Checks, NoChecks, refusal
from quipu.raft.candidate import Candidate, consider
from quipu.raft.follower import Follower
from quipu.raft.leader import Leader
from quipu.raft.log import RaftLog, SafetyLost
from quipu.raft.membership import Configuration
from quipu.raft.messages import (
    NO_STATE,
    NO_TERM,
    NOTHING,
    Append,
    AppendReply,
    Entry,
    HardState,
    Heartbeat,
    Image,
    Install,
    Message,
    Observe,
    Send,
    TimeoutNow,
    Vote,
    VoteReply,
)
from quipu.raft.reads import ReadDone
from quipu.raft.settings import Timing

COMMITTED_MAX: Final = 1024  # entries that one `ready` hands out
Role = Follower | Candidate | Leader


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What a node has kept, as its disk gives it back; all by default if it never ran."""

    hard_state: HardState = NO_STATE
    image_index: RaftIndex = NOTHING
    image_term: Term = NO_TERM
    configuration: Configuration | None = None  # of the image
    entries: tuple[Entry, ...] = ()

    @property
    def is_nothing(self) -> bool:
        return self.image_index == 0 and not self.entries and self.hard_state.term == 0


class Ready(NamedTuple):
    """What is to be done now: see the room's guide for the order."""

    number: int
    now: list[Send]
    hard_state: HardState | None  # to be written, as are the next two; in this order
    image: Image | None  # replaces the whole log and the whole state
    entries: list[Entry]  # one whose index was written before replaces that one and all after
    after: list[Send]
    committed: list[Entry]  # to be applied; after the image, if there is one
    reads: list[ReadDone]
    wants_image: bool  # of the state that is applied now, or later: see `image_made`

    @property
    def is_to_be_written(self) -> bool:
        return self.hard_state is not None or self.image is not None or bool(self.entries)


class Raft:
    """One node."""

    def __init__(
        self,
        node_id: NodeId,
        voters: Sequence[NodeId],
        stored: Stored,
        *,
        timing: Timing,
        chance: Callable[[], float],
        now_ms: int = 0,
        checks: Checks | None = None,
    ) -> None:
        """`voters` count if nothing that is stored says who they are; `chance` is in [0, 1)."""
        self.node_id = node_id
        self.first_voters = Configuration.of(voters)
        self.timing = timing
        self.now_ms = now_ms
        self.term, self.vote, self.is_blank = stored.hard_state
        if stored.is_nothing and self.first_voters.voters != (node_id,):
            self.is_blank = True  # R5
        self.log = RaftLog(stored.image_index, stored.image_term,
                           stored.configuration or self.first_voters, stored.entries)
        self.chance = chance
        self.checks = checks or NoChecks()
        self.met: set[NodeId] = set()  # that could be reached at some time
        self.led_ms = now_ms  # when this node last followed or led, or may have (E4)
        self._predecessor: NodeId | None = None  # the last leader that is known
        self._hard_state = HardState(self.term, self.vote, stored.hard_state.is_blank)
        self._number = 0  # of the last `ready`
        self._persisted = 0
        self._vote_number = 0  # of the `ready` that the last hard state went out with
        self._now: list[Send] = []
        self._after: list[Send] = []
        self._image: Image | None = None
        self.reads: list[ReadDone] = []
        self.last_read = 0  # the number of the last one that was asked for
        self.wants_image = False
        self.role: Role = Follower(self, leader=None)

    # --- what it is -------------------------------------------------------------------------

    @property
    def leader(self) -> NodeId | None:
        """Who leads, as far as this node knows."""
        return self.role.leader

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, Leader)

    @property
    def configuration(self) -> Configuration:
        return self.log.configuration

    @property
    def is_voter(self) -> bool:
        return self.node_id in self.log.configuration.voters

    @property
    def is_alone(self) -> bool:
        """Is this node the only voter?"""
        return self.log.configuration.voters == (self.node_id,)

    @property
    def is_vote_durable(self) -> bool:
        """Is what a restart would find in this term at least what holds now?"""
        return self._own_state() == self._hard_state and self._persisted >= self._vote_number

    # --- in ---------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """It is `now_ms`; do what is due."""
        self.now_ms = max(self.now_ms, now_ms)
        self.role.tick()

    def step(self, sender: NodeId, message: Message) -> str | None:
        """Take in a message; gives why it was not taken, None if it was (R6)."""
        if sender == self.node_id:
            return None
        reason = refusal(self, sender, message)
        if reason is not None:
            if isinstance(message, Vote):
                self.role.vote_refused(sender)
            return reason
        if isinstance(message, Observe):  # its term says nothing: whoever asks may be far behind
            self.role.handle(sender, message)
        elif message.term > self.term:
            self._rise(sender, message)
        elif message.term < self.term:
            self._answer_old(sender, message)
        else:
            self._handle(sender, message)
        return None

    def propose(self, commands: Sequence[bytes]) -> RaftIndex | None:
        """Have `commands` decided as one entry; gives its index, None if that is not ours to do.

        Whether it was decided shows when an entry of this index and this term is handed out.
        """
        if not isinstance(self.role, Leader):
            return None
        return self.role.propose(CONTROLLER, tuple(commands))

    def change(self, configuration: Configuration) -> RaftIndex | None:
        """Add or remove one voter; None if that is not ours to do, or cannot be done yet: an
        earlier change is not over, too few of the new voters have everything, or it is this
        node that should go: `transfer` first.
        """
        if not isinstance(self.role, Leader) or self.log.configuration_index > self.log.committed:
            return None  # C2
        assert configuration.is_next_to(self.configuration), (configuration, self.configuration)
        fit = self.role.replication.fit_to_vote()
        new = set(configuration.voters) - set(self.configuration.voters)
        if not new <= set(fit) or not configuration.has_majority(fit):
            return None  # C4
        if self.node_id not in configuration.voters:
            return None  # C6
        return self.role.propose(CONFIGURATION, (configuration.encode(),))

    def read(self) -> int | None:
        """Ask for a point from which reads see all that was decided before; None if not ours.

        A `ReadDone` with the number that this gives tells; none comes if the leadership ends.
        """
        return self.role.read() if isinstance(self.role, Leader) else None

    def campaign(self) -> None:
        """Try to become leader now."""
        if not self.is_voter or self.is_leader:
            return
        if self.is_alone:  # nobody to ask
            self.become_candidate()
            return
        self.role = candidate = Candidate(self, is_pre_vote=True)
        candidate.start()

    def transfer(self, to: NodeId | None = None) -> NodeId | None:
        """Have another voter lead: `to`, or the one that is furthest; gives who, if anyone."""
        return self.role.transfer(to) if isinstance(self.role, Leader) else None

    def persisted(self, number: int) -> None:
        """All that the `ready` of this number, and those before, gave to be written is durable."""
        assert self._persisted <= number <= self._number, (number, self._number)
        self._persisted = number
        self.log.persisted(number)
        self.role.persisted()

    def image_made(self, image: Image) -> None:
        """The state as it was at `image.index`, which `wants_image` had asked for."""
        self.wants_image = False
        if isinstance(self.role, Leader):
            self.role.replication.image_made(image)

    def compact(self, index: RaftIndex) -> None:
        """Entries up to `index` are in a durable image, and no longer needed."""
        self.log.compact(index)

    def peer_up(self, node_id: NodeId) -> None:
        """Messages to `node_id` arrive again: those before may be lost."""
        self.met.add(node_id)
        self.role.peer_up(node_id)

    def peer_down(self, node_id: NodeId) -> None:
        """The connection to `node_id` is lost: it may be gone, or only the way to it."""
        self.role.peer_down(node_id)

    # --- out --------------------------------------------------------------------------------

    def ready(self) -> Ready:
        """What is to be done now.  Nothing of it is given twice."""
        self.role.flush()
        self._number += 1
        hard_state = self._own_state()
        changed = hard_state if hard_state != self._hard_state else None
        if changed is not None:
            self._hard_state, self._vote_number = changed, self._number
        ready = Ready(
            number=self._number, now=self._now, hard_state=changed, image=self._image,
            entries=self.log.take_unwritten(self._number), after=self._after,
            committed=self.log.take_committed(COMMITTED_MAX), reads=self.reads,
            wants_image=self.wants_image)
        self._now, self._after, self._image, self.reads = [], [], None, []
        return ready

    def send(self, to: NodeId, message: Message) -> None:
        """Send at once: it promises nothing that is not durable yet (R2)."""
        self._now.append(Send(to, message))

    def promise(self, to: NodeId, message: Message) -> None:
        """Send once everything so far is durable (R2)."""
        self._after.append(Send(to, message))

    # --- for the roles ----------------------------------------------------------------------

    def follow(self, term: Term, leader: NodeId | None) -> None:
        """Become a follower."""
        if self.is_leader:
            self.led_ms = self.now_ms  # E4
        if leader is not None:
            self._predecessor = leader
        self._enter(term)
        self.role = Follower(self, leader=leader)

    def become_candidate(self, *, is_transfer: bool = False) -> None:
        """Begin a new term and ask for votes in it; this node votes for itself."""
        self._enter(Term(self.term + 1))
        self.vote = self.node_id
        self.role = candidate = Candidate(self, is_pre_vote=False, is_transfer=is_transfer)
        candidate.start()

    def lead(self) -> None:
        """Become leader."""
        assert isinstance(self.role, Candidate), self.role
        self.is_blank = False
        self.role = leader = Leader(
            self, others_led_ms=self.role.others_led_ms, predecessor=self._predecessor)
        self._predecessor = self.node_id
        leader.start()

    def grant(self, to: NodeId) -> None:
        """Give the vote of this term to `to`."""
        assert self.vote in (NO_NODE, to), (self.vote, to)  # R1
        self.vote = to
        self.follow(self.term, None)  # and be patient

    def install(self, image: Image) -> None:
        """Begin anew from an image of the leader's."""
        self.log.restart(image.index, image.term, image.configuration)
        self._image = image

    def _enter(self, term: Term) -> None:
        assert term >= self.term, (term, self.term)  # R1
        if term > self.term:
            self.term, self.vote = term, NO_NODE

    def _own_state(self) -> HardState:
        return HardState(self.term, self.vote, self.is_blank)

    # --- terms ------------------------------------------------------------------------------

    def _handle(self, sender: NodeId, message: Message) -> None:
        if isinstance(message, Vote):
            consider(self, sender, message)
        elif not isinstance(message, Append | Heartbeat | Install):
            self.role.handle(sender, message)
        else:
            if self.leader not in (None, sender):
                raise SafetyLost(f"nodes {self.leader} and {sender} both lead in term {self.term}; "
                                 "has a voter lost its disk or been given an old copy of it?")
            if not isinstance(self.role, Follower) or self.leader is None:
                self.follow(self.term, sender)
            self.role.handle(sender, message)

    def _rise(self, sender: NodeId, message: Message) -> None:
        """A message of a later term: mostly, this node's is over."""
        if isinstance(message, Vote):
            if self.role.is_loyal and not message.is_transfer:
                self.role.vote_refused(sender)
                return
            if message.is_pre_vote:  # nobody's term moves for a pre-vote
                consider(self, sender, message)
                return
        if isinstance(message, VoteReply) and message.is_pre_vote and message.is_granted:
            self.role.handle(sender, message)
            return
        if isinstance(message, TimeoutNow):
            return  # from a leader that we have not heard of
        from_leader = isinstance(message, Append | Heartbeat | Install)
        self.follow(message.term, sender if from_leader else None)
        self._handle(sender, message)

    def _answer_old(self, sender: NodeId, message: Message) -> None:
        """A message of an earlier term: tell those who need to know that it is over."""
        if isinstance(message, Append | Heartbeat | Install):
            self.promise(sender, AppendReply(
                self.term, is_ok=False, index=NOTHING, hint=NOTHING, hint_term=NO_TERM,
                is_blank=False))
        elif isinstance(message, Vote) and message.is_pre_vote:
            self.promise(sender, VoteReply(self.term, is_granted=False, is_pre_vote=True))

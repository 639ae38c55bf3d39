"""One replica of a partition: what it does about everything that can happen to it.

Invariants
    C1  a member serves in an epoch only while its log holds that epoch's configuration: so it has
        everything that was committed before
    C2  what a node acknowledges, it has, and so has everybody after it who is counted
    C3  committed: everybody before, this node, and everybody after has it; each member finds that
        out by itself, from what is sent down and what is acknowledged up
    C4  nothing of an older epoch has any effect; a sign of a newer one ends everything in this one,
        until the controller has configured it, or confirmed that there is none
    C5  a syncing member is reported only after it has all that was committed so far, and from then
        on nothing is committed without it: it may serve whenever the controller says so

What a driver owes it
    * effects are carried out in their order before the next event is handled; after a list with
      log effects comes `Appended`; every `SendEntries` is answered by `Sent` or `Refused`
    * a `Configured` in which this node is a member is given only if the controller listed it
      under the life (incarnation) of this process: whoever restarts has a new epoch to wait for,
      or, if it was syncing, a new version
    * whoever has opened its log again waits likewise; `session` goes on from where it was
    * `life` grows with each start of the node (its broker epoch does)
    * `committed` is what was remembered of `Advance`; it may be old, never too new
    * clients append only while `is_leading`
"""

from typing import assert_never

from quipu.chain.effects import (
    AppendConfiguration,
    AskEpoch,
    Disbelieve,
    Effect,
    Halt,
    Send,
    Serve,
)
from quipu.chain.events import (
    Appended,
    Configured,
    Drained,
    EpochConfirmed,
    Event,
    Flushed,
    PeerDown,
    PeerUp,
    Received,
    Refused,
    Sent,
    Tick,
)
from quipu.chain.fence import Fence
from quipu.chain.flow import Flow
from quipu.chain.inbound import Inbound
from quipu.chain.messages import (
    BEGIN,
    FAR,
    Ack,
    Describe,
    Described,
    Fenced,
    Mark,
    Message,
    Replicate,
    Why,
)
from quipu.chain.outbound import Outbound
from quipu.chain.recovery import Recovery
from quipu.chain.role import Role
from quipu.chain.standing import LogView, Standing
from quipu.model.chains import MemberState, ReplicaSet
from quipu.model.ids import Epoch, NodeId


class Replica:
    """The state machine of one partition on one node."""

    __slots__ = ("_begun", "_flow", "_halt", "_has_syncing", "_is_active", "_is_serving", "_pull",
                 "_recovery", "_standing", "fence")

    def __init__(
        self, node_id: NodeId, log: LogView, *, committed: Mark, life: int, window_size: int,
        session: int = 0,
    ) -> None:
        """`session`: the last one that this node has used in this life, if it has (N3)."""
        self._standing = Standing(node_id, log, committed=committed, life=life,
                                  window_size=window_size, session=session)
        self.fence = Fence(self._standing)
        self._begun = self._standing.epoch  # the last one that this node has taken part in
        self._halt = ""
        self._is_active = False
        self._is_serving = False
        self._has_syncing = False
        self._flow = Flow(self._standing)
        self._recovery: Recovery | None = None
        self._pull: Outbound | None = None  # to a new head that lacks what this node has

    # --- what it is -------------------------------------------------------------------------

    @property
    def epoch(self) -> Epoch:
        return self._standing.epoch

    @property
    def session(self) -> int:
        """The last one that was used."""
        return self._standing.session

    @property
    def replica_set(self) -> ReplicaSet | None:
        return self._standing.replica_set

    @property
    def committed(self) -> Mark:
        """Up to here every serving member has the log, and always will."""
        return self._standing.committed

    @property
    def is_serving(self) -> bool:
        """May clients read here, below `committed`?"""
        return self._is_serving

    @property
    def is_leading(self) -> bool:
        """May clients write here?"""
        return self._standing.is_leading

    @property
    def role(self) -> Role:
        if self._halt:
            return Role.HALTED
        if self.fence.is_closed:
            return Role.FENCED
        match self._standing.state:
            case None | MemberState.OFFLINE:
                return Role.NONE
            case MemberState.SYNCING:
                return Role.SYNCING
        if self._recovery is not None:
            return Role.RECOVERING
        if self._standing.is_leading:
            return Role.LEADING
        return Role.FOLLOWING if self._is_serving else Role.JOINING

    @property
    def lag(self) -> int:
        """Log offsets that the node before has and this one does not, as last heard."""
        inbound = self._flow.inbound
        return 0 if inbound is None else max(0, inbound.sender_end - self._standing.log.log_end)

    @property
    def lag_after(self) -> int:
        """Log offsets that this node has and the one after it has not acknowledged."""
        link = self._flow.link
        return 0 if link is None else max(0, self._standing.log.log_end - link.acked.log)

    @property
    def in_flight_size(self) -> int:
        """Bytes that were sent to the node after it and are not known to have arrived."""
        link = self._flow.link
        return 0 if link is None else link.in_flight_size

    @property
    def halt_reason(self) -> str:
        return self._halt

    @property
    def is_quiet(self) -> bool:
        """Is there nothing to repeat?  Then ticks may be left out."""
        if not self._is_active:
            return True
        return self._is_serving and not self._has_syncing and self._flow.is_quiet

    def _find_part(self) -> None:
        """Has it a part in this epoch?  Asked again whenever that may have changed."""
        state = self._standing.state
        self._is_active = (state is not None and state is not MemberState.OFFLINE
                           and not self._halt and not self.fence.is_closed)

    # --- what happens -----------------------------------------------------------------------

    def handle(self, event: Event) -> list[Effect]:
        if isinstance(event, Received):
            return self._receive(event.sender, event.message)
        if isinstance(event, Configured):
            return self._configure(event.replica_set)
        if isinstance(event, EpochConfirmed):
            return self._confirmed(event)
        if not self._is_active:
            return []
        if isinstance(event, Sent):
            link = self._find_link(event.to)
            return [] if link is None else link.sent(event.session, event.next_log, event.size)
        match event:
            case Appended():
                return self._appended()
            case Flushed():
                return self._flow.settled()
            case Tick():
                return self._tick()
            case Drained(node):
                return self._unblock(node)
            case Refused(node) | PeerDown(node):
                link = self._find_link(node)
                if link is not None:
                    link.block()
                return []
            case PeerUp(node):
                return self._peer_up(node)
            case _:
                assert_never(event)

    def _receive(self, sender: NodeId, message: Message) -> list[Effect]:
        epoch = self._standing.epoch
        if message.epoch != epoch:
            return self._of_another_epoch(sender, message)
        if not self._is_active:
            return []
        if isinstance(message, Replicate):
            return self._replicate(sender, message)
        if isinstance(message, Ack):
            return self._acknowledged(sender, message)
        match message:
            case Described():
                return self._described(sender, message)
            case Describe():
                if sender != self._standing.members.head:
                    return []
                return [Send(sender, self._standing.describe(Why.ANSWER))]
            case Fenced():
                return []  # by this very epoch: whoever sent it has understood by now
            case _:
                assert_never(message)

    def _of_another_epoch(self, sender: NodeId, message: Message) -> list[Effect]:
        """C4: tell whoever lives in the past; stop if it is this node that does."""
        epoch = self._standing.epoch
        if message.epoch < epoch:
            if isinstance(message, Replicate | Describe):
                return [Send(sender, Fenced(epoch))]
            return []
        if self._standing.replica_set is None:
            return []  # nothing is known yet: what is to come will be told
        if not self.fence.claimed(sender, message.epoch):
            return [Disbelieve(sender, message.epoch)]
        self._find_part()
        return [*self._stop_serving(), AskEpoch()]

    def _confirmed(self, event: EpochConfirmed) -> list[Effect]:
        """What was said of a newer epoch was wrong: go on in this one, with new sessions (C4)."""
        if not self.fence.confirmed(event):
            return []
        self._find_part()
        if not self._is_active:
            return []
        members = self._standing.members
        if self._begun != members.epoch:
            return self._take_part(members)
        inbound = self._flow.inbound
        self._flow.connect(same_version=True)
        effects = [] if self._flow.inbound is inbound else self._greet(members)
        effects += self._refresh()
        for link in (self._flow.link, self._pull):
            effects += link.reopen() if link is not None else []
        return effects + self._flow.settled()

    # --- configurations ---------------------------------------------------------------------

    def _configure(self, replica_set: ReplicaSet) -> list[Effect]:
        standing = self._standing
        known = standing.replica_set
        if known is not None and (replica_set.epoch, replica_set.version) <= (
                known.epoch, known.version):
            return []
        if replica_set.epoch < max(standing.epoch, standing.log.last_epoch):
            return []  # from before what this log has seen
        is_new_epoch = replica_set.epoch > standing.epoch
        standing.replica_set = replica_set
        standing.state = replica_set.state_of(standing.node_id)
        self._has_syncing = bool(replica_set.syncing)
        return self._begin_epoch(replica_set) if is_new_epoch else self._revise(replica_set)

    def _begin_epoch(self, replica_set: ReplicaSet) -> list[Effect]:
        """Nothing that was going on goes on; the log alone is what is left of it."""
        standing = self._standing
        effects = self._stop_serving()
        standing.epoch = replica_set.epoch
        standing.claimed = BEGIN
        standing.upstream = BEGIN
        standing.is_recovering = False
        self._halt = ""
        self._recovery = self._pull = None
        self._flow = Flow(standing)
        self._find_part()
        return effects + self._take_part(replica_set) if self._is_active else effects

    def _take_part(self, replica_set: ReplicaSet) -> list[Effect]:
        """Begin this node's part in a new epoch."""
        standing = self._standing
        self._begun = replica_set.epoch
        self._flow.connect()
        if replica_set.head != standing.node_id:
            return self._greet(replica_set) + self._refresh()
        if standing.is_current:
            return self._halted(
                f"epoch {standing.epoch} has begun in this log, and another process began it; "
                "only a new epoch can go on")
        standing.upstream = FAR
        standing.is_recovering = True
        self._recovery = Recovery(standing)
        return self._recovery.ask() + self._recover()

    def _revise(self, replica_set: ReplicaSet) -> list[Effect]:
        """The same epoch, so the same serving members; others have come or gone."""
        self._find_part()
        if not self._is_active:
            self._pull = None
            self._flow = Flow(self._standing)
            return []
        inbound = self._flow.inbound
        if inbound is not None:
            inbound.is_counted = False  # C5: promises are made for one version
        self._flow.connect()
        effects = [] if self._flow.inbound is inbound else self._greet(replica_set)
        return effects + self._flow.start() + self._flow.settled()

    def _greet(self, replica_set: ReplicaSet) -> list[Effect]:
        """Tell those who will ask where this log ends; they may have asked too early."""
        standing = self._standing
        greeting = standing.describe(Why.GREETING)
        before = replica_set.predecessor(standing.node_id)
        nodes = [] if before is None else [before]
        if standing.state is MemberState.SERVING and before != replica_set.head:
            nodes.append(replica_set.head)
        return [Send(node, greeting) for node in nodes]

    # --- a new head -------------------------------------------------------------------------

    def _recover(self) -> list[Effect]:
        """Go on with the recovery, if there is one and it can go on."""
        recovery, standing = self._recovery, self._standing
        if recovery is None:
            return []
        if recovery.source is None:
            if recovery.missing:
                return []
            recovery.choose()
        source = recovery.source
        assert source is not None
        if recovery.is_complete:
            self._flow.inbound = None
            return [AppendConfiguration(standing.members)]
        if self._flow.inbound is None:
            self._flow.inbound = Inbound(standing, source)
            return [Send(source, standing.describe(Why.PULL))]
        return []

    def _described(self, sender: NodeId, message: Described) -> list[Effect]:
        link = self._flow.link
        match message.why:
            case Why.REFUSAL:
                link = self._find_link(sender)
                return [] if link is None else link.refused(message)
            case Why.PULL:
                return self._start_pull(sender, message)
        if self._recovery is not None:
            self._recovery.answer(sender, message)
            return self._recover()
        if message.why is Why.GREETING and link is not None and link.to == sender and (
                message.committed_log >= link.peer_committed):  # else it is old news
            link.known = message
            return link.open() if link.is_started else self._flow.start()
        return []

    def _start_pull(self, sender: NodeId, message: Described) -> list[Effect]:
        standing = self._standing
        if (sender != standing.members.head or standing.state is not MemberState.SERVING
                or standing.is_current):
            return []
        self._pull = Outbound(standing, sender, is_serving=False, may_cut=True)
        self._pull.known = message
        return self._pull.open()

    # --- batches and acks -------------------------------------------------------------------

    def _appended(self) -> list[Effect]:
        if self._is_serving:
            return self._flow.settled()
        inbound = self._flow.inbound
        if inbound is not None and inbound.is_cutting:
            return [*self._flow.cut(), *self._recover()]
        return self._refresh() + self._flow.settled()

    def _refresh(self) -> list[Effect]:
        """C1: does it serve now, or may it send on?"""
        standing, flow = self._standing, self._flow
        if not standing.is_current:
            return self._recover() + flow.start()
        flow.epoch_start = standing.log.epochs()[-1][1]
        self._pull = None
        effects: list[Effect] = []
        if standing.state is MemberState.SERVING:
            self._is_serving = True
            standing.is_leading = standing.members.head == standing.node_id
            effects.append(Serve(self._is_serving, standing.is_leading))
            if self._recovery is not None and flow.link is not None:
                flow.link.known = self._recovery.find(flow.link.to)
            self._recovery = None
            standing.is_recovering = False
        return effects + flow.start()

    def _replicate(self, sender: NodeId, message: Replicate) -> list[Effect]:
        if not self._flow.comes_from(sender):
            return []
        effects = self._flow.replicate(message)
        if effects and isinstance(effects[0], Halt):
            return self._halted(effects[0].reason)
        return effects

    def _acknowledged(self, sender: NodeId, message: Ack) -> list[Effect]:
        link = self._find_link(sender)
        if link is None:
            return []
        if link is not self._pull:
            return self._flow.acknowledged(link, message)
        if not link.acknowledged(message):
            return []
        if message.end_log == self._standing.log.log_end:
            self._pull = None
            return []
        return link.pump()

    # --- the rest ---------------------------------------------------------------------------

    def _tick(self) -> list[Effect]:
        effects: list[Effect] = []
        recovery, inbound = self._recovery, self._flow.inbound
        if recovery is not None:
            effects += recovery.ask() + self._recover()
            if inbound is not None and inbound is self._flow.inbound and recovery.is_stuck:
                effects.append(Send(inbound.peer, self._standing.describe(Why.PULL)))
        if self._pull is not None:
            effects += self._pull.tick()
        return effects + self._flow.tick()

    def _unblock(self, node: NodeId) -> list[Effect]:
        link = self._find_link(node)
        if link is None:
            return []
        link.is_blocked = False
        return link.pump()

    def _peer_up(self, node: NodeId) -> list[Effect]:
        """Whatever was on its way is lost: ask again, begin a new session."""
        effects: list[Effect] = []
        if self._recovery is not None and node in self._recovery.missing:
            effects.append(Send(node, Describe(self._standing.epoch)))
        link = self._find_link(node)
        return effects if link is None else effects + link.reopen()

    def _find_link(self, node: NodeId) -> Outbound | None:
        link = self._flow.link
        if link is not None and link.to == node:
            return link
        pull = self._pull
        return pull if pull is not None and pull.to == node else None

    def _halted(self, reason: str) -> list[Effect]:
        self._halt = reason
        self._find_part()
        return [*self._stop_serving(), Halt(reason)]

    def _stop_serving(self) -> list[Effect]:
        if not self._is_serving:
            return []
        self._is_serving = self._standing.is_leading = False
        return [Serve(is_serving=False, is_leading=False)]

    def invariants(self) -> None:
        """Assert what always holds; for checkers, between two events."""
        standing = self._standing
        end, durable = standing.end, standing.durable
        assert standing.committed <= end, (standing.committed, end)  # N1
        assert standing.claimed <= durable <= end, (standing.claimed, durable, end)  # C2
        assert not self._standing.is_leading or self._is_serving
        if self._is_serving:
            assert self._is_active, self.role  # C4
            assert standing.is_current, (standing.log.last_epoch, standing.epoch)  # C1
            assert standing.state is MemberState.SERVING, standing.state
        if self._standing.is_leading:
            assert standing.members.head == standing.node_id, standing.members
        self._flow.invariants()

"""One replica of a partition: which effects each event has on it.

Its roles, and which may follow which, are a table in roles.py.

Invariants
    chain.C1  a member serves in an epoch only while its log holds that epoch's configuration: so it
              has everything that was committed before
    chain.C2  what a node acknowledges, it has, and so has every member after it that is required
    chain.C3  a batch is committed when every serving member has it; each member finds that out by
              itself, from what its predecessor sends and what its successor acknowledges
    chain.C4  a message of an older epoch has no effect; a claim of a newer one stops the replica
              until the controller has configured that epoch, or confirmed that there is none
    chain.C5  a syncing member is reported in sync only after it has all that was committed so far,
              and from then on nothing is committed without it: it may serve whenever the controller
              says so

What a driver must do
    * effects are carried out in their order before the next event is handled; after a list with
      log effects comes `LogChanged`; every `SendEntries` is followed by `EntriesSent` or
      `SendRefused`
    * a `Configured` in which this node is a member is given only if the controller listed it with
      the broker epoch of this process: a restarted node waits for a new epoch or, if it was
      syncing, for a new version
    * a node that has opened its log again waits likewise; `session` continues from where it was
    * `broker_epoch` grows with each start of the node
    * `committed` was stored at an earlier `AdvanceCommitted`; it may be old, never too new
    * clients append only while `is_leader`
"""

from typing import Final, assert_never

from quipu.chain.effects import (
    ConfirmEpoch,
    Effect,
    Halt,
    SendMessage,
    SetServing,
    WarnEpochIgnored,
)
from quipu.chain.epoch_fence import EpochFence
from quipu.chain.events import (
    ChainTick,
    Configured,
    Drained,
    EntriesSent,
    EpochConfirmed,
    Event,
    Flushed,
    LogChanged,
    PeerDown,
    PeerUp,
    Received,
    SendRefused,
)
from quipu.chain.messages import (
    BEGIN,
    FAR,
    Ack,
    DescribeLog,
    DescribeReason,
    Fenced,
    LogDescription,
    Mark,
    Message,
    Replicate,
)
from quipu.chain.outbound import Outbound
from quipu.chain.recovery import Recovery
from quipu.chain.relay import Relay
from quipu.chain.roles import Role
from quipu.chain.state import LogView, ReplicaState
from quipu.model.chains import MemberState, ReplicaSet
from quipu.model.ids import Epoch, NodeId

_NOT_SERVING: Final = frozenset({Role.NONE, Role.SYNCING})  # a new version may change these
_STOPPED: Final = frozenset({Role.FENCED, Role.HALTED})  # a new version does not change these


class Replica:
    """The state machine of one partition on one node."""

    __slots__ = ("_epoch_joined", "_fetch_outbound", "_has_syncing", "_recovery", "_relay",
                 "_state", "fence", "halt_reason")

    def __init__(
        self, node_id: NodeId, log: LogView, *, committed: Mark, broker_epoch: int,
        window_size: int, session: int = 0,
    ) -> None:
        """`session` is the last one that this process has used, if it has (chain.N3)."""
        self._state = ReplicaState(node_id, log, committed=committed, broker_epoch=broker_epoch,
                                   window_size=window_size, session=session)
        self.fence = EpochFence(self._state)
        self._epoch_joined = self._state.epoch  # the last epoch that this node took part in
        self.halt_reason = ""  # why the role is HALTED, if it is
        self._has_syncing = False
        self._relay = Relay(self._state)
        self._recovery: Recovery | None = None
        self._fetch_outbound: Outbound | None = None  # to a new head that lacks what this node has

    # --- state ------------------------------------------------------------------------------

    @property
    def epoch(self) -> Epoch:
        return self._state.epoch

    @property
    def session(self) -> int:
        """The last session that was used."""
        return self._state.session

    @property
    def replica_set(self) -> ReplicaSet | None:
        return self._state.replica_set

    @property
    def committed(self) -> Mark:
        """Up to here every serving member has the log, and always will."""
        return self._state.committed

    @property
    def role(self) -> Role:
        return self._state.role

    @property
    def is_serving(self) -> bool:
        """Whether clients may read here, below `committed`."""
        return self._state.is_serving

    @property
    def is_leader(self) -> bool:
        """Whether clients may write here."""
        return self._state.is_leader

    @property
    def relay(self) -> Relay:
        """What passes through this node: how far it and its successor lag, and what is required."""
        return self._relay

    @property
    def is_quiet(self) -> bool:
        """Whether there is nothing to repeat, so that ticks may be left out."""
        state = self._state
        if not state.is_active:
            return True
        return state.is_serving and not self._has_syncing and self._relay.is_quiet

    # --- events -----------------------------------------------------------------------------

    def handle(self, event: Event) -> list[Effect]:
        """Return the effects of `event`, and assert the invariants that it can have broken."""
        state = self._state
        role = state.role
        if isinstance(event, Received):
            effects = self._receive(event.sender, event.message)
        elif isinstance(event, EntriesSent):
            outbound = self._outbound_to(event.to)
            return [] if outbound is None or not state.is_active else outbound.sent(
                event.session, event.next_log, event.size)  # which asserts all that it can break
        elif isinstance(event, LogChanged) and state.is_serving:
            effects = self._relay.advance()
        else:
            effects = self._handle(event)
            self.invariants()
            return effects
        if state.is_serving and state.role is role:  # a batch or an ack moves offsets alone
            self._relay.offset_invariants(state.log.log_end)
        else:
            self.invariants()
        return effects

    def _handle(
        self, event: Configured | EpochConfirmed | LogChanged | Flushed | ChainTick | Drained
        | SendRefused | PeerDown | PeerUp,
    ) -> list[Effect]:
        if isinstance(event, Configured):
            return self._configure(event.replica_set)
        if isinstance(event, EpochConfirmed):
            return self._epoch_confirmed(event)
        if not self._state.is_active:
            return []
        match event:
            case LogChanged():
                return self._appended()
            case Flushed():
                return self._relay.advance()
            case ChainTick():
                return self._tick()
            case Drained(node):
                return self._unblock(node)
            case SendRefused(node) | PeerDown(node):
                outbound = self._outbound_to(node)
                if outbound is not None:
                    outbound.block()
                return []
            case PeerUp(node):
                return self._peer_up(node)
            case _:
                assert_never(event)

    def _receive(self, sender: NodeId, message: Message) -> list[Effect]:
        state = self._state
        if message.epoch != state.epoch:
            return self._of_another_epoch(sender, message)
        if not state.is_active or sender == state.node_id:
            return []
        if isinstance(message, Replicate):
            return self._replicate(sender, message)
        if isinstance(message, Ack):
            return self._acknowledged(sender, message)
        match message:
            case LogDescription():
                return self._described(sender, message)
            case DescribeLog():
                if sender != state.members.head:
                    return []
                return [SendMessage(sender, state.describe(DescribeReason.RESPONSE))]
            case Fenced():
                return []  # by the epoch that this node is in already
            case _:
                assert_never(message)

    def _of_another_epoch(self, sender: NodeId, message: Message) -> list[Effect]:
        """Fence a sender of an older epoch; be fenced by a member of a newer one (chain.C4)."""
        state = self._state
        assert message.epoch != state.epoch, (message.epoch, state.epoch)
        if message.epoch < state.epoch:
            if isinstance(message, Replicate | DescribeLog):
                return [SendMessage(sender, Fenced(state.epoch))]
            return []
        if state.replica_set is None:
            return []  # nothing is configured yet
        if not self.fence.claim(sender, message.epoch):
            return [WarnEpochIgnored(sender, message.epoch)]
        effects = [] if state.role is Role.HALTED else self._become(Role.FENCED)
        return [*effects, ConfirmEpoch()]

    def _epoch_confirmed(self, event: EpochConfirmed) -> list[Effect]:
        """Continue in this epoch, with new sessions: claims of a newer one were wrong."""
        state = self._state
        if not self.fence.lift(event) or state.role is Role.HALTED:
            return []
        assert state.role is Role.FENCED, state.role
        assert not self.fence.is_fenced
        state.become(state.first_role)
        if not state.is_active:
            return []
        members = state.members
        if self._epoch_joined != members.epoch:
            return self._join_epoch(members)
        inbound = self._relay.inbound
        self._relay.connect(same_version=True)
        effects = [] if self._relay.inbound is inbound else self._relay.announce()
        effects += self._serve_if_current()
        for outbound in (self._relay.outbound, self._fetch_outbound):
            effects += outbound.reopen() if outbound is not None else []
        return effects + self._relay.advance()

    # --- configurations ---------------------------------------------------------------------

    def _configure(self, replica_set: ReplicaSet) -> list[Effect]:
        state = self._state
        known = state.replica_set
        if known is not None and (replica_set.epoch, replica_set.version) <= (
                known.epoch, known.version):
            return []
        if replica_set.epoch < max(state.epoch, state.log.last_epoch):
            return []  # older than what this log has seen
        assert replica_set.epoch >= state.epoch, (replica_set.epoch, state.epoch)  # chain.C4
        is_new_epoch = replica_set.epoch > state.epoch
        state.replica_set = replica_set
        state.member_state = replica_set.state_of(state.node_id)
        self._has_syncing = bool(replica_set.syncing)
        effects = (self._begin_epoch if is_new_epoch else self._update_members)(replica_set)
        assert state.epoch == replica_set.epoch, (state.epoch, replica_set.epoch)  # chain.C4
        return effects

    def _begin_epoch(self, replica_set: ReplicaSet) -> list[Effect]:
        """Drop everything but the log, and begin the epoch in the role that the set gives."""
        state = self._state
        assert replica_set.epoch > state.epoch, (replica_set.epoch, state.epoch)
        assert replica_set.epoch > self._epoch_joined, (replica_set.epoch, self._epoch_joined)
        state.epoch = replica_set.epoch
        state.acknowledged = state.upstream_durable = BEGIN
        self.halt_reason = ""
        self._recovery = self._fetch_outbound = None
        self._relay = Relay(state)
        assert state.committed[0] <= state.log.log_end, state.committed  # chain.N1
        effects = self._become(Role.FENCED if self.fence.is_fenced else state.first_role)
        return effects + self._join_epoch(replica_set) if state.is_active else effects

    def _join_epoch(self, replica_set: ReplicaSet) -> list[Effect]:
        """Find the neighbours; as head, begin to recover."""
        state = self._state
        assert state.is_active, state.role
        assert replica_set.epoch > self._epoch_joined, (replica_set.epoch, self._epoch_joined)
        self._epoch_joined = replica_set.epoch
        self._relay.connect()
        if state.role is not Role.RECOVERING:
            return self._relay.announce() + self._serve_if_current()
        if state.is_current:
            return self._halted(
                f"epoch {state.epoch} has begun in this log, and another process began it; "
                "only a new epoch can go on")
        state.upstream_durable = FAR
        self._recovery = recovery = Recovery(state)
        return recovery.ask() + recovery.advance(self._relay)

    def _update_members(self, replica_set: ReplicaSet) -> list[Effect]:
        """Take a new version of the same epoch: other members may have come or gone."""
        state = self._state
        assert replica_set.epoch == state.epoch, (replica_set.epoch, state.epoch)
        assert state.members is replica_set, state.members
        effects: list[Effect] = []
        if state.role not in _STOPPED and (
                state.role in _NOT_SERVING or state.member_state is not MemberState.SERVING):
            effects = self._become(state.first_role)
        if not state.is_active:
            self._fetch_outbound = None
            self._relay = Relay(state)
            return effects
        inbound = self._relay.inbound
        if inbound is not None:
            inbound.is_required = False  # chain.C5: that was said for one version
        self._relay.connect()
        effects += [] if self._relay.inbound is inbound else self._relay.announce()
        return effects + self._relay.start() + self._relay.advance()

    # --- a new head -------------------------------------------------------------------------

    def _recover(self) -> list[Effect]:
        """Take the next step of the recovery, if there is one."""
        assert not self._state.is_serving, self._state.role
        return [] if self._recovery is None else self._recovery.advance(self._relay)

    def _described(self, sender: NodeId, message: LogDescription) -> list[Effect]:
        """Take in where the log of `sender` ends; `message.reason` says why it was sent."""
        assert message.epoch == self._state.epoch, (message.epoch, self._state.epoch)  # chain.C4
        match message.reason:
            case DescribeReason.REJECTION:
                rejected = self._outbound_to(sender)
                return [] if rejected is None else rejected.rejected(message)
            case DescribeReason.FETCH:
                return self._start_fetch(sender, message)
        if self._recovery is not None:
            self._recovery.described(sender, message)
            return self._recover()
        outbound = self._relay.outbound
        if message.reason is not DescribeReason.ANNOUNCEMENT or (
                outbound is None or outbound.to != sender):
            return []
        if message.committed_log < outbound.peer_committed:
            return []  # older than what the successor has acknowledged
        outbound.description = message
        return outbound.open() if outbound.is_started else self._relay.start()

    def _start_fetch(self, sender: NodeId, message: LogDescription) -> list[Effect]:
        """Send the new head what it lacks of this log, which it has chosen (chain.R2)."""
        state = self._state
        if (sender != state.members.head or state.member_state is not MemberState.SERVING
                or state.is_current):
            return []
        assert not state.is_serving, state.role
        assert state.is_active, state.role
        self._fetch_outbound = Outbound(state, sender, is_serving=False, may_truncate=True)
        self._fetch_outbound.description = message
        return self._fetch_outbound.open()

    # --- batches and acks -------------------------------------------------------------------

    def _appended(self) -> list[Effect]:
        """Note that the log of a member that does not serve has changed."""
        assert not self._state.is_serving, self._state.role
        inbound = self._relay.inbound
        if inbound is not None and inbound.is_truncating:
            return [*self._relay.truncated(), *self._recover()]
        return self._serve_if_current() + self._relay.advance()

    def _serve_if_current(self) -> list[Effect]:
        """Lead or follow, and send on, if the log holds the epoch's configuration (chain.C1)."""
        state, relay = self._state, self._relay
        assert state.is_active, state.role
        assert not state.is_serving, state.role
        if not state.is_current:
            return self._recover() + relay.start()
        epoch, relay.epoch_start = state.log.epochs()[-1]
        assert epoch == state.epoch, (epoch, state.epoch)  # chain.C1
        assert relay.epoch_start <= state.log.log_end, relay.epoch_start
        self._fetch_outbound = None
        effects: list[Effect] = []
        if state.member_state is MemberState.SERVING:
            effects = self._become(Role.LEADING if state.is_recovering else Role.FOLLOWING)
            if self._recovery is not None and relay.outbound is not None:
                relay.outbound.description = self._recovery.find(relay.outbound.to)
            self._recovery = None
        return effects + relay.start()

    def _replicate(self, sender: NodeId, message: Replicate) -> list[Effect]:
        if not self._relay.comes_from(sender):
            return []
        effects = self._relay.replicate(message)
        if effects and isinstance(effects[0], Halt):
            return self._halted(effects[0].reason)
        return effects

    def _acknowledged(self, sender: NodeId, message: Ack) -> list[Effect]:
        outbound = self._outbound_to(sender)
        if outbound is None:
            return []
        if outbound is not self._fetch_outbound:
            return self._relay.acknowledged(outbound, message)
        assert not self._state.is_serving, self._state.role
        if not outbound.acknowledged(message):
            return []
        if message.end_log == self._state.log.log_end:
            self._fetch_outbound = None
            return []
        return outbound.send_entries()

    # --- the rest ---------------------------------------------------------------------------

    def _tick(self) -> list[Effect]:
        assert self._state.is_active, self._state.role
        effects = [] if self._recovery is None else self._recovery.tick(self._relay)
        if self._fetch_outbound is not None:
            effects += self._fetch_outbound.tick()
        return effects + self._relay.tick()

    def _unblock(self, node: NodeId) -> list[Effect]:
        outbound = self._outbound_to(node)
        if outbound is None:
            return []
        outbound.is_blocked = False
        return outbound.send_entries()

    def _peer_up(self, node: NodeId) -> list[Effect]:
        """Ask again, and open a new session: what was on its way may be lost."""
        effects: list[Effect] = []
        if self._recovery is not None and node in self._recovery.missing:
            effects.append(SendMessage(node, DescribeLog(self._state.epoch)))
        outbound = self._outbound_to(node)
        return effects if outbound is None else effects + outbound.reopen()

    def _outbound_to(self, node: NodeId) -> Outbound | None:
        outbound = self._relay.outbound
        if outbound is not None and outbound.to == node:
            return outbound
        outbound = self._fetch_outbound
        return outbound if outbound is not None and outbound.to == node else None

    def _halted(self, reason: str) -> list[Effect]:
        assert reason
        assert not self._state.is_leader, reason  # it has all that is committed
        assert not self.fence.is_fenced, reason  # chain.C4
        self.halt_reason = reason
        return [*self._become(Role.HALTED), Halt(reason)]

    def _become(self, role: Role) -> list[Effect]:
        """Change the role (chain.T1); return an effect if that changes what clients may do."""
        state = self._state
        was_serving, was_leader = state.is_serving, state.is_leader
        state.become(role)
        assert state.is_serving or not state.is_leader, role
        if (state.is_serving, state.is_leader) == (was_serving, was_leader):
            return []
        return [SetServing(state.is_serving, state.is_leader)]

    def invariants(self) -> None:
        """Assert what holds between two events; called after each but batches and acks."""
        state, recovery = self._state, self._recovery
        log_end = state.log.log_end
        state.invariants(log_end)
        self._relay.invariants(log_end)
        assert self.fence.newest_epoch <= state.epoch or not state.is_active, state.role  # chain.C4
        if state.is_serving:
            assert recovery is None, state.role  # chain.T1
            assert self._fetch_outbound is None, state.role  # chain.R2
            return
        assert not state.is_recovering or recovery is not None, state.role
        assert (state.role is Role.HALTED) == bool(self.halt_reason), self.halt_reason
        assert self._epoch_joined <= state.epoch, (self._epoch_joined, state.epoch)
        if recovery is not None:
            recovery.invariants()
        if self._fetch_outbound is not None:
            self._fetch_outbound.invariants(log_end)

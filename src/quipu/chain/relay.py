"""What passes through a node: batches from its predecessor to its successor, and acks back.

This module keeps chain.C2, chain.C3 and chain.C5 (replica.py).  Why chain.C5 holds: every batch
committed in this epoch was acknowledged by the last serving member, and older ones lie before the
epoch's configuration.  The last serving member first stops acknowledging more than the syncing
member has (its Ack is required).  It waits until the syncing member has all that was acknowledged
(it is in sync, and reported), and goes on requiring its Ack until the version changes, which shows
that the report came too late.
"""

from typing import Final

from quipu.chain.effects import AdvanceCommitted, Effect, ReportInSync, SendMessage
from quipu.chain.inbound import Inbound
from quipu.chain.messages import BEGIN, Ack, DescribeReason, Replicate
from quipu.chain.outbound import Outbound
from quipu.chain.state import SERVING_MEMBER, ReplicaState
from quipu.model.chains import MemberState
from quipu.model.ids import LogOffset, NodeId

HELD_TICKS_MAX: Final = 5  # commits wait no longer for a member that does not catch up


class Relay:
    """Receives from the predecessor of a node and sends to its successor."""

    __slots__ = ("_state", "epoch_start", "inbound", "outbound")

    def __init__(self, state: ReplicaState) -> None:
        self._state = state
        self.epoch_start = LogOffset(0)  # of this epoch's configuration, once it is in the log
        self.inbound: Inbound | None = None  # from the predecessor
        self.outbound: Outbound | None = None  # to the successor

    def connect(self, *, same_version: bool = False) -> None:
        """Find predecessor and successor; start over with a syncing one, which may have restarted.

        In the same version it has not, and may have been reported: it is required as before.
        """
        state = self._state
        members = state.members
        assert state.is_active, state.role
        before = members.predecessor(state.node_id)
        if before is not None and (self.inbound is None or self.inbound.peer != before):
            self.inbound = Inbound(state, before)
        after = members.successor(state.node_id)
        if after is None:
            self.outbound = None
            return
        is_serving = members.state_of(after) is MemberState.SERVING
        if self.outbound is None or self.outbound.to != after or not (is_serving or same_version):
            self.outbound = Outbound(state, after, is_serving=is_serving)
        assert self.outbound.is_serving == is_serving, after  # chain.C2: the epoch has not changed

    def start(self) -> list[Effect]:
        """Begin to send to the successor, if this node may and has not begun.

        A serving member may once it has the epoch's configuration: before, its successor may have
        the longer log.  A syncing one may once its own log continues its predecessor's.
        """
        outbound, inbound = self.outbound, self.inbound
        if outbound is None or outbound.is_started:
            return []
        assert self._state.is_active, self._state.role
        if self._state.is_current or (
                self._state.member_state is MemberState.SYNCING
                and inbound is not None and inbound.is_open):
            return outbound.open()
        return []

    def announce(self) -> list[Effect]:
        """Send predecessor and head where this log ends; they may have asked too early for it."""
        state = self._state
        assert state.is_active, state.role
        announcement = state.describe(DescribeReason.ANNOUNCEMENT)
        head, before = state.members.head, state.members.predecessor(state.node_id)
        assert before != state.node_id, before
        nodes = [] if before is None else [before]
        if state.member_state is MemberState.SERVING and before != head:
            nodes.append(head)
        return [SendMessage(node, announcement) for node in nodes]

    # --- batches and acks -------------------------------------------------------------------

    def replicate(self, message: Replicate) -> list[Effect]:
        """Take in a message of the predecessor; acknowledge it and relay what it says."""
        inbound, outbound = self.inbound, self.outbound
        assert inbound is not None
        effects, wants_ack = inbound.replicate(message)
        if inbound.session and not self._state.is_recovering:
            self._state.upstream_durable = inbound.durable
        if not wants_ack:
            return effects
        effects += self._advance_committed()
        effects.append(inbound.ack())
        if outbound is not None:
            effects += outbound.send_durable() if outbound.is_started else self.start()
        return effects

    def acknowledged(self, outbound: Outbound, ack: Ack) -> list[Effect]:
        """Take in an Ack of the successor."""
        assert outbound is self.outbound, outbound.to
        if not outbound.acknowledged(ack):
            return []
        return self._check_in_sync(outbound) + self.advance()

    def advance(self) -> list[Effect]:
        """Update what is acknowledged and committed, and send it to both neighbours."""
        inbound, outbound, state = self.inbound, self.outbound, self._state
        acknowledged = state.acknowledged
        effects = self._advance_committed()
        if inbound is not None and inbound.session and (
                state.acknowledged is not acknowledged or inbound.is_ack_due):
            effects.append(inbound.ack())
        if outbound is not None:
            effects += outbound.send_entries() or outbound.send_durable()
        return effects

    def _advance_committed(self) -> list[Effect]:
        """Advance what this node acknowledges, and what it knows to be committed."""
        state, inbound, outbound = self._state, self.inbound, self.outbound
        committed = BEGIN
        if inbound is None:
            if not state.is_leader:
                return []
        elif inbound.session and not state.is_recovering:
            committed = min(inbound.committed, state.end)
        else:
            return []
        end, acknowledged = state.durable, state.acknowledged
        if outbound is not None and outbound.is_required and outbound.acked < end:  # chain.C2
            end = outbound.acked
        if end > acknowledged:  # chain.N2
            state.acknowledged = acknowledged = end
        if state.member_state is SERVING_MEMBER:
            committed = max(committed, min(acknowledged, state.upstream_durable))  # chain.C3
        if committed <= state.committed:  # chain.N1
            return []
        assert committed[0] <= state.log.log_end, (committed, state.log.log_end)  # chain.N1
        state.committed = committed
        return [AdvanceCommitted(committed)]

    def truncated(self) -> list[Effect]:
        """Start over with the successor: it may have batches that were truncated here."""
        inbound, outbound = self.inbound, self.outbound
        assert inbound is not None
        assert not self._state.is_serving, self._state.role  # chain.I5
        if outbound is not None:
            self.outbound = Outbound(self._state, outbound.to, is_serving=outbound.is_serving)
        return inbound.truncated()

    # --- a member that catches up -----------------------------------------------------------

    def _check_in_sync(self, outbound: Outbound) -> list[Effect]:
        """Require a syncing member once it is close, report it once it is in sync (chain.C5)."""
        state, inbound = self._state, self.inbound
        assert outbound is self.outbound, outbound.to
        if outbound.is_reported or outbound.is_serving or not state.is_current:
            return []
        if state.member_state is not SERVING_MEMBER and not (
                inbound is not None and inbound.is_required):
            return []
        if not outbound.is_required:
            if not outbound.has_sent_all:
                return []
            assert not outbound.is_serving, outbound.to
            outbound.is_required = True
            outbound.held_ticks = 0
        if outbound.acked < state.acknowledged or outbound.acked.log <= self.epoch_start:
            return []
        assert outbound.is_required, outbound.to  # chain.C5
        outbound.is_reported = True
        return [ReportInSync(outbound.to, state.members.version)]

    def _limit_hold(self, outbound: Outbound) -> list[Effect]:
        """At each tick, repeat the report, or stop requiring a member that is too slow."""
        assert outbound is self.outbound, outbound.to
        assert outbound.held_ticks <= HELD_TICKS_MAX + 1, outbound.held_ticks
        if outbound.is_reported:
            return [ReportInSync(outbound.to, self._state.members.version)]
        if outbound.is_required and not outbound.is_serving:
            outbound.held_ticks += 1
            if outbound.held_ticks > HELD_TICKS_MAX:
                outbound.is_required = False
        return []

    # --- the rest ---------------------------------------------------------------------------

    def tick(self) -> list[Effect]:
        """Send again what may have been lost."""
        effects: list[Effect] = []
        inbound, outbound = self.inbound, self.outbound
        if inbound is not None and inbound.is_open and not self.is_quiet:
            effects.append(inbound.ack())  # V9: also on an interval
        if outbound is not None:
            effects += self._limit_hold(outbound)
            effects += outbound.tick() if outbound.is_started else self.start()
        return effects

    @property
    def lag(self) -> int:
        """Log offsets that the predecessor has and this node lacks, as last heard."""
        inbound = self.inbound
        return 0 if inbound is None else max(0, inbound.sender_end - self._state.log.log_end)

    @property
    def successor_lag(self) -> int:
        """Log offsets that this node has and the successor has not acknowledged."""
        outbound = self.outbound
        return 0 if outbound is None else max(0, self._state.log.log_end - outbound.acked.log)

    @property
    def in_flight_size(self) -> int:
        """Bytes that were sent to the successor and are not known to have arrived."""
        return 0 if self.outbound is None else self.outbound.in_flight_size

    @property
    def is_catching_up(self) -> bool:
        """Whether this node syncs and lacks records, and no commit waits for its Ack."""
        inbound = self.inbound
        return (self._state.member_state is MemberState.SYNCING and inbound is not None
                and not inbound.is_required and inbound.sender_end > self._state.log.log_end)

    def catches_up(self, node: NodeId) -> bool:
        """Whether `node` is the successor, and no commit waits for its Ack."""
        outbound = self.outbound
        return outbound is not None and not outbound.is_required and outbound.to == node

    @property
    def is_quiet(self) -> bool:
        """Whether every member has everything, as far as this node can know."""
        if self.outbound is not None and not self.outbound.is_quiet:
            return False
        state = self._state
        return (self.inbound is None
                or state.acknowledged.log == state.committed.log == state.log.log_end)

    def comes_from(self, sender: NodeId) -> bool:
        """Whether `sender` is the node that this one receives the log from."""
        return self.inbound is not None and self.inbound.peer == sender

    def offset_invariants(self, log_end: LogOffset) -> None:
        """Assert what a batch or an acknowledgement could break, while the log ends at `log_end`.

        It is called for each of them, so it is short.
        """
        state, outbound = self._state, self.outbound
        assert state.committed[0] <= log_end, (state.committed, log_end)  # chain.N1
        assert state.acknowledged[0] <= log_end, (state.acknowledged, log_end)  # chain.C2
        if outbound is not None:
            outbound.offset_invariants(log_end)

    def invariants(self, log_end: LogOffset) -> None:
        """Assert what holds between two events, while the log ends at `log_end`."""
        inbound, outbound = self.inbound, self.outbound
        if inbound is not None:
            inbound.invariants()
            assert not self._state.is_leader, self._state.role
        if outbound is not None:
            outbound.invariants(log_end)

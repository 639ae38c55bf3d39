"""What passes through a node: batches from the one before to the one after, and acks back.

Invariants (C numbers: replica.py)
    C2  what a node acknowledges, it has, and so has everybody after it who is counted
    C3  committed: everybody before, this node, and everybody after has it; each member finds that
        out by itself, from what is sent down and what is acknowledged up
    C5  a syncing member is reported only after it has all that was committed so far, and from then
        on nothing is committed without it: it may serve whenever the controller says so

Why C5 holds: everything committed in this epoch was claimed by the last serving member, and
everything older lies before the epoch's configuration.  That member first stops claiming more than
the syncing one has (it is counted), waits until it has all that was claimed (it is reported), and
goes on counting it until the version changes, which tells that the report came too late.
"""

from typing import Final

from quipu.chain.effects import Advance, Effect, ReportInSync
from quipu.chain.inbound import Inbound
from quipu.chain.messages import BEGIN, Ack, Replicate
from quipu.chain.outbound import Outbound
from quipu.chain.standing import Standing
from quipu.model.chains import MemberState
from quipu.model.ids import LogOffset, NodeId

HELD_TICKS_MAX: Final = 5  # a member that does not catch up so fast holds up nobody any longer


class Flow:
    """The two neighbours of a node, and what they know of each other through it."""

    __slots__ = ("_standing", "epoch_start", "inbound", "link")

    def __init__(self, standing: Standing) -> None:
        self._standing = standing
        self.epoch_start = LogOffset(0)  # of this epoch's configuration, once it is in the log
        self.inbound: Inbound | None = None  # from the node before
        self.link: Outbound | None = None  # to the node after

    def connect(self, *, same_version: bool = False) -> None:
        """Find the neighbours; whoever is syncing may be in a new life, so begins anew.

        In the same version it is not, and may have been reported: it counts as before (C5).
        """
        standing = self._standing
        members = standing.members
        before = members.predecessor(standing.node_id)
        if before is not None and (self.inbound is None or self.inbound.peer != before):
            self.inbound = Inbound(standing, before)
        after = members.successor(standing.node_id)
        if after is None:
            self.link = None
            return
        is_serving = members.state_of(after) is MemberState.SERVING
        if self.link is None or self.link.to != after or not (is_serving or same_version):
            self.link = Outbound(standing, after, is_serving=is_serving)

    def start(self) -> list[Effect]:
        """Begin to send, if this node has the right to and has not begun.

        A serving member has it once it has the epoch's configuration: before, the node after it
        may have the longer log.  A syncing one has it once its own log continues the chain's.
        """
        link, inbound = self.link, self.inbound
        if link is None or link.is_started:
            return []
        if self._standing.is_current or (
                self._standing.state is MemberState.SYNCING
                and inbound is not None and inbound.is_open):
            return link.open()
        return []

    # --- batches and acks -------------------------------------------------------------------

    def replicate(self, message: Replicate) -> list[Effect]:
        inbound, link = self.inbound, self.link
        assert inbound is not None
        effects, wants_ack = inbound.replicate(message)
        if inbound.is_open and not self._standing.is_recovering:
            self._standing.upstream = inbound.durable
        if not wants_ack:
            return effects
        effects += self._settle()
        effects.append(inbound.ack())
        if link is not None:
            effects += link.tell() if link.is_started else self.start()
        return effects

    def acknowledged(self, link: Outbound, ack: Ack) -> list[Effect]:
        if not link.acknowledged(ack):
            return []
        return self._weigh(link) + self.settled()

    def settled(self) -> list[Effect]:
        """Something has moved: find out what is committed, and pass it on, up and down."""
        inbound, link, standing = self.inbound, self.link, self._standing
        claimed = standing.claimed
        effects = self._settle()
        if inbound is not None and inbound.is_open and (
                standing.claimed is not claimed or inbound.is_ack_due):
            effects.append(inbound.ack())
        if link is not None:
            effects += link.pump() or link.tell()
        return effects

    def _settle(self) -> list[Effect]:
        standing, inbound, link = self._standing, self.inbound, self.link
        committed = BEGIN
        if inbound is None:
            if not standing.is_leading:
                return []
        elif inbound.is_open and not standing.is_recovering:
            committed = min(inbound.committed, standing.end)
        else:
            return []
        claim = standing.durable
        if link is not None and link.is_counted and link.acked < claim:  # C2
            claim = link.acked
        standing.claimed = max(standing.claimed, claim)  # N2
        if standing.state is MemberState.SERVING:
            committed = max(committed, min(standing.claimed, standing.upstream))  # C3
        if committed <= standing.committed:  # N1
            return []
        standing.committed = committed
        return [Advance(committed)]

    def cut(self) -> list[Effect]:
        """The log has been cut: what was sent on from it is worth nothing."""
        inbound, link = self.inbound, self.link
        assert inbound is not None
        if link is not None:
            self.link = Outbound(self._standing, link.to, is_serving=link.is_serving)
        return inbound.changed()

    # --- a member that catches up -----------------------------------------------------------

    def _weigh(self, link: Outbound) -> list[Effect]:
        """C5: count a syncing member once it is close, report it once it has everything."""
        standing, inbound = self._standing, self.inbound
        if link.is_reported or link.is_serving or not standing.is_current:
            return []
        if standing.state is not MemberState.SERVING and not (
                inbound is not None and inbound.is_counted):
            return []
        if not link.is_counted:
            if not link.has_sent_all:
                return []
            link.is_counted = True
            link.held_ticks = 0
        if link.acked < standing.claimed or link.acked.log <= self.epoch_start:
            return []
        link.is_reported = True
        return [ReportInSync(link.to, standing.members.version)]

    def _hold(self, link: Outbound) -> list[Effect]:
        """At each tick: repeat the report, or stop holding up others for one that is too slow."""
        if link.is_reported:
            return [ReportInSync(link.to, self._standing.members.version)]
        if link.is_counted and not link.is_serving:
            link.held_ticks += 1
            if link.held_ticks > HELD_TICKS_MAX:
                link.is_counted = False
        return []

    # --- the rest ---------------------------------------------------------------------------

    def tick(self) -> list[Effect]:
        effects: list[Effect] = []
        inbound, link = self.inbound, self.link
        if inbound is not None and inbound.is_open and not self.is_quiet:
            effects.append(inbound.ack())  # V9: also on an interval
        if link is not None:
            effects += self._hold(link) + (link.tick() if link.is_started else self.start())
        return effects

    @property
    def is_quiet(self) -> bool:
        """Does everybody have everything, as far as this node can know?"""
        if self.link is not None and not self.link.is_quiet:
            return False
        standing = self._standing
        return (self.inbound is None
                or standing.claimed.log == standing.committed.log == standing.log.log_end)

    def comes_from(self, sender: NodeId) -> bool:
        return self.inbound is not None and self.inbound.peer == sender

    def invariants(self) -> None:
        """Assert what always holds; for checkers."""
        link, log_end = self.link, self._standing.log.log_end
        if link is not None:
            assert link.acked.log <= log_end, (link.acked, log_end)
            assert link.next_log <= log_end, (link.next_log, log_end)  # O1
            assert link.is_counted or not link.is_reported, link.to  # C5

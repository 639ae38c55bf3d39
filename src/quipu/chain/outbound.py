"""Sending the log to one other node: the successor, or a new head that lacks something.

    WAITING    nothing is sent until a tick, or until the other node describes its log
    PROBING    the first message of a session was sent; the response says where the other log ends
    STREAMING  batches are sent as they come in, as far as the window has room

Invariants
    chain.O1  within a session every message continues the one before: next_log only grows
    chain.O2  acked <= what the other has acknowledged in this session; a new one starts at nothing
    chain.O3  bytes that were sent and are not known to have arrived are below the window when more
              is sent, so they exceed it by one message at most
    chain.O4  a log is truncated or replaced only by a member that has this epoch's configuration,
              or by a source that a new head has chosen; and never because it is merely longer
"""

from collections import deque
from enum import Enum
from typing import Final

from quipu.chain.effects import Effect, SendEntries, SendMessage
from quipu.chain.history import epoch_before, find_opening
from quipu.chain.messages import (
    BEGIN,
    OPEN,
    REQUIRED,
    RESTART,
    Ack,
    LogDescription,
    Mark,
    Replicate,
)
from quipu.chain.state import ReplicaState
from quipu.model.ids import NO_EPOCH, Epoch, LogOffset, NodeId

SEND_SIZE_MAX: Final = 1 << 20  # bytes of one message, unless a single batch is larger
_NOWHERE: Final = LogOffset(-1)


class Phase(Enum):
    """How far a session is."""

    WAITING = "waiting"
    PROBING = "probing"
    STREAMING = "streaming"


_STREAMING: Final = Phase.STREAMING  # the enum's own lookup costs more than the comparison


class Outbound:
    """What was sent to one node, and what it has acknowledged."""

    __slots__ = ("_durable_sent", "_flags", "_history", "_history_epoch", "_in_flight",
                 "_is_sending", "_may_truncate", "_other_end", "_rejected_at", "_state", "acked",
                 "description", "held_ticks", "in_flight_size", "is_blocked", "is_reported",
                 "is_required", "is_serving", "is_started", "next_log", "peer_committed",
                 "peer_end", "phase", "session", "to")

    def __init__(
        self, state: ReplicaState, to: NodeId, *, is_serving: bool, may_truncate: bool = False
    ) -> None:
        assert to != state.node_id, to
        self._state = state
        self.to = to
        self.is_serving = is_serving  # the other node
        self.is_required = is_serving  # does this node acknowledge only what the other has acked?
        self.is_reported = False  # was the other reported to the controller as in sync?
        self.held_ticks = 0  # since the other is required without being in sync
        self._may_truncate = may_truncate  # chain.O4
        self.is_started = False  # has this node begun to send to the other?
        self.description: LogDescription | None = None
        self.phase = Phase.WAITING
        self.is_blocked = False
        self._is_sending = False  # is the result of a SendEntries due?
        self.session = 0
        self.next_log = LogOffset(0)
        self.acked = BEGIN
        self.peer_end = LogOffset(0)
        self.peer_committed = LogOffset(0)
        self.in_flight_size = 0
        self._in_flight: deque[tuple[LogOffset, int]] = deque()
        self._flags = 0  # of the next message
        self._other_end = LogOffset(0)  # the other log's end when a truncation was last sent
        self._rejected_at = _NOWHERE
        self._durable_sent = BEGIN
        self._history: list[tuple[Epoch, LogOffset]] = []
        self._history_epoch = NO_EPOCH

    def offset_invariants(self, log_end: LogOffset) -> None:
        """Assert what a batch or an Ack could break, while the log ends at `log_end`."""
        next_log, peer_end = self.next_log, self.peer_end
        assert next_log <= log_end, (next_log, log_end)  # chain.O1
        assert peer_end <= next_log, (peer_end, next_log)  # chain.O2
        assert self.acked[0] <= peer_end, (self.acked, peer_end)  # chain.O2

    def invariants(self, log_end: LogOffset) -> None:
        """Assert what holds between two events, while the log ends at `log_end`."""
        self.offset_invariants(log_end)
        assert self.in_flight_size >= 0, self.in_flight_size  # chain.O3
        assert self._in_flight or not self.in_flight_size, self.in_flight_size  # chain.O3
        assert self.session or self.phase is Phase.WAITING, self.phase  # chain.N3
        assert self.is_required or not self.is_serving, self.to  # chain.C2
        assert self.is_required or not self.is_reported, self.to  # chain.C5

    # --- sessions ---------------------------------------------------------------------------

    def open(self) -> list[Effect]:
        """Open a session where the other log is known to end, or probe for it."""
        assert self._state.is_active, self._state.role
        self.is_started = True
        if self.description is not None:
            return self._open_at(self.description)
        self._begin(self._state.log.log_end, OPEN, Phase.PROBING)
        return [SendMessage(self.to, self._message())]

    def reopen(self) -> list[Effect]:
        """Open a new session, if sending has begun: what was sent may be lost."""
        self.is_blocked = False
        if not self.is_started:
            return []
        self.description = None
        return self.open()

    def _open_at(self, other: LogDescription) -> list[Effect]:
        assert other.epoch == self._state.epoch, (other.epoch, self._state.epoch)  # chain.C4
        assert self.is_started, self.to
        opening = find_opening(self._state.log, other)
        if opening is None or (
                opening.is_destructive and not other.is_empty
                and not self._may_truncate and not self._state.is_current):
            self.phase = Phase.WAITING  # chain.O4: the other log has more, or may have
            return []
        if opening.is_destructive:
            self._other_end = other.log_end
            self._begin(opening.start, opening.flags, Phase.PROBING)
            return self._probe()
        self._begin(opening.start, opening.flags, Phase.STREAMING)
        return self.send_entries() or [self._heartbeat()]

    def _begin(self, next_log: LogOffset, flags: int, phase: Phase) -> None:
        log = self._state.log
        assert next_log >= log.log_start, (next_log, log.log_start)
        assert next_log <= log.log_end, (next_log, log.log_end)  # chain.O1
        before = self.session
        self.session = self._state.next_session()
        assert self.session > before, (self.session, before)  # chain.N3
        self.next_log = next_log
        self._flags = flags
        self.phase = phase
        self.acked = BEGIN  # chain.O2
        self.peer_end = LogOffset(0)
        self.in_flight_size = 0
        self._in_flight.clear()
        self._is_sending = False

    def _probe(self) -> list[Effect]:
        if self._flags & RESTART:
            return [SendEntries(self.to, self.next_log, SEND_SIZE_MAX, self._message())]
        return [SendMessage(self.to, self._message())]

    def rejected(self, other: LogDescription) -> list[Effect]:
        """Go back to where the other log ends: what was sent does not continue it (V11).

        After a second rejection at the same end it waits for a tick: else two nodes of which one
        cannot write would keep each other busy.
        """
        if other.session != self.session or not self.is_started:
            return []  # chain.O2
        self.description = other
        if other.log_end == self._rejected_at:
            self.phase = Phase.WAITING
            return []
        self._rejected_at = other.log_end
        return self._open_at(other)

    def acknowledged(self, ack: Ack) -> bool:
        """Take in an Ack; return False if it is not of this session."""
        if ack.session != self.session:
            return False  # chain.O2
        if ack.end_log > self.next_log:
            return False  # nothing that this session has sent
        self.phase = _STREAMING
        self._flags = 0
        if ack.end_log > self.peer_end:
            self.peer_end = ack.end_log
            self._rejected_at = _NOWHERE
            in_flight = self._in_flight
            while in_flight and in_flight[0][0] <= ack.end_log:
                self.in_flight_size -= in_flight.popleft()[1]
            assert self.in_flight_size >= 0, self.in_flight_size  # chain.O3
        self.acked = max(self.acked, ack.acked)
        assert self.acked[0] <= self.peer_end, (self.acked, self.peer_end)  # chain.O2
        self.peer_committed = ack.committed_log
        return True

    # --- batches ----------------------------------------------------------------------------

    def send_entries(self) -> list[Effect]:
        """Send the next entries, if there are any and the window has room."""
        if self.phase is not _STREAMING or self.is_blocked or self._is_sending:
            return []
        log = self._state.log
        room = self._state.window_size - self.in_flight_size
        if self.next_log >= log.log_end or room <= 0:  # chain.O3
            return []
        if self.next_log < log.log_start:  # retention was faster
            self.description = None
            return self.open()
        self._is_sending = True
        return [SendEntries(self.to, self.next_log, min(room, SEND_SIZE_MAX), self._message())]

    def sent(self, session: int, next_log: LogOffset, size: int) -> list[Effect]:
        """Note that entries up to `next_log` are on their way, and send more."""
        if session != self.session or self.phase is not _STREAMING:
            return []
        self._is_sending = False
        assert self.next_log <= next_log <= self._state.log.log_end, next_log  # chain.O1
        assert size >= 0, size  # chain.O3
        if next_log == self.next_log:
            self.is_blocked = True  # nothing could be read: a tick tries again
            return []
        self.next_log = next_log
        self._flags = 0
        self._in_flight.append((next_log, size))
        self.in_flight_size += size
        return self.send_entries()

    def block(self) -> None:
        """Send nothing until a tick, or until the peer is up or drained."""
        assert self._state.is_active, self._state.role
        self.is_blocked = True
        self._is_sending = False

    def send_durable(self) -> list[Effect]:
        """Send what has become durable before this node, if no batch has carried it."""
        if (self.phase is not _STREAMING or self.is_blocked or self._is_sending
                or self._durable() <= self._durable_sent):
            return []
        return [self._heartbeat()]

    def tick(self) -> list[Effect]:
        """Send again what may have been lost."""
        if not self.is_started:
            return []
        self.is_blocked = self._is_sending = False
        self._rejected_at = _NOWHERE
        match self.phase:
            case Phase.WAITING:
                return self.open()
            case Phase.PROBING if self.next_log >= self._state.log.log_start:
                return self._probe()
            case Phase.PROBING:
                return self.open()  # retention was faster
            case Phase.STREAMING:
                return self.send_entries() or ([] if self.is_quiet else [self._heartbeat()])

    @property
    def is_quiet(self) -> bool:
        """Whether the other serves and has acknowledged everything."""
        state = self._state
        return (self.phase is _STREAMING and self.is_serving
                and self.acked.log == self.next_log == state.log.log_end
                and self.peer_committed == state.committed.log
                and self._durable() == self._durable_sent)

    @property
    def has_sent_all(self) -> bool:
        """Whether all of the log was sent."""
        return (self.phase is _STREAMING and not self.is_blocked
                and self.next_log == self._state.log.log_end)

    # --- the message ------------------------------------------------------------------------

    def _heartbeat(self) -> Effect:
        """Return a message without batches; it says where the next batch belongs (V11)."""
        return SendMessage(self.to, self._message())

    def _message(self) -> Replicate:
        state, next_log = self._state, self.next_log
        log_end = state.log.log_end
        assert self.session > 0, self.to  # chain.N3
        assert next_log <= log_end, (next_log, log_end)  # chain.O1
        self._durable_sent = durable = self._durable()
        flags = self._flags | REQUIRED if self.is_reported else self._flags
        return Replicate(
            state.epoch, state.members.version, flags, self.session, next_log,
            self._prev_epoch(), durable, state.committed, log_end, self._other_end, ())

    def _durable(self) -> Mark:
        """Return how far this node and every member before it has the log."""
        state = self._state
        return min(state.durable, state.upstream_durable)

    def _prev_epoch(self) -> Epoch:
        log = self._state.log
        last_epoch = log.last_epoch
        if last_epoch != self._history_epoch or not self._history:
            self._history = log.epochs()
            self._history_epoch = last_epoch
        history = self._history
        if history and history[-1][1] < self.next_log:
            return history[-1][0]  # the usual case: only this epoch's batches are new
        return epoch_before(history, self.next_log)

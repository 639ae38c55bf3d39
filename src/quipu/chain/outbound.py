"""Sending the log to one other node: the next of the chain, or a new head that lacks something.

    WAITING    it is not yet time to send: until a tick, or until more is known
    PROBING    the first message of a session was sent; its answer tells where the other stands
    STREAMING  batches go out as they come in, as far as the window lets them

Invariants
    O1  within a session every message continues the one before: next_log only grows
    O2  acked <= what the other has told in this session; a new session starts with nothing
    O3  bytes that were sent and not yet said to have arrived are below the window when more is
        sent, so they exceed it by one message at most
    O4  a log is cut, or made to begin anew, only by whoever has this epoch's configuration, or by
        a source that a new head has chosen; and never because it is merely longer
"""

from collections import deque
from enum import Enum
from typing import Final

from quipu.chain.effects import Effect, Send, SendEntries
from quipu.chain.history import epoch_before, find_opening
from quipu.chain.messages import BEGIN, COUNTED, OPEN, RESTART, Ack, Described, Mark, Replicate
from quipu.chain.standing import Standing
from quipu.model.ids import NO_EPOCH, Epoch, LogOffset, NodeId

SEND_SIZE_MAX: Final = 1 << 20  # bytes of one message, unless a single batch is larger
_NOWHERE: Final = LogOffset(-1)


class Phase(Enum):
    """See the module."""

    WAITING = "waiting"
    PROBING = "probing"
    STREAMING = "streaming"


class Outbound:
    """What was sent to one node, and what it said to it."""

    __slots__ = ("_flags", "_history", "_history_epoch", "_in_flight", "_is_sending", "_may_cut",
                 "_other_end", "_refused_at", "_standing", "_told", "acked", "held_ticks",
                 "in_flight_size", "is_blocked", "is_counted", "is_reported", "is_serving",
                 "is_started", "known", "next_log", "peer_committed", "peer_end", "phase",
                 "session", "to")

    def __init__(
        self, standing: Standing, to: NodeId, *, is_serving: bool, may_cut: bool = False
    ) -> None:
        self._standing = standing
        self.to = to
        self.is_serving = is_serving  # the other
        self.is_counted = is_serving  # is its Ack part of what this node acknowledges?
        self.is_reported = False  # was the controller told that it may serve?
        self.held_ticks = 0  # since it is counted without being reported
        self._may_cut = may_cut  # O4
        self.is_started = False  # has this node had the right to send to it?
        self.known: Described | None = None
        self.phase = Phase.WAITING
        self.is_blocked = False
        self._is_sending = False  # is a SendEntries unanswered?
        self.session = 0
        self.next_log = LogOffset(0)
        self.acked = BEGIN
        self.peer_end = LogOffset(0)
        self.peer_committed = LogOffset(0)
        self.in_flight_size = 0
        self._in_flight: deque[tuple[LogOffset, int]] = deque()
        self._flags = 0  # of the next message
        self._other_end = LogOffset(0)  # when it was last decided to cut it
        self._refused_at = _NOWHERE
        self._told = BEGIN
        self._history: list[tuple[Epoch, LogOffset]] = []
        self._history_epoch = NO_EPOCH

    # --- sessions ---------------------------------------------------------------------------

    def open(self) -> list[Effect]:
        """Begin a session where the other is known to stand, or ask it by a probe."""
        self.is_started = True
        if self.known is not None:
            return self._open_at(self.known)
        self._begin(self._standing.log.log_end, OPEN, Phase.PROBING)
        return [Send(self.to, self._message())]

    def reopen(self) -> list[Effect]:
        """Begin a new session, if one has begun: what was sent may be lost."""
        self.is_blocked = False
        if not self.is_started:
            return []
        self.known = None
        return self.open()

    def _open_at(self, other: Described) -> list[Effect]:
        opening = find_opening(self._standing.log, other)
        if opening is None or (
                opening.is_destructive and not other.is_empty
                and not self._may_cut and not self._standing.is_current):
            self.phase = Phase.WAITING  # O4: this node lacks what the other has, or may lack it
            return []
        if opening.is_destructive:
            self._other_end = other.log_end
            self._begin(opening.start, opening.flags, Phase.PROBING)
            return self._probe()
        self._begin(opening.start, opening.flags, Phase.STREAMING)
        return self.pump() or [self._empty()]

    def _begin(self, next_log: LogOffset, flags: int, phase: Phase) -> None:
        self.session = self._standing.next_session()
        self.next_log = next_log
        self._flags = flags
        self.phase = phase
        self.acked = BEGIN  # O2
        self.peer_end = LogOffset(0)
        self.in_flight_size = 0
        self._in_flight.clear()
        self._is_sending = False

    def _probe(self) -> list[Effect]:
        if self._flags & RESTART:
            return [SendEntries(self.to, self.next_log, SEND_SIZE_MAX, self._message())]
        return [Send(self.to, self._message())]

    def refused(self, other: Described) -> list[Effect]:
        """What was sent does not continue the other's log: go back to where it ends (V11).

        A second refusal at the same place waits for a tick, lest two nodes of which one cannot
        write keep each other busy.
        """
        if other.session != self.session:
            return []
        self.known = other
        if other.log_end == self._refused_at:
            self.phase = Phase.WAITING
            return []
        self._refused_at = other.log_end
        return self._open_at(other)

    def acknowledged(self, ack: Ack) -> bool:
        """Take in an Ack; False if it is of another session."""
        if ack.session != self.session:
            return False  # O2
        if ack.end_log > self.next_log:
            return False  # nothing that this session has sent
        self.phase = Phase.STREAMING
        self._flags = 0
        if ack.end_log > self.peer_end:
            self.peer_end = ack.end_log
            self._refused_at = _NOWHERE
            in_flight = self._in_flight
            while in_flight and in_flight[0][0] <= ack.end_log:
                self.in_flight_size -= in_flight.popleft()[1]
        self.acked = max(self.acked, ack.acked)
        self.peer_committed = ack.committed_log
        return True

    # --- batches ----------------------------------------------------------------------------

    def pump(self) -> list[Effect]:
        """Send on, if there is something and the window has room."""
        if self.phase is not Phase.STREAMING or self.is_blocked or self._is_sending:
            return []
        log = self._standing.log
        room = self._standing.window_size - self.in_flight_size
        if self.next_log >= log.log_end or room <= 0:  # O3
            return []
        if self.next_log < log.log_start:  # retention was faster
            self.known = None
            return self.open()
        self._is_sending = True
        return [SendEntries(self.to, self.next_log, min(room, SEND_SIZE_MAX), self._message())]

    def sent(self, session: int, next_log: LogOffset, size: int) -> list[Effect]:
        if session != self.session or self.phase is not Phase.STREAMING:
            return []
        self._is_sending = False
        assert next_log >= self.next_log, (next_log, self.next_log)  # O1
        if next_log == self.next_log:
            self.is_blocked = True  # nothing could be read: a tick tries again
            return []
        self.next_log = next_log
        self._flags = 0
        self._in_flight.append((next_log, size))
        self.in_flight_size += size
        return self.pump()

    def block(self) -> None:
        """Nothing can be sent for now."""
        self.is_blocked = True
        self._is_sending = False

    def tell(self) -> list[Effect]:
        """Tell what has become durable, if no batch has carried it."""
        if (self.phase is not Phase.STREAMING or self.is_blocked or self._is_sending
                or self._durable() <= self._told):
            return []
        return [self._empty()]

    def tick(self) -> list[Effect]:
        """Repeat whatever may have been lost."""
        if not self.is_started:
            return []
        self.is_blocked = self._is_sending = False
        self._refused_at = _NOWHERE
        match self.phase:
            case Phase.WAITING:
                return self.open()
            case Phase.PROBING if self.next_log >= self._standing.log.log_start:
                return self._probe()
            case Phase.PROBING:
                return self.open()  # retention was faster
            case Phase.STREAMING:
                return self.pump() or ([] if self.is_quiet else [self._empty()])

    @property
    def is_quiet(self) -> bool:
        """Does the other have everything, and has it said so?  Syncing ones are kept awake."""
        standing = self._standing
        return (self.phase is Phase.STREAMING and self.is_serving
                and self.acked.log == self.next_log == standing.log.log_end
                and self.peer_committed == standing.committed.log
                and self._durable() == self._told)

    @property
    def has_sent_all(self) -> bool:
        return (self.phase is Phase.STREAMING and not self.is_blocked
                and self.next_log == self._standing.log.log_end)

    # --- the message ------------------------------------------------------------------------

    def _empty(self) -> Effect:
        """A heartbeat: no batches, but where they would belong (V11)."""
        return Send(self.to, self._message())

    def _message(self) -> Replicate:
        standing = self._standing
        self._told = durable = self._durable()
        flags = self._flags | COUNTED if self.is_reported else self._flags
        return Replicate(
            standing.epoch, standing.members.version, flags, self.session, self.next_log,
            self._prev_epoch(), durable, standing.committed, standing.log.log_end,
            self._other_end, ())

    def _durable(self) -> Mark:
        standing = self._standing
        return min(standing.durable, standing.upstream)

    def _prev_epoch(self) -> Epoch:
        log = self._standing.log
        last_epoch = log.last_epoch
        if last_epoch != self._history_epoch or not self._history:
            self._history = log.epochs()
            self._history_epoch = last_epoch
        history = self._history
        if history and history[-1][1] < self.next_log:
            return history[-1][0]  # the usual case: only this epoch's batches are new
        return epoch_before(history, self.next_log)

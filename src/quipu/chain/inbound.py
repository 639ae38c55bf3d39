"""Receiving the log from one other node: the predecessor, or the source of a new head.

Invariants
    chain.I1  once a session is open, this log is a prefix of the sender's; until then nothing is
              acknowledged
    chain.I2  batches are appended only if they continue the log: same end, same epoch before it
    chain.I3  nothing below `committed` is ever truncated or replaced (V14): the replica halts
              instead
    chain.I4  a session truncates once; the response says where the log ends now, and a new session
              continues there
    chain.I5  the log of a serving member is never truncated or replaced: within an epoch it is a
              prefix of its predecessor's, so a message that asks for it is wrong, and rejected
"""

from typing import Final

from quipu.chain.effects import Append, Effect, Halt, Restart, SendMessage, TruncateTo
from quipu.chain.history import epoch_before
from quipu.chain.messages import (
    BEGIN,
    OPEN,
    REQUIRED,
    RESTART,
    TRUNCATE,
    Ack,
    DescribeReason,
    Replicate,
)
from quipu.chain.state import ReplicaState
from quipu.model.bounds import OFFSET_JUMP_MAX
from quipu.model.ids import LogOffset, NodeId

ACKS_PER_WINDOW: Final = 4  # so often, at least, the sender learns how much has arrived
_NOWHERE: Final = LogOffset(-1)


class Inbound:
    """What one node has sent, and what was acknowledged to it."""

    __slots__ = ("_opening_rejected", "_rejected_at", "_state", "_truncated_session",
                 "_unacked_size", "committed", "durable", "is_required", "is_truncating", "peer",
                 "sender_end", "session")

    def __init__(self, state: ReplicaState, peer: NodeId) -> None:
        assert peer != state.node_id, peer
        self._state = state
        self.peer = peer
        self.session = 0  # the open session; 0 if there is none
        self._truncated_session = 0  # chain.I4: the session that made this log shorter
        self.is_truncating = False  # is it being truncated or replaced now?
        self.is_required = False  # the sender says that commits require this node's Ack
        self.durable = BEGIN  # every member before this node has the log up to here
        self.committed = BEGIN  # as the sender knows it
        self.sender_end = LogOffset(0)
        self._rejected_at = _NOWHERE
        self._opening_rejected = 0
        self._unacked_size = 0

    @property
    def is_open(self) -> bool:
        return self.session > 0

    def invariants(self) -> None:
        """Assert what holds between two events."""
        session, truncated_session = self.session, self._truncated_session
        if truncated_session:
            assert session > truncated_session or not session or self.is_truncating, (
                session, truncated_session)  # chain.I4
        else:
            assert not self.is_truncating  # chain.I4
        assert self._unacked_size >= 0, self._unacked_size

    def replicate(self, message: Replicate) -> tuple[list[Effect], bool]:
        """Take in `message`; return effects, and whether an Ack follows when they are done."""
        session = message.session
        if session == self.session:
            log = self._state.log
            prev_end = message.prev_end
            if prev_end == log.log_end and message.prev_epoch == log.last_epoch:
                return self._take(message)  # chain.I2: the usual case
            if prev_end > log.log_end:
                return self._reject_gap(message), False
            if prev_end == log.log_end:
                return self._reject(session), False  # another history
            self._note(message)
            return [], True  # the message came twice, or out of order
        if session < self.session or session < self._truncated_session:
            return [], False
        if session == self._truncated_session and not self.is_truncating:
            return self._reject(session), False
        return self._open(message)

    def _open(self, message: Replicate) -> tuple[list[Effect], bool]:
        flags = message.flags
        log = self._state.log
        if not flags & OPEN:
            if message.entries and self._opening_rejected == message.session:
                return [], False  # one rejection for a whole window after a lost opening
            self._opening_rejected = message.session
            return self._reject(message.session), False
        if flags & (TRUNCATE | RESTART):
            if message.receiver_end != log.log_end:
                return self._reject(message.session), False  # meant for the log as it was before
            return (self._restart if flags & RESTART else self._truncate)(message), False
        if message.prev_end != log.log_end or message.prev_epoch != log.last_epoch:
            return self._reject(message.session), False
        assert message.session > self.session, (message.session, self.session)
        self.session = message.session  # chain.I1
        return self._take(message)

    def _take(self, message: Replicate) -> tuple[list[Effect], bool]:
        """Append the batches of `message`, which continue the log (chain.I2)."""
        state = self._state
        assert message.epoch == state.epoch, (message.epoch, state.epoch)  # chain.C4
        assert message.prev_end == state.log.log_end, message.prev_end  # chain.I2
        self._note(message)
        entries = message.entries
        if not entries:
            return [], True
        self._rejected_at = _NOWHERE
        for entry in entries:
            self._unacked_size += len(entry)
        return [Append(entries)], False

    def _note(self, message: Replicate) -> None:
        """Note what a message of this session says besides its batches; the message may be old."""
        self.durable = max(self.durable, message.durable)
        self.committed = max(self.committed, message.committed)
        self.sender_end = max(self.sender_end, message.sender_end)
        if message.flags & REQUIRED and message.version == self._state.members.version:
            self.is_required = True

    # --- rejecting --------------------------------------------------------------------------

    def _reject_gap(self, message: Replicate) -> list[Effect]:
        """Reject `message`, before which something is missing: once, and at each heartbeat."""
        log_end = self._state.log.log_end
        if message.entries and self._rejected_at == log_end:
            return []
        self._rejected_at = log_end
        return self._reject(message.session)

    def _reject(self, session: int) -> list[Effect]:
        return [SendMessage(self.peer, self._state.describe(DescribeReason.REJECTION, session))]

    # --- truncating -------------------------------------------------------------------------

    def _truncate(self, message: Replicate) -> list[Effect]:
        state = self._state
        end = message.prev_end
        log = state.log
        if not log.log_start <= end < log.log_end or (
                epoch_before(log.epochs(), end) != message.prev_epoch):
            return self._reject(message.session)
        if end < state.committed.log:  # chain.I3
            return [Halt(f"node {self.peer} asks to truncate the log at {end}, but everything "
                         f"below {state.committed.log} is committed; compare the logs of both")]
        if state.is_serving:  # chain.I5
            return self._reject(message.session)
        assert end >= state.committed.log, (end, state.committed)  # chain.I3
        assert message.session > self.session, (message.session, self.session)  # chain.I4
        self._truncated_session = message.session
        self.is_truncating = True
        return [TruncateTo(end)]

    def _restart(self, message: Replicate) -> list[Effect]:
        state = self._state
        if message.prev_end > state.log.log_end + OFFSET_JUMP_MAX:
            return self._reject(message.session)  # no log grows so fast
        if message.prev_end < state.committed.log > state.log.log_start:  # chain.I3
            return [Halt(f"node {self.peer} shares no epoch with this log and begins at "
                         f"{message.prev_end}, but everything below {state.committed.log} is "
                         "committed; compare the logs of both")]
        if state.is_serving:  # chain.I5
            return self._reject(message.session)
        assert message.entries, message.session
        assert message.session > self.session, (message.session, self.session)  # chain.I4
        self._truncated_session = message.session
        self.is_truncating = True
        return [Restart(message.prev_end, message.entries)]

    def truncated(self) -> list[Effect]:
        """Respond where the log ends, after it was truncated or replaced (chain.I4)."""
        assert self.is_truncating
        assert self._truncated_session > 0, self._truncated_session  # chain.I4
        assert not self._state.is_serving, self._state.role  # chain.I5
        self.is_truncating = False
        self.session = 0
        self._state.acknowledged = BEGIN
        return self._reject(self._truncated_session)

    # --- acknowledging ----------------------------------------------------------------------

    @property
    def is_ack_due(self) -> bool:
        """Whether enough has arrived for an Ack, even if that acknowledges nothing more."""
        return self._unacked_size * ACKS_PER_WINDOW >= self._state.window_size

    def ack(self) -> Effect:
        """Return an Ack of what this node and the members after it have."""
        state = self._state
        log_end, acknowledged = state.log.log_end, state.acknowledged
        assert self.session > 0, self.peer  # chain.I1
        assert acknowledged[0] <= log_end, (acknowledged, log_end)  # chain.C2
        self._unacked_size = 0
        return SendMessage(self.peer, Ack(
            state.epoch, self.session, acknowledged, log_end, state.committed.log))

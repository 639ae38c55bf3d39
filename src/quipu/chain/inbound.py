"""Receiving the log from one other node: the one before in the chain, or a new head's source.

Invariants
    I1  once a session is open, this log is a prefix of the sender's; until then nothing is said
        about how much of it there is
    I2  batches are taken only if they continue the log: same end, same epoch before it
    I3  nothing below `committed` is ever cut or dropped (V14): the replica halts instead
    I4  a session cuts once; the answer is where the log ends now, and a new session goes on
"""

from typing import Final

from quipu.chain.effects import Append, CutTo, Effect, Halt, Restart, Send
from quipu.chain.history import epoch_before
from quipu.chain.messages import BEGIN, COUNTED, CUT, OPEN, RESTART, Ack, Replicate, Why
from quipu.chain.standing import Standing
from quipu.model.bounds import OFFSET_JUMP_MAX
from quipu.model.ids import LogOffset, NodeId

ACKS_PER_WINDOW: Final = 4  # so often, at least, the sender hears how much has arrived
_NOWHERE: Final = LogOffset(-1)


class Inbound:
    """What one node has sent, and what it was told."""

    __slots__ = ("_opening_refused", "_refused_at", "_spent", "_standing", "_unacked_size",
                 "committed", "durable", "is_counted", "is_cutting", "peer", "sender_end",
                 "session")

    def __init__(self, standing: Standing, peer: NodeId) -> None:
        self._standing = standing
        self.peer = peer
        self.session = 0  # that is open; 0 before the first
        self._spent = 0  # the session that made this log shorter (I4)
        self.is_cutting = False  # is that being done?
        self.is_counted = False  # nothing is committed without this node, the sender says
        self.durable = BEGIN  # everybody before this node has the log up to here
        self.committed = BEGIN  # as the sender knows it
        self.sender_end = LogOffset(0)
        self._refused_at = _NOWHERE
        self._opening_refused = 0
        self._unacked_size = 0

    @property
    def is_open(self) -> bool:
        return self.session > 0

    def replicate(self, message: Replicate) -> tuple[list[Effect], bool]:
        """What to do about `message`; and whether it asks for an Ack, when all is settled."""
        session = message.session
        if session == self.session:
            log = self._standing.log
            prev_end = message.prev_end
            if prev_end == log.log_end and message.prev_epoch == log.last_epoch:
                return self._take(message)  # I2: the usual case
            if prev_end > log.log_end:
                return self._refuse_gap(message), False
            if prev_end == log.log_end:
                return self._refuse(session), False  # another history: this cannot be, or is a bug
            self._note(message)
            return [], True  # it came twice, or out of order
        if session < self.session or session < self._spent:
            return [], False
        if session == self._spent and not self.is_cutting:
            return self._refuse(session), False
        return self._open(message)

    def _open(self, message: Replicate) -> tuple[list[Effect], bool]:
        flags = message.flags
        log = self._standing.log
        if not flags & OPEN:
            if message.entries and self._opening_refused == message.session:
                return [], False  # one refusal for a whole window that follows a lost opening
            self._opening_refused = message.session
            return self._refuse(message.session), False
        if flags & (CUT | RESTART):
            if message.receiver_end != log.log_end:
                return self._refuse(message.session), False  # meant for a log that this is no more
            return (self._restart if flags & RESTART else self._cut)(message), False
        if message.prev_end != log.log_end or message.prev_epoch != log.last_epoch:
            return self._refuse(message.session), False
        self.session = message.session  # I1
        return self._take(message)

    def _take(self, message: Replicate) -> tuple[list[Effect], bool]:
        self._note(message)
        entries = message.entries
        if not entries:
            return [], True
        self._refused_at = _NOWHERE
        for entry in entries:
            self._unacked_size += len(entry)
        return [Append(entries)], False

    def _note(self, message: Replicate) -> None:
        """Take in what a message of this session says besides its batches; it may be old."""
        self.durable = max(self.durable, message.durable)
        self.committed = max(self.committed, message.committed)
        self.sender_end = max(self.sender_end, message.sender_end)
        if message.flags & COUNTED and message.version == self._standing.members.version:
            self.is_counted = True

    # --- refusing ---------------------------------------------------------------------------

    def _refuse_gap(self, message: Replicate) -> list[Effect]:
        """Something before `message` is missing: say so once, and whenever a heartbeat asks."""
        log_end = self._standing.log.log_end
        if message.entries and self._refused_at == log_end:
            return []
        self._refused_at = log_end
        return self._refuse(message.session)

    def _refuse(self, session: int) -> list[Effect]:
        return [Send(self.peer, self._standing.describe(Why.REFUSAL, session))]

    # --- cutting ----------------------------------------------------------------------------

    def _cut(self, message: Replicate) -> list[Effect]:
        standing = self._standing
        cut = message.prev_end
        log = standing.log
        if not log.log_start <= cut < log.log_end or (
                epoch_before(log.epochs(), cut) != message.prev_epoch):
            return self._refuse(message.session)
        if cut < standing.committed.log:  # I3
            return [Halt(f"node {self.peer} asks to cut the log at {cut}, but everything below "
                         f"{standing.committed.log} is committed; compare the logs of both")]
        self._spent = message.session
        self.is_cutting = True
        return [CutTo(cut)]

    def _restart(self, message: Replicate) -> list[Effect]:
        standing = self._standing
        if message.prev_end > standing.log.log_end + OFFSET_JUMP_MAX:
            return self._refuse(message.session)  # no log grows so fast
        if message.prev_end < standing.committed.log > standing.log.log_start:  # I3
            return [Halt(f"node {self.peer} shares no epoch with this log and begins at "
                         f"{message.prev_end}, but everything below {standing.committed.log} is "
                         "committed; compare the logs of both")]
        self._spent = message.session
        self.is_cutting = True
        return [Restart(message.entries)]

    def changed(self) -> list[Effect]:
        """The cut was carried out: tell where the log ends now (I4)."""
        self.is_cutting = False
        self.session = 0
        self._standing.claimed = BEGIN
        return self._refuse(self._spent)

    # --- acknowledging ----------------------------------------------------------------------

    @property
    def is_ack_due(self) -> bool:
        """Has so much arrived that the sender should hear of it, whatever is acknowledged?"""
        return self._unacked_size * ACKS_PER_WINDOW >= self._standing.window_size

    def ack(self) -> Effect:
        standing = self._standing
        self._unacked_size = 0
        return Send(self.peer, Ack(standing.epoch, self.session, standing.claimed,
                                   standing.log.log_end, standing.committed.log))

"""How far one follower is, as its leader knows, and how much more it may be sent.

    PROBE       where the logs agree is not known: one message at a time
    REPLICATE   known: messages follow each other without waiting, WINDOW_MAX of them
    IMAGE       what it needs next is gone: it is sent an image, piece by piece

Invariants
    P1  match < next; all up to `match` is durable at the follower and the same as the leader's
    P2  a message that is lost costs time, never more: any answer of the follower's sets it right
"""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from quipu.model.ids import RaftIndex
from quipu.raft.image import Pieces
from quipu.raft.messages import NOTHING
from quipu.raft.settings import WINDOW_MAX


class Flow(Enum):
    """How a follower is sent to."""

    PROBE = "probe"
    REPLICATE = "replicate"
    IMAGE = "image"


@dataclass(slots=True)
class Progress:
    """One follower or observer."""

    next: RaftIndex
    heard_ms: int
    match: RaftIndex = NOTHING
    is_blank: bool = True  # will it refuse its vote (R5), as far as we know?
    flow: Flow = Flow.PROBE
    is_waiting: bool = False  # for the answer to a probe, or to a piece
    sent_round: int = 0  # the last heartbeat before the last message
    inflight: deque[RaftIndex] = field(default_factory=deque)  # last index of each message
    committed_told: RaftIndex = NOTHING
    round: int = 0  # the last heartbeat that it answered
    caught_up_ms: int = -1  # when it last had every entry
    pieces: Pieces | None = None  # of the image that it is sent

    def may_send(self) -> bool:
        if self.flow is Flow.REPLICATE:
            return len(self.inflight) < WINDOW_MAX
        return not self.is_waiting

    def sent(self, last_index: RaftIndex) -> None:
        """A message with entries up to `last_index` is on its way."""
        if self.flow is Flow.REPLICATE:
            self.inflight.append(last_index)
            self.next = RaftIndex(last_index + 1)
        else:
            self.is_waiting = True

    def matched(self, index: RaftIndex) -> bool:
        """It has everything up to `index`; did we not know?"""
        while self.inflight and self.inflight[0] <= index:
            self.inflight.popleft()
        if self._is_found(index):
            self.replicate_after(index)
        if index <= self.match:
            return False
        self.match = index
        self.next = max(self.next, RaftIndex(index + 1))  # P1
        return True

    def refused(self, asked: int, next_index: int) -> bool:
        """It does not have entry `asked`; is that news?  If so, try from `next_index` on."""
        if self.flow is Flow.REPLICATE:
            if asked <= self.match:
                return False  # an old answer, overtaken by a later one
            self.probe_from(self.match + 1)
            return True
        if self.flow is Flow.IMAGE or asked != self.next - 1:
            return False  # an answer to something older
        self.probe_from(max(self.match + 1, min(asked, next_index)))
        return True

    def forget(self) -> None:
        """It has lost all that it had: begin anew."""
        self.match = NOTHING
        self._become(Flow.PROBE, 1)

    def _is_found(self, index: int) -> bool:
        """Does having `index` end the search for where the logs agree, or an image's way?"""
        if self.pieces is not None:
            return index >= self.pieces.image.index
        return self.flow is Flow.PROBE and index >= self.match

    def probe_from(self, index: int) -> None:
        self._become(Flow.PROBE, index)

    def replicate_after(self, index: int) -> None:
        self._become(Flow.REPLICATE, index + 1)

    def install(self, pieces: Pieces) -> None:
        """Send it an image."""
        self._become(Flow.IMAGE, self.next)
        self.pieces = pieces

    def _become(self, flow: Flow, next_index: int) -> None:
        assert next_index > self.match, (next_index, self.match)  # P1
        self.flow, self.next = flow, RaftIndex(next_index)
        self.is_waiting, self.pieces = False, None
        self.inflight.clear()

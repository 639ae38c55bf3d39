"""How far one follower is, as its leader knows, and how much more it may be sent.

    PROBE       where the logs match is not known: one message at a time
    REPLICATE   known: messages are sent without waiting, up to WINDOW_MAX in flight
    SNAPSHOT    the entries it needs next are compacted: it is sent a snapshot, chunk by chunk

Invariants
    raft.P1  match_index < next_index; all up to `match_index` is durable at the follower and the
             same as the leader's
    raft.P2  a lost message costs time and nothing else: any response of the follower corrects what
             the leader knows
"""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from quipu.model.ids import RaftIndex
from quipu.raft.messages import NO_INDEX
from quipu.raft.settings import WINDOW_MAX
from quipu.raft.snapshot import SnapshotSender


class ProgressState(Enum):
    """How a leader sends to a follower."""

    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


@dataclass(slots=True)
class Progress:
    """One follower or observer."""

    next_index: RaftIndex
    heard_ms: int
    match_index: RaftIndex = NO_INDEX
    is_blank: bool = True  # does the node refuse to vote (raft.R5), as far as is known?
    state: ProgressState = ProgressState.PROBE
    is_waiting: bool = False  # for the response to a probe, or to a chunk
    sent_round: int = 0  # of the last heartbeats before the last message
    inflight: deque[RaftIndex] = field(default_factory=deque)  # last index of each message
    commit_index_sent: RaftIndex = NO_INDEX
    round: int = 0  # of the last heartbeat that the node responded to
    caught_up_ms: int = -1  # when the node last had every entry
    snapshot_sender: SnapshotSender | None = None  # if state is SNAPSHOT

    def invariants(self, last_index: int) -> None:
        """Assert what holds between two steps of a leader whose log ends at `last_index`."""
        assert self.match_index < self.next_index, (self.match_index, self.next_index)  # raft.P1
        assert self.next_index <= last_index + 1, (self.next_index, last_index)  # raft.P1
        assert len(self.inflight) <= WINDOW_MAX, len(self.inflight)
        state = self.state
        assert not self.inflight or state is ProgressState.REPLICATE, state
        assert (state is ProgressState.SNAPSHOT) == (self.snapshot_sender is not None), state
        assert self.commit_index_sent <= last_index, (self.commit_index_sent, last_index)

    def may_send(self) -> bool:
        """Whether the window has room or, when probing, a response to the last probe has come."""
        assert self.state is not ProgressState.SNAPSHOT, self.state
        if self.state is ProgressState.REPLICATE:
            return len(self.inflight) < WINDOW_MAX
        return not self.is_waiting

    def sent(self, last_index: RaftIndex) -> None:
        """Note that a message with entries up to `last_index` is on its way."""
        assert last_index >= self.next_index - 1, (last_index, self.next_index)
        if self.state is ProgressState.REPLICATE:
            assert not self.inflight or self.inflight[-1] < last_index, self.inflight[-1]
            self.inflight.append(last_index)
            self.next_index = RaftIndex(last_index + 1)
        else:
            assert not self.is_waiting, self.state
            self.is_waiting = True

    def matched(self, index: RaftIndex) -> bool:
        """Note that the follower has everything up to `index`; return whether that is new."""
        while self.inflight and self.inflight[0] <= index:
            self.inflight.popleft()
        if self._is_found(index):
            self.replicate_after(index)
        if index <= self.match_index:
            return False
        self.match_index = index
        self.next_index = max(self.next_index, RaftIndex(index + 1))
        assert self.match_index < self.next_index, (self.match_index, self.next_index)  # raft.P1
        assert not self.inflight or self.inflight[0] > index, (self.inflight[0], index)
        return True

    def rejected(self, index: int, next_index: int) -> bool:
        """Note that the logs do not match at `index`; return whether that is new.

        If it is, probe from `next_index` on.
        """
        if self.state is ProgressState.REPLICATE:
            if index <= self.match_index:
                return False  # an old response, overtaken by a later one
            self.probe_from(self.match_index + 1)
            return True
        if self.state is ProgressState.SNAPSHOT or index != self.next_index - 1:
            return False  # a response to an earlier message
        before = self.next_index
        self.probe_from(max(self.match_index + 1, min(index, next_index)))
        assert self.next_index <= before, (self.next_index, before)  # it never skips entries
        return True

    def forget(self) -> None:
        """Start from the first entry: the follower has lost its log."""
        self.match_index = NO_INDEX
        self._become(ProgressState.PROBE, 1)
        assert self.next_index == NO_INDEX + 1, self.next_index

    def _is_found(self, index: int) -> bool:
        """Whether a follower that has `index` needs no more probes, and no more of a snapshot."""
        if self.snapshot_sender is not None:
            return index >= self.snapshot_sender.snapshot.index
        return self.state is ProgressState.PROBE and index >= self.match_index

    def probe_from(self, index: int) -> None:
        self._become(ProgressState.PROBE, index)

    def replicate_after(self, index: int) -> None:
        self._become(ProgressState.REPLICATE, index + 1)

    def send_snapshot(self, snapshot_sender: SnapshotSender) -> None:
        """Send a snapshot instead of entries."""
        assert snapshot_sender.position == 0, snapshot_sender.position  # raft.I1
        assert self.state is not ProgressState.SNAPSHOT, self.state
        self._become(ProgressState.SNAPSHOT, self.next_index)
        self.snapshot_sender = snapshot_sender

    def _become(self, state: ProgressState, next_index: int) -> None:
        assert next_index > self.match_index, (next_index, self.match_index)  # raft.P1
        self.state, self.next_index = state, RaftIndex(next_index)
        self.is_waiting, self.snapshot_sender = False, None
        self.inflight.clear()
        assert self.next_index > self.match_index, (self.next_index, self.match_index)  # raft.P1

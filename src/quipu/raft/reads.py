"""Linearizable reads without an entry in the log (read-index).

A leader may have been deposed without knowing.  So it notes its commit index and sends a round of
heartbeats.  When a majority has responded to that round or a later one, the read is confirmed: no
other leader had committed an entry before the read began.

Invariants
    raft.D1  a read is confirmed only by heartbeats that were sent after it began
    raft.D2  no index is noted before an entry of the leader's own term is committed: until then
             the leader may not know what was committed before its term
"""

from collections import deque
from typing import NamedTuple

from quipu.model.ids import RaftIndex
from quipu.raft.settings import READS_MAX


class ReadState(NamedTuple):
    """Read `number` is linearizable in a state that has applied `index`."""

    number: int
    index: RaftIndex  # type: ignore[assignment]  # hides tuple.index


class _Read(NamedTuple):
    number: int
    round: int
    index: RaftIndex  # type: ignore[assignment]  # hides tuple.index


class PendingReads:
    """The reads that wait at a leader."""

    def __init__(self, last_number: int) -> None:
        self.last_number = last_number  # numbers continue from those of earlier terms
        self.round = 0  # of the last heartbeats that were sent
        self.is_round_due = False
        self._early: list[int] = []  # numbers of reads that began before raft.D2 holds
        self._waiting: deque[_Read] = deque()

    def invariants(self) -> None:
        """Assert what holds between two steps."""
        early, waiting = self._early, self._waiting
        if early or waiting:
            assert not early or not waiting, (early[-1], waiting[-1])  # raft.D2
            assert len(early) + len(waiting) <= READS_MAX, (len(early), len(waiting))
        if waiting:
            last = waiting[-1]
            assert last.number <= self.last_number, (last, self.last_number)
            assert last.round <= self.round + 1, (last, self.round)  # raft.D1
            assert last.round <= self.round or self.is_round_due, (last, self.round)  # raft.D1

    def add(self, commit_index: RaftIndex | None) -> int | None:
        """Return the number of a new read, None if too many wait.

        `commit_index` is None until an entry of the leader's term is committed (raft.D2).
        """
        if len(self._waiting) + len(self._early) >= READS_MAX:
            return None
        self.last_number += 1
        assert commit_index is not None or not self._waiting, commit_index  # raft.D2
        if commit_index is None:
            self._early.append(self.last_number)
        else:
            self._wait(self.last_number, commit_index)
        return self.last_number

    def term_committed(self, commit_index: RaftIndex) -> None:
        """Note `commit_index` for the early reads: an entry of the term is committed (raft.D2)."""
        early, self._early = self._early, []
        assert not early or not self._waiting, self._waiting[0]  # raft.D2
        for number in early:
            self._wait(number, commit_index)

    def next_round(self) -> int:
        """Return the number of the heartbeats that are about to be sent."""
        self.is_round_due = False
        self.round += 1
        assert not self._waiting or self._waiting[-1].round <= self.round, self.round  # raft.D1
        return self.round

    def confirm(self, confirmed_round: int) -> list[ReadState]:
        """Return the confirmed reads, now that a majority has responded to `confirmed_round`."""
        assert confirmed_round <= self.round, (confirmed_round, self.round)  # raft.D1
        done = []
        while self._waiting and self._waiting[0].round <= confirmed_round:
            read = self._waiting.popleft()
            assert read.number <= self.last_number, (read, self.last_number)
            done.append(ReadState(read.number, read.index))
        return done

    def _wait(self, number: int, commit_index: RaftIndex) -> None:
        assert not self._waiting or self._waiting[-1].index <= commit_index, commit_index
        assert not self._waiting or self._waiting[-1].number < number, number
        self._waiting.append(_Read(number, self.round + 1, commit_index))  # raft.D1: next round
        self.is_round_due = True

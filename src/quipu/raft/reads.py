"""Reads that see all that was decided before they were asked for (read-index).

A leader may have been deposed without knowing.  So it notes what is committed, asks everyone in a
round of heartbeats whether they still follow, and when a majority has answered that round or a
later one, what it noted is good: nobody else had decided anything before the question.

Invariants
    D1  a read is confirmed only by heartbeats that were sent after it was asked for
    D2  no index is noted before an entry of the leader's own term is committed: until then it may
        not know what was decided before its term
"""

from collections import deque
from typing import NamedTuple

from quipu.model.ids import RaftIndex
from quipu.raft.settings import READS_MAX


class ReadDone(NamedTuple):
    """A read may look at a state that holds `index`."""

    number: int
    index: RaftIndex  # type: ignore[assignment]  # hides tuple.index


class _Read(NamedTuple):
    number: int
    round: int
    index: RaftIndex  # type: ignore[assignment]  # hides tuple.index


class Reads:
    """The reads that wait at a leader."""

    def __init__(self, numbers: int) -> None:
        self.last_number = numbers  # numbers go on from those of earlier reigns
        self.round = 0  # of the last heartbeats that were sent
        self.is_round_due = False
        self._early: list[int] = []  # asked for before D2 holds
        self._waiting: deque[_Read] = deque()

    def ask(self, committed: RaftIndex | None) -> int | None:
        """The number of a new read; `committed` is None as long as D2 does not hold."""
        if len(self._waiting) + len(self._early) >= READS_MAX:
            return None
        self.last_number += 1
        if committed is None:
            self._early.append(self.last_number)
        else:
            self._note(self.last_number, committed)
        return self.last_number

    def begin(self, committed: RaftIndex) -> None:
        """D2 holds from now on."""
        early, self._early = self._early, []
        for number in early:
            self._note(number, committed)

    def next_round(self) -> int:
        """Heartbeats are about to leave."""
        self.is_round_due = False
        self.round += 1
        return self.round

    def confirm(self, agreed: int) -> list[ReadDone]:
        """A majority has answered round `agreed`: gives the reads that this confirms."""
        done = []
        while self._waiting and self._waiting[0].round <= agreed:
            read = self._waiting.popleft()
            done.append(ReadDone(read.number, read.index))
        return done

    def _note(self, number: int, committed: RaftIndex) -> None:
        self._waiting.append(_Read(number, self.round + 1, committed))  # D1: the next round
        self.is_round_due = True

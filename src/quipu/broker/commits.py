"""Who waits for a record to be committed, in one partition.

Producers with acks=all wait by client offset, the cluster's own writers by log offset, which also
counts internal batches.  Both move together.

Invariants
    W1  everyone who waits is called exactly once: when the commit point has passed, when their
        patience is over, or when the wait has become pointless
    W2  calls come in the order of the offsets
"""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from quipu.model.errors import Code, Kind, QuipuError, RequestError
from quipu.model.ids import LogOffset, Offset

Done = Callable[[Exception | None], None]

FOREVER: Final = float("inf")


class _Wait(NamedTuple):
    end: int  # committed once the commit point is here
    deadline: float  # monotonic seconds
    done: Done


class Commits:
    """The waits of one partition."""

    __slots__ = ("_by_log", "_by_offset", "committed", "committed_log")

    def __init__(self) -> None:
        self.committed = Offset(0)
        self.committed_log = LogOffset(0)
        self._by_offset: deque[_Wait] = deque()
        self._by_log: deque[_Wait] = deque()

    def __len__(self) -> int:
        return len(self._by_offset) + len(self._by_log)

    def wait(self, end: Offset, deadline: float, done: Done) -> None:
        """Call `done` once all records below `end` are committed."""
        if end <= self.committed:
            done(None)
        else:
            self._by_offset.append(_Wait(end, deadline, done))

    def wait_log(self, end: LogOffset, deadline: float, done: Done) -> None:
        """The same, by log offset."""
        if end <= self.committed_log:
            done(None)
        else:
            self._by_log.append(_Wait(end, deadline, done))

    def advance(self, committed_log: LogOffset, committed: Offset) -> None:
        """The commit point is further."""
        assert committed >= self.committed, (committed, self.committed)
        assert committed_log >= self.committed_log, (committed_log, self.committed_log)
        self.committed, self.committed_log = committed, committed_log
        _release(self._by_offset, committed)
        _release(self._by_log, committed_log)

    def expire(self, now: float) -> int:
        """Tell those whose patience is over at `now`; gives how many."""
        count = 0
        for waits in (self._by_offset, self._by_log):
            late = [wait for wait in waits if wait.deadline <= now]
            if late:
                left = [wait for wait in waits if wait.deadline > now]
                waits.clear()
                waits.extend(left)
                error = RequestError("the other nodes of the chain have not acknowledged in time",
                                     code=Code.REQUEST_TIMED_OUT, kind=Kind.RETRY)
                count += len(late)
                for wait in late:
                    wait.done(error)
        return count

    def fail(self, error: QuipuError) -> None:
        """Nobody waits any longer."""
        for waits in (self._by_offset, self._by_log):
            gone = list(waits)
            waits.clear()
            for wait in gone:
                wait.done(error)


def _release(waits: deque[_Wait], end: int) -> None:
    while waits and waits[0].end <= end:
        waits.popleft().done(None)

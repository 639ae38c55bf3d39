"""The appends of one partition that wait until they are committed, and the commit point.

Appends of producers with acks=all wait for a client offset; appends of the cluster's own records
wait for a log offset, which also counts internal batches.  Both commit points advance together.

Invariants
    broker.partitions.W1  the callback of each waiter is called exactly once: when the commit point
                          has passed its offset, at its deadline, or when its append cannot be
                          acknowledged any more (`fail`)
    broker.partitions.W2  callbacks are called in the order of the offsets
"""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from quipu.model.errors import Code, ErrorKind, QuipuError, RequestError
from quipu.model.ids import LogOffset, Offset

Done = Callable[[Exception | None], None]

FOREVER: Final = float("inf")


class _Wait(NamedTuple):
    """One append that waits."""

    end: int  # it is committed when the commit point is here
    deadline: float  # monotonic seconds
    done: Done


class CommitWaiters:
    """The commit point of one partition, and the callbacks that wait for it."""

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
        """Call `done` once everything below log offset `end` is committed."""
        if end <= self.committed_log:
            done(None)
        else:
            self._by_log.append(_Wait(end, deadline, done))

    def advance(self, committed_log: LogOffset, committed: Offset) -> None:
        """Move the commit point, and call those whose offsets it has passed."""
        assert committed >= self.committed, (committed, self.committed)
        assert committed_log >= self.committed_log, (committed_log, self.committed_log)
        self.committed, self.committed_log = committed, committed_log
        _release(self._by_offset, committed)
        _release(self._by_log, committed_log)

    def expire(self, now: float) -> int:
        """Fail the waits whose deadline is at or before `now`; returns how many."""
        count = 0
        for waits in (self._by_offset, self._by_log):
            late = [wait for wait in waits if wait.deadline <= now]
            if late:
                left = [wait for wait in waits if wait.deadline > now]
                waits.clear()
                waits.extend(left)
                error = RequestError("the other nodes of the chain have not acknowledged in time",
                                     code=Code.REQUEST_TIMED_OUT, kind=ErrorKind.RETRY)
                count += len(late)
                for wait in late:
                    wait.done(error)
        return count

    def fail(self, error: QuipuError) -> None:
        """End all waits with `error`."""
        for waits in (self._by_offset, self._by_log):
            gone = list(waits)
            waits.clear()
            for wait in gone:
                wait.done(error)


def _release(waits: deque[_Wait], end: int) -> None:
    while waits and waits[0].end <= end:
        waits.popleft().done(None)  # broker.partitions.W1, broker.partitions.W2

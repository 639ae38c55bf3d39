"""The fetches that wait for new records of one partition.

Invariants
    broker.partitions.F1  a waiting fetch is notified of every advance of the high watermark, with
                          about as many bytes as became readable (model.P7)
"""

from quipu.model.ids import Offset
from quipu.model.partition_log import FetchWaiter


class FetchWaiters:
    """The fetches to notify when more records of one partition can be read."""

    __slots__ = ("unread_size", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[FetchWaiter, None] = {}  # in the order of arrival
        self.unread_size = 0  # bytes that are appended and not committed yet, about

    def committed(self, before: Offset, committed: Offset, end: Offset) -> None:
        """Notify that the commit point moved from `before` to `committed`, in a log to `end`."""
        assert before < committed, (before, committed)
        unread = self.unread_size
        size = unread if committed >= end else unread * (committed - before) // (end - before)
        self.unread_size = unread - size
        if self.waiting:
            self.advanced(max(size, 1))  # broker.partitions.F1

    def advanced(self, size: int) -> None:
        """Notify every waiting fetch that about `size` bytes more can be read; 0: read again."""
        for waiter in list(self.waiting):
            waiter.advanced(size)

"""Keeps just appended entries in memory, so that they are sent without reading the log.

Invariants
    broker.replication.M1  the kept entries are those of the log from `start` to `end`, byte for
                           byte, and were checked before they were appended; a truncation of the log
                           drops them
    broker.replication.M2  nothing is kept for longer than the turn of the event loop in which it
                           came; entries that cannot be sent in it are read from the log later
    broker.replication.M3  a client's batch is valid only while its request is handled, so it is
                           copied to a buffer that all partitions of a node share, RECENT_SIZE_MAX
                           bytes in a turn.  Entries of other nodes stay in the receive buffer,
                           until the message that they came in is handled
    broker.replication.M4  entries that are not sent at once are copied (`copy`)
"""

from typing import Final

from quipu.chain.messages import Buffer
from quipu.model.ids import LogOffset

RECENT_SIZE_MAX: Final = 1 << 20  # bytes copied in one turn; also bytes that may wait for a peer
AT_ONCE_SIZE_MIN: Final = 32 << 10  # bytes of entries that get a system call of their own
_NOWHERE: Final = LogOffset(-1)


class TurnBuffer:
    """Holds copies of the batches that clients have sent in this turn (broker.replication.M3)."""

    __slots__ = ("_data", "_size", "view")

    def __init__(self) -> None:
        self._data = bytearray()  # made when it is first needed
        self._size = 0
        self.view = memoryview(self._data)

    def add(self, prefix: bytes, batch: Buffer) -> int:
        """Copy a batch; return its end in the buffer, 0 if there is no room."""
        start = self._size
        middle = start + len(prefix)
        end = middle + len(batch)
        if end > RECENT_SIZE_MAX:
            return 0
        if not self._data:
            self._data = bytearray(RECENT_SIZE_MAX)
            self.view = memoryview(self._data)
        self.view[start:middle] = prefix
        self.view[middle:end] = batch
        self._size = end
        return end

    def clear(self) -> None:
        """Empty it: the turn is over."""
        self._size = 0


class RecentEntries:
    """The newest entries of one log, as long as they are in memory."""

    __slots__ = ("_copied_end", "_copied_start", "buffers", "end", "is_lent", "size", "sizes",
                 "start")

    def __init__(self) -> None:
        self.start = _NOWHERE
        self.end = _NOWHERE
        self.size = 0
        self.sizes: list[int] = []  # of the entries
        self.buffers: list[Buffer] = []  # all their bytes
        self.is_lent = False  # the buffers are valid only until the event is handled
        self._copied_start = self._copied_end = 0  # of the last buffer, in the turn buffer

    def copied(
        self, start: LogOffset, end: LogOffset, turn_buffer: TurnBuffer, copied_end: int, size: int
    ) -> None:
        """Keep a client's batch that was appended and copied; batches in a row make one entry."""
        assert start < end, (start, end)
        copied_start = copied_end - size
        if start != self.end or self.is_lent:
            self.forget()
            self.start = start
        elif self._copied_end == copied_start:
            self.buffers.pop()
            copied_start = self._copied_start
        self.buffers.append(turn_buffer.view[copied_start:copied_end])
        self._copied_start, self._copied_end = copied_start, copied_end
        self.end = end
        self.size += size
        self.sizes = [self.size]

    def lend(self, start: LogOffset, end: LogOffset, entries: tuple[Buffer, ...]) -> None:
        """Keep another node's entries, which were appended, without a copy."""
        assert start <= end, (start, end)
        self.start, self.end = start, end
        self.sizes = [len(entry) for entry in entries]
        self.size = sum(self.sizes)
        self.buffers = list(entries)
        self.is_lent = True

    def copy(self) -> list[Buffer]:
        """Return a copy of the bytes, which outlives the turn (broker.replication.M4)."""
        return [b"".join(self.buffers)]

    def forget(self) -> None:
        """Drop all entries (broker.replication.M1, broker.replication.M2)."""
        self.start = self.end = _NOWHERE
        self.size = 0
        self.sizes, self.buffers = [], []
        self.is_lent = False

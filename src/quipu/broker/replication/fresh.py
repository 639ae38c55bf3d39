"""What a log has just been given, still in memory: it is sent on without being read back.

Invariants
    M1  what is held is what the log has from `start` to `end`, byte for byte, and was checked
        before it was appended; a cut of the log ends it
    M2  nothing is held for longer than the turn of the loop in which it came; what cannot be sent
        in it is read from the log later
    M3  clients' batches are gone when their requests were dealt with: they are copied to a place
        that all partitions of a node share, FRESH_SIZE_MAX bytes in a turn.  Entries of other
        nodes are held where they arrived, until all is done about the message they came in
    M4  whoever sends later than at once takes a copy (`own`)
"""

from typing import Final

from quipu.chain.messages import Buffer
from quipu.model.ids import LogOffset

FRESH_SIZE_MAX: Final = 1 << 20  # that one node copies in one turn; also what may wait for a peer
AT_ONCE_SIZE_MIN: Final = 32 << 10  # of entries that are worth a system call of their own
_NOWHERE: Final = LogOffset(-1)


class Copies:
    """Where one node copies what its clients have sent in this turn (M3)."""

    __slots__ = ("_data", "_size", "view")

    def __init__(self) -> None:
        self._data = bytearray()  # made when it is first needed
        self._size = 0
        self.view = memoryview(self._data)

    def add(self, prefix: bytes, batch: Buffer) -> int:
        """Copy a batch; gives where it ends, 0 if there is no room."""
        start = self._size
        middle = start + len(prefix)
        end = middle + len(batch)
        if end > FRESH_SIZE_MAX:
            return 0
        if not self._data:
            self._data = bytearray(FRESH_SIZE_MAX)
            self.view = memoryview(self._data)
        self.view[start:middle] = prefix
        self.view[middle:end] = batch
        self._size = end
        return end

    def clear(self) -> None:
        """The turn is over."""
        self._size = 0


class Fresh:
    """The newest entries of one log, as long as they are in memory."""

    __slots__ = ("_copied_end", "_copied_start", "buffers", "end", "is_lent", "size", "sizes",
                 "start")

    def __init__(self) -> None:
        self.start = _NOWHERE
        self.end = _NOWHERE
        self.size = 0
        self.sizes: list[int] = []  # of the entries
        self.buffers: list[Buffer] = []  # all their bytes
        self.is_lent = False  # are the buffers gone when the event is dealt with?
        self._copied_start = self._copied_end = 0  # of the last buffer, among the copies

    def copied(
        self, start: LogOffset, end: LogOffset, copies: Copies, copied_end: int, size: int
    ) -> None:
        """A client's batch was appended and copied; those in a row make one entry."""
        copied_start = copied_end - size
        if start != self.end or self.is_lent:
            self.forget()
            self.start = start
        elif self._copied_end == copied_start:
            self.buffers.pop()
            copied_start = self._copied_start
        self.buffers.append(copies.view[copied_start:copied_end])
        self._copied_start, self._copied_end = copied_start, copied_end
        self.end = end
        self.size += size
        self.sizes = [self.size]

    def lend(self, start: LogOffset, end: LogOffset, entries: tuple[Buffer, ...]) -> None:
        """Another node's entries were appended."""
        self.start, self.end = start, end
        self.sizes = [len(entry) for entry in entries]
        self.size = sum(self.sizes)
        self.buffers = list(entries)
        self.is_lent = True

    def own(self) -> list[Buffer]:
        """The bytes, to be kept (M4)."""
        return [b"".join(self.buffers)]

    def forget(self) -> None:
        """Hold nothing."""
        self.start = self.end = _NOWHERE
        self.size = 0
        self.sizes, self.buffers = [], []
        self.is_lent = False

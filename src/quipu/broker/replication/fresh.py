"""What a log has just been given, still in memory: it is sent on without being read back.

Invariants
    M1  what is held is what the log has from `start` to `end`, byte for byte, and was checked
        before it was appended; a cut of the log ends it
    M2  nothing is held for longer than the turn of the loop in which it came; what cannot be sent
        in it is read from the log later
    M3  of clients' batches, which are gone when their requests were dealt with, a copy is held:
        FRESH_SIZE_MAX bytes over all partitions of a node.  Entries of other nodes are held where
        they arrived, until all that is to be done about their message is done
"""

from typing import Final

from quipu.chain.messages import Buffer
from quipu.model.ids import LogOffset

FRESH_SIZE_MAX: Final = 1 << 20  # that one node copies in one turn; also what may wait for a peer
_NOWHERE: Final = LogOffset(-1)


class Fresh:
    """The newest entries of one log, as long as they are in memory."""

    __slots__ = ("buffers", "end", "is_lent", "size", "sizes", "start")

    def __init__(self) -> None:
        self.start = _NOWHERE
        self.end = _NOWHERE
        self.size = 0
        self.sizes: list[int] = []  # of the entries
        self.buffers: list[Buffer] = []  # all their bytes
        self.is_lent = False  # are the buffers gone when the event is dealt with?

    def add_copy(self, start: LogOffset, end: LogOffset, prefix: bytes, batch: Buffer) -> None:
        """A client's batch was appended; batches that follow each other make one entry."""
        if start != self.end or self.is_lent:
            self.forget()
            self.start = start
        data = b"".join((prefix, batch))
        self.end = end
        self.size += len(data)
        self.sizes = [self.size]
        self.buffers.append(data)

    def lend(self, start: LogOffset, end: LogOffset, entries: tuple[Buffer, ...]) -> None:
        """Another node's entries were appended."""
        self.start, self.end = start, end
        self.sizes = [len(entry) for entry in entries]
        self.size = sum(self.sizes)
        self.buffers = list(entries)
        self.is_lent = True

    def forget(self) -> None:
        """Hold nothing."""
        self.start = self.end = _NOWHERE
        self.size = 0
        self.sizes, self.buffers = [], []
        self.is_lent = False

"""Walk the batches of a file and check every byte, in bounded memory.

Used where bytes are not trusted yet: after a crash, for a segment without a sound index, and for
truncation.  A scan stops at the first batch that is not whole, not what was written, or not what
must come next, and says why; it never skips (a batch after a bad one may be anything).

Batches come one by one; between two of them, `skim` walks at once over those that are plain
(wire/scan_run.py), which is how the many small batches of a segment are checked in C.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from quipu.runtime.disks.disk import File
from quipu.wire.scan_run import Expected, Run, scan_run
from quipu.wire.stored_batch import (
    STORED_HEADER_SIZE,
    Fault,
    StoredHeader,
    check_body,
    check_header,
)

WINDOW_SIZE: Final = 1 << 20  # read at once; a larger batch is read whole
_NOT_DAMAGE: Final = frozenset({Fault.LAYOUT, Fault.UNSET_TYPE})  # their checksum holds


class Scanned(NamedTuple):
    """One sound batch."""

    position: int
    header: StoredHeader
    stored: memoryview


class Scan:
    """The sound batches; afterwards `position` and `fault` say where and why they ended.

    `log_end` and `end_offset` are those of the batch expected next.
    """

    def __init__(self, file: File, *, log_end: int, end_offset: int | None = None) -> None:
        self.position = 0
        self.fault: str | None = None  # None: the file ended where a batch did
        self.is_damage = True  # False: written like that, by a later version or a bug; never cut
        self.log_end = log_end
        self.end_offset = end_offset
        self._file = file
        self._size = file.size
        self._epoch: int | None = None  # the leader epoch that was visited last
        self._window = memoryview(b"")
        self._window_start = 0

    def __iter__(self) -> Iterator[Scanned]:
        while (position := self.position) < self._size:
            start = self._have(STORED_HEADER_SIZE)
            header = check_header(self._window, start, end=self._size - self._window_start)
            if isinstance(header, Fault):
                self.fault, self.is_damage = header.value, header not in _NOT_DAMAGE
                return
            size = header.size
            start = self._have(size)
            self.fault = self._fault_of(start, header)
            if self.fault is not None:
                return
            self.position = position + size
            self.log_end = header.log_offset + header.last_offset_delta + 1
            self.end_offset = header.next_offset
            self._epoch = header.leader_epoch if position > 0 else None
            assert self.position <= self._size, (self.position, self._size)
            assert self.log_end > header.log_offset, header  # storage.S1
            yield Scanned(position, header, self._window[start : start + size])

    def skim(self, *, mark_due: int, mark_interval: int) -> Run | None:
        """Walk over the plain batches that come next and are in memory; None if there are none.

        Plain includes the leader epoch of the batch before.  The first batch of a file, a
        checkpoint, may have another epoch than the batches after it, so the second is never
        skimmed.  Positions are the file's.  Never sets `fault`: the walk batch by batch does.
        """
        if self._epoch is None or self.end_offset is None:
            return None
        window_start = self._window_start
        start = self.position - window_start
        run = scan_run(self._window, start, Expected(self.log_end, self.end_offset, self._epoch),
                       mark_due=mark_due - window_start, mark_interval=mark_interval)
        if run.end == start:
            return None
        assert run.end > start, run
        assert run.log_end > self.log_end, (run, self.log_end)  # storage.S1
        self.position = window_start + run.end
        assert self.position <= self._size, (self.position, self._size)
        self.log_end, self.end_offset = run.log_end, run.end_offset
        return run._replace(end=self.position, marks=[
            (offset, log_offset, window_start + position, timestamp)
            for offset, log_offset, position, timestamp in run.marks])

    def _fault_of(self, start: int, header: StoredHeader) -> str | None:
        if (fault := check_body(self._window, start, header)) is not None:
            return fault.value
        if header.log_offset != self.log_end:
            return f"log offset {header.log_offset} where {self.log_end} comes next"
        if header.last_offset_delta < 0 or header.base_offset < 0:
            return "impossible offsets"
        if header.base_offset != self.end_offset and self.end_offset is not None:
            return f"offset {header.base_offset} where {self.end_offset} comes next"
        return None

    def _have(self, size: int) -> int:
        """Make the window hold `size` bytes from the position on, if the file has them.

        Returns where in the window the position is.
        """
        start = self.position - self._window_start
        if start + size > len(self._window):
            wanted = min(max(size, WINDOW_SIZE), self._size - self.position)
            self._window = memoryview(self._file.read(wanted, self.position))
            self._window_start = self.position
            start = 0
        assert self._window_start + start == self.position, (self._window_start, start)
        return start

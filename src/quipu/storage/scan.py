"""Walk the batches of a file and check every byte, in bounded memory.

Used where bytes are not trusted yet: after a crash, for a segment without a sound index, and for
truncation.  A scan stops at the first batch that is not whole, not what was written, or not what
must come next, and says why; it never skips (a batch after a bad one may be anything).
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from quipu.runtime.disk import File
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
    """The sound batches; afterwards `position` and `fault` tell where and why they ended.

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
        self._window = memoryview(b"")
        self._window_start = 0

    def __iter__(self) -> Iterator[Scanned]:
        position = self.position
        while position < self._size:
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
            yield Scanned(position, header, self._window[start : start + size])
            position += size

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

        Gives where in the window the position is.
        """
        start = self.position - self._window_start
        if start + size > len(self._window):
            wanted = min(max(size, WINDOW_SIZE), self._size - self.position)
            self._window = memoryview(self._file.read(wanted, self.position))
            self._window_start = self.position
            start = 0
        return start

"""An index file compared with its segment, while that segment is walked.

Every entry must name a batch that is there, with its two offsets and with the largest timestamp
before it; the header must say of the segment what the walk found.  A node trusts none of this
blindly either: it rebuilds an index that does not fit, so a wrong one costs time and no data.
"""

from quipu.model.batch_types import DATA
from quipu.model.errors import MalformedBytes
from quipu.model.ids import NO_TIMESTAMP
from quipu.runtime.disks.disk import Disk
from quipu.storage.inspect.continuity import Finding, FindingKind
from quipu.storage.inspect.files import SegmentFile
from quipu.storage.segments.index import Index, IndexEntry, Summary, decode_index
from quipu.wire.stored_batch import StoredHeader


class IndexCheck:
    """Takes every batch of one segment, and then knows whether the index agrees with it."""

    def __init__(self, disk: Disk, segment: SegmentFile) -> None:
        self._index: Index | None = None
        self._claim: Summary | None = None
        self._problem: str | None = None  # the first one: the others follow from it
        self._entry: IndexEntry | None = None
        self._entry_number = -1
        self._first: StoredHeader | None = None
        self._last: StoredHeader | None = None
        self._max_timestamp: int = NO_TIMESTAMP
        self._is_damaged = False
        self.is_missing = segment.index_path is None
        if segment.index_path is not None:
            self._open(disk, segment.index_path)

    def _open(self, disk: Disk, path: str) -> None:
        try:
            self._claim, self._index = decode_index(disk.map(path))
        except MalformedBytes as error:
            self._problem = str(error)
            return
        self._advance()

    def _advance(self) -> None:
        assert self._index is not None
        self._entry_number += 1
        more = self._entry_number < len(self._index)
        self._entry = self._index[self._entry_number] if more else None

    def note(self, position: int, header: StoredHeader) -> None:
        """The next batch of the segment."""
        if self._first is None:
            self._first = header
        if self._entry is not None and self._entry.position <= position:
            self._compare(self._entry, position, header)
        if header.batch_type == DATA:
            self._max_timestamp = max(self._max_timestamp, header.max_timestamp)
        self._last = header

    def note_damage(self) -> None:
        """Note a stretch of damage: the entries for it cannot be checked."""
        self._is_damaged = True

    def _compare(self, entry: IndexEntry, position: int, header: StoredHeader) -> None:
        assert self._first is not None
        found = IndexEntry(header.base_offset - self._first.base_offset,
                      header.log_offset - self._first.log_offset, position, self._max_timestamp)
        if entry != found and self._problem is None and not self._is_damaged:
            self._problem = (f"entry {self._entry_number} says {tuple(entry)}, "
                             f"the batch there is {tuple(found)}")
        self._advance()

    def finish(self, size: int, *, is_last: bool) -> list[Finding]:
        """The findings about the index, after the last batch of a segment of `size` bytes."""
        if self.is_missing:
            detail = "none; a node makes one when it needs it"
            return [] if is_last else [Finding(FindingKind.NO_INDEX, detail)]
        if self._claim is not None and is_last and self._claim.size < size:
            detail = f"covers {self._claim.size} of {size} bytes; a node makes it anew"
            return [Finding(FindingKind.NO_INDEX, detail)]
        if self._problem is None and not self._is_damaged:
            self._problem = self._wrong_summary(size)
        if self._problem is None:
            return []
        return [Finding(FindingKind.INDEX, f"{self._problem}; a node makes it anew")]

    def _wrong_summary(self, size: int) -> str | None:
        if self._entry is not None:
            return f"entry {self._entry_number} names position {self._entry.position}, past the end"
        if self._first is None or self._last is None:
            return "an index for a segment without batches"
        found = Summary(size, self._first.base_offset, self._last.next_offset,
                        self._last.next_log_offset, self._max_timestamp, self._first.base_timestamp)
        return None if found == self._claim else f"header says {self._claim}, found {found}"

"""Where two replicas of a log differ.

Replicas hold the same batches, byte for byte, at the same log offsets, from where the later of the
two begins: retention may have dropped more of one than of the other.  Both are read side by side
and the comparison stops at the first difference; what lies behind it follows from it.  Compacted
logs are compared by what a reader makes of them (compacted_diff.py).
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from quipu.model.batch_types import describe
from quipu.runtime.disks.disk import Disk
from quipu.runtime.disks.mapping import release_pages
from quipu.storage.inspect.compacted_diff import CompactedComparison, is_compacted
from quipu.storage.inspect.examine import RELEASE_SIZE
from quipu.storage.inspect.files import LogFiles, SegmentFile
from quipu.storage.inspect.walk import WalkedBatch, WalkedDamage, walk
from quipu.wire.stored_batch import StoredHeader, check_body

# The fields that say why a batch differs, the most important first; header_crc follows from them.
_FIELDS: Final = tuple(
    name for name in StoredHeader._fields if name not in {"header_crc", "layout", "reserved"})


class ReplicaBatch(NamedTuple):
    """One step in one replica."""

    segment: SegmentFile
    data: memoryview
    found: WalkedBatch | WalkedDamage

    @property
    def stored(self) -> memoryview:
        return self.data[self.found.position : self.found.end]


class Difference(NamedTuple):
    """The first place where two replicas are not the same."""

    log_offset: int
    offset: int
    how: tuple[str, ...]  # one line per thing that differs: A's first, then B's


class Comparison(NamedTuple):
    """The result of comparing two replicas of one log."""

    log: str
    batches: int  # equal ones, before the first difference
    bytes: int
    notes: tuple[str, ...]  # remarkable, and no difference
    difference: Difference | None


def compare(disk: Disk, a: LogFiles, b: LogFiles) -> Comparison:
    """Read both logs up to their first difference."""
    if is_compacted(disk, a) or is_compacted(disk, b):
        return _compare_compacted(disk, a, b)
    side_a, side_b = _Side(disk, a, "A"), _Side(disk, b, "B")
    notes = _align(side_a, side_b)
    batches = size = next_log = next_offset = 0
    while (item_a := side_a.item) is not None and (item_b := side_b.item) is not None:
        how = _compare(item_a, item_b)
        if how:
            place = _place(item_a, item_b, next_log, next_offset)
            return Comparison(a.name, batches, size, notes, Difference(*place, how))
        assert isinstance(item_a.found, WalkedBatch)
        header = item_a.found.header
        next_log, next_offset = header.next_log_offset, header.next_offset
        batches, size = batches + 1, size + header.size
        side_a.advance()
        side_b.advance()
    difference = None
    if side_a.item is not None or side_b.item is not None:
        longer, shorter = (side_a, side_b) if side_b.item is None else (side_b, side_a)
        difference = Difference(*_end(longer, next_log, next_offset),
                                (_missing(longer, shorter),))
    return Comparison(a.name, batches, size, notes, difference)


def _compare_compacted(disk: Disk, a: LogFiles, b: LogFiles) -> Comparison:
    done = CompactedComparison(disk, a, b)
    difference = None
    if done.found is not None:
        log_offset, offset, how = done.found
        difference = Difference(log_offset, offset, (how,))
    note = ("equal after compaction" if difference is None else "compared as compacted logs") + (
        f"; {done.records_of_one} replaced records are in one of the two only")
    return Comparison(a.name, done.batches, done.bytes, (note,), difference)


class _Side:
    """One replica, at its current batch."""

    def __init__(self, disk: Disk, log: LogFiles, label: str) -> None:
        self.label = label
        self._items = _items(disk, log)
        self.item: ReplicaBatch | None = None
        self.advance()

    def advance(self) -> None:
        self.item = next(self._items, None)

    @property
    def log_offset(self) -> int | None:
        """Where its current batch starts; None at the end or in damage."""
        if self.item is None or isinstance(self.item.found, WalkedDamage):
            return None
        return self.item.found.header.log_offset


def _items(disk: Disk, log: LogFiles) -> Iterator[ReplicaBatch]:
    for segment in log.segments:
        data = disk.map(segment.path)
        release_at = RELEASE_SIZE
        for found in walk(data, log_offset_min=segment.first_log_offset or 0, verify=False):
            if found.position >= release_at:
                release_pages(data, found.position)
                release_at = found.position + RELEASE_SIZE
            yield ReplicaBatch(segment, data, found)


def _align(a: _Side, b: _Side) -> tuple[str, ...]:
    """Pass over what only the longer history has."""
    start_a, start_b = a.log_offset, b.log_offset
    if start_a is None or start_b is None or start_a == start_b:
        return ()
    early, late = (a, b) if start_a < start_b else (b, a)
    start = max(start_a, start_b)
    while (at := early.log_offset) is not None and at < start:
        early.advance()
    note = (f"{early.label} begins earlier, at log offset {min(start_a, start_b)}; "
            f"compared from {late.label}'s first, {start}")
    return (note,)


def _compare(a: ReplicaBatch, b: ReplicaBatch) -> tuple[str, ...]:
    """What differs; nothing if the two are the same bytes."""
    if isinstance(a.found, WalkedBatch) and isinstance(b.found, WalkedBatch):
        if a.stored == b.stored:
            return ()
        return _compare_headers(a, b, a.found, b.found)
    return tuple(f"{label} is damaged: {item.found.fault} at position {item.found.position} "
                 f"of {item.segment.path}"
                 for label, item in (("A", a), ("B", b)) if isinstance(item.found, WalkedDamage))


def _compare_headers(
    a: ReplicaBatch, b: ReplicaBatch, batch_a: WalkedBatch, batch_b: WalkedBatch
) -> tuple[str, ...]:
    header_a, header_b = batch_a.header, batch_b.header
    how = [f"{name}: A {_value(header_a, name)}, B {_value(header_b, name)}"
           for name in _FIELDS if getattr(header_a, name) != getattr(header_b, name)]
    for label, item, batch in (("A", a, batch_a), ("B", b, batch_b)):
        if check_body(item.data, batch.position, batch.header) is not None:
            how.append(f"{label} has a bad body checksum, at position {batch.position} "
                       f"of {item.segment.path}")
    return tuple(how) or ("records: the same header and checksum over other bytes",)


def _value(header: StoredHeader, name: str) -> str:
    value = getattr(header, name)
    if name == "batch_type":
        return describe(value)
    return f"{value:#010x}" if name == "crc" else str(value)


def _place(a: ReplicaBatch, b: ReplicaBatch, next_log: int, next_offset: int) -> tuple[int, int]:
    """Both offsets of a difference: those of the batch that comes first."""
    starts = [(item.found.header.log_offset, item.found.header.base_offset)
              for item in (a, b) if isinstance(item.found, WalkedBatch)]
    if len(starts) == 2:
        return min(starts)
    return next_log, next_offset  # damage: where the next batch should have been


def _end(longer: _Side, next_log: int, next_offset: int) -> tuple[int, int]:
    if longer.item is not None and isinstance(longer.item.found, WalkedBatch):
        header = longer.item.found.header
        return header.log_offset, header.base_offset
    return next_log, next_offset


def _missing(longer: _Side, shorter: _Side) -> str:
    """How much more the longer one has; goes through the rest of it."""
    batches, last = 0, None
    while longer.item is not None:
        if isinstance(longer.item.found, WalkedBatch):
            batches, last = batches + 1, longer.item.found.header
        longer.advance()
    if last is None:
        return f"{shorter.label} ends here, {longer.label} goes on with damage"
    return (f"missing in {shorter.label}: {longer.label} goes on for {batches} "
            f"batch{'' if batches == 1 else 'es'}, to log offset {last.next_log_offset} and "
            f"offset {last.next_offset}")

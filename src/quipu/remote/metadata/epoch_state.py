"""The segments of one leader epoch of one partition: which of them is read at which offset.

    references    start offset -> the finished segment that is read from there
    unreferenced  segments that are not read: being copied, being deleted, or replaced
    highest       the highest offset ever copied in this epoch

A method that is named after an event decides, and returns an `EpochChange`; `apply` carries it out.
The caller stores the change in between, so a change that was not stored is never seen.

A finished copy replaces every reference whose offsets it holds.  One whose offsets another
reference holds, and more, is not referenced itself: offsets that were readable stay readable.
Kafka compares with the highest offset instead: it may forget a replaced segment in both maps, and
may hide offsets behind a shorter segment.

Invariants
    remote.E1  every segment of the epoch is referenced or unreferenced, and never both
    remote.E2  from one reference to the next starts ascend and ends do not descend; so the
               reference with the greatest start at or below an offset holds it, or none does
    remote.E3  highest never falls, also when segments are deleted

Not here: states of segments (partition_cache.py); how it is stored (changes.py).
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

from quipu.remote.metadata.errors import CorruptMetadata


class SegmentReference(NamedTuple):
    """The offsets of the epoch that one segment holds; both ends are inclusive."""

    start: int
    end: int
    segment: UUID


class EpochChange(NamedTuple):
    """What one event changes in one epoch."""

    epoch: int
    set_reference: SegmentReference | None = None  # replaces one with the same start
    removed_starts: tuple[int, ...] = ()  # of references that go, without that of set_reference
    added_unreferenced: tuple[UUID, ...] = ()
    removed_unreferenced: tuple[UUID, ...] = ()
    highest: int | None = None  # the new one; None: as before


class LeaderEpochState:
    """The segments of one leader epoch."""

    __slots__ = ("_references", "_starts", "epoch", "highest", "size_bytes", "unreferenced")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self._starts: list[int] = []  # ascending: the keys of _references
        self._references: dict[int, SegmentReference] = {}
        self.unreferenced: set[UUID] = set()
        self.highest: int | None = None
        self.size_bytes = 0  # of all segments of the epoch; kept by the caller

    # --- what is there ----------------------------------------------------------------------

    def references(self) -> Iterator[SegmentReference]:
        """All references, by start offset."""
        return (self._references[start] for start in self._starts)

    def segments(self) -> Iterator[UUID]:
        """All segments of the epoch, first the referenced ones by start offset."""
        yield from (reference.segment for reference in self.references())
        yield from sorted(self.unreferenced)

    def reference_at(self, start: int) -> SegmentReference | None:
        """The reference that starts exactly there."""
        return self._references.get(start)

    def find_floor(self, offset: int) -> SegmentReference | None:
        """The reference with the greatest start that is not above `offset`."""
        index = bisect_right(self._starts, offset)
        return self._references[self._starts[index - 1]] if index else None

    def find(self, offset: int) -> SegmentReference | None:
        """The reference that holds `offset` (remote.E2)."""
        floor = self.find_floor(offset)
        return floor if floor is not None and offset <= floor.end else None

    # --- events -----------------------------------------------------------------------------

    def copy_started(self, segment: UUID) -> EpochChange:
        """A segment of this epoch is being copied."""
        return EpochChange(self.epoch, added_unreferenced=(segment,))

    def copy_finished(self, reference: SegmentReference) -> EpochChange:
        """A segment was copied: it is read from now on, unless a longer one is (remote.E2)."""
        start, end, segment = reference
        assert segment in self.unreferenced, reference  # remote.E1
        if start > end:
            return EpochChange(self.epoch)  # no record of this epoch
        highest = end if self.highest is None or end > self.highest else None
        floor = self.find_floor(start)
        if floor is not None and floor.end > end:
            assert highest is None, (floor, reference)
            return EpochChange(self.epoch)  # stays unreferenced: the other holds all of it
        replaced = list(self._replaced_by(start, end))
        return EpochChange(
            self.epoch, set_reference=reference,
            removed_starts=tuple(each.start for each in replaced if each.start != start),
            added_unreferenced=tuple(each.segment for each in replaced),
            removed_unreferenced=(segment,), highest=highest)

    def _replaced_by(self, start: int, end: int) -> Iterator[SegmentReference]:
        """References within [start, end]: ends do not descend, so they are consecutive."""
        for index in range(bisect_left(self._starts, start), len(self._starts)):
            reference = self._references[self._starts[index]]
            if reference.end > end:
                return
            yield reference

    def delete_started(self, start: int, segment: UUID) -> EpochChange:
        """A segment is being deleted: it is no longer read."""
        reference = self._references.get(start)
        if reference is None or reference.segment != segment:
            assert segment in self.unreferenced, segment  # remote.E1
            return EpochChange(self.epoch)
        return EpochChange(self.epoch, removed_starts=(start,), added_unreferenced=(segment,))

    def delete_finished(self, segment: UUID) -> EpochChange:
        """A segment is gone."""
        assert segment in self.unreferenced, segment  # remote.E1
        return EpochChange(self.epoch, removed_unreferenced=(segment,))

    # --- carrying out -----------------------------------------------------------------------

    def apply(self, change: EpochChange) -> None:
        """Carry out a change that this state decided on, and that is stored."""
        assert change.epoch == self.epoch, (change, self.epoch)
        for start in change.removed_starts:
            del self._references[start]
            del self._starts[bisect_left(self._starts, start)]
        self.unreferenced.update(change.added_unreferenced)
        self.unreferenced.difference_update(change.removed_unreferenced)
        if change.set_reference is not None:
            self._set(change.set_reference)
        if change.highest is not None:
            assert self.highest is None or change.highest > self.highest, change  # remote.E3
            self.highest = change.highest

    def _set(self, reference: SegmentReference) -> None:
        if reference.start not in self._references:
            insort(self._starts, reference.start)
        self._references[reference.start] = reference
        index = bisect_left(self._starts, reference.start)
        for other in self._starts[max(0, index - 1):index]:
            assert self._references[other].end <= reference.end, reference  # remote.E2
        for other in self._starts[index + 1:index + 2]:
            assert self._references[other].end >= reference.end, reference  # remote.E2

    def load(self, reference: SegmentReference) -> None:
        """Take in a stored reference; they come in the order of their starts."""
        last = self._references[self._starts[-1]] if self._starts else None
        if last is not None and not (last.start < reference.start and last.end <= reference.end):
            raise CorruptMetadata(  # remote.E2
                f"leader epoch {self.epoch}: {reference} cannot follow {last}; restore it")
        self._starts.append(reference.start)
        self._references[reference.start] = reference

    def invariants(self) -> None:
        """Assert what holds between two events."""
        assert self._starts == sorted(self._references), self._starts
        ends = [reference.end for reference in self.references()]
        assert ends == sorted(ends), ends  # remote.E2
        assert not ends or (self.highest is not None and self.highest >= ends[-1])  # remote.E3
        referenced = {reference.segment for reference in self.references()}
        assert len(referenced) == len(ends), ends  # remote.E1
        assert not referenced & self.unreferenced, referenced & self.unreferenced  # remote.E1

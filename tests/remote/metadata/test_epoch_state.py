"""One leader epoch: which segment is read at which offset, whatever copies overlap."""

from collections.abc import Iterable
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quipu.remote.metadata.epoch_state import LeaderEpochState, SegmentReference
from quipu.remote.metadata.errors import CorruptMetadata

S = [uuid4() for _ in range(5)]


class Epoch:
    """An epoch state that carries out what it decides, and checks itself."""

    def __init__(self) -> None:
        self.state = LeaderEpochState(3)

    def started(self, segment: UUID) -> None:
        self.state.apply(self.state.copy_started(segment))
        self.state.invariants()

    def finished(self, start: int, end: int, segment: UUID) -> None:
        if segment not in self.state.unreferenced:
            self.started(segment)
        self.state.apply(self.state.copy_finished(SegmentReference(start, end, segment)))
        self.state.invariants()

    def deleting(self, start: int, segment: UUID) -> None:
        self.state.apply(self.state.delete_started(start, segment))
        self.state.invariants()

    def deleted(self, segment: UUID) -> None:
        self.state.apply(self.state.delete_finished(segment))
        self.state.invariants()

    def at(self, offset: int) -> UUID | None:
        found = self.state.find(offset)
        return found.segment if found else None

    @property
    def referenced(self) -> list[UUID]:
        return [each.segment for each in self.state.references()]


def finished(copies: Iterable[tuple[int, int, UUID]]) -> Epoch:
    epoch = Epoch()
    for copy in copies:
        epoch.finished(*copy)
    return epoch


def test_an_empty_epoch_has_nothing() -> None:
    """R5: no segment, no offset."""
    epoch = Epoch()
    assert (list(epoch.state.segments()), epoch.at(0), epoch.state.highest) == ([], None, None)


def test_a_copy_that_began_is_unreferenced() -> None:
    """R5: it is not read."""
    epoch = Epoch()
    epoch.started(S[0])
    assert epoch.state.unreferenced == {S[0]}
    assert (epoch.at(0), epoch.state.highest) == (None, None)


def test_finished_copies_are_read() -> None:
    """R5: by the greatest start that is not above the offset; the highest offset is known."""
    epoch = finished([(10, 100, S[0]), (101, 200, S[1])])
    assert epoch.referenced == [S[0], S[1]]
    assert [epoch.at(offset) for offset in (9, 10, 90, 100, 101, 150, 200, 201)] == [
        None, S[0], S[0], S[0], S[1], S[1], S[1], None]
    assert (epoch.state.unreferenced, epoch.state.highest) == (set(), 200)


OVERLAPS = [
    ("a copy of all of it replaces it", [(10, 100), (5, 150)], [1], {0}, 150),
    ("one copy replaces several", [(10, 100), (5, 150), (148, 155), (4, 200)], [3], {0, 1, 2}, 200),
    ("a duplicate replaces the first", [(10, 100), (10, 100)], [1], {0}, 100),
    ("a longer copy with the same start", [(10, 100), (10, 150)], [1], {0}, 150),
    ("a shorter copy with the same start", [(10, 200), (10, 100)], [0], {1}, 200),
    ("a copy within another", [(0, 200), (50, 100)], [0], {1}, 200),
    ("a copy with the same end", [(0, 100), (50, 100)], [0, 1], set(), 100),
    ("a copy that reaches into the next", [(0, 100), (101, 200), (0, 150)], [2, 1], {0}, 200),
    ("a copy of the first two of three", [(0, 9), (10, 19), (20, 29), (0, 19)], [3, 2], {0, 1}, 29),
    ("a copy that bridges two", [(0, 100), (50, 150), (40, 120)], [0, 2, 1], set(), 150),
]


@pytest.mark.parametrize(("copies", "referenced", "unreferenced", "highest"),
                         [each[1:] for each in OVERLAPS], ids=[each[0] for each in OVERLAPS])
def test_overlapping_copies(
    copies: list[tuple[int, int]], referenced: list[int], unreferenced: set[int], highest: int
) -> None:
    """R5, R14: remote.E1, remote.E2: every copy is referenced or unreferenced, and none is lost."""
    epoch = finished((start, end, S[n]) for n, (start, end) in enumerate(copies))
    assert epoch.referenced == [S[n] for n in referenced]
    assert epoch.state.unreferenced == {S[n] for n in unreferenced}
    assert epoch.state.highest == highest


def test_a_segment_that_was_replaced_can_still_be_deleted() -> None:
    """R14: the upstream defect: S0 was in neither map, and never cleaned."""
    epoch = finished([(0, 100, S[0]), (101, 200, S[1]), (0, 150, S[2])])
    assert [epoch.at(offset) for offset in (0, 100, 101, 150, 151, 200)] == [
        S[2], S[2], S[1], S[1], S[1], S[1]]
    epoch.deleting(0, S[0])
    epoch.deleted(S[0])
    assert epoch.referenced == [S[2], S[1]]
    assert epoch.state.unreferenced == set()


def test_what_is_being_deleted_is_not_read() -> None:
    """R5: remote.E3: and the highest offset stays."""
    epoch = finished([(10, 100, S[0]), (101, 200, S[1])])
    epoch.deleting(10, S[0])
    epoch.deleting(101, S[1])
    assert (epoch.referenced, epoch.state.unreferenced) == ([], {S[0], S[1]})
    epoch.deleted(S[0])
    epoch.deleted(S[1])
    assert (list(epoch.state.segments()), epoch.state.highest) == ([], 200)
    epoch.finished(5, 8, S[2])
    assert epoch.state.highest == 200


def test_deleting_one_does_not_touch_another_with_the_same_start() -> None:
    """R5: the reference is of the one that replaced it."""
    epoch = finished([(10, 100, S[0]), (10, 150, S[1])])
    epoch.deleting(10, S[0])
    assert (epoch.at(11), epoch.state.unreferenced) == (S[1], {S[0]})


def test_a_segment_without_records_of_the_epoch_is_not_read_in_it() -> None:
    """R5: it is listed, and that is all."""
    epoch = finished([(10, 9, S[0])])
    assert (epoch.at(10), epoch.state.unreferenced, epoch.state.highest) == (None, {S[0]}, None)


def test_references_that_contradict_each_other_are_not_loaded() -> None:
    """R12: remote.E2: what is stored is checked."""
    for second in ((10, 200), (5, 300), (50, 100)):
        state = LeaderEpochState(0)
        state.load(SegmentReference(10, 150, S[0]))
        with pytest.raises(CorruptMetadata, match="cannot follow"):
            state.load(SegmentReference(*second, S[1])._replace(
                end=min(second[1], 149) if second[0] > 10 else second[1]))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30), st.integers(0, 12)), max_size=25))
def test_a_copy_never_hides_an_offset(events: list[tuple[bool, int, int]]) -> None:
    """R14: remote.E1, remote.E2: against a plain model: what was readable stays so, until it is
    deleted; an offset is read from a segment that holds it.
    """
    epoch = Epoch()
    ranges: dict[UUID, tuple[int, int]] = {}
    for number, (is_deletion, start, length) in enumerate(events):
        before = {offset for offset in range(50) if epoch.at(offset)}
        highest = epoch.state.highest
        if is_deletion and (referenced := epoch.referenced):
            gone = referenced[start % len(referenced)]
            epoch.deleting(ranges[gone][0], gone)
            first, last = ranges.pop(gone)
            before -= set(range(first, last + 1))
        else:
            segment = UUID(int=number)
            ranges[segment] = (start, start + length)
            epoch.finished(start, start + length, segment)
            before |= set(range(start, start + length + 1))
        for offset in range(50):
            found = epoch.at(offset)
            if found is not None:
                assert ranges[found][0] <= offset <= ranges[found][1]
            else:
                assert offset not in before
        assert highest is None or (epoch.state.highest or -1) >= highest
        assert set(ranges) <= set(epoch.state.segments())

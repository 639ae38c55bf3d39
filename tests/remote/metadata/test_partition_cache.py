"""The cache of a partition: Kafka's published behaviours, event by event."""

import pytest

from quipu.remote.metadata.epoch_state import SegmentReference
from quipu.remote.metadata.errors import (
    CorruptMetadata,
    InvalidMetadata,
    InvalidTransition,
    RemoteResourceNotFound,
)
from quipu.remote.metadata.partition_cache import PartitionCache
from quipu.remote.metadata.segment_metadata import RemoteLogSegmentMetadata
from quipu.remote.metadata.states import (
    COPY_FINISHED,
    COPY_STARTED,
    DELETE_FINISHED,
    DELETE_STARTED,
    RemoteLogSegmentState,
)
from tests.remote.metadata.segments import SIZE, fresh_partition, segment, update

PARTITION = fresh_partition()


class Cache:
    """A cache to which every planned change is applied at once."""

    def __init__(self) -> None:
        self.cache = PartitionCache(PARTITION)

    def add(self, added: RemoteLogSegmentMetadata) -> None:
        self.cache.apply(self.cache.plan_add(added))
        self.cache.invariants()

    def to(self, of: RemoteLogSegmentMetadata, *states: RemoteLogSegmentState) -> None:
        for state in states:
            self.cache.apply(self.cache.plan_update(update(of, state)))
            self.cache.invariants()


def test_a_segment_is_added_only_as_begun() -> None:
    """R10, R14: any other state is a mistake of the caller."""
    cache = Cache()
    begun = segment(PARTITION, 0, 9)
    for state in (COPY_FINISHED, DELETE_STARTED, DELETE_FINISHED):
        with pytest.raises(InvalidMetadata, match="begins as COPY_SEGMENT_STARTED"):
            cache.add(begun.with_update(update(begun, state)))
    with pytest.raises(InvalidMetadata, match="is not foo-0"):
        cache.add(segment(fresh_partition(), 0, 9))


def test_an_unknown_segment_cannot_be_updated() -> None:
    """R14: whatever the state."""
    cache = Cache()
    for state in (COPY_FINISHED, DELETE_STARTED, DELETE_FINISHED):
        with pytest.raises(RemoteResourceNotFound):
            cache.to(segment(PARTITION, 0, 9), state)
    with pytest.raises(InvalidMetadata, match="add it"):
        cache.to(segment(PARTITION, 0, 9), COPY_STARTED)


def test_an_event_that_does_not_fit_changes_nothing() -> None:
    """R10, R14: remote.C1: the published sequence; what is refused leaves the state as it was."""
    cache, added = Cache(), segment(PARTITION, 10, 100, {5: 10})
    cache.add(added)
    for event, state in [(3, 0), (1, 1), (3, 1), (0, 1), (2, 2), (1, 2), (0, 2)]:
        try:
            if event == COPY_STARTED:
                cache.add(added)
            else:
                cache.to(added, RemoteLogSegmentState(event))
        except InvalidTransition:
            assert event != state
        else:
            assert event == state
        assert [each.state for each in cache.cache.segments_of(5)] == [state]
    cache.to(added, DELETE_FINISHED)
    assert cache.cache.segments_of(5) == []


def test_repeating_an_event_is_a_retry_and_moves_nothing() -> None:
    """R10: remote.C3: a late retry does not bring a replaced segment back."""
    cache = Cache()
    first, second = segment(PARTITION, 0, 9), segment(PARTITION, 0, 9)
    cache.add(first)
    cache.add(first)
    cache.to(first, COPY_FINISHED, COPY_FINISHED)
    cache.add(second)
    cache.to(second, COPY_FINISHED)
    cache.to(first, COPY_FINISHED)
    found = cache.cache.find(0, 5)
    assert found is not None
    assert found.segment_id == second.segment_id
    cache.to(first, DELETE_STARTED, DELETE_STARTED, DELETE_FINISHED)
    assert [each.segment_id for each in cache.cache.segments()] == [second.segment_id]


def test_an_id_is_used_for_one_segment() -> None:
    """R10: adding it again with other offsets is refused: the first one's entries would be lost."""
    cache, added = Cache(), segment(PARTITION, 0, 9)
    cache.add(added)
    with pytest.raises(InvalidTransition, match="an id of its own"):
        cache.add(segment(PARTITION, 0, 10, id=added.segment_id.id))


def test_the_published_life_cycle() -> None:
    """R5, R14: four segments over five epochs; lookups, highest offsets, then a deletion."""
    cache = Cache()
    seg0 = segment(PARTITION, 0, 100, {0: 0, 1: 20, 2: 80})
    cache.add(seg0)
    assert cache.cache.find(1, 40) is None
    assert [cache.cache.highest_offset(epoch) for epoch in (0, 1, 2)] == [None, None, None]
    cache.to(seg0, COPY_FINISHED)
    seg1 = segment(PARTITION, 101, 200, {2: 101})
    seg2 = segment(PARTITION, 201, 300, {2: 201, 3: 240})
    seg3 = segment(PARTITION, 250, 400, {3: 250, 4: 370})
    for added in (seg1, seg2, seg3):
        cache.add(added)
        cache.to(added, COPY_FINISHED)
    for epoch, offset, expected in [
            (1, 40, seg0), (2, 110, seg1), (3, 240, seg2), (3, 250, seg3), (4, 375, seg3)]:
        found = cache.cache.find(epoch, offset)
        assert found is not None
        assert found == expected.with_update(update(expected, COPY_FINISHED))
    assert [cache.cache.find(*at) for at in ((1, 110), (4, 401), (5, 301), (0, -1))] == [None] * 4

    cache.to(seg0, DELETE_STARTED)
    assert cache.cache.find(0, 10) is None
    cache.to(seg0, DELETE_FINISHED)
    assert cache.cache.find(0, 10) is None
    assert [cache.cache.highest_offset(epoch) for epoch in range(6)] == [
        19, 79, 239, 369, 400, None]


def test_segments_are_listed_in_every_state_but_the_last() -> None:
    """R5: of an epoch by start offset, referenced or not."""
    cache = Cache()
    copied = [segment(PARTITION, 0, 100), segment(PARTITION, 101, 200),
              segment(PARTITION, 201, 400, {0: 201, 1: 301})]
    begun, dropped = segment(PARTITION, 401, 500), segment(PARTITION, 50, 60)
    for added in (*copied[::-1], begun, dropped):
        cache.add(added)
    for added in copied:
        cache.to(added, COPY_FINISHED)
    cache.to(dropped, DELETE_STARTED)
    assert [each.start_offset for each in cache.cache.segments_of(0)] == [0, 50, 101, 201, 401]
    assert [each.start_offset for each in cache.cache.segments_of(1)] == [201]
    assert cache.cache.segments_of(2) == []
    assert len(list(cache.cache.segments())) == 5
    assert [cache.cache.size_bytes(epoch) for epoch in (0, 1, 2)] == [5 * SIZE, SIZE, 0]
    cache.to(dropped, DELETE_FINISHED)
    assert cache.cache.size_bytes(0) == 4 * SIZE


def test_entries_that_contradict_each_other_are_not_loaded() -> None:
    """R12: remote.C2: a reference to a segment that is not finished, or not there."""
    begun = segment(PARTITION, 0, 9)
    finished = begun.with_update(update(begun, COPY_FINISHED))
    reference = SegmentReference(0, 9, begun.segment_id.id)

    def loaded(*segments: RemoteLogSegmentMetadata) -> PartitionCache:
        cache = PartitionCache(PARTITION)
        for each in segments:
            cache.load_segment(each)
        return cache

    good = loaded(finished)
    good.load_highest(0, 9)
    good.load_reference(0, reference)
    good.check_loaded()
    with pytest.raises(CorruptMetadata, match="1 entries of leader epochs are missing"):
        loaded(begun).check_loaded()
    with pytest.raises(CorruptMetadata, match="twice"):
        good.load_unreferenced(0, begun.segment_id.id)
    other_order = loaded(finished)
    other_order.load_unreferenced(0, begun.segment_id.id)
    with pytest.raises(CorruptMetadata, match="twice"):
        other_order.load_reference(0, reference)
    for cache, epoch, wrong in [(loaded(), 0, reference), (loaded(begun), 0, reference),
                                (loaded(finished), 1, reference),
                                (loaded(finished), 0, reference._replace(end=8))]:
        with pytest.raises(CorruptMetadata, match="restore it"):
            cache.load_reference(epoch, wrong)
    with pytest.raises(CorruptMetadata):
        loaded(begun).load_unreferenced(7, begun.segment_id.id)
    unknown_highest = loaded(finished)
    unknown_highest.load_reference(0, reference)
    with pytest.raises(CorruptMetadata, match="records up to 9, but its highest offset is None"):
        unknown_highest.check_loaded()

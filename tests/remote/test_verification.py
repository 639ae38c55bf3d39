"""Segments are compared with their metadata, byte by byte, while a broker goes on working."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from quipu.model.errors import CorruptLog
from quipu.remote.metadata.segment_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)
from quipu.remote.metadata.states import COPY_FINISHED, COPY_STARTED
from quipu.remote.segments.names import SegmentName, partition_prefix
from quipu.remote.verification import (
    ListedPartition,
    PartitionReport,
    TierFault,
    gaps,
    name_of,
    verify_partition,
    verify_segment,
)
from quipu.runtime.objects.errors import StoreUnavailable
from tests.looped import looped
from tests.remote.segments.builders import (
    NOW_MS,
    RUN,
    CountingStore,
    MadeSegment,
    Spec,
    flipped,
    make_segment,
    put,
)

PARTITION = TopicIdPartition(UUID(int=7), 2, "t")
PREFIX = partition_prefix(PARTITION.topic_id, PARTITION.partition)


async def copied(store: CountingStore, start: int, number: int) -> RemoteLogSegmentMetadata:
    """A segment of 30 records in the store, and its metadata."""
    made = made_at(start, number)
    pointer = await put(store, made)
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(PARTITION, UUID(int=number)), start_offset=start,
        end_offset=start + 29, max_timestamp_ms=made.segment.max_timestamp, broker_id=1,
        event_timestamp_ms=NOW_MS, segment_size_bytes=made.segment.size,
        segment_leader_epochs={1: start}, custom_metadata=pointer.encode(), state=COPY_FINISHED)


def made_at(start: int, number: int) -> MadeSegment:
    return make_segment([Spec(record_count=10)] * 3, SegmentName(
        PARTITION.topic_id, PARTITION.partition, start, UUID(int=number)))


async def verified(
    store: CountingStore, *listings: Sequence[RemoteLogSegmentMetadata], end: int = 60
) -> PartitionReport:
    """What is found if the leader lists segments like this, one listing after the other."""
    left = list(listings)
    return await verify_partition(
        store, lambda: ListedPartition(PARTITION, left.pop(0), 0, end), PREFIX, run=RUN)


@looped
async def test_every_byte_is_read_and_compared() -> None:
    """R15, remote.V1: one changed bit anywhere in an object is found."""
    store = CountingStore()
    segments = [await copied(store, 0, 1), await copied(store, 30, 2)]
    report = await verified(store, segments)
    size = sum(info.size for info in (await store.list()).objects)
    assert report == PartitionReport(2, size, ())
    assert store.read_size == size
    key = name_of(segments[0]).key
    data = await store.get(key)
    for position in range(0, len(data), 97):
        await store.put(key, [flipped(data, position)])
        report = await verified(store, segments, segments)
        assert [each.kind for each in report.findings] == [TierFault.DAMAGED], position
        assert report.verified_count == 1
    await store.put(key, [data[:-1]])
    (finding,) = (await verified(store, segments, segments)).findings
    assert (finding.kind, finding.key, finding.start) == (TierFault.DAMAGED, key, 0)


@looped
async def test_an_intact_object_of_other_metadata_is_found() -> None:
    """R15, remote.V1: offsets, sizes, epochs and times in the metadata are compared with those
    in the object.
    """
    store = CountingStore()
    segment = await copied(store, 0, 1)
    await verify_segment(store, segment, RUN)
    for other, what in (
            (replace(segment, end_offset=30), "end offset is 29 in the object, and 30"),
            (replace(segment, segment_size_bytes=1), "size"),
            (replace(segment, max_timestamp_ms=1), "largest timestamp"),
            (replace(segment, segment_leader_epochs={1: 0, 2: 5}), "leader epochs")):
        with pytest.raises(CorruptLog, match=what):
            await verify_segment(store, other, RUN)


@looped
async def test_what_changes_meanwhile_is_no_finding() -> None:
    """R15: a segment that is deleted, or copied, while it is verified is neither missing nor an
    orphan.
    """
    store = CountingStore()
    first, second = await copied(store, 0, 1), await copied(store, 30, 2)
    await store.delete([name_of(first).key])
    report = await verified(store, [first, second], [first, second])
    assert [each.kind for each in report.findings] == [TierFault.MISSING]
    expired = ListedPartition(PARTITION, [second], 30, 60)
    listings = [ListedPartition(PARTITION, [first, second], 0, 60), expired]
    report = await verify_partition(store, lambda: listings.pop(0), PREFIX, run=RUN)
    assert report.findings == ()
    being_copied = replace(second, state=COPY_STARTED, custom_metadata=None)
    assert (await verified(store, [being_copied], end=0)).findings == ()
    store.refuse = 1
    with pytest.raises(StoreUnavailable):
        await verified(store, [second], end=0)


@looped
async def test_orphans_and_gaps_are_told() -> None:
    """R15: an object without metadata, and offsets without an object."""
    store = CountingStore()
    first, last, orphan = [await copied(store, start, number)
                           for start, number in ((0, 1), (60, 2), (30, 3))]
    await store.put(f"{PREFIX}something-else", [b"of another program"])
    report = await verified(store, [first, last], [first, last], end=95)
    assert [(each.kind, each.start) for each in report.findings] == [
        (TierFault.GAP, 30), (TierFault.ORPHAN, 30), (TierFault.GAP, 90)]
    assert report.findings[0].why == "no finished copy has offsets 30 to 59"
    assert report.findings[1].key == name_of(orphan).key


def test_gaps_are_those_of_what_must_be_there() -> None:
    """Copies may overlap, begin before the log start and end after the local start."""
    def found(start: int, end: int, *ranges: tuple[int, int]) -> list[int]:
        segments = [RemoteLogSegmentMetadata(
            segment_id=RemoteLogSegmentId(PARTITION, UUID(int=number)), start_offset=first,
            end_offset=last, max_timestamp_ms=0, broker_id=1, event_timestamp_ms=0,
            segment_size_bytes=1, segment_leader_epochs={0: first}, state=COPY_FINISHED)
            for number, (first, last) in enumerate(ranges)]
        return [each.start for each in gaps(ListedPartition(PARTITION, segments, start, end))]

    assert found(0, 0) == []
    assert found(5, 5, (0, 9)) == []
    assert found(5, 20, (0, 9), (8, 30)) == []
    assert found(5, 20) == [5]
    assert found(5, 20, (7, 9), (15, 17)) == [5, 10, 18]
    assert found(5, 20, (20, 30)) == [5]

"""The manager, as leader and as follower, on every backend: Kafka's published behaviours."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from quipu.remote.metadata.errors import (
    InvalidMetadata,
    InvalidTransition,
    MetadataClosed,
    NotPartitionLeader,
    RemoteResourceNotFound,
)
from quipu.remote.metadata.manager import StoredRemoteLogMetadata
from quipu.remote.metadata.segment_metadata import RemoteLogSegmentMetadata, TopicIdPartition
from quipu.remote.metadata.states import (
    COPY_FINISHED,
    DELETE_FINISHED,
    DELETE_STARTED,
    PARTITION_FINISHED,
    PARTITION_MARKED,
    PARTITION_STARTED,
    RemoteLogSegmentState,
)
from quipu.remote.metadata.storage.backend import MetadataStorageBackend
from quipu.remote.metadata.storage.keys import PathKeyFactory
from tests.contract.metadata_backend.backends import BackendUnderTest
from tests.looped import looped
from tests.remote.metadata.segments import SIZE, deletion, fresh_partition, segment, update
from tests.remote.metadata.world import manager_of


class Two(NamedTuple):
    """A leader and a follower of one partition."""

    leader: StoredRemoteLogMetadata
    follower: StoredRemoteLogMetadata
    partition: TopicIdPartition
    backend: MetadataStorageBackend

    async def copy(self, copied: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
        """Copy a segment; return what is stored of it."""
        await self.leader.add_remote_log_segment_metadata(copied)
        return await self.to(copied, COPY_FINISHED)

    async def to(
        self, of: RemoteLogSegmentMetadata, *states: RemoteLogSegmentState
    ) -> RemoteLogSegmentMetadata:
        for state in states:
            await self.leader.update_remote_log_segment_metadata(update(of, state))
        return of.with_update(update(of, states[-1]))

    async def find(self, epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        """What both of them find."""
        found = await self.leader.remote_log_segment_metadata(self.partition, epoch, offset)
        assert found == await self.follower.remote_log_segment_metadata(
            self.partition, epoch, offset)
        return found

    async def listed(self, epoch: int | None = None) -> list[RemoteLogSegmentMetadata]:
        """What both of them list; of an epoch, in the same order."""
        ours = await self.leader.list_remote_log_segments(self.partition, epoch)
        theirs = await self.follower.list_remote_log_segments(self.partition, epoch)
        if epoch is None:
            ours, theirs = (sorted(each, key=lambda each: each.order) for each in (ours, theirs))
        assert ours == theirs
        return ours

    async def highest(self, epoch: int) -> int | None:
        found = await self.leader.highest_offset_for_epoch(self.partition, epoch)
        assert found == await self.follower.highest_offset_for_epoch(self.partition, epoch)
        return found

    async def size(self, epoch: int) -> int:
        found = await self.leader.remote_log_size(self.partition, epoch)
        assert found == await self.follower.remote_log_size(self.partition, epoch)
        return found


@asynccontextmanager
async def two(under_test: BackendUnderTest) -> AsyncIterator[Two]:
    partition = fresh_partition()
    leader, follower = await manager_of(under_test.open(), 0), await manager_of(
        under_test.open(), 1)
    await leader.on_partition_leadership_changes({partition: 3}, [])
    await follower.on_partition_leadership_changes({}, [partition])
    backend = under_test.open()
    try:
        yield Two(leader, follower, partition, backend)
    finally:
        await leader.close()
        await follower.close()
        await backend.close()


@looped
async def test_a_segment_is_found_once_it_is_copied(under_test: BackendUnderTest) -> None:
    """R1, R2, R3: with broker and time of the update; leader and follower agree."""
    async with two(under_test) as both:
        added = segment(both.partition, 101, 200, {0: 101})
        await both.leader.add_remote_log_segment_metadata(added)
        assert await both.find(0, 150) is None
        finished = await both.to(added, COPY_FINISHED)
        assert await both.find(0, 150) == finished
        assert (finished.broker_id, finished.event_timestamp_ms) != (
            added.broker_id, added.event_timestamp_ms)
        assert [await both.find(*at) for at in (
            (0, 100), (0, 201), (1, 150), (0, -1), (-1, 150), (0, 1 << 63), (1 << 31, 0))
        ] == [None] * 7


@looped
async def test_the_published_life_cycle(under_test: BackendUnderTest) -> None:
    """R3, R5, R14: lookups and highest offsets over five epochs, then a deletion."""
    async with two(under_test) as both:
        partition = both.partition
        seg0 = segment(partition, 0, 100, {0: 0, 1: 20, 2: 80})
        await both.leader.add_remote_log_segment_metadata(seg0)
        assert await both.find(1, 40) is None
        assert [await both.highest(epoch) for epoch in range(3)] == [None] * 3
        done0 = await both.to(seg0, COPY_FINISHED)
        done1 = await both.copy(segment(partition, 101, 200, {2: 101}))
        done2 = await both.copy(segment(partition, 201, 300, {2: 201, 3: 240}))
        done3 = await both.copy(segment(partition, 250, 400, {3: 250, 4: 370}))
        for epoch, offset, expected in [
                (1, 40, done0), (2, 110, done1), (3, 240, done2), (3, 250, done3),
                (4, 375, done3), (1, 110, None), (4, 401, None), (5, 301, None)]:
            assert await both.find(epoch, offset) == expected
        await both.to(seg0, DELETE_STARTED)
        assert await both.find(0, 10) is None
        await both.to(seg0, DELETE_FINISHED)
        assert await both.find(0, 10) is None
        assert [await both.highest(epoch) for epoch in range(6)] == [19, 79, 239, 369, 400, None]
        keys = PathKeyFactory()
        assert await both.backend.get(keys.segment_key(partition, seg0.segment_id.id)) is None


@looped
async def test_highest_offsets_when_an_epoch_begins_inside(under_test: BackendUnderTest) -> None:
    """R3, R5: two segments that share an epoch."""
    async with two(under_test) as both:
        await both.copy(segment(both.partition, 0, 70, {1: 20, 2: 50}))
        await both.copy(segment(both.partition, 0, 150, {2: 80, 3: 100}))
        assert [await both.highest(epoch) for epoch in (1, 2, 3, 4)] == [49, 99, 150, None]


@looped
async def test_segments_are_listed_until_their_deletion_is_finished(
    under_test: BackendUnderTest,
) -> None:
    """R5, R14: in every state; of an epoch by start offset."""
    async with two(under_test) as both:
        partition = both.partition
        begun = segment(partition, 401, 500)
        await both.leader.add_remote_log_segment_metadata(begun)
        assert await both.find(0, 401) is None
        assert await both.listed(0) == await both.listed() == [begun]
        done = [await both.copy(each) for each in (
            segment(partition, 101, 200), segment(partition, 0, 100),
            segment(partition, 201, 400, {0: 201, 1: 301}))]
        assert await both.listed(0) == [done[1], done[0], done[2], begun]
        assert await both.listed() == [done[1], done[0], done[2], begun]
        assert await both.listed(1) == [done[2]]
        going = await both.to(begun, DELETE_STARTED)
        assert (await both.listed(0))[-1] == going
        await both.to(begun, DELETE_FINISHED)
        assert await both.listed(0) == [done[1], done[0], done[2]]
        assert await both.listed(7) == []


@looped
async def test_sizes_are_of_all_segments_of_an_epoch(under_test: BackendUnderTest) -> None:
    """R1: in one epoch, in several; nothing for an unknown one."""
    async with two(under_test) as both:
        for number in (1, 2, 3):
            await both.copy(segment(both.partition, 100 * number, 100 * number + 99, {0: 100},
                                    size=number * SIZE))
            await both.copy(segment(both.partition, 1000 * number, 1000 * number + 9,
                                    {number: 1000 * number}, size=number * SIZE))
        assert [await both.size(epoch) for epoch in (0, 1, 2, 3, 9001)] == [
            6 * SIZE, SIZE, 2 * SIZE, 3 * SIZE, 0]


@looped
async def test_the_next_segment_with_transactions_is_found(under_test: BackendUnderTest) -> None:
    """R1: empty indexes are skipped; a gap, and the end of the epoch, end the search."""
    async with two(under_test) as both:
        partition = both.partition
        for start in (0, 10, 20):
            await both.copy(segment(partition, start, start + 9, txn_index_empty=True))
        wanted = await both.copy(segment(partition, 30, 39))
        await both.copy(segment(partition, 50, 59))
        await both.copy(segment(partition, 60, 69, {1: 60}, txn_index_empty=True))
        for manager in (both.leader, both.follower):
            found = [await manager.next_segment_with_txn_index(partition, *at)
                     for at in ((0, 5), (0, 35), (0, 40), (1, 60), (2, 0))]
            assert found == [wanted, wanted, None, None, None]


@looped
async def test_replaced_segments_stay_readable_and_removable(under_test: BackendUnderTest) -> None:
    """R5, R14: the upstream defect, and a shorter copy with the same start, as they are stored."""
    async with two(under_test) as both:
        partition = both.partition
        first = await both.copy(segment(partition, 0, 100))
        second = await both.copy(segment(partition, 101, 200))
        third = await both.copy(segment(partition, 0, 150))
        shorter = await both.copy(segment(partition, 101, 120))
        assert [await both.find(0, offset) for offset in (0, 100, 101, 130, 200)] == [
            third, third, second, second, second]
        assert {each.segment_id for each in await both.listed(0)} == {
            each.segment_id for each in (first, second, third, shorter)}
        for each in (first, shorter):
            await both.to(each, DELETE_STARTED, DELETE_FINISHED)
        assert await both.listed(0) == [third, second]


@looped
async def test_a_deleted_partition_leaves_no_key(under_test: BackendUnderTest) -> None:
    """R4, R12: reads go on until it is finished; then the partition is unknown."""
    async with two(under_test) as both:
        partition, leader = both.partition, both.leader
        done = await both.copy(segment(partition, 0, 100, {0: 0, 1: 20, 2: 50, 3: 80}))
        for state in (PARTITION_STARTED, PARTITION_FINISHED):
            with pytest.raises(InvalidTransition):
                await leader.put_remote_partition_delete_metadata(deletion(partition, state))
        for state in (PARTITION_MARKED, PARTITION_MARKED, PARTITION_STARTED):
            await leader.put_remote_partition_delete_metadata(deletion(partition, state))
            assert await both.find(1, 30) == done
        for _ in range(2):
            await leader.put_remote_partition_delete_metadata(
                deletion(partition, PARTITION_FINISHED))
            with pytest.raises(RemoteResourceNotFound, match="were deleted"):
                await leader.remote_log_segment_metadata(partition, 1, 30)
            assert await both.backend.get_like(PathKeyFactory().partition_key(partition)) == []
        with pytest.raises(RemoteResourceNotFound):
            await leader.add_remote_log_segment_metadata(segment(partition, 0, 1))
        with pytest.raises(RemoteResourceNotFound):
            await leader.put_remote_partition_delete_metadata(
                deletion(partition, PARTITION_MARKED))
        assert await both.follower.remote_log_segment_metadata(partition, 1, 30) is None
        assert await both.follower.list_remote_log_segments(partition) == []


@looped
async def test_a_broker_knows_only_its_partitions(under_test: BackendUnderTest) -> None:
    """R1, R14: of others it raises, also after it was told to stop."""
    async with two(under_test) as both:
        partition, unknown = both.partition, fresh_partition()
        await both.copy(segment(partition, 0, 9))
        for manager in (both.leader, both.follower):
            assert manager.is_ready(partition)
            assert not manager.is_ready(unknown)
            with pytest.raises(RemoteResourceNotFound, match="neither leads nor follows"):
                await manager.remote_log_segment_metadata(unknown, 0, 0)
            with pytest.raises(RemoteResourceNotFound):
                await manager.remote_log_size(unknown, 0)
            with pytest.raises(RemoteResourceNotFound):
                await manager.add_remote_log_segment_metadata(segment(unknown, 0, 9))
            await manager.on_stop_partitions([partition])
            assert not manager.is_ready(partition)
            with pytest.raises(RemoteResourceNotFound):
                await manager.list_remote_log_segments(partition)


@looped
async def test_a_follower_writes_nothing(under_test: BackendUnderTest) -> None:
    """R3: whatever it is asked to write."""
    async with two(under_test) as both:
        added = segment(both.partition, 0, 9)
        with pytest.raises(NotPartitionLeader):
            await both.follower.add_remote_log_segment_metadata(added)
        with pytest.raises(NotPartitionLeader):
            await both.follower.update_remote_log_segment_metadata(update(added, DELETE_STARTED))
        with pytest.raises(NotPartitionLeader):
            await both.follower.put_remote_partition_delete_metadata(
                deletion(both.partition, PARTITION_MARKED))
        assert await both.listed() == []


@looped
async def test_restarted_brokers_find_everything_again(under_test: BackendUnderTest) -> None:
    """R12: as leader and as follower, and go on where they stopped."""
    async with two(under_test) as both:
        partition = both.partition
        done = [await both.copy(segment(partition, 0, 99)),
                await both.copy(segment(partition, 0, 99))]
        begun = segment(partition, 200, 300, {0: 200, 5: 250})
        await both.leader.add_remote_log_segment_metadata(begun)
        await both.leader.close()
        await both.follower.close()

        leader, follower = await manager_of(under_test.open(), 0), await manager_of(
            under_test.open(), 1)
        await leader.on_partition_leadership_changes({partition: 4}, [])
        await follower.on_partition_leadership_changes({}, [partition])
        again = both._replace(leader=leader, follower=follower)
        assert await again.find(0, 50) == done[1]
        assert len(await again.listed()) == 3
        last = await again.to(begun, COPY_FINISHED)
        assert await again.find(5, 260) == last
        await again.to(done[0], DELETE_STARTED, DELETE_FINISHED)
        assert await again.listed(0) == [done[1], last]
        await leader.close()
        await follower.close()


@looped
async def test_a_manager_that_is_not_open_says_so(under_test: BackendUnderTest) -> None:
    """R1: before it was opened, and after it was closed; closing twice is allowed."""
    async with two(under_test) as both:
        await both.leader.close()
        await both.leader.close()
        with pytest.raises(MetadataClosed):
            await both.leader.remote_log_size(both.partition, 0)
        with pytest.raises(MetadataClosed):
            await both.leader.on_stop_partitions([])
        assert not both.leader.is_ready(both.partition)


@looped
async def test_what_cannot_be_is_refused_before_it_is_stored(under_test: BackendUnderTest) -> None:
    """R10: the leader's cache decides; nothing reaches the store."""
    async with two(under_test) as both:
        added = segment(both.partition, 0, 9)
        with pytest.raises(InvalidMetadata):
            await both.leader.add_remote_log_segment_metadata(
                added.with_update(update(added, COPY_FINISHED)))
        with pytest.raises(RemoteResourceNotFound):
            await both.to(added, COPY_FINISHED)
        await both.leader.add_remote_log_segment_metadata(added)
        with pytest.raises(InvalidTransition):
            await both.to(added, DELETE_FINISHED)
        assert await both.listed() == [added]

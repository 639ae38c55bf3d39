"""A leader whose storage fails, and leaders that follow each other, on every backend."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from quipu.model.errors import ErrorKind, MalformedBytes
from quipu.remote.metadata.errors import (
    BackendUnavailable,
    CorruptMetadata,
    FencedLeader,
    InvalidMetadata,
    InvalidTransition,
    OutcomeUnknown,
    RemoteMetadataError,
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
    RemotePartitionDeleteState,
)
from quipu.remote.metadata.storage.backend import (
    CreateKey,
    Operation,
    RemoveKey,
    UpdateKey,
)
from quipu.remote.metadata.storage.keys import PathKeyFactory
from quipu.remote.metadata.storage.memory import MemoryBackend
from tests.contract.metadata_backend.backends import BackendUnderTest
from tests.looped import looped, timeless
from tests.remote.metadata.segments import deletion, fresh_partition, segment, update
from tests.remote.metadata.world import FailingBackend, failing, manager_of

KEYS = PathKeyFactory()


class Led(NamedTuple):
    """A partition with its leader, over a store that can fail."""

    partition: TopicIdPartition
    leader: StoredRemoteLogMetadata
    store: FailingBackend

    async def copy(
        self, copied: RemoteLogSegmentMetadata, by: StoredRemoteLogMetadata | None = None
    ) -> RemoteLogSegmentMetadata:
        manager = by or self.leader
        await manager.add_remote_log_segment_metadata(copied)
        await manager.update_remote_log_segment_metadata(update(copied, COPY_FINISHED))
        return copied.with_update(update(copied, COPY_FINISHED))

    async def put(
        self, state: RemotePartitionDeleteState, by: StoredRemoteLogMetadata | None = None
    ) -> None:
        await (by or self.leader).put_remote_partition_delete_metadata(
            deletion(self.partition, state))

    async def keys(self) -> set[str]:
        prefix = KEYS.partition_key(self.partition)
        return {each.key for each in await self.store.inner.get_like(prefix)}


@asynccontextmanager
async def led(under_test: BackendUnderTest) -> AsyncIterator[Led]:
    inner = under_test.open()
    store, partition = failing(inner), fresh_partition()
    leader = await manager_of(store, 0)
    await leader.on_partition_leadership_changes({partition: 5}, [])
    try:
        yield Led(partition, leader, store)
    finally:
        await inner.close()


async def elected(one: Led, broker_id: int, epoch: int) -> StoredRemoteLogMetadata:
    """Another broker that leads the partition from now on."""
    manager = await manager_of(one.store, broker_id)
    await manager.on_partition_leadership_changes({one.partition: epoch}, [])
    return manager


# --- writes that fail (R2)


@looped
async def test_a_failed_write_leaves_the_cache_as_it_was(under_test: BackendUnderTest) -> None:
    """R2: remote.W1: and the same write succeeds later."""
    async with led(under_test) as one:
        added = segment(one.partition, 0, 9)
        one.store.faults = ["refuse"]
        with pytest.raises(BackendUnavailable, match="refused"):
            await one.leader.add_remote_log_segment_metadata(added)
        assert await one.leader.list_remote_log_segments(one.partition) == []
        await one.leader.add_remote_log_segment_metadata(added)
        one.store.faults = ["refuse"]
        with pytest.raises(BackendUnavailable):
            await one.leader.update_remote_log_segment_metadata(update(added, COPY_FINISHED))
        assert await one.leader.remote_log_segment_metadata(one.partition, 0, 5) is None
        assert await one.leader.highest_offset_for_epoch(one.partition, 0) is None
        await one.leader.update_remote_log_segment_metadata(update(added, COPY_FINISHED))
        assert await one.leader.highest_offset_for_epoch(one.partition, 0) == 9


@pytest.mark.parametrize("fault", ["lose", "cut", "late"])
@looped
async def test_after_an_unknown_outcome_the_leader_loads_what_is_stored(
    under_test: BackendUnderTest, fault: str
) -> None:
    """R2: remote.W2: whether it was stored or not; what comes late is refused."""
    async with led(under_test) as one:
        done = await one.copy(segment(one.partition, 0, 9))
        added = segment(one.partition, 10, 19)
        await one.leader.add_remote_log_segment_metadata(added)
        one.store.faults = [fault]
        with pytest.raises(OutcomeUnknown) as raised:
            await one.leader.update_remote_log_segment_metadata(update(added, COPY_FINISHED))
        assert raised.value.kind is ErrorKind.RETRY
        assert not one.leader.is_ready(one.partition)

        found = await one.leader.remote_log_segment_metadata(one.partition, 0, 15)
        assert (found is not None) == (fault == "cut")
        assert one.leader.is_ready(one.partition)
        assert await one.leader.remote_log_segment_metadata(one.partition, 0, 5) == done
        await one.store.deliver_late()
        await one.leader.update_remote_log_segment_metadata(update(added, COPY_FINISHED))
        found = await one.leader.remote_log_segment_metadata(one.partition, 0, 15)
        assert found == added.with_update(update(added, COPY_FINISHED))


@looped
async def test_a_takeover_whose_response_is_lost_is_repeated(under_test: BackendUnderTest) -> None:
    """R2, R12: the partition is not ready until one succeeds; the next call tries again."""
    async with led(under_test) as one:
        done = await one.copy(segment(one.partition, 0, 9))
        one.store.faults = ["cut"]
        other = await elected(one, 1, 6)
        assert not other.is_ready(one.partition)
        one.store.faults = ["refuse"]
        with pytest.raises(BackendUnavailable):
            await other.remote_log_size(one.partition, 0)
        assert await other.list_remote_log_segments(one.partition) == [done]
        assert other.is_ready(one.partition)


class Silent(FailingBackend):
    """A backend that does not respond to writes."""

    async def execute(self, operations: Sequence[Operation]) -> None:
        if self.faults:
            await asyncio.sleep(3600)
        await super().execute(operations)


@timeless
async def test_a_storage_that_does_not_respond_is_an_unknown_outcome() -> None:
    """R2: remote.W2: after the time limit; so is a cancelled write."""
    store, partition = Silent(MemoryBackend()), fresh_partition()
    leader = await manager_of(store, timeout_ms=2_000)
    await leader.on_partition_leadership_changes({partition: 0}, [])
    added = segment(partition, 0, 9)
    store.faults = ["silent"]
    with pytest.raises(OutcomeUnknown, match=r"no response of the storage within 2\.0 s"):
        await leader.add_remote_log_segment_metadata(added)
    assert not leader.is_ready(partition)
    with pytest.raises(BackendUnavailable, match="too slow"):
        await leader.list_remote_log_segments(partition)

    store.faults = []
    assert await leader.list_remote_log_segments(partition) == []
    store.faults = ["silent"]
    writing = asyncio.get_running_loop().create_task(
        leader.add_remote_log_segment_metadata(added))
    await asyncio.sleep(1)
    assert leader.is_ready(partition)
    assert await leader.list_remote_log_segments(partition) == []  # reads do not wait for writes
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert not leader.is_ready(partition)
    store.faults = []
    await leader.add_remote_log_segment_metadata(added)


# --- leaders that follow each other (R11, R12)


@looped
async def test_a_deposed_leader_writes_nothing_and_stops(under_test: BackendUnderTest) -> None:
    """R11: remote.W3: whatever it writes; the error says why, and stays."""
    async with led(under_test) as one:
        added = segment(one.partition, 0, 9)
        await one.leader.add_remote_log_segment_metadata(added)
        other = await elected(one, 1, 6)
        before = await one.keys()
        with pytest.raises(FencedLeader, match=r"broker 0 led it in epoch 5, but another"):
            await one.leader.update_remote_log_segment_metadata(update(added, COPY_FINISHED))
        for _ in range(2):
            with pytest.raises(FencedLeader):
                await one.leader.add_remote_log_segment_metadata(segment(one.partition, 10, 19))
            with pytest.raises(FencedLeader):
                await one.put(PARTITION_MARKED)
            with pytest.raises(FencedLeader):
                await one.leader.list_remote_log_segments(one.partition)
        assert not one.leader.is_ready(one.partition)
        assert await one.keys() == before
        assert await other.list_remote_log_segments(one.partition) == [added]
        await one.leader.on_partition_leadership_changes({one.partition: 7}, [])
        assert await one.leader.list_remote_log_segments(one.partition) == [added]


@looped
async def test_an_old_leader_cannot_take_over(under_test: BackendUnderTest) -> None:
    """R11: with an older epoch, or as another broker in the same one."""
    async with led(under_test) as one:
        await one.copy(segment(one.partition, 0, 9))
        for broker_id, epoch in ((1, 4), (1, 5)):
            late = await elected(one, broker_id, epoch)
            assert not late.is_ready(one.partition)
            with pytest.raises(FencedLeader, match=r"but broker 0 leads it in epoch 5"):
                await late.list_remote_log_segments(one.partition)
        assert len(await one.leader.list_remote_log_segments(one.partition)) == 1
        await one.copy(segment(one.partition, 10, 19))
        with pytest.raises(InvalidMetadata, match="leader epoch -1"):
            await elected(one, 1, -1)


@looped
async def test_a_restarted_broker_replaces_its_former_self(under_test: BackendUnderTest) -> None:
    """R11: in the same epoch the later takeover counts; the former process stays out."""
    async with led(under_test) as one:
        again = await elected(one, 0, 5)
        await one.copy(segment(one.partition, 0, 9), again)
        with pytest.raises(FencedLeader):
            await one.copy(segment(one.partition, 10, 19))
        third = await elected(one, 0, 5)
        one.store.faults = ["lose"]
        with pytest.raises(OutcomeUnknown):
            await one.copy(segment(one.partition, 20, 29), third)
        fourth = await elected(one, 0, 5)
        with pytest.raises(FencedLeader):
            await third.list_remote_log_segments(one.partition)
        assert len(await fourth.list_remote_log_segments(one.partition)) == 1


@looped
async def test_a_write_under_way_is_seen_or_refused(under_test: BackendUnderTest) -> None:
    """R11, R12: remote.W3: a write that arrives after the next leader has taken over."""
    async with led(under_test) as one:
        one.store.faults = ["late"]
        with pytest.raises(OutcomeUnknown):
            await one.leader.add_remote_log_segment_metadata(segment(one.partition, 0, 9))
        other = await elected(one, 1, 6)
        await one.store.deliver_late()
        assert await other.list_remote_log_segments(one.partition) == []
        assert {each.rpartition("/")[2] for each in await one.keys()} == {"header"}


@looped
async def test_two_that_take_over_at_once_agree_who_leads(under_test: BackendUnderTest) -> None:
    """R11: remote.W3: the one with the newer epoch, in whatever order they write."""
    async with led(under_test) as one:
        done = await one.copy(segment(one.partition, 0, 9))
        managers = [await manager_of(one.store, broker) for broker in (1, 2, 3)]
        await asyncio.gather(*(
            manager.on_partition_leadership_changes({one.partition: 6 + n}, [])
            for n, manager in enumerate(managers)))
        assert await managers[2].list_remote_log_segments(one.partition) == [done]
        await one.copy(segment(one.partition, 10, 19), managers[2])
        for deposed in (one.leader, *managers[:2]):
            with pytest.raises(FencedLeader):
                await one.copy(segment(one.partition, 20, 29), deposed)


@looped
async def test_the_next_leader_has_what_the_last_one_had(under_test: BackendUnderTest) -> None:
    """R12: segments in all states, references, highest offsets and the delete state."""
    async with led(under_test) as one:
        partition = one.partition
        gone = await one.copy(segment(partition, 0, 999, {1: 0, 2: 500}))
        for state in (DELETE_STARTED, DELETE_FINISHED):
            await one.leader.update_remote_log_segment_metadata(update(gone, state))
        await one.copy(segment(partition, 0, 99, {1: 0}))
        await one.copy(segment(partition, 0, 99, {1: 0}))
        await one.leader.add_remote_log_segment_metadata(segment(partition, 100, 199, {1: 100}))
        await one.put(PARTITION_MARKED)
        other = await elected(one, 1, 6)
        for epoch in (1, 2):
            highest = await other.highest_offset_for_epoch(partition, epoch)
            assert highest == await one.leader.highest_offset_for_epoch(partition, epoch)
            assert highest == {1: 499, 2: 999}[epoch]
            assert await other.list_remote_log_segments(partition, epoch) == (
                await one.leader.list_remote_log_segments(partition, epoch))
            assert await other.remote_log_size(partition, epoch) == (
                await one.leader.remote_log_size(partition, epoch))
        assert await other.remote_log_segment_metadata(partition, 1, 50) == (
            await one.leader.remote_log_segment_metadata(partition, 1, 50))
        with pytest.raises(InvalidTransition):
            await one.put(PARTITION_FINISHED, other)
        await one.put(PARTITION_STARTED, other)
        await one.put(PARTITION_FINISHED, other)
        assert await one.keys() == set()


# --- deletions that are interrupted (R12)


@pytest.mark.parametrize("faults", [[""], ["", ""], ["", "", ""]], ids=len)
@pytest.mark.parametrize("fault", ["refuse", "cut"])
@looped
async def test_an_interrupted_deletion_is_finished_by_a_retry(
    under_test: BackendUnderTest, faults: list[str], fault: str
) -> None:
    """R12: remote.W4: wherever it stopped: no key is left."""
    async with led(under_test) as one:
        await one.copy(segment(one.partition, 0, 99, {1: 0, 2: 50}))
        await one.put(PARTITION_MARKED)
        await one.put(PARTITION_STARTED)
        one.store.faults = [*faults, fault]
        with pytest.raises(BackendUnavailable):
            await one.put(PARTITION_FINISHED)
        await one.put(PARTITION_FINISHED)
        await one.put(PARTITION_FINISHED)
        assert await one.keys() == set()
        with pytest.raises(RemoteResourceNotFound):
            await one.leader.list_remote_log_segments(one.partition)


@pytest.mark.parametrize("faults", [["cut"], ["", "cut"], ["", "", "cut"], ["", "", "", "lose"]],
                         ids=len)
@looped
async def test_an_interrupted_deletion_is_finished_by_the_next_leader(
    under_test: BackendUnderTest, faults: list[str]
) -> None:
    """R12: remote.W4: when it takes over; repeating the last state there is a retry."""
    async with led(under_test) as one:
        await one.copy(segment(one.partition, 0, 99, {1: 0, 2: 50}))
        await one.put(PARTITION_MARKED)
        await one.put(PARTITION_STARTED)
        one.store.faults = list(faults)
        with pytest.raises(OutcomeUnknown):
            await one.put(PARTITION_FINISHED)
        other = await elected(one, 1, 6)
        assert await one.keys() == set()
        await one.put(PARTITION_FINISHED, other)
        with pytest.raises(RemoteResourceNotFound):
            await other.list_remote_log_segments(one.partition)
        with pytest.raises(RemoteMetadataError):
            await one.copy(segment(one.partition, 0, 9))
        assert await one.keys() == set()


@looped
async def test_a_deposed_leader_removes_nothing(under_test: BackendUnderTest) -> None:
    """R11, R12: remote.W3: a deletion that goes on where another broker leads now."""
    async with led(under_test) as one:
        await one.copy(segment(one.partition, 0, 99))
        await one.put(PARTITION_MARKED)
        await one.put(PARTITION_STARTED)
        other = await elected(one, 1, 6)
        before = await one.keys()
        with pytest.raises(FencedLeader):
            await one.put(PARTITION_FINISHED)
        assert await one.keys() == before
        await one.put(PARTITION_FINISHED, other)
        assert await one.keys() == set()


# --- what others have put into the store


@looped
async def test_foreign_bytes_in_the_store_are_found_and_named(under_test: BackendUnderTest) -> None:
    """R7, R12: remote.L1: a leader refuses to load them, a follower to return them."""
    async with led(under_test) as one:
        partition, inner = one.partition, one.store.inner
        done = await one.copy(segment(partition, 0, 9))
        key = KEYS.segment_key(partition, done.segment_id.id)
        reference = KEYS.reference_key(partition, 0, 0)
        stored = {each: await inner.get(each) for each in (key, reference)}
        header = await inner.get(KEYS.header_key(partition))
        assert header is not None
        cases: list[tuple[list[Operation], type[Exception]]] = [
            ([UpdateKey(key, b"junk")], MalformedBytes),
            ([UpdateKey(key, header)], MalformedBytes),
            ([UpdateKey(reference, b"")], MalformedBytes),
            ([UpdateKey(reference, header)], CorruptMetadata),
            ([RemoveKey(key)], CorruptMetadata),
            ([RemoveKey(reference)], CorruptMetadata),
            ([CreateKey(KEYS.reference_key(partition, 9, 0), stored[reference] or b"")],
             CorruptMetadata),
        ]
        for number, (operations, error) in enumerate(cases):
            await inner.execute(operations)
            other = await elected(one, 1, 6 + number)
            with pytest.raises(error):
                await other.list_remote_log_segments(partition)
            await inner.remove_like(KEYS.epoch_key(partition, 9))
            for each, value in stored.items():
                await inner.execute([RemoveKey(each), CreateKey(each, value or b"")])
        other = await elected(one, 1, 99)
        assert await other.list_remote_log_segments(partition) == [done]

        follower = await manager_of(one.store, 2)
        await follower.on_partition_leadership_changes({}, [partition])
        await inner.update(key, b"junk")
        with pytest.raises(MalformedBytes, match=key):
            await follower.remote_log_segment_metadata(partition, 0, 5)
        await inner.update(KEYS.header_key(partition), b"junk")
        with pytest.raises(MalformedBytes):
            await (await elected(one, 1, 100)).list_remote_log_segments(partition)

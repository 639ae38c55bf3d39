"""Remote storage, also by a class of one's own; throttling, and objects that nobody refers to."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

from quipu.model.errors import MalformedBytes
from quipu.remote.segments.cache import ChunkCache
from quipu.remote.segments.errors import SegmentDamaged, SegmentMissing
from quipu.remote.segments.managed_storage import ManagedRemoteStorage
from quipu.remote.segments.names import SegmentName
from quipu.remote.segments.orphans import find_orphans
from quipu.remote.segments.remote_storage import (
    ObjectRemoteStorage,
    RemoteSegment,
    RemoteStorage,
)
from quipu.remote.segments.writer import CopyOptions
from quipu.runtime.objects.errors import StoreUnavailable
from quipu.runtime.objects.memory import MemoryStore
from quipu.runtime.objects.store import NO_TIME, ObjectInfo
from tests.looped import LoopClock, looped
from tests.remote.segments.builders import NOW_MS, RUN, Spec, make_segment

MADE = make_segment([Spec(value_size=500)] * 20)


class KeptStorage:
    """A storage of one's own: bytes in a dictionary."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.error: Exception | None = None
        self.answer: Any = None  # instead of the right one
        self.is_lazy = False  # takes nothing of what it should store
        self.closed = False

    async def copy_log_segment_data(
        self, segment: RemoteSegment, data: AsyncIterator[memoryview]
    ) -> bytes:
        assert segment.custom_metadata == b""
        if self.is_lazy:
            return b""
        self.kept[segment.name.key] = b"".join([bytes(part) async for part in data])
        self.fail()
        return self.answer or b"own"

    async def fetch_log_segment(self, segment: RemoteSegment, start: int, end: int) -> bytes:
        assert segment.custom_metadata == b"own"
        self.fail()
        return self.answer or self.kept[segment.name.key][start:end]

    async def delete_log_segment_data(self, segment: RemoteSegment) -> None:
        self.fail()
        self.kept.pop(segment.name.key, None)

    async def close(self) -> None:
        self.closed = True

    def fail(self) -> None:
        if self.error is not None:
            raise self.error


def storages() -> tuple[RemoteStorage, MemoryStore, RemoteStorage, KeptStorage]:
    """Both kinds, with what is below them."""
    store, own = MemoryStore(lambda: NOW_MS), KeptStorage()
    return (
        ObjectRemoteStorage(store, cache=ChunkCache(1 << 20), run=RUN, clock=LoopClock(),
                            options=CopyOptions(chunk_size=2000)), store,
        ManagedRemoteStorage(own, cache=ChunkCache(1 << 20), run=RUN, clock=LoopClock(),
                             options=CopyOptions(chunk_size=2000, compress=True)), own)


@looped
async def test_copies_are_read_until_they_are_deleted() -> None:
    """R13, remote.segments.M1, remote.segments.M2: as objects, and by a class of one's own."""
    objects, store, managed, own = storages()
    for storage in (objects, managed):
        custom = await storage.copy_log_segment_data(MADE.segment)
        assert len(custom) <= 128
        segment = RemoteSegment(MADE.segment.name, custom)
        whole = [each.data async for each in storage.reader(segment).batches()]
        assert b"".join(whole) == MADE.data
        with pytest.raises(MalformedBytes):
            storage.reader(RemoteSegment(MADE.segment.name, b"other"))
        for _ in range(2):
            await storage.delete_log_segment_data(segment)
        await storage.close()
    assert ((await store.list()).objects, own.kept, own.closed) == ((), {}, True)


@looped
async def test_what_a_class_of_one_s_own_may_do_wrong() -> None:
    """R15, remote.segments.M3: any exception is an error to be retried, and bytes are checked."""
    *_, managed, own = storages()
    own.error = ValueError("broken")
    with pytest.raises(StoreUnavailable, match="ValueError: broken"):
        await managed.copy_log_segment_data(MADE.segment)
    own.error = None
    segment = RemoteSegment(MADE.segment.name, await managed.copy_log_segment_data(MADE.segment))
    assert segment.custom_metadata.endswith(b"own")
    for error, expected in ((KeyError("x"), StoreUnavailable),
                            (SegmentMissing("gone"), SegmentMissing)):
        own.error = error
        with pytest.raises(expected):
            await managed.reader(segment).footer()
        with pytest.raises(expected):
            await managed.delete_log_segment_data(segment)
    own.error = None
    own.answer = "text"
    with pytest.raises(StoreUnavailable, match="TypeError: bytes were expected, not str"):
        await managed.copy_log_segment_data(MADE.segment)
    with pytest.raises(StoreUnavailable, match="TypeError: bytes were expected, not str"):
        await managed.reader(segment).footer()
    own.answer, own.is_lazy = None, True
    with pytest.raises(StoreUnavailable, match="only 0 bytes of the segment were taken"):
        await managed.copy_log_segment_data(MADE.segment)
    stored = own.kept[segment.name.key]
    for wrong in (b"", stored[:-1], stored[:100] + bytes(len(stored) - 100)):
        own.kept[segment.name.key] = wrong
        with pytest.raises(SegmentDamaged):
            await managed.reader(segment).footer()
    own.kept[segment.name.key] = stored
    assert (await managed.reader(segment).verify()).footer.name == segment.name


def info(number: int, modified_ms: int) -> ObjectInfo:
    name = SegmentName(UUID(int=1), 0, number, UUID(int=number))
    return ObjectInfo(name.key, 10, "v", modified_ms)


def test_orphans() -> None:
    """R15, remote.segments.O1: old, ours by the key, and unknown to the metadata; others stay."""
    old, young = NOW_MS - 1001, NOW_MS - 1000
    objects = [info(1, old), info(2, old), info(3, young), info(4, NO_TIME),
               ObjectInfo("someone/elses.log", 1, "v", 1)]
    found = find_orphans(objects, {UUID(int=1)}, now_ms=NOW_MS, grace_ms=1000)
    assert [each.name.segment_id for each in found] == [UUID(int=2)]
    assert [each.info for each in found] == [objects[1]]

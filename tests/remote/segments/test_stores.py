"""Segments on every store: Kafka's interface of remote storage, files, threads and ranges.

The fixture `store_url` names the store; tests/interop runs these tests on servers of other makers.
"""

import asyncio
from pathlib import Path

import pytest

from quipu.model.errors import MalformedBytes
from quipu.remote.segments.cache import ChunkCache
from quipu.remote.segments.pointer import POINTER_SIZE
from quipu.remote.segments.remote_storage import (
    ObjectRemoteStorage,
    RemoteSegment,
    RemoteStorage,
)
from quipu.remote.segments.writer import CopyOptions, SegmentToCopy, write_segment
from quipu.runtime.objects.urls import open_store
from quipu.runtime.workers import Workers
from tests.looped import LoopClock, looped
from tests.remote.segments.builders import (
    NOW_MS,
    RUN,
    Spec,
    joined,
    make_segment,
    reader_of,
)

MADE = make_segment([Spec(value_size=500)] * 20)
MANY = make_segment([Spec(record_count=2, value_size=400, timestamp=NOW_MS + 10 * number)
                     for number in range(100)])


@looped
async def test_copies_are_read_until_they_are_deleted(store_url: str) -> None:
    """R13, remote.segments.M1, remote.segments.M2: copy, read, delete twice, close."""
    store = open_store(store_url, lambda: NOW_MS)
    storage: RemoteStorage = ObjectRemoteStorage(
        store, cache=ChunkCache(1 << 20), run=RUN, clock=LoopClock(),
        options=CopyOptions(chunk_size=2000))
    copied = await storage.copy_log_segment_data(MADE.segment)
    assert len(copied) <= 128
    segment = RemoteSegment(MADE.segment.name, copied)
    reader = storage.reader(segment)
    assert b"".join([each.data async for each in reader.batches()]) == MADE.data
    footer = await reader.footer()
    assert footer.producer_snapshot == b"snapshot"
    assert len(footer.epochs) == 1
    with pytest.raises(MalformedBytes):
        storage.reader(RemoteSegment(MADE.segment.name, b"other"))
    for _ in range(2):
        await storage.delete_log_segment_data(segment)
    assert (await store.list()).objects == ()
    await storage.close()


@pytest.mark.parametrize("compress", [False, True])
def test_on_every_store(store_url: str, compress: bool, tmp_path: Path) -> None:
    """R13: written from a file, by threads, and read back in ranges."""
    path = tmp_path / "segment.log"
    path.write_bytes(MANY.data + b"what a file has allocated behind its end")

    async def story() -> None:
        store = open_store(store_url, lambda: NOW_MS)
        workers = Workers()
        segment = SegmentToCopy(
            name=MANY.segment.name, topic="t", data=path, size=MANY.segment.size,
            end_offset=MANY.segment.end_offset, log_start=MANY.segment.log_start,
            log_end=MANY.segment.log_end, max_timestamp=MANY.segment.max_timestamp,
            transaction_index=b"transactions")
        pointer = await write_segment(
            store, segment, CopyOptions(chunk_size=5000, compress=compress, index_interval=2000),
            run=workers.run_patiently, clock=LoopClock())
        assert len(pointer.encode()) == POINTER_SIZE <= 128
        reader = reader_of(store, MANY, pointer, read_ahead=2)
        for offset in range(1000, 1200, 7):
            assert joined(await reader.read(offset, 3000, min_one=True)) == (
                MANY.expected(offset, 3000, min_one=True))
        found = await reader.find_timestamp(NOW_MS + 505)
        assert found is not None
        assert found[:2] == MANY.first_as_new(NOW_MS + 505, 0)
        footer = (await reader.verify()).footer
        assert footer.transaction_index == b"transactions"
        assert len(footer.chunks) > 15
        assert all(each.is_compressed == compress for each in footer.chunks)
        workers.close()
        await store.close()

    asyncio.run(story())

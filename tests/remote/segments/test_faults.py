"""Stores that fail, and objects that are not what was written: never wrong data."""

import asyncio
from collections.abc import AsyncIterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.model.errors import Code, CorruptLog, ErrorKind, QuipuError
from quipu.remote.segments.cache import ChunkCache
from quipu.remote.segments.errors import SegmentDamaged, SegmentMissing
from quipu.remote.segments.pointer import TRAILER_SIZE
from quipu.remote.segments.reader import find_pointer
from quipu.remote.segments.writer import CopyOptions
from quipu.runtime.objects.errors import StoreUnavailable
from quipu.runtime.objects.memory import MemoryStore
from quipu.runtime.objects.store import Buffer, ObjectInfo
from quipu.runtime.objects.urls import open_store
from tests.harness.s3_server import S3Server
from tests.harness.store_proxy import StoreProxy, WireFault
from tests.looped import looped
from tests.remote.segments.builders import (
    NOW_MS,
    CountingStore,
    Spec,
    flipped,
    joined,
    make_segment,
    put,
    reader_of,
)

MADE = make_segment([Spec(record_count=2, value_size=300 + number) for number in range(30)])
KEY = MADE.segment.name.key
SMALL = CopyOptions(chunk_size=3000, index_interval=500)


@given(st.data(), st.booleans())
@settings(max_examples=60)
def test_a_changed_object_never_gives_wrong_data(data: st.DataObject, compress: bool) -> None:
    """R15, remote.segments.R1, remote.segments.K2: one bit anywhere: the right bytes, or an error
    that says so.
    """

    async def story() -> None:
        store = MemoryStore(lambda: NOW_MS)
        how = CopyOptions(chunk_size=3000, compress=compress)
        pointer = await put(store, MADE, how)
        whole = await store.get(KEY)
        at = data.draw(st.integers(0, len(whole) - 1))
        await store.put(KEY, [flipped(whole, at)])
        with pytest.raises(CorruptLog) as error:
            await reader_of(store, MADE, pointer).verify()
        assert (error.value.kind, error.value.code) == (
            ErrorKind.CORRUPT, Code.KAFKA_STORAGE_ERROR)
        offset = 1000
        while offset < MADE.segment.end_offset:
            try:
                found = await reader_of(store, MADE, pointer).read(offset, 2000, min_one=True)
            except SegmentDamaged:
                break
            assert joined(found) == MADE.expected(offset, 2000, min_one=True)
            offset += 2 * len(found)

    asyncio.run(story())


@pytest.mark.parametrize("cut", [1, TRAILER_SIZE, TRAILER_SIZE + 1, 500, 5000, 19_000, 20_500])
@looped
async def test_a_truncated_object(cut: int) -> None:
    """R15: it is damaged, by its trailer, its footer or a chunk; no part of it is returned."""
    store = MemoryStore(lambda: NOW_MS)
    pointer = await put(store, MADE, SMALL)
    whole = await store.get(KEY)
    cut = min(cut, len(whole) - 1)
    await store.put(KEY, [whole[:-cut]])
    with pytest.raises(SegmentDamaged):
        await reader_of(store, MADE, pointer).read(1000, 1, min_one=True)
    with pytest.raises(SegmentDamaged):
        await find_pointer(store, KEY)
    await store.put(KEY, [])
    with pytest.raises(SegmentDamaged):
        await reader_of(store, MADE, pointer).footer()
    with pytest.raises(SegmentDamaged):
        await find_pointer(store, KEY)


@looped
async def test_a_missing_object_has_its_own_error() -> None:
    """R15: the metadata is stale, or someone deleted what is still referenced."""
    store = MemoryStore(lambda: NOW_MS)
    pointer = await put(store, MADE, SMALL)
    cache = ChunkCache(1 << 20)
    reader = reader_of(store, MADE, pointer, cache=cache)
    await reader.footer()
    await store.delete([KEY])
    for work in (reader.read(1000, 1, min_one=True), reader.verify(), find_pointer(store, KEY)):
        with pytest.raises(SegmentMissing) as error:
            await work
        assert error.value.kind is ErrorKind.REFRESH


@looped
async def test_the_object_of_another_segment() -> None:
    """remote.segments.R1: sound, and not what the metadata names."""
    store = MemoryStore(lambda: NOW_MS)
    pointer = await put(store, MADE, SMALL)
    other = make_segment([Spec()], MADE.segment.name._replace(partition=9))
    await store.put(other.segment.name.key, [await store.get(KEY)])
    with pytest.raises(SegmentDamaged, match="another segment"):
        await reader_of(store, other, pointer).footer()
    await put(store, other, SMALL)
    with pytest.raises(SegmentDamaged):
        await reader_of(store, other, pointer).footer()


@looped
async def test_bytes_that_arrive_wrong_are_fetched_again() -> None:
    """R15, remote.segments.R1: once; a store that is not available is reported as such."""
    store = CountingStore()
    pointer = await put(store, MADE, SMALL)
    for count in (1, 1):
        store.flip = count
        reader = reader_of(store, MADE, pointer)
        assert joined(await reader.read(1000, 1, min_one=True)) == (
            MADE.expected(1000, 1, min_one=True))
    store.flip = 2
    with pytest.raises(SegmentDamaged):
        await reader_of(store, MADE, pointer).footer()
    store.refuse = 1
    reader = reader_of(store, MADE, pointer)
    with pytest.raises(StoreUnavailable) as error:
        await reader.footer()
    assert error.value.kind is ErrorKind.RETRY
    assert await reader.read(1000, 1, min_one=True)


@looped
async def test_wrong_and_slow_wires(s3_server: S3Server) -> None:
    """R15: a bit flipped between the server and here, a body cut short, a response that is lost."""
    with StoreProxy(s3_server.port) as proxy:
        store = open_store(s3_server.url(s3_server.bucket(), port=proxy.port), lambda: NOW_MS)
        proxy.break_next(WireFault.LOSE_RESPONSE, b"PUT", 1)
        pointer = await put(store, MADE, SMALL)
        cases = [(WireFault.FLIP_BIT, 1), (WireFault.CUT_BODY, 1), (WireFault.REFUSE, 2),
                 (WireFault.LOSE_RESPONSE, 1)]
        for fault, count in cases:
            proxy.break_next(fault, b"GET", count)
            found = await reader_of(store, MADE, pointer).read(1010, 900, min_one=True)
            assert joined(found) == MADE.expected(1010, 900, min_one=True)
        proxy.break_next(WireFault.FLIP_BIT, b"GET")
        with pytest.raises(SegmentDamaged):
            await reader_of(store, MADE, pointer).read(1010, 900, min_one=True)
        proxy.heal()
        proxy.response_size = 0
        await reader_of(store, MADE, pointer).read(1010, 1, min_one=True)
        assert 3000 < proxy.response_size < 3000 + 2 * 3000  # R16: a chunk, the footer, headers
        await store.close()


@looped
async def test_a_copy_whose_outcome_is_unknown(s3_server: S3Server) -> None:
    """R15, remote.segments.M1: it fails, may be there, and can be repeated; never half of it."""
    with StoreProxy(s3_server.port) as proxy:
        url = s3_server.url(s3_server.bucket(), port=proxy.port, more="&retries=0")
        store = open_store(url, lambda: NOW_MS)
        for fault, there in ((WireFault.REFUSE, False), (WireFault.LOSE_RESPONSE, True)):
            proxy.break_next(fault, b"PUT", 1)
            with pytest.raises(StoreUnavailable):
                await put(store, MADE, SMALL)
            assert bool((await store.list()).objects) == there
        pointer = await find_pointer(store, KEY)
        assert (await reader_of(store, MADE, pointer).verify()).batch_count == 30
        assert await put(store, MADE, SMALL) == pointer
        await store.close()


@looped
async def test_a_store_that_keeps_less_than_it_was_given() -> None:
    """remote.segments.W2: its copy fails, and is not used."""

    class Short(MemoryStore):
        async def put_parts(self, key: str, parts: AsyncIterable[Buffer]) -> ObjectInfo:
            info = await super().put_parts(key, parts)
            return await self.put(key, [(await self.get(key))[: info.size - 1]])

    with pytest.raises(SegmentDamaged, match="copy the segment again"):
        await put(Short(lambda: NOW_MS), MADE, SMALL)


@looped
async def test_a_copy_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    """The file is closed, and no thread is left that reads it."""
    path = tmp_path / "segment"
    path.write_bytes(MADE.data)
    store = CountingStore()
    parts_seen = asyncio.Event()

    async def stuck(key: str, parts: object) -> None:
        async for _ in parts:  # type: ignore[attr-defined]
            parts_seen.set()
            await asyncio.Event().wait()

    store.put_parts = stuck  # type: ignore[assignment,method-assign]
    task = asyncio.ensure_future(put(store, MADE, SMALL))
    await parts_seen.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not issubclass(asyncio.CancelledError, QuipuError)

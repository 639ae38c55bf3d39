"""Segments are written as objects and read back: all of them, in ranges, by time."""

import asyncio
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.model.errors import CorruptLog, ErrorKind, OffsetOutOfRange
from quipu.model.token_bucket import TokenBucket
from quipu.remote.segments.cache import ChunkCache
from quipu.remote.segments.footer import CHUNKS_MAX, SegmentEpoch
from quipu.remote.segments.pointer import decode_pointer
from quipu.remote.segments.reader import find_pointer
from quipu.remote.segments.writer import CopyOptions, SegmentToCopy, write_segment
from quipu.runtime.objects.local import LocalStore
from quipu.runtime.objects.memory import MemoryStore
from tests.looped import LoopClock, looped, timeless
from tests.remote.segments.builders import (
    NOW_MS,
    RUN,
    CountingStore,
    MadeSegment,
    Spec,
    joined,
    make_segment,
    options,
    put,
    reader_of,
    segments,
)


@given(made=segments, how=options, data=st.data())
@settings(max_examples=120)
def test_what_was_copied_is_read_back(
    made: MadeSegment, how: CopyOptions, data: st.DataObject
) -> None:
    """R13, remote.segments.R3, remote.segments.F2: any batches, chunk sizes and compression.

    They are read at any offset, with any limit.  Internal batches are not seen by clients, and are
    there for whoever reads all of them.
    """
    offset = data.draw(st.integers(0, 100)) + made.segment.name.start_offset
    max_bytes = data.draw(st.sampled_from([0, 1, 100, 500, 10_000, 1 << 20]))
    min_one = data.draw(st.booleans())
    end = data.draw(st.sampled_from([None, 1001, 1005, 1050]))
    timestamp = data.draw(st.integers(NOW_MS - 1, NOW_MS + 40))

    async def story() -> None:
        store = MemoryStore(lambda: NOW_MS)
        pointer = await put(store, made, how)
        assert decode_pointer(pointer.encode()) == pointer
        assert await find_pointer(store, made.segment.name.key) == pointer
        reader = reader_of(store, made, pointer)
        if not made.segment.name.start_offset <= offset < made.segment.end_offset:
            with pytest.raises(OffsetOutOfRange):
                await reader.read(offset, max_bytes, min_one=min_one)
        else:
            assert reader.read_held(offset, max_bytes, end=end, min_one=min_one) is None
            found = joined(await reader.read(offset, max_bytes, end=end, min_one=min_one))
            assert found == made.expected(offset, max_bytes, min_one=min_one, end=end)
            held = reader.read_held(offset, max_bytes, end=end, min_one=min_one)
            assert held is not None
            assert joined(held) == found
        by_time = await reader.find_timestamp(timestamp, start_offset=offset)
        assert (by_time and by_time[:2]) == made.first_as_new(timestamp, offset)
        assert [each.data async for each in reader.batches()] == [
            each.stored for each in made.batches]
        verified = await reader.verify()
        assert verified.batch_count == len(made.batches)
        assert verified.stored_size == (await store.head(made.segment.name.key)).size
        footer = verified.footer
        assert (footer.topic, footer.epochs, footer.producer_snapshot) == (
            ".a-topic", (SegmentEpoch(1, 1000, 1005),), b"snapshot")

    asyncio.run(story())


@given(made=segments, how=options, data=st.data())
@settings(max_examples=40)
def test_batches_from_anywhere(
    made: MadeSegment, how: CopyOptions, data: st.DataObject
) -> None:
    """Batches are those of the segment's file, whatever was compressed."""
    log_offset = data.draw(st.integers(0, 2000))

    async def story() -> None:
        store = MemoryStore(lambda: NOW_MS)
        reader = reader_of(store, made, await put(store, made, how))
        assert [each.header.log_offset async for each in reader.batches(log_offset)] == [
            each.log_offset for each in made.batches
            if each.log_offset + each.spec.record_count > log_offset]

    asyncio.run(story())


MANY = make_segment([Spec(record_count=2, value_size=400, timestamp=NOW_MS + 10 * number)
                     for number in range(100)])


@looped
async def test_only_the_chunks_needed_are_fetched() -> None:
    """R16, remote.segments.R2: one request for the footer, one for each chunk that is read."""
    store = CountingStore()
    pointer = await put(store, MANY, CopyOptions(chunk_size=5000, index_interval=1000))
    cache = ChunkCache(1 << 20)
    reader = reader_of(store, MANY, pointer, cache=cache)
    await reader.read(1100, 1, min_one=True)
    footer, chunk = store.ranges
    assert footer.end == pointer.object_size
    assert chunk.end - chunk.start <= 5000
    await reader.read(1101, 1, min_one=True)
    await reader_of(store, MANY, pointer, cache=cache).read(1102, 1, min_one=True)
    assert len(store.ranges) == 2  # all from the cache, for another reader as well
    store.ranges.clear()
    assert await reader.find_timestamp(NOW_MS + 755) is not None
    assert len(store.ranges) == 1
    assert store.read_size <= 5000


@looped
async def test_read_ahead_is_for_sequential_readers() -> None:
    """R16: the chunks after the one that follows what was read, and none at a random place."""
    store = CountingStore()
    pointer = await put(store, MANY, CopyOptions(chunk_size=5000))
    cache = ChunkCache(1 << 20)
    reader = reader_of(store, MANY, pointer, cache=cache, read_ahead=2)
    chunks = (await reader.footer()).chunks
    store.ranges.clear()
    await reader.read(chunks[4].first_offset, 1, min_one=True)
    assert len(store.ranges) == 1
    await reader.read(chunks[5].first_offset, 1, min_one=True)
    while cache.in_flight:
        await asyncio.sleep(0)
    assert [each.start for each in store.ranges] == [each.position for each in chunks[4:8]]
    assert cache.counters.prefetches == 2
    await reader.read(chunks[6].first_offset, 1, min_one=True)
    assert cache.counters.prefetches == 3
    cache.close()


@looped
async def test_what_is_held_is_read_at_once() -> None:
    """R16, remote.segments.R2: up to the first chunk that is not held; nothing is fetched."""
    store = CountingStore()
    pointer = await put(store, MANY, CopyOptions(chunk_size=5000))
    cache = ChunkCache(1 << 20)
    reader = reader_of(store, MANY, pointer, cache=cache, read_ahead=0)
    first, second, third, *_ = (await reader.footer()).chunks
    for offset in (first.first_offset, second.first_offset):
        await reader.read(offset, 1, min_one=True)
    store.ranges.clear()
    held = reader.read_held(first.first_offset, 1 << 20, min_one=True)
    assert held is not None
    assert joined(held) == MANY.expected(
        first.first_offset, 1 << 20, min_one=True, end=third.first_offset)
    assert reader.read_held(third.first_offset, 1, min_one=True) is None
    assert store.ranges == []


@looped
async def test_the_next_segment_is_prepared_for_sequential_readers() -> None:
    """R16: near the end of a segment, if the chunk before was read as well."""
    store = CountingStore()
    pointer = await put(store, MANY, CopyOptions(chunk_size=5000))
    cache = ChunkCache(1 << 20)
    reader = reader_of(store, MANY, pointer, cache=cache, read_ahead=2)
    assert not reader.ends_soon(MANY.segment.end_offset - 1)  # nothing is known of it
    await reader.prepare()
    while cache.in_flight:
        await asyncio.sleep(0)
    chunks = (await reader.footer()).chunks
    assert [each.start for each in store.ranges[1:]] == [each.position for each in chunks[:2]]
    last = chunks[-1].first_offset
    assert not reader.ends_soon(last)
    await reader.read(chunks[-2].first_offset, 1, min_one=True)
    assert reader.ends_soon(last)
    assert not reader.ends_soon(chunks[1].first_offset)
    cache.close()


@pytest.mark.parametrize("at", [0, 40, 2000, 20_000, -1])
@looped
async def test_a_damaged_segment_is_not_copied(at: int) -> None:
    """remote.segments.W1, remote.segments.K1: nor one that ends early; nothing is stored."""
    store = MemoryStore(lambda: NOW_MS)
    data = bytearray(MANY.data)
    data[at] ^= 1
    size = len(data)
    segment = MANY.segment
    for wrong in (memoryview(data), memoryview(MANY.data)[:-1], memoryview(MANY.data)[:-600]):
        made = MadeSegment(SegmentToCopy(
            name=segment.name, topic="t", data=wrong, size=size, end_offset=segment.end_offset,
            log_start=segment.log_start, log_end=segment.log_end,
            max_timestamp=segment.max_timestamp), [], b"")
        with pytest.raises(CorruptLog) as error:
            await put(store, made, CopyOptions(chunk_size=5000))
        assert error.value.kind is ErrorKind.CORRUPT
    for change in ({"log_end": segment.log_end + 1}, {"log_start": segment.log_start + 1}):
        fields = {"log_start": segment.log_start, "log_end": segment.log_end, **change}
        made = MadeSegment(SegmentToCopy(
            name=segment.name, topic="t", data=segment.data, size=size,
            end_offset=segment.end_offset, max_timestamp=segment.max_timestamp, **fields), [], b"")
        with pytest.raises(CorruptLog):
            await put(store, made)
    assert (await store.list()).objects == ()


@looped
async def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """As a segment that retention took meanwhile."""
    made = MadeSegment(SegmentToCopy(
        name=MANY.segment.name, topic="t", data=tmp_path / "gone", size=100, end_offset=2000,
        log_start=1, log_end=2, max_timestamp=0), [], b"")
    with pytest.raises(CorruptLog, match="No such file"):
        await put(MemoryStore(lambda: NOW_MS), made)


@looped
async def test_the_index_of_the_log_is_taken_over() -> None:
    """Thinned out; a caller that has no index pays for a scan."""
    marks = [(each.base_offset, each.log_offset, each.position,
              max([before.spec.timestamp + 1 for before in MANY.batches[:number]], default=-1))
             for number, each in enumerate(MANY.batches)]
    store = MemoryStore(lambda: NOW_MS)
    segment = MANY.segment
    given_index = SegmentToCopy(
        name=segment.name, topic="t", data=segment.data, size=segment.size,
        end_offset=segment.end_offset, log_start=segment.log_start, log_end=segment.log_end,
        max_timestamp=segment.max_timestamp, index=marks)
    how = CopyOptions(chunk_size=5000, index_interval=3000)
    reader = reader_of(store, MANY, await put(store, MadeSegment(given_index, [], b""), how))
    taken = (await reader.verify()).footer
    assert 15 < len(taken.marks()) <= 40
    assert set(taken.marks()) <= set(marks)
    for timestamp in range(NOW_MS, NOW_MS + 1000, 35):
        found = await reader.find_timestamp(timestamp)
        assert (found and found[:2]) == MANY.first_as_new(timestamp, 0)


@timeless
async def test_copies_are_throttled() -> None:
    """Bytes per second, over all copies that share the limit."""
    store = MemoryStore(lambda: NOW_MS)
    throttle = TokenBucket(10_000, burst=5000)
    clock = LoopClock()
    begun = clock.monotonic()
    await write_segment(store, MANY.segment, CopyOptions(chunk_size=5000), run=RUN, clock=clock,
                        throttle=throttle)
    seconds = (len(MANY.data) - 2 * 5000) / 10_000
    assert seconds - 1 < clock.monotonic() - begun < seconds + 2


def test_there_are_never_too_many_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """remote.segments.F1: a small chunk size grows with the segment."""
    monkeypatch.setattr("quipu.remote.segments.writer.CHUNKS_MAX", 11)

    async def story() -> None:
        store = MemoryStore(lambda: NOW_MS)
        reader = reader_of(store, MANY, await put(store, MANY, CopyOptions(chunk_size=100)))
        assert len((await reader.verify()).footer.chunks) <= 11

    assert CHUNKS_MAX >= 1 << 16
    asyncio.run(story())


@looped
async def test_a_copy_holds_a_few_chunks_in_memory(tmp_path: Path) -> None:
    """R13: whatever the size of the segment."""
    made = make_segment([Spec(value_size=60_000)] * 100)
    path = tmp_path / "segment"
    path.write_bytes(made.data)
    segment = SegmentToCopy(
        name=made.segment.name, topic="t", data=path, size=made.segment.size,
        end_offset=made.segment.end_offset, log_start=made.segment.log_start,
        log_end=made.segment.log_end, max_timestamp=made.segment.max_timestamp)
    store = LocalStore(str(tmp_path / "objects"))
    tracemalloc.start()
    await write_segment(store, segment, CopyOptions(chunk_size=130_000), run=RUN,
                        clock=LoopClock())
    assert tracemalloc.get_traced_memory()[1] < 1_000_000 < made.segment.size / 5
    tracemalloc.stop()
    await store.close()

"""Records are found by their time, to the record."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.diskless.reading import loads, times
from quipu.model.ids import Offset
from quipu.model.partition_log import T, TimestampAndOffset
from quipu.wire.record_batch import LOG_APPEND_TIME_BIT, Record, encode_batch
from tests.diskless.nodes import LOG, memory_world, run_here
from tests.looped import timeless


def found(timestamps: list[int], wanted: int, start: int) -> tuple[int, int] | None:
    return next(((time, offset) for offset, time in enumerate(timestamps)
                 if offset >= start and time >= wanted), None)


def pair(answer: TimestampAndOffset | None) -> tuple[int, int] | None:
    return None if answer is None else (answer.timestamp, answer.offset)


@settings(max_examples=25)
@given(st.lists(st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=4), min_size=1,
                         max_size=4), min_size=1, max_size=4),
       st.integers(0, 12), st.integers(0, 4), st.integers(40, 400))
def test_a_time_is_found_as_by_walking_all_records(
    objects: list[list[list[int]]], start: int, compression: int, block_size: int
) -> None:
    """D5: in whichever batch, run and object; also if the first records are deleted."""

    @timeless
    async def story() -> None:
        world = memory_world()
        writer, other = await world.node(1), await world.node(2)
        for each in objects:
            for batch in each:
                writer.append_batch(memoryview(encode_batch(
                    [Record(None, b"v", timestamp=time) for time in batch],
                    compression=compression)))
            await writer.writer.flush()
        timestamps = [time for each in objects for batch in each for time in batch]
        begin = min(start, len(timestamps))
        await writer.plane.delete_records(LOG, Offset(begin), 0)
        for node in (writer, other):
            for wanted in range(22):
                answer = await node.reader.find_timestamp(LOG, wanted, run_here)
                assert pair(answer) == found(timestamps, wanted, begin)
            newest = await node.reader.find_max_timestamp(LOG, run_here)
            left = timestamps[begin:]
            assert pair(newest) == (
                None if not left else (max(left), begin + left.index(max(left))))
        await writer.close()
        await other.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loads, "BLOCK_SIZE", block_size)
        story()


@timeless
async def test_large_batches_are_searched_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """D5: the event loop is not held up."""
    monkeypatch.setattr(times, "SHORT_SIZE", 10)
    node = await memory_world().node()
    calls = []

    async def run_long(work: Callable[[], T]) -> T:
        calls.append(1)
        await asyncio.sleep(0.01)
        return work()

    await node.append("a")
    assert pair(await node.reader.find_timestamp(LOG, 1000, run_long)) == (1000, 0)
    assert calls
    await node.close()


@timeless
async def test_with_log_append_time_all_records_have_the_time_of_their_batch() -> None:
    """D1: the first record of the batch is the one."""
    node = await memory_world().node()
    node.append_batch(memoryview(encode_batch(
        [Record(None, b"a", timestamp=7), Record(None, b"b", timestamp=9)],
        attributes=LOG_APPEND_TIME_BIT)))
    await node.writer.flush()
    assert pair(await node.reader.find_timestamp(LOG, 8, run_here)) == (9, 0)
    assert await node.reader.find_timestamp(LOG, 10, run_here) is None
    assert await node.reader.find_timestamp(LOG._replace(partition=99), 0, run_here) is None
    await node.close()

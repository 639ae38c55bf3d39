"""Blocks: checked batches with their offsets, and the cache that holds them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quipu.diskless.errors import CorruptObject
from quipu.diskless.reading.block_cache import BlockCache
from quipu.diskless.reading.blocks import Block, block_of, rest_of
from quipu.diskless.reading.stats import ReaderStats
from quipu.diskless.values import BatchRun
from quipu.model.errors import Code
from quipu.model.ids import Offset, TimestampMs
from tests.diskless.nodes import LOG, batches, encoded

BATCHES = [encoded(*("x" * size for size in sizes)) for sizes in ((5, 5), (700,), (1, 2, 3))]
DATA = b"".join(BATCHES)


def run(data: bytes = DATA, count: int = 3, records: int = 6, base: int = 10) -> BatchRun:
    return BatchRun(LOG, Offset(base), Offset(base + records), "key", 16, len(data), count,
                    TimestampMs(1000))


def test_batches_get_the_offsets_of_their_run() -> None:
    """D5, diskless.R4: and the leader epoch, in a copy; nothing else is changed."""
    block = block_of(DATA, run())
    assert (block.base_offset, block.end_offset, block.size, block.count) == (10, 16, len(DATA), 3)
    found = block.read(Offset(10), 1 << 20, min_one=False)
    assert found is not None
    headers = [header for header, _ in batches([found.buffer])]
    assert [(header.base_offset, header.leader_epoch) for header in headers] == [
        (10, 0), (12, 0), (13, 0)]
    assert found.end_offset == 16
    with pytest.raises(TypeError):
        found.buffer[0] = 1


@given(st.integers(10, 15), st.integers(0, 1200), st.booleans())
def test_a_read_returns_whole_batches_up_to_its_limit(
    offset: int, max_bytes: int, min_one: bool
) -> None:
    """D5: from the batch that holds the offset; one at least, if that is wanted."""
    block = block_of(DATA, run())
    ends = [12, 13, 16]
    first = next(number for number, end in enumerate(ends) if offset < end)
    expected: list[memoryview] = []
    for batch in BATCHES[first:]:
        if sum(map(len, expected)) + len(batch) > max_bytes and (expected or not min_one):
            break
        expected.append(batch)
    found = block.read(Offset(offset), max_bytes, min_one=min_one)
    if found is None:
        assert not expected
    else:
        got = [batch for _, batch in batches([found.buffer])]
        assert [each[16:] for each in got] == [each[16:] for each in expected]
        assert found.end_offset == ends[first + len(got) - 1]


def test_every_flipped_bit_is_found() -> None:
    """D5, diskless.R4: except in the fields that are set anyway: base offset and leader epoch."""
    for position in range(len(DATA)):
        for bit in (0, 7):
            damaged = bytearray(DATA)
            damaged[position] ^= 1 << bit
            starts = (0, len(BATCHES[0]), len(BATCHES[0]) + len(BATCHES[1]))
            at = position - max(start for start in starts if start <= position)
            if at < 8 or 12 <= at < 16:
                block_of(damaged, run())
            else:
                with pytest.raises(CorruptObject) as error:
                    block_of(damaged, run())
                assert error.value.code == Code.CORRUPT_MESSAGE


@pytest.mark.parametrize("wrong", [
    run(count=2), run(count=4), run(records=5), run(records=7),
    run(DATA + bytes(7)), run(DATA + bytes(70))], ids=str)
def test_bytes_that_are_not_those_of_the_run_are_refused(wrong: BatchRun) -> None:
    """D5, diskless.R4: the control plane says how many batches and offsets there are."""
    data = DATA + bytes(wrong.size - len(DATA))
    with pytest.raises(CorruptObject):
        block_of(data, wrong)


def test_a_long_run_is_read_in_parts() -> None:
    """D5: a part ends with the last whole batch; the rest is a run of its own."""
    size = len(BATCHES[0]) + len(BATCHES[1]) + 30
    block = block_of(DATA[:size], run())
    rest = rest_of(run(), block)
    assert (block.count, block.end_offset) == (2, 13)
    assert rest is not None
    assert (rest.base_offset, rest.end_offset, rest.batch_count) == (13, 16, 1)
    last = block_of(DATA[rest.position - 16 :], rest)
    assert (last.base_offset, last.end_offset) == (13, 16)
    assert rest_of(rest, last) is None


def block(size: int) -> Block:
    return Block(memoryview(bytes(size)), Offset(0), [size], [1])


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 60), st.booleans()), max_size=80))
def test_the_cache_is_bounded(steps: list[tuple[int, int, bool]]) -> None:
    """D5, diskless.R5: whatever is kept and forgotten."""
    cache = BlockCache(100, ReaderStats())
    for key, size, is_hot in steps:
        if size % 10 == 0:
            cache.forget(("k", key))
        else:
            cache.keep(("k", key), block(size), is_hot=is_hot)
        cache.invariants()
    cache.clear()
    assert cache.size == 0


def test_a_scan_of_old_records_leaves_the_recent_ones() -> None:
    """D5, diskless.R5: half of the cache, and the other way round."""
    cache = BlockCache(100, ReaderStats())
    for number in range(10):
        cache.keep(("hot", number), block(5), is_hot=True)
    for number in range(100):
        cache.keep(("cold", number), block(5), is_hot=False)
    assert all(cache.holds(("hot", number)) for number in range(10))
    assert cache.holds(("cold", 99))
    for number in range(10, 100):
        cache.keep(("hot", number), block(5), is_hot=True)
    assert cache.holds(("cold", 99))
    assert not cache.holds(("hot", 0))
    assert cache.find(("cold", 99)) is not None

"""The cache of chunks: bounded, shared, and full of nothing that failed."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quipu.remote.segments.cache import ChunkCache
from quipu.runtime.objects.errors import StoreUnavailable
from tests.looped import looped, timeless


def loads(value: str, size: int = 1) -> Callable[[], Awaitable[tuple[str, int]]]:
    async def load() -> tuple[str, int]:
        await asyncio.sleep(0)
        return value, size

    return load


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40)), max_size=60))
@settings(max_examples=60)
def test_the_cache_never_exceeds_its_bound(uses: list[tuple[int, int]]) -> None:
    """R16, remote.segments.C1: whatever is loaded; and what is held is what was loaded."""

    async def story() -> None:
        cache = ChunkCache(100)
        for key, size in uses:
            assert await cache.get(key, loads(f"v{key}", 3 * size)) == f"v{key}"
            cache.invariants()
        counters = cache.counters
        assert counters.hits + counters.misses == len(uses)
        cache.forget(0)
        cache.invariants()
        cache.close()
        assert cache.size == 0

    asyncio.run(story())


@looped
async def test_the_least_recently_used_goes_first() -> None:
    """remote.segments.C1: a use counts, a look does not."""
    cache = ChunkCache(3)
    for key in "abc":
        await cache.get(key, loads(key))
    await cache.get("a", loads("a"))
    assert cache.holds("b")
    await cache.get("d", loads("d"))
    assert [key for key in "abcd" if cache.holds(key)] == ["a", "c", "d"]
    assert cache.counters.evictions == 1
    assert await cache.get("big", loads("big", 4)) == "big"
    assert not cache.holds("big")


@looped
async def test_one_load_is_shared() -> None:
    """R16, remote.segments.C2: by all who want the key meanwhile; who gives up leaves it to the
    others.
    """
    cache = ChunkCache(10)
    go = asyncio.Event()
    loaded = 0

    async def load() -> tuple[str, int]:
        nonlocal loaded
        loaded += 1
        await go.wait()
        return "value", 1

    waiting = [asyncio.ensure_future(cache.get("k", load)) for _ in range(5)]
    await asyncio.sleep(0)
    assert cache.in_flight == 1
    waiting[0].cancel()
    go.set()
    assert await asyncio.gather(*waiting[1:]) == ["value"] * 4
    assert loaded == 1
    assert (cache.counters.misses, cache.counters.shared) == (1, 4)


@timeless
async def test_loads_wait_for_their_turn() -> None:
    """R16, remote.segments.C3: and no prefetch waits at all."""
    cache = ChunkCache(100, loads_max=3)
    running = running_max = 0

    async def load() -> tuple[int, int]:
        nonlocal running, running_max
        running += 1
        running_max = max(running, running_max)
        await asyncio.sleep(1)
        running -= 1
        return 1, 1

    gets = [asyncio.ensure_future(cache.get(key, load)) for key in range(8)]
    await asyncio.sleep(0.5)
    assert not cache.prefetch("ahead", 1, load)
    await asyncio.gather(*gets)
    assert running_max == 3
    assert cache.prefetch("ahead", 1, load)
    assert not cache.prefetch("ahead", 1, load)
    assert not cache.prefetch("too large", 26, load)
    await asyncio.sleep(2)
    assert cache.holds("ahead")
    assert cache.counters.prefetches == 1


@looped
async def test_errors_are_not_kept() -> None:
    """R15, remote.segments.C4: all who wait get it, the next one loads again."""
    cache = ChunkCache(10)

    async def fail() -> tuple[str, int]:
        await asyncio.sleep(0)
        raise StoreUnavailable("not now")

    outcomes = await asyncio.gather(
        *(cache.get("k", fail) for _ in range(3)), return_exceptions=True)
    assert {type(each) for each in outcomes} == {StoreUnavailable}
    assert cache.counters.errors == 1
    assert await cache.get("k", loads("value")) == "value"
    cache.prefetch("p", 1, fail)
    while cache.in_flight:
        await asyncio.sleep(0)
    assert not cache.holds("p")
    cache.invariants()


@looped
async def test_a_closed_cache_lets_nobody_wait() -> None:
    """Whoever waits for a load is cancelled."""
    cache = ChunkCache(10)

    async def never() -> tuple[str, int]:
        await asyncio.Event().wait()
        return "never", 1

    waiting = asyncio.ensure_future(cache.get("k", never))
    await asyncio.sleep(0)
    cache.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert cache.in_flight == 0

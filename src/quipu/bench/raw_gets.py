"""Raw ranged gets of all objects of a store: the limit of reads from a remote tier (P11).

The objects are read in order, in ranges of a chunk's size, a few at a time, repeatedly; nothing is
checked and nothing is kept.  Runs in a process of its own, as a load generator does.
"""

import asyncio
import itertools
import time
from collections.abc import Iterator

from quipu.bench.closed_loop import Window
from quipu.bench.errors import BenchError
from quipu.bench.measured import Latency, Measured
from quipu.runtime.clock import SystemClock
from quipu.runtime.objects.store import ByteRange, ObjectInfo, ObjectStore
from quipu.runtime.objects.urls import open_store


def run_gets(url: str, chunk_size: int, in_flight: int, window: Window) -> Measured:
    """Read the objects of the store at `url` until the window ends."""
    return asyncio.run(_run(url, chunk_size, in_flight, window))


async def _run(url: str, chunk_size: int, in_flight: int, window: Window) -> Measured:
    store = open_store(url, SystemClock().now_ms)
    try:
        objects = (await store.list()).objects
        if not objects:
            raise BenchError(f"there are no objects in {url.partition('?')[0]}")
        await _RawGets(store, objects, chunk_size).run(in_flight, window.warmup_seconds, 1 << 62)
        gets, cpu = _RawGets(store, objects, chunk_size), time.process_time()
        started = time.perf_counter()
        await gets.run(in_flight, window.seconds, window.size_max)
        return Measured(
            seconds=time.perf_counter() - started, requests=len(gets.latencies), records=0,
            size=gets.size, latency=Latency.of(gets.latencies),
            generator_cpu_seconds=time.process_time() - cpu)
    finally:
        await store.close()


def ranges(objects: tuple[ObjectInfo, ...], chunk_size: int) -> Iterator[tuple[str, ByteRange]]:
    """Every range of every object, in order."""
    for info in objects:
        for start in range(0, info.size, chunk_size):
            yield info.key, ByteRange(start, min(start + chunk_size, info.size))


class _RawGets:
    """Counts the bytes and times of gets."""

    def __init__(
        self, store: ObjectStore, objects: tuple[ObjectInfo, ...], chunk_size: int
    ) -> None:
        self._store = store
        self._next = itertools.cycle(ranges(objects, chunk_size)).__next__
        self.latencies: list[float] = []
        self.size = 0

    async def run(self, in_flight: int, seconds: float, size_max: int) -> None:
        end = time.perf_counter() + seconds
        async with asyncio.TaskGroup() as group:
            for _ in range(in_flight):
                group.create_task(self._one(end, size_max))

    async def _one(self, end: float, size_max: int) -> None:
        while (begun := time.perf_counter()) < end and self.size < size_max:
            key, wanted = self._next()
            (data,) = await self._store.get_ranges(key, [wanted])
            self.size += len(data)
            self.latencies.append(time.perf_counter() - begun)

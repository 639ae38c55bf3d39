"""Raw puts of objects of one size: the limit of produce to diskless topics (P9).

As many puts are in flight as a node has; each creates an object of its own, as a node's puts do.
The objects are deleted afterwards, which is not measured.  Runs in a process of its own.
"""

import asyncio
import itertools
import os
import time
from typing import Final

from quipu.bench.closed_loop import Window
from quipu.bench.measured import Latency, Measured
from quipu.runtime.clock import SystemClock
from quipu.runtime.objects.store import LIST_MAX, ObjectStore
from quipu.runtime.objects.urls import open_store

PREFIX: Final = "bench"
FOLDERS: Final = 256  # a node's keys are spread over as many


def run_puts(url: str, size: int, in_flight: int, window: Window) -> Measured:
    """Create objects of `size` bytes in the store at `url` until the window ends."""
    return asyncio.run(_run(url, size, in_flight, window))


async def _run(url: str, size: int, in_flight: int, window: Window) -> Measured:
    store = open_store(url, SystemClock().now_ms)
    try:
        warm_up = _RawPuts(store, size, "warm")
        await warm_up.run(in_flight, window.warmup_seconds, window.size_max)
        puts, cpu = _RawPuts(store, size, "puts"), time.process_time()
        started = time.perf_counter()
        await puts.run(in_flight, window.seconds, window.size_max)
        seconds = time.perf_counter() - started
        used = time.process_time() - cpu
        await _clean(store)
    finally:
        await store.close()
    return Measured(
        seconds=seconds, requests=len(puts.latencies), records=0, size=puts.size,
        latency=Latency.of(puts.latencies), server_cpu_seconds=used, generator_cpu_seconds=used)


class _RawPuts:
    """Counts the bytes and times of puts."""

    def __init__(self, store: ObjectStore, size: int, name: str) -> None:
        self._store = store
        self._data = os.urandom(size)
        self._keys = (f"{PREFIX}/{number % FOLDERS:02x}/{name}-{os.getpid()}-{number}"
                      for number in itertools.count())
        self.latencies: list[float] = []
        self.size = 0

    async def run(self, in_flight: int, seconds: float, size_max: int) -> None:
        end = time.perf_counter() + seconds
        async with asyncio.TaskGroup() as group:
            for _ in range(in_flight):
                group.create_task(self._one(end, size_max))

    async def _one(self, end: float, size_max: int) -> None:
        while (begun := time.perf_counter()) < end and self.size < size_max:
            self.size += len(self._data)  # before the put, so that few are beyond `size_max`
            await self._store.put(next(self._keys), [self._data], if_absent=True)
            self.latencies.append(time.perf_counter() - begun)


async def _clean(store: ObjectStore) -> None:
    while keys := [each.key for each in (await store.list(f"{PREFIX}/", limit=LIST_MAX)).objects]:
        await store.delete(keys)

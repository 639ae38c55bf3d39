"""Threads for work that takes long and releases the interpreter's lock: decompression, mostly.

A worker's Python code still takes turns with the loop, so what is handed over should spend its
time in C.  On the simulator's loop there are no threads: work is done a moment later.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

THREADS: Final = 2  # enough to keep one slow piece of work from holding up all others

T = TypeVar("T")


class Workers:
    """A few threads, started when they are first needed."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._patient = asyncio.Semaphore(THREADS - 1)

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` gives, or raises; the loop goes on meanwhile."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="quipu-work")
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def run_patiently(self, work: Callable[[], T]) -> T:
        """The same; however much of it there is, it leaves a thread to `run`."""
        async with self._patient:
            return await self.run(work)

    def close(self) -> None:
        """Wait for work under way; what has not begun is dropped."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

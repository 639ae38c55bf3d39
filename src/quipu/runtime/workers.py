"""Threads for work that takes long and releases the interpreter's lock: decompression, mostly.

A worker's Python code still takes turns with the loop, so what is handed over should spend its
time in C.  On the simulator's loop there are no threads: work is done a moment later.

Invariant
    W1  of the pieces of work that wait, the one is done next for whose request the least has been
        done so far: a request with a thousand pieces is no reason to wait for one with a single one
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from heapq import heappop, heappush
from itertools import count
from typing import Final, TypeVar

THREADS: Final = 2  # enough to keep one slow piece of work from holding up all others

T = TypeVar("T")


class Workers:
    """A few threads, started when they are first needed."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._free = THREADS
        self._numbers = count()
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []  # a heap (W1)
        self._patient = asyncio.Semaphore(THREADS - 1)

    async def run(self, work: Callable[[], T], *, spent_seconds: float = 0.0) -> T:
        """What `work` gives, or raises; the loop goes on meanwhile.

        `spent_seconds` is what earlier work for the same request has taken (W1).
        """
        await self._await_thread(spent_seconds)
        try:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="quipu-work")
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        finally:
            self._pass_on()

    async def _await_thread(self, spent_seconds: float) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (spent_seconds, next(self._numbers), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._pass_on()  # it was this one's turn already
            raise

    def _pass_on(self) -> None:
        """Give a thread to whoever is next."""
        while self._waiting:
            *_, turn = heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    async def run_patiently(self, work: Callable[[], T]) -> T:
        """The same; however much of it there is, it leaves a thread to `run`."""
        async with self._patient:
            return await self.run(work)

    def close(self) -> None:
        """Wait for work under way; what has not begun is dropped."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

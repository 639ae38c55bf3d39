"""Threads for long work that releases the interpreter's lock: decompression, mostly.

Python code in a thread slows the event loop down, so the work should spend its time in C.  On the
simulator's loop there are no threads: the work is done a moment later.

Invariant
    runtime.W1  of the pieces of work that wait, the next is the one whose request has used the
                least time so far: a request with one piece does not wait for a request with a
                thousand
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from heapq import heappop, heappush
from itertools import count
from typing import Final, TypeVar

THREADS: Final = 2  # so that one slow piece of work does not delay all others

T = TypeVar("T")


class Workers:
    """A few threads, started when they are first needed."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._free = THREADS
        self._numbers = count()
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []  # a heap (runtime.W1)
        self._patient = asyncio.Semaphore(THREADS - 1)

    async def run(self, work: Callable[[], T], *, spent_seconds: float = 0.0) -> T:
        """Run `work` in a thread; return what it returns, or raise what it raises.

        `spent_seconds` is the time that earlier work for the same request took (runtime.W1).
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
                self._pass_on()  # the thread was already assigned to this call
            raise

    def _pass_on(self) -> None:
        """Assign a free thread to the next waiting call."""
        while self._waiting:
            *_, turn = heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    async def run_patiently(self, work: Callable[[], T]) -> T:
        """As `run`, for background work: all of it together leaves one thread free for `run`."""
        async with self._patient:
            return await self.run(work)

    def close(self) -> None:
        """Wait for work that is running; work that has not started is dropped."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

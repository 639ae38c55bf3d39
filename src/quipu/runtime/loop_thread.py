"""`LoopThread`: an event loop in a thread, for blocking code that needs what runs on a loop.

    loop = LoopThread("quipu-direct", work_threads=2)
    future = loop.submit(coroutine)          # from any thread; future.result() waits for it

Invariant
    runtime.J1  what is submitted runs on the loop's own thread; work given to `run` runs on a few
                others, and never blocks the loop

The thread ends with the process.  A fork does not have it: make another one there.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """A loop that runs until the process ends."""

    def __init__(self, name: str, *, work_threads: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._pool = ThreadPoolExecutor(work_threads, thread_name_prefix=f"{name}-work")
        threading.Thread(target=self._loop.run_forever, name=name, daemon=True).start()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run `work` on the loop (runtime.J1)."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def run(self, work: Callable[[], T], /) -> T:
        """Run blocking `work` in a thread, for coroutines of the loop (runtime.J1)."""
        return await self._loop.run_in_executor(self._pool, work)

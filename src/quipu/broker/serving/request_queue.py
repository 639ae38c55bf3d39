"""Lets requests wait for their turn, and bounds how many large ones are served at a time.

A request takes far more memory once it is decoded, and more again while its response is built.  So
a large request waits undecoded, and only LARGE_MAX of them are decoded at a time, and HUGE_MAX of
those that may have more than ten thousand elements.  The bytes of all waiting requests are bounded
over all connections.

Not here: whose turn it is (runtime/turns.py), the memory of responses (response_budget.py).
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from quipu.runtime.turns import Turns

SMALL_SIZE: Final = 16 * 1024  # a request of at most this many bytes may always wait
LARGE_SIZE: Final = 16 * 1024  # a request of more bytes counts as large
LARGE_MAX: Final = 8  # large requests that are served at a time
HUGE_SIZE: Final = 128 * 1024  # a request of more bytes is decoded in a thread
HUGE_MAX: Final = 2  # of these are served at a time, besides the large ones
HELD_SECONDS_MAX: Final = 5.0  # then one that waits for a disk or a node no longer counts


class RequestQueue:
    """The waiting requests of all connections of a node."""

    def __init__(self, turns: Turns, *, waiting_size_max: int) -> None:
        self.turns = turns
        self.waiting_size = 0
        self._waiting_size_max = waiting_size_max
        self._large = asyncio.Semaphore(LARGE_MAX)
        self._huge = asyncio.Semaphore(HUGE_MAX)

    def has_room(self, size: int) -> bool:
        """May a request of `size` bytes wait?"""
        return size <= SMALL_SIZE or self.waiting_size + size <= self._waiting_size_max

    @asynccontextmanager
    async def turn(
        self, size: int, *, is_large: bool, may_wait: bool = True
    ) -> AsyncIterator[None]:
        """Wait until it is this request's turn; `size` bytes count as waiting until then.

        A large request holds one of LARGE_MAX or HUGE_MAX places until the block ends.  If it
        `may_wait` in the block for a disk or another node, it holds the place for HELD_SECONDS_MAX
        at most.
        """
        self.waiting_size += size
        release: Callable[[], None] | None = None
        try:
            try:
                if is_large:
                    places = self._huge if size > HUGE_SIZE else self._large
                    await places.acquire()
                    release = self._release_in_time(places) if may_wait else places.release
                await self.turns.begin()
            finally:
                self.waiting_size -= size
            yield
        finally:
            if release is not None:
                release()

    def _release_in_time(self, places: asyncio.Semaphore) -> Callable[[], None]:
        """Return a function that gives the place back; a timer calls it if the caller does not."""
        is_held = True

        def release() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                timer.cancel()
                places.release()

        timer = asyncio.get_running_loop().call_later(HELD_SECONDS_MAX, release)
        return release

"""Requests that wait for their turn, and how many large ones are worked on at a time.

A request takes far more memory once it is decoded, and more again while it is answered.  So a
large one waits as the bytes that came, and only LARGE_MAX of them are decoded at a time.  The
bytes that wait are bounded over all connections.

Not here: whose turn it is (runtime/turns.py), the memory of answers (answers.py).
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from quipu.runtime.turns import Turns

SMALL_SIZE: Final = 16 * 1024  # a connection may always have so many bytes waiting
LARGE_SIZE: Final = 16 * 1024  # a larger request is large
LARGE_MAX: Final = 8  # large requests that are worked on at a time
HELD_SECONDS_MAX: Final = 5.0  # one that may wait for a disk or another node is not one after that


class RequestQueue:
    """What waits, over all connections of a node."""

    def __init__(self, turns: Turns, *, waiting_size_max: int) -> None:
        self.turns = turns
        self.waiting_size = 0
        self._waiting_size_max = waiting_size_max
        self._large = asyncio.Semaphore(LARGE_MAX)

    def has_room(self, size: int) -> bool:
        """May a request of `size` bytes wait?"""
        return size <= SMALL_SIZE or self.waiting_size + size <= self._waiting_size_max

    @asynccontextmanager
    async def turn(
        self, size: int, *, is_large: bool, may_wait: bool = True
    ) -> AsyncIterator[None]:
        """Wait for one's turn, as `size` bytes.

        A large request has one of LARGE_MAX places for as long as the block lasts; if it `may_wait`
        there for a disk or another node, for HELD_SECONDS_MAX at most.
        """
        self.waiting_size += size
        release: Callable[[], None] | None = None
        try:
            try:
                if is_large:
                    await self._large.acquire()
                    release = self._releasing() if may_wait else self._large.release
                await self.turns.begin()
            finally:
                self.waiting_size -= size
            yield
        finally:
            if release is not None:
                release()

    def _releasing(self) -> Callable[[], None]:
        """Gives a place back when called, or when it was held for too long: once."""
        is_held = True

        def release() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                timer.cancel()
                self._large.release()

        timer = asyncio.get_running_loop().call_later(HELD_SECONDS_MAX, release)
        return release

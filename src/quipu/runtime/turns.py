"""Work that takes turns: however much of it there is, others have the loop every few milliseconds.

All long work of a node shares one `Turns`.  In one turn of the loop it may use TURN_SECONDS, all
together; what is left continues in later turns, one piece in each, first come, first served.
Work that has not begun yet and work that goes on alternate, so neither waits for all of the other.

Work that is about to begin asks `has_time`, and if there is none, waits for `begin`.  Work that
goes on for long calls `pause` after every small step, or is a generator that yields there, for
`run`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from typing import Final, TypeVar

TURN_SECONDS: Final = 0.005

T = TypeVar("T")


class Turns:
    """The share of each turn of the loop that long work may use."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._ends = 0.0  # when this turn's time is used up
        self._is_open = False  # has anything been done in this turn of the loop?
        self._begins_first = False  # who is served first alternates
        self._beginning: deque[asyncio.Future[None]] = deque()
        self._going_on: deque[asyncio.Future[None]] = deque()

    def has_time(self) -> bool:
        """May more be done in this turn of the loop?"""
        if not self._is_open:
            self._open()
        return self._monotonic() < self._ends

    def is_over(self) -> bool:
        """Is the time of this turn used up?"""
        return self._monotonic() >= self._ends

    async def ready(self) -> None:
        """Return when work may begin, which may be at once."""
        if not self.has_time():
            await self.begin()

    async def begin(self) -> None:
        """Return when work that has not begun may do so."""
        await self._next(self._beginning)

    async def pause(self) -> None:
        """Let others have their turn if this one's time is used up."""
        if self._monotonic() >= self._ends:
            await self._next(self._going_on)

    async def run(self, steps: Generator[None, None, T]) -> T:
        """Do all steps, and let others have their turns in between; gives what they return."""
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                result: T = stop.value
                return result
            await self.pause()

    async def _next(self, queue: deque[asyncio.Future[None]]) -> None:
        turn = asyncio.get_running_loop().create_future()
        queue.append(turn)
        if not self._is_open:
            self._open()
        await turn

    def _open(self) -> None:
        """Begin to count the time of this turn; the next one begins with `_wake`."""
        self._is_open = True
        self._ends = self._monotonic() + TURN_SECONDS
        asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        """A new turn of the loop: one of those who wait may go on in it."""
        self._is_open = False
        first, second = self._beginning, self._going_on
        self._begins_first = not self._begins_first
        for queue in (first, second) if self._begins_first else (second, first):
            while queue:
                turn = queue.popleft()
                if not turn.done():  # else whoever waited is gone
                    self._open()
                    turn.set_result(None)
                    return

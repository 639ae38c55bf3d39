"""Divides long work into short turns, so that other work gets the event loop every few ms.

All long work of a node shares one `Turns`.  In one turn of the loop all of it together may use
TURN_SECONDS; the rest continues in later turns, one piece in each, first come, first served.
New work and work that is under way alternate, so neither waits for all of the other.

New work calls `has_time`, and if there is none, awaits `begin`.  Long work awaits `pause` after
every small step, or is a generator that yields after every step, for `run`.
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
        self._is_open = False  # whether work was done in this turn of the loop
        self._begins_first = False  # whether new work comes first: it alternates
        self._beginning: deque[asyncio.Future[None]] = deque()
        self._going_on: deque[asyncio.Future[None]] = deque()

    def has_time(self) -> bool:
        """Whether more work may be done in this turn of the loop."""
        if not self._is_open:
            self._open()
        return self._monotonic() < self._ends

    def is_over(self) -> bool:
        """Whether the time of this turn is used up."""
        return self._monotonic() >= self._ends

    async def ready(self) -> None:
        """Return when new work may start: at once, if this turn has time left."""
        if not self.has_time():
            await self.begin()

    async def begin(self) -> None:
        """Return when new work may start, in a later turn."""
        await self._next(self._beginning)

    async def pause(self) -> None:
        """If the time of this turn is used up, wait for another turn."""
        if self._monotonic() >= self._ends:
            await self._next(self._going_on)

    async def run(self, steps: Generator[None, None, T]) -> T:
        """Run all steps, pausing in between where needed; return what the generator returns."""
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
        """Start to count the time of this turn; the next one starts with `_wake`."""
        self._is_open = True
        self._ends = self._monotonic() + TURN_SECONDS
        asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        """Start a new turn of the loop: one piece of waiting work continues in it."""
        self._is_open = False
        first, second = self._beginning, self._going_on
        self._begins_first = not self._begins_first
        for queue in (first, second) if self._begins_first else (second, first):
            while queue:
                turn = queue.popleft()
                if not turn.done():  # else the waiting task was cancelled
                    self._open()
                    turn.set_result(None)
                    return

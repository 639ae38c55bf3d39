"""Ends many waits that one event ends together: a few in each turn of the loop.

A record that thousands of consumers wait for, or the last member that a large group waits for, has
as many answers made at once.  Others have the loop in between.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

WAKEUPS_PER_TURN: Final = 32  # answers that are made before others have their turn


class Wakeups:
    """Calls that are made soon, in the order in which they were asked for."""

    __slots__ = ("_is_due", "_waiting")

    def __init__(self) -> None:
        self._is_due = False  # is `_run` going to be called?
        self._waiting: deque[Callable[[], object]] = deque()

    def soon(self, call: Callable[[], object]) -> None:
        """Call it at the end of this turn of the loop, or of a later one if there are many."""
        self._waiting.append(call)
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        waiting = self._waiting
        try:
            for _ in range(min(len(waiting), WAKEUPS_PER_TURN)):
                waiting.popleft()()
        finally:  # one that fails is the loop's to tell; the others are called all the same
            self._is_due = bool(waiting)
            if waiting:
                asyncio.get_running_loop().call_soon(self._run)

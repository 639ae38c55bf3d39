"""Ends many waits that end at the same time: a few in each turn of the event loop.

A record that thousands of consumers wait for, or the last member that a large group waits for,
completes thousands of requests at once.  Other work gets the loop in between.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

WAKEUPS_PER_TURN: Final = 32  # waits that end before other work gets the loop


class Wakeups:
    """A queue of calls that are made soon, in order."""

    __slots__ = ("_is_due", "_waiting")

    def __init__(self) -> None:
        self._is_due = False  # whether `_run` is scheduled
        self._waiting: deque[Callable[[], object]] = deque()

    def soon(self, call: Callable[[], object]) -> None:
        """Call `call` in the next turn of the loop, or in a later one if many calls wait."""
        self._waiting.append(call)
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        waiting = self._waiting
        try:
            for _ in range(min(len(waiting), WAKEUPS_PER_TURN)):
                waiting.popleft()()
        finally:  # the loop reports a call that raises; the others are still made
            self._is_due = bool(waiting)
            if waiting:
                asyncio.get_running_loop().call_soon(self._run)

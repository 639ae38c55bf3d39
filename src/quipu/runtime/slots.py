"""A limit on how much work of a kind runs at a time, which may change while work runs.

    async with slots:
        ...  # at most `count_max` tasks are here

As `asyncio.Semaphore`, whose number is fixed.  After a change to fewer, tasks that run go on, and
none begins until there is room again.
"""

import asyncio
from collections import deque
from types import TracebackType


class Slots:
    """The limit; waiting tasks begin in the order in which they came."""

    def __init__(self, count_max: int) -> None:
        assert count_max > 0, count_max
        self._count_max = count_max
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def locked(self) -> bool:
        """Whether a task that came now would wait."""
        return self._taken >= self._count_max

    def resize(self, count_max: int) -> None:
        """Let `count_max` tasks run from now on."""
        assert count_max > 0, count_max
        self._count_max = count_max
        self._admit()

    async def __aenter__(self) -> None:
        if not self._waiting and not self.locked():
            self._taken += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the slot was already given to this task
                self._leave()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        self._taken -= 1
        assert self._taken >= 0, self._taken
        self._admit()

    def _admit(self) -> None:
        while self._waiting and not self.locked():
            turn = self._waiting.popleft()
            if not turn.done():
                self._taken += 1
                turn.set_result(None)

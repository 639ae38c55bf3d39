"""Ends appends whose producers do not want to wait any longer.

The writer goes on with such a batch: whether it is committed is not known when its producer is
told so.  It is no failed batch, so batches that follow it are taken; if it is sent again, the
control plane sees whether that is a copy.

Many appends share one timer, which runs every TICK_SECONDS while some wait.

Invariant
    broker.diskless.D1  an append with a deadline completes within 2 TICK_SECONDS after it
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

TICK_SECONDS: Final = 0.1


class Waiting(Protocol):
    """What has a deadline."""

    def time_over(self) -> None:
        """Complete with an error, unless it has completed."""
        ...


Bucket = dict[Waiting, None]  # what is over at the same tick


class Deadlines:
    """The deadlines of one node's appends."""

    def __init__(self) -> None:
        self._buckets: dict[int, Bucket] = {}  # by the number of the tick
        self._timer: asyncio.TimerHandle | None = None

    def add(self, waiting: Waiting, timeout_ms: int) -> Callable[[Waiting], object]:
        """Call `time_over` after `timeout_ms`, unless what is returned is called with it before."""
        loop = asyncio.get_running_loop()
        tick = int((loop.time() + timeout_ms / 1000) / TICK_SECONDS) + 1  # broker.diskless.D1
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = {}
        bucket[waiting] = None
        if self._timer is None:
            self._timer = loop.call_later(TICK_SECONDS, self._look)
        return bucket.pop

    def close(self) -> None:
        """Stop the timer; who waits is told by others."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = int(loop.time() / TICK_SECONDS)
        for tick in sorted(each for each in self._buckets if each <= now):
            for waiting in list(self._buckets.pop(tick)):
                waiting.time_over()
        self._timer = loop.call_later(TICK_SECONDS, self._look) if self._buckets else None

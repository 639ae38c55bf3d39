"""Tests that are coroutines: `@looped` runs one in a loop of its own, `@timeless` in virtual time.

In virtual time a busy machine cannot make a timer come late; threads and sockets are refused.
"""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

from quipu.model.ids import TimestampMs
from quipu.sim.loop import SimLoop

P = ParamSpec("P")
VIRTUAL_SECONDS_MAX = 600.0
BEGIN_MS = 1_700_000_000_000


class LoopClock:
    """The time of the loop that runs, be it real or virtual."""

    def now_ms(self) -> TimestampMs:
        return TimestampMs(BEGIN_MS + int(self.monotonic() * 1000))

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


def looped(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def timeless(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        loop = SimLoop()
        task = loop.create_task(test(*args, **kwargs))
        assert loop.run_until(VIRTUAL_SECONDS_MAX, done=task.done), "it never ends"
        loop.close()
        task.result()

    return run

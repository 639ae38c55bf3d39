"""Asks the control plane for the bounds of logs: many requests share one question.

A request that comes while a question is under way waits for the next one, because the bounds must
not be older than the request.

Invariants
    broker.diskless.R1  after `refresh`, the known bounds of the log are not older than the call
    broker.diskless.R2  one question is under way at a time; one without a response in
                        ASK_SECONDS_MAX has failed, so that others can be asked
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from quipu.diskless.errors import ControlPlaneUnavailable
from quipu.diskless.values import LogKey
from quipu.model.errors import QuipuError
from quipu.runtime.spawn import spawn

ASK_SECONDS_MAX: Final = 10.0

Ask = Callable[[Sequence[LogKey]], Awaitable[None]]


class Refreshes:
    """The questions of one node."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._next: tuple[dict[LogKey, None], asyncio.Future[None]] | None = None
        self._task: asyncio.Task[None] | None = None

    async def refresh(self, log: LogKey) -> None:
        """Learn the bounds of `log`; raise if the control plane cannot be asked."""
        if self._next is None:
            self._next = {}, asyncio.get_running_loop().create_future()
        logs, asked = self._next
        logs[log] = None
        if self._task is None:
            self._task = spawn(self._run(), "ask for bounds")
        await asyncio.shield(asked)  # broker.diskless.R1

    async def _run(self) -> None:
        try:
            while self._next is not None:  # broker.diskless.R2
                await asyncio.sleep(0)  # other requests of this turn come along
                (logs, asked), self._next = self._next, None
                error: QuipuError | None = None
                try:
                    async with asyncio.timeout(ASK_SECONDS_MAX):
                        await self._ask(list(logs))
                except QuipuError as failed:
                    error = failed
                except TimeoutError:
                    error = ControlPlaneUnavailable("the control plane did not respond in time")
                if error is None:
                    asked.set_result(None)
                else:
                    asked.set_exception(error)
                    asked.exception()  # it is no error if nobody waits any more
        finally:
            self._task = None

"""Questions for bounds: many requests share one, and none is older than its request."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest

from quipu.broker.diskless.refreshes import Refreshes
from quipu.diskless.errors import ControlPlaneUnavailable
from quipu.diskless.values import LogKey
from tests.looped import timeless

LOGS = [LogKey(UUID(int=1), number) for number in range(5)]


class Asked:
    """Questions that take a second each."""

    def __init__(self) -> None:
        self.begun: list[list[LogKey]] = []
        self.under_way = 0
        self.is_down = False

    async def ask(self, logs: Sequence[LogKey]) -> None:
        self.begun.append(list(logs))
        self.under_way += 1
        assert self.under_way == 1  # broker.diskless.R2
        await asyncio.sleep(1)
        self.under_way -= 1
        if self.is_down:
            raise ControlPlaneUnavailable("down for a test")


@timeless
async def test_requests_that_come_together_share_one_question() -> None:
    """D5, broker.diskless.R2: each log is asked for once, one question at a time."""
    asked = Asked()
    refreshes = Refreshes(asked.ask)
    await asyncio.gather(*(refreshes.refresh(log) for log in (*LOGS, *LOGS)))
    assert asked.begun == [LOGS]


@timeless
async def test_a_question_under_way_is_too_old() -> None:
    """broker.diskless.R1: who comes meanwhile waits for the next one."""
    asked = Asked()
    refreshes = Refreshes(asked.ask)
    first = asyncio.ensure_future(refreshes.refresh(LOGS[0]))
    await asyncio.sleep(0.5)
    await refreshes.refresh(LOGS[0])
    assert first.done()
    assert asked.begun == [[LOGS[0]], [LOGS[0]]]
    assert asyncio.get_running_loop().time() >= 2


@timeless
async def test_an_error_is_of_those_who_asked() -> None:
    """broker.diskless.R1: the next question is asked anew; who gave up does not stop the others."""
    asked = Asked()
    refreshes = Refreshes(asked.ask)
    asked.is_down = True
    gone = asyncio.ensure_future(refreshes.refresh(LOGS[1]))
    waiting = asyncio.ensure_future(refreshes.refresh(LOGS[0]))
    await asyncio.sleep(0.1)
    gone.cancel()
    with pytest.raises(ControlPlaneUnavailable):
        await waiting
    asked.is_down = False
    await refreshes.refresh(LOGS[0])

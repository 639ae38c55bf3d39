"""Large requests wait for their turn, and those of many elements in a shorter row."""

import asyncio

import pytest

from quipu.broker.serving.request_queue import (
    HUGE_MAX,
    HUGE_SIZE,
    LARGE_MAX,
    LARGE_SIZE,
    RequestQueue,
)
from quipu.runtime.turns import Turns
from tests.looped import looped


@pytest.mark.parametrize(("size", "places"), [(LARGE_SIZE + 1, LARGE_MAX), (HUGE_SIZE, LARGE_MAX),
                                              (HUGE_SIZE + 1, HUGE_MAX)])
@looped
async def test_few_large_requests_are_served_at_a_time(size: int, places: int) -> None:
    """K8: broker.serving.Q6; the fewer the larger they are, and none of them waits for the other
    row.
    """
    queue = RequestQueue(Turns(lambda: 0.0), waiting_size_max=1 << 30)
    served, go_on = 0, asyncio.Event()

    async def serve() -> None:
        nonlocal served
        async with queue.turn(size, is_large=True, may_wait=False):
            served += 1
            await go_on.wait()

    waiting = [asyncio.ensure_future(serve()) for _ in range(places + 3)]
    for _ in range(50):
        await asyncio.sleep(0)
    assert served == places
    async with queue.turn(10, is_large=False):
        pass  # small ones do not wait for them
    go_on.set()
    await asyncio.gather(*waiting)
    assert served == places + 3
    assert queue.waiting_size == 0

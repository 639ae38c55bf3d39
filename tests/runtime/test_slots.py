"""A limit of tasks that may change while they run."""

import asyncio

from quipu.runtime.slots import Slots
from tests.looped import looped


@looped
async def test_so_many_run_at_a_time_whatever_the_number_becomes() -> None:
    """K5: more begin at once when it grows; when it shrinks, none begins until there is room."""
    slots, go_on, running, order = Slots(2), asyncio.Semaphore(0), set(), []

    async def work(number: int) -> None:
        async with slots:
            running.add(number)
            order.append(number)
            await go_on.acquire()
            running.discard(number)

    tasks = [asyncio.create_task(work(number)) for number in range(8)]
    await asyncio.sleep(0.01)
    assert running == {0, 1}
    assert slots.locked()
    slots.resize(4)
    await asyncio.sleep(0.01)
    assert running == {0, 1, 2, 3}
    slots.resize(1)
    for left in (3, 2, 1):
        go_on.release()
        await asyncio.sleep(0.01)
        assert len(running) == left
        assert max(order) == 3
    tasks[5].cancel()
    for _ in range(5):
        go_on.release()
        await asyncio.sleep(0.01)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == [0, 1, 2, 3, 4, 6, 7]
    assert not slots.locked()


@looped
async def test_a_task_that_is_cancelled_as_its_turn_comes_passes_the_turn_on() -> None:
    """K8: no slot is lost."""
    slots = Slots(1)
    await slots.__aenter__()

    async def work() -> None:
        async with slots:
            await asyncio.sleep(0)

    first, second = (asyncio.create_task(work()) for _ in range(2))
    await asyncio.sleep(0)
    await slots.__aexit__(None, None, None)
    first.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert second.exception() is None
    assert not slots.locked()

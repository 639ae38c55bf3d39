"""Work that takes turns: how much of it is done in one turn of the loop, and in which order."""

import asyncio

from quipu.runtime.turns import TURN_SECONDS, Turns
from tests.looped import looped


class StepClock:
    """Time that passes only when work is done."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


async def work(clock: StepClock, turns: Turns, name: str, steps: int, told: list[str]) -> None:
    """`steps` steps, each of which takes a quarter of a turn."""
    for _ in range(steps):
        await turns.pause()
        clock.now += TURN_SECONDS / 4
        told.append(name)


@looped
async def test_work_of_many_is_done_in_turns() -> None:
    """K8: each gets a turn's worth, then the next; in between, others have the loop."""
    clock, told = StepClock(), list[str]()
    turns = Turns(clock.monotonic)
    tasks = [asyncio.create_task(work(clock, turns, name, 8, told)) for name in "abc"]
    most, before = 0, 0
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        most, before = max(most, len(told) - before), len(told)

    assert most <= 4, "more was done in one turn of the loop than a turn's worth"
    assert sorted(told) == sorted("abc" * 8)
    assert set(told[:16]) == set("abc"), "one of them waits for all of another"


@looped
async def test_what_begins_and_what_goes_on_alternate() -> None:
    """K8: newcomers do not wait for all that is under way, nor that for all of them."""
    clock, told = StepClock(), list[str]()
    turns = Turns(clock.monotonic)

    async def begin(name: str) -> None:
        await turns.begin()
        clock.now += TURN_SECONDS
        told.append(name)

    tasks = [asyncio.create_task(work(clock, turns, "long", 4 * 6, told))]
    tasks += [asyncio.create_task(begin(f"new {number}")) for number in range(3)]
    await asyncio.gather(*tasks)

    assert told.index("new 2") < len(told) - 4 * 2, told
    assert told.index("new 0") < 4 * 3, told


@looped
async def test_one_who_is_gone_is_passed_by() -> None:
    """K8: a task that was cancelled while it waited costs no turn."""
    turns = Turns(StepClock().monotonic)
    gone = asyncio.create_task(turns.begin())
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait_for(turns.begin(), 1)


@looped
async def test_time_is_used_up_by_all_together() -> None:
    """K8: the work that may begin in one turn of the loop is limited over all clients."""
    clock = StepClock()
    turns = Turns(clock.monotonic)
    assert turns.has_time()
    clock.now += TURN_SECONDS
    assert not turns.has_time()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert turns.has_time()

"""Waits that end together: in order, and with turns of the loop in between."""

import asyncio
from itertools import pairwise

from quipu.runtime.wakeups import WAKEUPS_PER_TURN, Wakeups
from tests.looped import looped

COUNT = 10 * WAKEUPS_PER_TURN


@looped
async def test_many_are_called_in_order_and_others_have_their_turn() -> None:
    """K8: an event that many clients wait for does not block the loop for others."""
    wakeups, called = Wakeups(), list[int]()
    for number in range(COUNT):
        wakeups.soon(lambda number=number: called.append(number))  # type: ignore[misc]
    assert called == []
    steps = []
    while len(called) < COUNT:
        await asyncio.sleep(0)
        steps.append(len(called))
    assert called == list(range(COUNT))
    assert max(after - before for before, after in pairwise([0, *steps])) <= WAKEUPS_PER_TURN


@looped
async def test_one_that_fails_is_told_and_keeps_nobody_from_being_called() -> None:
    """K8: the responses to other clients do not depend on it."""
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, about: told.append(about.get("exception")))
    wakeups, called = Wakeups(), list[int]()
    failure = ValueError("a bug")

    def fail() -> None:
        raise failure

    for number in range(3):
        wakeups.soon(fail)
        wakeups.soon(lambda number=number: called.append(number))  # type: ignore[misc]
    for _ in range(10):
        await asyncio.sleep(0)
    assert called == [0, 1, 2]
    assert told == [failure] * 3


@looped
async def test_what_is_asked_for_in_a_call_comes_later() -> None:
    """K8: a client that is woken and waits again does not block the loop."""
    wakeups, count = Wakeups(), 0

    def again() -> None:
        nonlocal count
        count += 1
        wakeups.soon(again)

    wakeups.soon(again)
    for _ in range(5):
        await asyncio.sleep(0)
    assert 1 <= count <= 5

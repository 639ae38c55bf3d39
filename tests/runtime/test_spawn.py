"""Work that goes on when nobody waits for it, and errors that hold nothing."""

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Iterator

import pytest

from quipu.model.errors import QuipuError
from quipu.runtime.spawn import run_to_end
from tests.looped import looped


class Held:
    """What a caller holds while it waits."""


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


async def refuse() -> None:
    await asyncio.sleep(0)
    raise QuipuError("refused")


@pytest.fixture
def _no_garbage_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@looped
async def test_the_result_is_given() -> None:
    assert await run_to_end(double(2), "double") == 4


@looped
async def test_work_goes_on_when_its_caller_is_cancelled() -> None:
    done = asyncio.Event()

    async def work() -> None:
        await asyncio.sleep(0.01)
        done.set()

    caller = asyncio.ensure_future(run_to_end(work(), "work"))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    async with asyncio.timeout(10):
        await done.wait()


@looped
async def test_an_error_that_nobody_waits_for_is_not_logged_as_a_bug(
    caplog: pytest.LogCaptureFixture
) -> None:
    caller = asyncio.ensure_future(run_to_end(refuse(), "work"))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    for _ in range(5):
        await asyncio.sleep(0)
    assert not caplog.records


@pytest.mark.usefixtures("_no_garbage_collector")
@looped
async def test_what_a_refused_caller_held_is_freed_without_the_garbage_collector() -> None:
    """K8: an error is part of no cycle; a request of ten thousand topics was one of 28 MiB."""
    seen: list[weakref.ref[Held]] = []

    async def ask() -> None:
        held = Held()
        seen.append(weakref.ref(held))
        await run_to_end(refuse(), "work")

    with contextlib.suppress(QuipuError):  # what pytest.raises catches, it keeps
        await ask()
    await asyncio.sleep(0)  # until then the loop holds the future that woke this task
    assert len(seen) == 1
    assert seen[0]() is None

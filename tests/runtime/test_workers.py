"""Threads for long work: the loop goes on, results and errors come back to it."""

import asyncio
import threading
import time

import pytest

from quipu.runtime.workers import THREADS, Workers
from tests.looped import looped


@looped
async def test_the_loop_goes_on_while_threads_work() -> None:
    """K8: work that sleeps, as work does that has released the interpreter's lock."""
    workers = Workers()
    turns = 0
    work = asyncio.gather(*(workers.run(lambda: time.sleep(0.2)) for _ in range(THREADS)))
    while not work.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert turns > 5
    workers.close()


@looped
async def test_what_work_gives_or_raises_is_given_or_raised() -> None:
    """K8: on a thread of its own."""
    workers = Workers()
    assert await workers.run(threading.get_ident) != threading.get_ident()
    with pytest.raises(ValueError, match="wrong"):
        await workers.run(lambda: int("wrong"))
    workers.close()
    workers.close()


@looped
async def test_patient_work_leaves_a_thread_to_others() -> None:
    """K8: broker.serving.W3; however much of it there is, other work begins at once."""
    workers, gate = Workers(), threading.Event()
    patient = [asyncio.ensure_future(workers.run_patiently(gate.wait)) for _ in range(50)]
    await asyncio.sleep(0.02)
    async with asyncio.timeout(20):
        assert await workers.run(lambda: "done") == "done"
    patient[0].cancel()
    gate.set()
    async with asyncio.timeout(20):
        assert all(await asyncio.gather(*patient[1:]))
    workers.close()


@looped
async def test_closing_waits_for_work_under_way() -> None:
    """K8: and leaves no thread behind."""
    workers = Workers()
    done: list[int] = []
    task = asyncio.ensure_future(workers.run(lambda: (time.sleep(0.1), done.append(1))))
    await asyncio.sleep(0.02)
    workers.close()
    assert done == [1]
    await task
    assert not [each for each in threading.enumerate() if each.name.startswith("quipu-work")]


@looped
async def test_who_has_had_the_least_is_next() -> None:
    """K8: a request with many pieces of work makes none wait that has had little (runtime.W1)."""
    workers = Workers()
    workers._free = 1
    gate, order = threading.Event(), list[str]()
    busy = asyncio.ensure_future(workers.run(gate.wait))
    await asyncio.sleep(0)

    def work(name: str, spent: float) -> asyncio.Future[None]:
        return asyncio.ensure_future(
            workers.run(lambda: order.append(name), spent_seconds=spent))

    waiting = [work("much", 3.0), work("gone", 0.0), work("some", 1.0), work("none", 0.0)]
    await asyncio.sleep(0)
    waiting.pop(1).cancel()
    gate.set()
    await asyncio.gather(busy, *waiting)
    assert order == ["none", "some", "much"]
    assert workers._free == 1
    workers.close()

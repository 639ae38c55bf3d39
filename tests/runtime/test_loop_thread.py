"""A loop in a thread, used by code that blocks."""

import asyncio
import threading

import pytest

from quipu.runtime.loop_thread import LoopThread


def test_a_loop_beside_blocking_code() -> None:
    """I17: runtime.J1: results and errors come back; blocking work does not block the loop."""
    loop = LoopThread("test", work_threads=1)
    gate = threading.Event()

    async def name() -> str:
        return threading.current_thread().name

    async def slow() -> tuple[bool, str]:
        return await loop.run(lambda: (gate.wait(10), threading.current_thread().name))

    async def failed() -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    waiting = loop.submit(slow())
    assert loop.submit(name()).result(10) == "test"
    with pytest.raises(ValueError, match="no"):
        loop.submit(failed()).result(10)
    assert not waiting.done()
    gate.set()
    is_set, worker = waiting.result(10)
    assert is_set
    assert worker.startswith("test-work")

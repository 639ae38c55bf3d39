"""The simulator's loop."""

import asyncio
import socket
import threading

import pytest

from quipu.sim.loop import Life, Livelock, Process, SimLoop


def test_time_jumps_to_the_next_timer() -> None:
    """V22: an hour of waiting takes no time."""
    loop, seen = SimLoop(), []

    async def sleeper() -> None:
        await asyncio.sleep(3600)
        seen.append(loop.time())

    task = loop.create_task(sleeper())
    assert loop.run_until(10_000, done=task.done)
    assert seen == [3600]


def test_callbacks_of_one_moment_run_in_the_order_of_their_calls() -> None:
    """sim.L1: so a seed decides that order too."""
    loop, seen = SimLoop(), []
    for number in range(5):
        loop.call_at(1.0, seen.append, number)
    loop.run_until(1.0)
    assert seen == [0, 1, 2, 3, 4]


def test_nothing_of_a_dead_process_runs_again() -> None:
    """V22: sim.L2; tasks, timers, callbacks and finally blocks of a crashed node are gone."""
    loop, seen = SimLoop(), []
    process = Process(loop, "a")

    async def work() -> None:
        try:
            while True:
                await asyncio.sleep(1)
                seen.append(loop.now)
        finally:
            seen.append(-1)

    process.run(work(), "work")
    loop.call_at(2.5, process.kill)
    loop.run_until(10)
    assert seen == [1, 2]
    assert len(process.bury()) == 1


def test_a_paused_process_does_its_work_when_it_goes_on() -> None:
    """V22: as after SIGSTOP, its timers are late and its clock is not."""
    loop, seen = SimLoop(), []
    process = Process(loop, "a")
    loop.call_at(1.0, lambda: seen.append(loop.time()), context=process.context)
    loop.call_at(0.5, process.pause)
    loop.call_at(7.0, process.resume)
    loop.run_until(10)
    assert seen == [7.0]
    assert process.life is Life.RUNNING


@pytest.mark.parametrize("drift", [-0.02, 0.0, 0.013])
def test_a_process_sees_its_own_time(drift: float) -> None:
    """V22: a fast clock's timers come early, and never before their time on that clock."""
    loop = SimLoop()
    loop.run_until(100)
    process = Process(loop, "a", drift=drift)
    seen: list[tuple[float, float]] = []

    async def work() -> None:
        for _ in range(50):
            deadline = loop.time() + 0.1
            await asyncio.sleep(0.1)
            assert loop.time() >= deadline
        seen.append((loop.now, loop.time()))

    process.run(work(), "work")
    loop.run_until(200)
    assert seen[0][1] == pytest.approx(105)
    assert seen[0][0] == pytest.approx(100 + 5 / (1 + drift))


def test_work_for_a_thread_runs_on_the_loop() -> None:
    loop = SimLoop()

    async def work() -> int:
        return await loop.run_in_executor(None, threading.get_ident)

    task = loop.create_task(work())
    loop.run_until(1, done=task.done)
    assert task.result() == threading.get_ident()


def test_sockets_and_threads_of_the_real_world_are_refused() -> None:
    """V22: sim.L3; nothing outside of the seed may decide."""
    loop, seen = SimLoop(), []

    def connect() -> None:
        with socket.socket() as sock, pytest.raises(RuntimeError, match="real world"):
            sock.connect(("127.0.0.1", 1))
        with pytest.raises(RuntimeError, match="real world"):
            threading.Thread(target=seen.append).start()
        seen.append("refused")

    loop.call_soon(connect)
    loop.run_until(1)
    assert seen == ["refused"]


def test_callbacks_that_stop_time_are_found() -> None:
    """sim.L4: callbacks that call each other at once would run for ever."""
    loop = SimLoop()

    def again() -> None:
        loop.call_soon(again)

    loop.call_soon(again)
    with pytest.raises(Livelock):
        loop.run_until(1)


def test_an_exception_of_a_callback_is_kept() -> None:
    loop = SimLoop()
    loop.call_soon(lambda: 1 // 0)
    loop.run_until(1)
    assert isinstance(loop.failures[0]["exception"], ZeroDivisionError)

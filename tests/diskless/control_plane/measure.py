"""Measures control planes: commits of 10 batches, and what a find costs in short and long logs.

    python -m tests.diskless.control_plane.measure

Of the rounds of commits the best one counts.  P10, commits as a ratio to bare transactions, is
measured by `tools/bench.py P10`.
"""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path

from quipu.diskless.control_plane.interface import ControlPlane, FindRequest
from quipu.diskless.control_plane.urls import open_control_plane
from quipu.diskless.values import LogKey
from quipu.model.ids import Offset
from quipu.runtime.rng import SystemRng
from tests.contract.control_plane.planes import (
    NOW,
    batch,
    new_logs,
    postgres_url,
    sqlite_url,
    stored,
)
from tests.harness.postgres import PostgresServer

BATCHES = 10  # of a commit, each of a log and a producer of its own
SECONDS = 2.0  # of a round
ROUNDS = 5
SHORT, LONG = 1_000, 100_000  # runs of a log
FINDS = 200


async def rate(writers: int, work: Callable[[int], Awaitable[None]]) -> float:
    """How often `work` is done in a second, by so many at once."""
    ends, done = time.perf_counter() + SECONDS, 0

    async def go_on(writer: int) -> None:
        nonlocal done
        while time.perf_counter() < ends:
            await work(writer)
            done += 1

    began = time.perf_counter()
    await asyncio.gather(*(go_on(writer) for writer in range(writers)))
    return done / (time.perf_counter() - began)


async def commits(plane: ControlPlane, writers: int) -> Callable[[int], Awaitable[None]]:
    logs = [await new_logs(plane, BATCHES) for _ in range(writers)]
    sent = [count() for _ in range(writers)]

    async def commit(writer: int) -> None:
        number = next(sent[writer])
        await plane.commit(
            stored(*(batch(log, producer=(1, 0, number)) for log in logs[writer])), NOW)

    return commit


async def measure_commits(url: str) -> None:
    plane = open_control_plane(url, rng=SystemRng())
    await plane.open()
    for writers in (1, 4):
        commit = await commits(plane, writers)
        found = [await rate(writers, commit) for _ in range(ROUNDS)]
        print(f"{url.partition(':')[0]}, {writers} writers: {max(found):.0f} commits/s", flush=True)
    await plane.close()


async def measure_finds(url: str) -> None:
    plane = open_control_plane(url, rng=SystemRng())
    await plane.open()
    for length in (SHORT, LONG):
        [log] = await new_logs(plane)
        objects = [(stored(batch(log, timestamp=NOW + n)), [Offset(n)]) for n in range(length)]
        for start in range(0, length, 5000):
            await plane.restore_objects(objects[start:start + 5000], NOW)
        print(f"{url.partition(':')[0]}, {length} runs: {await looks(plane, log, length)}",
              flush=True)
    await plane.close()


async def looks(plane: ControlPlane, log: LogKey, length: int) -> str:
    by_offset = await timed(lambda n: plane.find([FindRequest(log, Offset(n * 7919 % length), 1)]))
    by_time = await timed(lambda n: plane.find_timestamp(log, NOW + n * 7919 % length))
    end = await timed(lambda n: plane.commit(stored(batch(log)), NOW + n))
    return f"find {by_offset:.0f} us, by time {by_time:.0f} us, commit {end:.0f} us"


async def timed(call: Callable[[int], Awaitable[object]]) -> float:
    """The median microseconds of a call."""
    taken = []
    for number in range(FINDS):
        began = time.perf_counter()
        await call(number)
        taken.append(time.perf_counter() - began)
    return sorted(taken)[FINDS // 2] * 1e6


def main() -> None:
    server = PostgresServer()
    try:
        with tempfile.TemporaryDirectory() as folder:
            for url in (postgres_url(server), sqlite_url(Path(folder))):
                asyncio.run(measure_commits(url))
                asyncio.run(measure_finds(url))
    finally:
        server.stop()


if __name__ == "__main__":
    main()

"""Commits of a control plane, and bare transactions that write the same rows to the same tables.

A commit has BATCHES batches, each of a log and a producer of its own.  Bare transactions write
whole arrays a statement, prepared, in one round trip, and look at nothing: what the tables cost.

    run_commits(url, writers, rounds, seconds)   both in turns, in a process of its own
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from quipu.bench.measured import Latency, Measured
from quipu.diskless.control_plane.interface import ControlPlane
from quipu.diskless.control_plane.urls import open_control_plane
from quipu.diskless.values import BatchCoordinates, LogKey, NewObject
from quipu.model.ids import NodeId, ProducerId, TimestampMs
from quipu.runtime.rng import SystemRng

if TYPE_CHECKING:
    from psycopg import AsyncConnection

BATCHES: Final = 10  # of a commit
BATCH_SIZE: Final = 100
WARMUP_SECONDS: Final = 0.3
NOW_MS: Final = 1_700_000_000_000
Work = Callable[[int], Awaitable[object]]  # of one writer

_BARE: Final = (
    ("INSERT INTO diskless_objects (object_id, object_key, uploader, size, live_size, run_count, "
     "committed_ms, outcomes, log_starts) OVERRIDING SYSTEM VALUE "
     "VALUES (%s, %s, 1, 1000, 1000, 10, 1, %s::bigint[], %s::bigint[])"),
    ("INSERT INTO diskless_runs SELECT l, e, e - 1, %s, 1, 100, 1, 1, 1, n, 1 "
     "FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[]) w (l, e, n)"),
    ("UPDATE diskless_logs l SET high_watermark = w.e, size = size + 100, last_run = w.e "
     "FROM unnest(%s::bigint[], %s::bigint[]) w (id, e) WHERE l.log_id = w.id"),
    ("INSERT INTO diskless_producers SELECT l, 1, 0, 1, 1, %s::bigint[] "
     "FROM unnest(%s::bigint[]) l ON CONFLICT (log_id, producer_id) DO UPDATE "
     "SET batches = excluded.batches, last_commit_ms = excluded.last_commit_ms"),
)
_PLANS: Final = ("SET enable_seqscan = off", "SET enable_hashjoin = off")


def run_commits(
    url: str, writers: int, rounds: int, seconds: float
) -> list[tuple[Measured, Measured]]:
    """Rounds of (commits, bare transactions), in turns."""
    return asyncio.run(_run(url, writers, rounds, seconds))


async def _run(
    url: str, writers: int, rounds: int, seconds: float
) -> list[tuple[Measured, Measured]]:
    plane = open_control_plane(url, rng=SystemRng())
    await plane.open()
    connections: list[AsyncConnection[Any]] = []
    try:
        commit = await _commits(plane, writers)
        write = await _transactions(url, plane, writers, connections)
        for work in (commit, write):
            await _measure(writers, work, WARMUP_SECONDS)
        return [(await _measure(writers, commit, seconds), await _measure(writers, write, seconds))
                for _ in range(rounds)]
    finally:
        for connection in connections:
            await connection.close()
        await plane.close()


async def _measure(writers: int, work: Work, seconds: float) -> Measured:
    """Do `work` as often as so many writers can."""
    taken: list[float] = []
    began, cpu = time.perf_counter(), time.process_time()
    ends = began + seconds

    async def go_on(writer: int) -> None:
        while (now := time.perf_counter()) < ends:
            await work(writer)
            taken.append(time.perf_counter() - now)

    await asyncio.gather(*(go_on(writer) for writer in range(writers)))
    return Measured(
        seconds=time.perf_counter() - began, requests=len(taken), records=len(taken) * BATCHES,
        size=len(taken) * BATCHES * BATCH_SIZE, latency=Latency.of(taken),
        generator_cpu_seconds=time.process_time() - cpu)


async def _commits(plane: ControlPlane, writers: int) -> Work:
    logs = [await _new_logs(plane) for _ in range(writers)]
    sequences = [count() for _ in range(writers)]

    async def commit(writer: int) -> None:
        sequence = next(sequences[writer])
        batches = [
            BatchCoordinates(log, index * BATCH_SIZE, BATCH_SIZE, 1, TimestampMs(NOW_MS),
                             ProducerId(1), 0, sequence)
            for index, log in enumerate(logs[writer])]
        await plane.commit(
            NewObject(str(uuid4()), NodeId(1), BATCHES * BATCH_SIZE, batches), NOW_MS)

    return commit


async def _transactions(
    url: str, plane: ControlPlane, writers: int, connections: "list[AsyncConnection[Any]]"
) -> Work:
    import psycopg  # noqa: PLC0415 the control plane has said what to install without it

    ids: list[list[int]] = []
    for _ in range(writers):
        connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
        connections.append(connection)
        for statement in _PLANS:
            await connection.execute(statement.encode())
        [log, *_] = await _new_logs(plane)
        rows = await connection.execute("SELECT log_id FROM diskless_logs WHERE topic_id = %s",
                                        (str(log.topic_id),))
        ids.append([row[0] for row in await rows.fetchall()])
    numbers, objects = [count(1) for _ in range(writers)], count(time.time_ns())
    outcomes = list(range(BATCHES))

    async def write(writer: int) -> None:
        number, object_id, logs = next(numbers[writer]), next(objects), ids[writer]
        ends = [number] * BATCHES
        values = ((object_id, str(uuid4()), outcomes, outcomes), (object_id, logs, ends, ends),
                  (logs, ends), (list(range(15)), logs))
        connection = connections[writer]
        async with connection.pipeline():
            await connection.execute("BEGIN")
            for statement, each in zip(_BARE, values, strict=True):
                await connection.execute(statement.encode(), each)
            await connection.execute("COMMIT")

    return write


async def _new_logs(plane: ControlPlane) -> list[LogKey]:
    topic_id = uuid4()
    await plane.create_logs(topic_id, f"bench-{topic_id}", BATCHES)
    return [LogKey(topic_id, partition) for partition in range(BATCHES)]

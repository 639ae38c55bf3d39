"""The control planes that the contract is tested on; each test has tables of its own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import quote
from uuid import UUID, uuid4

import psycopg

from quipu.diskless.control_plane.interface import BatchOutcome, ControlPlane, FindRequest
from quipu.diskless.control_plane.memory import MemoryControlPlane
from quipu.diskless.control_plane.memory_tables import MemoryTables
from quipu.diskless.control_plane.urls import open_control_plane
from quipu.diskless.values import BatchCoordinates, BatchRun, LogKey, NewObject
from quipu.model.errors import Code
from quipu.model.ids import NodeId, Offset, ProducerId, TimestampMs
from quipu.runtime.rng import SystemRng
from tests.harness.postgres import PostgresServer

NAMES = ("memory", "sqlite", "postgres")
NOW = 1_700_000_000_000


class PlaneUnderTest(Protocol):
    """A store that exists once for each test."""

    def client(self) -> ControlPlane:
        """A control plane over the store, as another node would open it."""
        ...


class Memory:
    """One set of tables that all clients share."""

    def __init__(self) -> None:
        self._tables = MemoryTables()

    def client(self) -> ControlPlane:
        return MemoryControlPlane(self._tables)


class ByUrl:
    """A SQLite file, or a schema of a PostgreSQL database."""

    def __init__(self, url: str) -> None:
        self.url = url

    def client(self) -> ControlPlane:
        return open_control_plane(self.url, rng=SystemRng())


def sqlite_url(folder: Path) -> str:
    return f"sqlite://{folder}/control-plane.sqlite"


def postgres_url(server: PostgresServer) -> str:
    """The URL of a new schema."""
    schema = f"test_{uuid4().hex}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
    return f"{server.url}&options={quote(f'-csearch_path={schema}')}"


@asynccontextmanager
async def opened(under_test: PlaneUnderTest) -> AsyncIterator[ControlPlane]:
    plane = under_test.client()
    await plane.open()
    try:
        yield plane
    finally:
        await plane.close()


@asynccontextmanager
async def with_logs(
    under_test: PlaneUnderTest, count: int = 1
) -> AsyncIterator[tuple[ControlPlane, list[LogKey]]]:
    """A control plane with a topic of so many partitions."""
    async with opened(under_test) as plane:
        yield plane, await new_logs(plane, count)


async def new_logs(plane: ControlPlane, count: int = 1) -> list[LogKey]:
    topic_id = uuid4()
    await plane.create_logs(topic_id, f"topic-{topic_id}", count)
    return [LogKey(topic_id, partition) for partition in range(count)]


def batch(
    log: LogKey, count: int = 1, *, size: int = 100, timestamp: int = NOW, position: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> BatchCoordinates:
    """A batch; `producer` is its id, epoch and base sequence."""
    producer_id, epoch, sequence = producer
    return BatchCoordinates(log, position, size, count, TimestampMs(timestamp),
                            ProducerId(producer_id), epoch, sequence)


def stored(*batches: BatchCoordinates, key: str = "", gap: int = 0) -> NewObject:
    """An object in which the batches follow each other, `gap` bytes apart."""
    position, placed = 10, []
    for each in batches:
        placed.append(each._replace(position=position))
        position += each.size + gap
    return NewObject(key or str(uuid4()), NodeId(1), position + 50, placed)


async def committed(
    plane: ControlPlane, *batches: BatchCoordinates, now_ms: int = NOW
) -> list[BatchOutcome]:
    return list(await plane.commit(stored(*batches), now_ms))


async def all_runs(plane: ControlPlane, log: LogKey) -> list[BatchRun]:
    """The runs of a log; checks that they have all offsets (diskless.C4, diskless.C5)."""
    [bounds] = await plane.bounds([log])
    assert bounds is not None
    assert 0 <= bounds.log_start_offset <= bounds.diskless_start_offset <= bounds.high_watermark
    runs, offset = list[BatchRun](), bounds.diskless_start_offset
    while offset < bounds.high_watermark:
        [found] = await plane.find([FindRequest(log, offset, 1 << 40)])
        assert found.runs[0].base_offset <= offset < found.runs[0].end_offset
        for before, after in zip(found.runs, found.runs[1:], strict=False):
            assert before.end_offset == after.base_offset
        runs += found.runs
        offset = found.runs[-1].end_offset
    assert sum(run.size for run in runs) == bounds.size
    return runs


def accepted(base: int, log_start: int = 0) -> BatchOutcome:
    return BatchOutcome(Code.NONE, Offset(base), Offset(log_start))


def duplicate(base: int, log_start: int = 0) -> BatchOutcome:
    return BatchOutcome(Code.NONE, Offset(base), Offset(log_start), is_duplicate=True)


def refused(code: Code) -> BatchOutcome:
    return BatchOutcome(code)


UNKNOWN_TOPIC = UUID(int=0xBAD)

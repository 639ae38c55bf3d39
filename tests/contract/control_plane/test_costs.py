"""What operations cost in short and long logs: counted, not timed."""

import json
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from quipu.diskless.control_plane.interface import (
    ControlPlane,
    FindRequest,
    Replacement,
    RetentionRule,
)
from quipu.diskless.control_plane.postgres import PostgresControlPlane
from quipu.diskless.control_plane.sqlite import SqliteControlPlane
from quipu.diskless.values import LogKey, NewObject
from quipu.model.ids import NodeId, Offset
from tests.contract.control_plane.planes import (
    NOW,
    ByUrl,
    batch,
    new_logs,
    opened,
    postgres_url,
    sqlite_url,
    stored,
)
from tests.harness.postgres import PostgresServer
from tests.looped import looped

SHORT, LONG = 256, 8192  # runs; a cost that grows with them grows 32 times
GROWTH_MAX = 3.0
SLACK = 200  # steps or pages that do not matter


async def filled(plane: ControlPlane, length: int) -> LogKey:
    """A log of so many runs, with timestamps in no order."""
    [log] = await new_logs(plane)
    objects = [(stored(batch(log, timestamp=NOW + n * 7919 % length)), [Offset(n)])
               for n in range(length)]
    await plane.restore_objects(objects, NOW)
    await plane.delete_records(log, Offset(3), NOW)  # so that the search begins at an odd place
    return log


async def rewritten(plane: ControlPlane, log: LogKey, length: int) -> None:
    [found] = await plane.find([FindRequest(log, Offset(length // 2), 1)])
    new = NewObject(f"rewritten-{log}", NodeId(1), 200, [])
    assert await plane.rewrite(new, [Replacement(found.runs[0], new.key, 0)], NOW)


async def tiered(plane: ControlPlane, log: LogKey) -> None:
    claim = await plane.claim_tiering(log, "owner", NOW, 1000)
    assert claim is not None
    await plane.note_tiered(claim, Offset(5), NOW)


def operations(
    plane: ControlPlane, log: LogKey, length: int
) -> dict[str, Callable[[], Awaitable[object]]]:
    """Operations that return or change little."""
    middle = Offset(length // 2)
    return {
        "bounds": lambda: plane.bounds([log]),
        "find": lambda: plane.find([FindRequest(log, middle, 1)]),
        "find time": lambda: plane.find_timestamp(log, NOW + length - 1),
        "find no time": lambda: plane.find_timestamp(log, NOW + length),
        "find largest": lambda: plane.find_max_timestamp(log),
        "aged": lambda: plane.aged_runs(log, NOW + length, limit=2),
        "retain nothing": lambda: plane.retain([RetentionRule(log, -1, -1)], NOW),
        "commit odd": lambda: plane.commit(stored(batch(log, producer=(1, 0, 0))), NOW),
        "commit even": lambda: plane.commit(stored(batch(log, producer=(1, 0, 1))), NOW),
        "retain": lambda: plane.retain([RetentionRule(log, -1, 0)], NOW, runs_max=1),
        "tiered": lambda: tiered(plane, log),
        "delete": lambda: plane.delete_records(log, Offset(7), NOW),
        "rewrite": lambda: rewritten(plane, log, length),
    }


def compared(short: dict[str, int], long: dict[str, int]) -> None:
    grown = {name: (short[name], long[name]) for name in short
             if long[name] > short[name] * GROWTH_MAX + SLACK}
    assert not grown


@looped
async def test_costs_in_sqlite_do_not_grow_with_the_log(tmp_path: Path) -> None:
    """D2: diskless.C7: steps of SQLite's machine, of each operation."""
    async with opened(ByUrl(sqlite_url(tmp_path))) as plane:
        assert isinstance(plane, SqliteControlPlane)
        steps = [0]

        def count() -> int:
            steps[0] += 1
            return 0

        async def watch(connection: sqlite3.Connection | None) -> None:
            assert connection is not None
            connection.set_progress_handler(count, 1)

        counted: list[dict[str, int]] = []
        for length in (SHORT, LONG):
            log = await filled(plane, length)
            await plane.bounds([log])
            await watch(plane._file._reader)
            await watch(plane._file._writer)
            cost: dict[str, int] = {}
            for name, operation in operations(plane, log, length).items():
                steps[0] = 0
                await operation()
                cost[name] = steps[0]
            counted.append(cost)
            for connection in (plane._file._reader, plane._file._writer):
                assert connection is not None
                connection.set_progress_handler(None, 0)
        compared(*counted)


@looped
async def test_costs_in_postgres_do_not_grow_with_the_log(postgres_server: PostgresServer) -> None:
    """D2: diskless.C7: pages that each operation looks at."""
    async with opened(ByUrl(postgres_url(postgres_server))) as plane:
        assert isinstance(plane, PostgresControlPlane)
        counted: list[dict[str, int]] = []
        for length in (SHORT, LONG):
            log = await filled(plane, length)
            cost: dict[str, int] = {}
            for name, operation in operations(plane, log, length).items():
                pages = await _explained(plane, operation)
                cost[name] = pages
            counted.append(cost)
        compared(*counted)


async def _explained(
    plane: PostgresControlPlane, operation: Callable[[], Awaitable[object]]
) -> int:
    """Run an operation, each of its statements explained right before it, in a rolled back copy."""
    pages, pool = 0, plane._pool
    run_read, run_write = pool.read, pool.write

    async def explained(statement: str, values: Any) -> None:
        nonlocal pages

        async def work(connection: Any) -> None:
            nonlocal pages
            async with connection.transaction(force_rollback=True):
                cursor = await connection.execute(
                    f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}".encode(), values)
                row = await cursor.fetchone()
            [plan] = row[0] if isinstance(row[0], list) else json.loads(row[0])
            pages += plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]

        await pool.run(work, is_write=False)

    async def read(statement: str, values: Any = ()) -> Any:
        await explained(statement, values)
        return await run_read(statement, values)

    async def write(statement: str, values: Any) -> Any:
        await explained(statement, values)
        return await run_write(statement, values)

    pool.read, pool.write = read, write  # type: ignore[method-assign]  # for this test
    try:
        await operation()
    finally:
        pool.read, pool.write = run_read, run_write  # type: ignore[method-assign]  # the same
    return pages

"""The connections of a control plane to PostgreSQL, and the schema that they find there.

Every operation of a control plane is idempotent, so one whose connection was lost is carried out
again on another connection (runtime/databases/postgres.py).  If that does not help, its outcome is
unknown if it may have reached the server, and otherwise nothing was changed.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from quipu.diskless.control_plane.migrations import SELECT_VERSION, VERSIONS_TABLE, pending
from quipu.diskless.control_plane.migrations.fences import FENCED_STATE
from quipu.diskless.control_plane.migrations.postgres import LOCK, MIGRATIONS
from quipu.diskless.errors import (
    CommitOutcomeUnknown,
    ControlPlaneClosed,
    ControlPlaneUnavailable,
    FencedObject,
    UnusableControlPlane,
)
from quipu.runtime.databases.errors import DatabaseErrors
from quipu.runtime.databases.postgres import PostgresConnections, Work
from quipu.runtime.rng import Rng
from quipu.runtime.spawn import run_to_end

if TYPE_CHECKING:
    from psycopg import AsyncConnection

CONNECTIONS_MAX: Final = 6
_ERRORS: Final = DatabaseErrors(
    ControlPlaneUnavailable, CommitOutcomeUnknown, UnusableControlPlane, ControlPlaneClosed,
    closed_text="the control plane of diskless topics is closed",
    repair_text="check the tables and functions diskless_... and the rights of the user",
    by_state={FENCED_STATE: FencedObject})  # diskless.C10
# A peer that has gone without a word is noticed after some seconds; the URL may say otherwise.
_OPTIONS: Final = {
    "tcp_user_timeout": 10_000, "keepalives_idle": 5,
    "keepalives_interval": 2, "keepalives_count": 3, "application_name": "quipu diskless"}
# diskless.C7: every query finds its rows by an index, in its order, whatever the statistics say.
_PLANS: Final = "; ".join(
    f"SET enable_{plan} = off" for plan in (
        "seqscan", "bitmapscan", "hashjoin", "mergejoin", "sort"))

T = TypeVar("T")
Row = tuple[Any, ...]


class PostgresPool:
    """A few connections, opened when they are needed."""

    def __init__(self, url: str, rng: Rng) -> None:
        """Raise `SettingError` if psycopg is missing, or the URL is wrong; nothing connects yet."""
        self._connections = PostgresConnections(
            url, rng, _ERRORS, name="diskless control plane", subject="a control plane",
            connections_max=CONNECTIONS_MAX, configure=_configure, options=_OPTIONS)
        self.connect = self._connections.connect
        self.is_lost = self._connections.is_lost
        self.shown = self._connections.shown

    async def open(self) -> None:
        """Connect, and bring the schema up to date."""
        await self.run(_migrate, is_write=True)

    async def close(self) -> None:
        """Operations under way end first."""
        await self._connections.close()

    @property
    def is_closed(self) -> bool:
        return self._connections.is_closed

    async def read(self, statement: str, values: Sequence[object] = ()) -> list[Row]:
        """The rows of a query, which is a transaction of its own."""
        return await self.run(_fetched(statement, values), is_write=False)

    async def write(self, statement: str, values: Sequence[object]) -> list[Row]:
        """The rows of a statement that changes something: one transaction, one round trip."""
        return await self.run(_fetched(statement, values), is_write=True)

    async def run(self, work: Work[T], *, is_write: bool) -> T:
        """Run `work` on a connection to its end, also if the caller is cancelled."""
        return await run_to_end(self._connections.run(work, is_repeatable_write=is_write),
                                "diskless control plane in PostgreSQL")


def _fetched(statement: str, values: Sequence[object]) -> Work[list[Row]]:
    async def fetch(connection: "AsyncConnection[Any]") -> list[Row]:
        cursor = await connection.execute(statement.encode(), values, binary=True)
        return await cursor.fetchall() if cursor.description is not None else []

    return fetch


async def _configure(connection: "AsyncConnection[Any]") -> None:
    await connection.execute(_PLANS)


async def _migrate(connection: "AsyncConnection[Any]") -> None:
    """Bring the schema up to date; of several nodes that start at once, one does it."""
    row = await (await connection.execute("SELECT to_regclass('diskless_versions')")).fetchone()
    if row is not None and row[0] is not None and not pending(
            await _version(connection), MIGRATIONS):
        return  # so that a user without the right to change the schema can run a node
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        await connection.execute(VERSIONS_TABLE)
        for migration in pending(await _version(connection), MIGRATIONS):
            for statement in migration.statements:
                await connection.execute(statement.encode())
            await connection.execute("INSERT INTO diskless_versions (version) VALUES (%s)",
                                     (migration.version,))


async def _version(connection: "AsyncConnection[Any]") -> int | None:
    row = await (await connection.execute(SELECT_VERSION)).fetchone()
    assert row is not None
    version: int | None = row[0]
    return version

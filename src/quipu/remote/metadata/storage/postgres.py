"""A storage backend in PostgreSQL, for the brokers of a cluster.

One table of keys and values.  A transaction first locks the partitions of its keys, in one order,
so transactions of one partition take turns and none deadlocks, also about keys that do not exist
yet; then it reads, plans and writes.  Prefixes are ranges in the "C" collation, never LIKE.

A read, or a transaction that certainly was not committed, is repeated on another connection.  If
the connection is lost during COMMIT, the outcome is unknown.

Not here: connections and repetitions (runtime/databases/postgres.py); what is stored (keys.py,
serde.py).
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from quipu.remote.metadata.errors import (
    BackendUnavailable,
    CorruptMetadata,
    MetadataClosed,
    OutcomeUnknown,
    RemoteMetadataError,
)
from quipu.remote.metadata.storage.backend import (
    ExpectValue,
    Operation,
    WritePlan,
    check_operations,
    plan_operations,
    range_below,
)
from quipu.remote.metadata.storage.sql_backend import SqlBackend, entries_of, sql_statements
from quipu.runtime.databases.errors import DatabaseErrors
from quipu.runtime.databases.postgres import PostgresConnections, may_be_committed
from quipu.runtime.rng import Rng

if TYPE_CHECKING:
    from psycopg import AsyncConnection

CONNECTIONS_MAX: Final = 4
_ERRORS: Final = DatabaseErrors(
    BackendUnavailable, OutcomeUnknown, CorruptMetadata, MetadataClosed,
    closed_text="the storage of remote log metadata is closed",
    repair_text="check the table quipu_remote_log_metadata")
_TABLE_LOCK: Final = 0x71756970  # of those that create the table

_TABLE: Final = ('CREATE TABLE IF NOT EXISTS quipu_remote_log_metadata '
                 '(key text COLLATE "C" PRIMARY KEY, value bytea NOT NULL)')
_LOCK: Final = "SELECT pg_advisory_xact_lock(n) FROM unnest(%s::bigint[]) AS n"
_MANY: Final = "SELECT key, value FROM quipu_remote_log_metadata WHERE key = ANY(%s)"
_INSERT: Final = ("INSERT INTO quipu_remote_log_metadata (key, value) "
                  "SELECT * FROM unnest(%s::text[], %s::bytea[])")
_UPDATE: Final = ("UPDATE quipu_remote_log_metadata AS old SET value = new.value "
                  "FROM unnest(%s::text[], %s::bytea[]) AS new (key, value) "
                  "WHERE old.key = new.key")
_REMOVE: Final = "DELETE FROM quipu_remote_log_metadata WHERE key = ANY(%s)"

Statement = tuple[str, tuple[object, ...]]


class PostgresBackend(SqlBackend):
    """A table in PostgreSQL, created if it does not exist."""

    def __init__(self, url: str, rng: Rng) -> None:
        """Raise `SettingError` if psycopg is missing, or the URL is wrong; nothing connects yet."""
        super().__init__(sql_statements("quipu_remote_log_metadata", "%s", "value"))
        self._connections = PostgresConnections(
            url, rng, _ERRORS, name="remote log metadata", subject="remote log metadata",
            connections_max=CONNECTIONS_MAX, configure=_create_table)

    async def get_many(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        return dict(entries_of(await self._select(_MANY, (list(keys),))))

    async def remove_like(self, key: str, *, expected: Sequence[ExpectValue] = ()) -> None:
        keys = check_operations(expected)

        def plan(stored: Mapping[str, bytes]) -> list[Statement]:
            plan_operations(expected, stored)
            return [(self._statements.remove_like, range_below(key))]

        await self._write(keys, _locks([key, *keys]), plan)

    async def execute(self, operations: Sequence[Operation]) -> None:
        keys = check_operations(operations)
        await self._write(keys, _locks(keys),
                          lambda stored: _statements(plan_operations(operations, stored)))

    async def close(self) -> None:
        await self._connections.close()

    # --- transactions -----------------------------------------------------------------------

    async def _select(self, statement: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        # A transaction of its own on the primary sees every write that has returned (remote.B4).
        async def read(connection: "AsyncConnection[Any]") -> list[tuple[Any, ...]]:
            cursor = await connection.execute(statement, values, binary=True)
            return await cursor.fetchall()

        return await self._connections.run(read)

    async def _write(
        self, keys: list[str], locks: list[int],
        plan: Callable[[Mapping[str, bytes]], list[Statement]],
    ) -> None:
        """One transaction: lock, read `keys`, and carry out what `plan` makes of their values."""

        async def write(connection: "AsyncConnection[Any]") -> None:
            async with connection.pipeline():  # one round trip
                await connection.execute("BEGIN")
                await connection.execute(_LOCK, (locks,))
                cursor = await connection.execute(_MANY, (keys,), binary=True)
            try:
                statements = plan(dict(entries_of(await cursor.fetchall())))
            except RemoteMetadataError:
                with suppress(self._connections.any_error):
                    await connection.execute("ROLLBACK")
                raise
            try:
                async with connection.pipeline():  # the other round trip
                    for statement, values in statements:
                        await connection.execute(statement, values)
                    await connection.execute("COMMIT")
            except self._connections.any_error as error:
                if self._connections.is_lost(error) and may_be_committed(error):  # remote.B5
                    raise OutcomeUnknown(f"{self._connections.shown(error)}; the write may have "
                                         "been carried out") from None
                raise

        await self._connections.run(write)


def _locks(keys: Sequence[str]) -> list[int]:
    """A number for each partition of `keys`: what is before the second slash; ascending."""
    partitions = {"/".join(key.split("/", 2)[:2]) for key in keys}
    return sorted(int.from_bytes(blake2b(each.encode(), digest_size=8).digest(), signed=True)
                  for each in partitions)


def _statements(plan: WritePlan) -> list[Statement]:
    made: list[Statement] = []
    for statement, entries in ((_INSERT, plan.inserted), (_UPDATE, plan.updated)):
        if entries:
            made.append((statement, ([key for key, _ in entries], [value for _, value in entries])))
    if plan.removed:
        made.append((_REMOVE, (list(plan.removed),)))
    return made


async def _create_table(connection: "AsyncConnection[Any]") -> None:
    """Create the table on a new connection, if it is missing; not two of them at once."""
    found = await connection.execute("SELECT to_regclass('quipu_remote_log_metadata')")
    row = await found.fetchone()
    if row is not None and row[0] is not None:
        return
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_TABLE_LOCK,))
        await connection.execute(_TABLE)

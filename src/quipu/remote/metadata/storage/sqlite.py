"""A storage backend in a SQLite file: the default of a single node.

One table of keys and values; a transaction per `execute`, synced before it returns (remote.B1),
whose outcome is unknown only if COMMIT fails (remote.B5).  Several processes of one machine may use
the same file.

Not here: connections and threads (runtime/databases/sqlite.py); what is stored (keys.py, serde.py).
"""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, Final

from quipu.remote.metadata.errors import (
    BackendUnavailable,
    CorruptMetadata,
    MetadataClosed,
    OutcomeUnknown,
)
from quipu.remote.metadata.storage.backend import (
    ExpectValue,
    Operation,
    check_operations,
    plan_operations,
    range_below,
)
from quipu.remote.metadata.storage.sql_backend import SqlBackend, sql_statements
from quipu.runtime.databases.errors import DatabaseErrors
from quipu.runtime.databases.sqlite import SqliteFile

_ERRORS: Final = DatabaseErrors(
    BackendUnavailable, OutcomeUnknown, CorruptMetadata, MetadataClosed,
    closed_text="the storage of remote log metadata is closed",
    repair_text="restore the file from a backup")
_VARIABLES_MAX: Final = 500  # of one statement; SQLite's own limit is higher

_TABLE: Final = ("CREATE TABLE IF NOT EXISTS remote_log_metadata "
                 "(key TEXT NOT NULL PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID")
_INSERT: Final = "INSERT INTO remote_log_metadata (key, value) VALUES (?, ?)"
_UPDATE: Final = "UPDATE remote_log_metadata SET value = ?2 WHERE key = ?1"
_REMOVE: Final = "DELETE FROM remote_log_metadata WHERE key = ?"


class SqliteBackend(SqlBackend):
    """A SQLite file, created with its table if it does not exist."""

    def __init__(self, path: str) -> None:
        super().__init__(sql_statements("remote_log_metadata", "?", "CAST(value AS BLOB)"))
        self._file = SqliteFile(path, _ERRORS, name="remote log metadata in SQLite",
                                setup=[_TABLE])

    async def get_many(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        return await self._file.read(lambda connection: _values(connection, keys))

    async def remove_like(self, key: str, *, expected: Sequence[ExpectValue] = ()) -> None:
        below, keys = range_below(key), check_operations(expected)

        def remove(connection: sqlite3.Connection) -> None:
            plan_operations(expected, _values(connection, keys))
            connection.execute(self._statements.remove_like, below)

        await self._file.write(remove)

    async def execute(self, operations: Sequence[Operation]) -> None:
        keys = check_operations(operations)

        def write(connection: sqlite3.Connection) -> None:
            plan = plan_operations(operations, _values(connection, keys))
            connection.executemany(_INSERT, plan.inserted)
            connection.executemany(_UPDATE, plan.updated)
            connection.executemany(_REMOVE, [(key,) for key in plan.removed])

        await self._file.write(write)

    async def close(self) -> None:
        await self._file.close()

    async def _select(self, statement: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        # A transaction of its own, so it sees every write that has returned (remote.B4).
        return await self._file.read(
            lambda connection: connection.execute(statement, values).fetchall())


def _values(connection: sqlite3.Connection, keys: Sequence[str]) -> dict[str, bytes]:
    """The entries of those keys that exist."""
    found: dict[str, bytes] = {}
    for start in range(0, len(keys), _VARIABLES_MAX):
        some = keys[start:start + _VARIABLES_MAX]
        marks = ",".join("?" * len(some))
        found.update(connection.execute(
            f"SELECT key, CAST(value AS BLOB) FROM remote_log_metadata "  # noqa: S608 only marks
            f"WHERE key IN ({marks})", some))
    return found

"""What the backends in SQL databases have in common: one table of keys and values, and its reads.

Not here: transactions and errors, which each database has its own of (sqlite.py, postgres.py).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from quipu.remote.metadata.storage.backend import (
    CreateKey,
    KeyValue,
    Operation,
    UpdateKey,
    check_key,
    range_below,
)


class SqlStatements(NamedTuple):
    """Statements that read a table, and the one that removes a range of it."""

    get: str
    like: str
    floor: str
    page: str
    remove_like: str


def sql_statements(table: str, mark: str, value: str) -> SqlStatements:
    """The statements for `table`; `mark` stands for a parameter, `value` selects a value."""
    source = f"SELECT key, {value} FROM {table} WHERE key"  # noqa: S608 both are constants
    return SqlStatements(
        get=f"SELECT {value} FROM {table} WHERE key = {mark}",  # noqa: S608
        like=f"{source} >= {mark} AND key < {mark} ORDER BY key",
        floor=f"{source} >= {mark} AND key <= {mark} ORDER BY key DESC LIMIT 1",
        page=f"{source} > {mark} AND key < {mark} ORDER BY key LIMIT {mark}",
        remove_like=f"DELETE FROM {table} WHERE key >= {mark} AND key < {mark}")  # noqa: S608


class SqlBackend(ABC):
    """Reads and single writes of a table; the interface is that of `OrderedBackend`."""

    def __init__(self, statements: SqlStatements) -> None:
        self._statements = statements

    async def create(self, key: str, value: bytes) -> None:
        await self.execute([CreateKey(key, value)])

    async def update(self, key: str, value: bytes) -> None:
        await self.execute([UpdateKey(key, value)])

    async def get(self, key: str) -> bytes | None:
        check_key(key)
        rows = await self._select(self._statements.get, (key,))
        return rows[0][0] if rows else None

    async def get_like(self, key: str) -> list[KeyValue]:
        return entries_of(await self._select(self._statements.like, range_below(key)))

    async def floor(self, parent: str, key: str) -> KeyValue | None:
        first, end = range_below(parent)
        rows = await self._select(self._statements.floor, (first, min(key, end)))
        return KeyValue(*rows[0]) if rows else None

    async def page(self, parent: str, after: str | None, limit: int) -> list[KeyValue]:
        first, end = range_below(parent)
        return entries_of(await self._select(
            self._statements.page, (after if after is not None else first, end, limit)))

    @abstractmethod
    async def execute(self, operations: Sequence[Operation]) -> None:
        """Carry out all operations, or none (remote.B1)."""

    @abstractmethod
    async def _select(self, statement: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        """The rows of a statement, in a transaction that sees every write that has returned."""


def entries_of(rows: Sequence[tuple[Any, ...]]) -> list[KeyValue]:
    """Rows of keys and values."""
    return [KeyValue(*row) for row in rows]

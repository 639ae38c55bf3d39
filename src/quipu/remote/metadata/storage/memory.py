"""A storage backend in this process's memory, for tests and for trying things out; ends with it."""

from collections.abc import Sequence

from quipu.remote.metadata.storage.backend import (
    PAGE_MAX,
    CreateKey,
    ExpectValue,
    KeyValue,
    Operation,
    RemoveKey,
    UpdateKey,
    check_key,
    check_operations,
)
from quipu.remote.metadata.storage.entry_table import EntryTable


class MemoryBackend:
    """A table of entries.  Each method is one step: nothing comes in between."""

    def __init__(self) -> None:
        self._table = EntryTable()

    async def create(self, key: str, value: bytes) -> None:
        await self.execute([CreateKey(key, value)])

    async def update(self, key: str, value: bytes) -> None:
        await self.execute([UpdateKey(key, value)])

    async def get(self, key: str) -> bytes | None:
        check_key(key)
        return next((value for _, value in self._table.get_many([key])), None)

    async def get_like(self, key: str) -> list[KeyValue]:
        return self._all_below(key)

    async def remove_like(self, key: str, *, expected: Sequence[ExpectValue] = ()) -> None:
        self._table.apply([*expected, *(RemoveKey(each.key) for each in self._all_below(key))])

    async def execute(self, operations: Sequence[Operation]) -> None:
        check_operations(operations)
        self._table.apply(operations)  # remote.B1: raises, or all is done

    async def floor(self, parent: str, key: str) -> KeyValue | None:
        return next(iter(self._table.floor(parent, key)), None)

    async def page(self, parent: str, after: str | None, limit: int) -> list[KeyValue]:
        return self._table.page(parent, after, limit)

    async def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        return dict(self._table.get_many(keys))

    async def close(self) -> None:
        """Nothing to release: what was stored is gone with the object."""

    def _all_below(self, key: str) -> list[KeyValue]:
        found: list[KeyValue] = []
        while page := self._table.page(key, found[-1].key if found else None, PAGE_MAX):
            found += page
        return found

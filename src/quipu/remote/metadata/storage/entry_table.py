"""Keys and values in memory, in the order of keys: for backends that hold all of them there.

Invariant
    remote.T1  operations are applied in the order of the calls, each list of them as a whole or
               not at all; whether it can be is decided then, so a replay of the same lists decides
               the same
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from typing import Final

from quipu.remote.metadata.storage.backend import (
    CreateKey,
    KeyValue,
    Operation,
    plan_operations,
    range_below,
)

SNAPSHOT_ENTRIES: Final = 100  # in one command of a snapshot, at most
PAGE_SIZE_MAX: Final = 4 << 20  # bytes of values on a page, unless the first one has more


class EntryTable:
    """Keys in order, with their values."""

    __slots__ = ("_keys", "_values")

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._keys: list[str] = []  # ascending

    def __len__(self) -> int:
        return len(self._keys)

    def invariants(self) -> None:
        """Assert what holds between two calls."""
        assert len(self._keys) == len(self._values), (len(self._keys), len(self._values))

    def apply(self, operations: Sequence[Operation]) -> None:
        """Carry out all operations; raises, and changes nothing, if one of them cannot be."""
        plan = plan_operations(operations, self._values)  # remote.T1
        for key, value in plan.inserted:
            insort(self._keys, key)
            self._values[key] = value
        self._values.update(plan.updated)
        for key in plan.removed:
            del self._values[key]
            del self._keys[bisect_left(self._keys, key)]
        self.invariants()

    def get_many(self, keys: Sequence[str]) -> list[KeyValue]:
        """The entries of those keys that exist."""
        return [KeyValue(key, self._values[key]) for key in keys if key in self._values]

    def floor(self, parent: str, key: str) -> list[KeyValue]:
        """The entry below `parent` with the greatest key that is not above `key`, if any."""
        start, end = self._below(parent)
        index = bisect_right(self._keys, key, start, end)
        return [] if index == start else self.get_many([self._keys[index - 1]])

    def page(self, parent: str, after: str | None, limit: int) -> list[KeyValue]:
        """Up to `limit` entries below `parent`, those above `after`, in the order of keys.

        There are fewer if their values are large, but none only at the end.
        """
        start, end = self._below(parent)
        if after is not None:
            start = bisect_right(self._keys, after, start, end)
        found = self.get_many(self._keys[start:min(start + limit, end)])
        size, count = 0, 0
        for entry in found:
            size += len(entry.value)
            if count and size > PAGE_SIZE_MAX:
                break
            count += 1
        return found[:count]

    def snapshot(self) -> Iterator[list[Operation]]:
        """Operations that build the table from nothing; it must not change in between."""
        some: list[Operation] = []
        size = 0
        for key in self._keys:
            value = self._values[key]
            if some and (len(some) == SNAPSHOT_ENTRIES or size + len(value) > PAGE_SIZE_MAX // 2):
                yield some
                some, size = [], 0
            some.append(CreateKey(key, value))
            size += len(value)
        if some:
            yield some

    def _below(self, parent: str) -> tuple[int, int]:
        first, end = range_below(parent)
        start = bisect_left(self._keys, first)
        return start, bisect_left(self._keys, end, start)

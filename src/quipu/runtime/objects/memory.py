"""A store in memory, for tests; the simulator's store keeps its objects in `MemoryObjects`, too.

No call awaits anything, so each one is atomic (runtime.O1, runtime.O2).
"""

from bisect import bisect_right
from collections.abc import AsyncIterable, Callable, Sequence
from itertools import count, islice

from quipu.runtime.objects.errors import ObjectNotFound
from quipu.runtime.objects.keys import check_key
from quipu.runtime.objects.store import (
    LIST_MAX,
    Buffer,
    ByteRange,
    ObjectInfo,
    ObjectPage,
    check_delete,
    check_list,
    check_match,
    check_part,
    check_put,
    check_ranges,
    check_ranges_of,
    check_whole,
)


class MemoryObjects:
    """Objects by key in memory, and the operations of a store as plain functions."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._versions = count(1)
        self._data: dict[str, bytes] = {}
        self._infos: dict[str, ObjectInfo] = {}

    def put(
        self, key: str, data: Sequence[Buffer], *,
        if_absent: bool = False, if_match: str | None = None,
    ) -> ObjectInfo:
        check_put(key, data, if_absent=if_absent, if_match=if_match)
        found = self._infos.get(key)
        check_match(key, None if found is None else found.version,
                    if_absent=if_absent, if_match=if_match)  # runtime.O2
        return self.put_unchecked(key, b"".join(data))

    def put_unchecked(self, key: str, data: bytes) -> ObjectInfo:
        """Store an object of any size, without conditions."""
        info = ObjectInfo(key, len(data), f"v{next(self._versions)}", self._now_ms())
        self._data[key], self._infos[key] = data, info
        return info

    def all_keys(self) -> Sequence[str]:
        """The keys of all objects, in order."""
        return sorted(self._infos)

    def __contains__(self, key: str) -> bool:
        return key in self._infos

    def get(self, key: str) -> bytes:
        check_whole(self.head(key))
        return self._data[key]

    def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[bytes]:
        check_ranges(key, ranges)
        check_ranges_of(self.head(key), ranges)
        data = self._data[key]
        return [data[start:end] for start, end in ranges]

    def head(self, key: str) -> ObjectInfo:
        check_key(key)
        info = self._infos.get(key)
        if info is None:
            raise ObjectNotFound(f"{key}: no such object")
        return info

    def list(
        self, prefix: str = "", *, after: str | None = None, limit: int = LIST_MAX
    ) -> ObjectPage:
        check_list(prefix, after, limit)
        keys = sorted(key for key in self._infos if key.startswith(prefix))
        start = 0 if after is None else bisect_right(keys, after)
        found = tuple(self._infos[key] for key in islice(keys, start, start + limit))
        more = start + limit < len(keys)
        return ObjectPage(found, found[-1].key if more else None)

    def delete(self, keys: Sequence[str]) -> None:
        check_delete(keys)
        for key in keys:
            self._data.pop(key, None)
            self._infos.pop(key, None)


class MemoryStore:
    """An `ObjectStore` in the memory of this process; its objects end with the process."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._objects = MemoryObjects(now_ms)

    async def put(
        self, key: str, data: Sequence[Buffer], *,
        if_absent: bool = False, if_match: str | None = None,
    ) -> ObjectInfo:
        return self._objects.put(key, data, if_absent=if_absent, if_match=if_match)

    async def put_parts(self, key: str, parts: AsyncIterable[Buffer]) -> ObjectInfo:
        return self._objects.put_unchecked(key, await joined(key, parts))

    async def get(self, key: str) -> bytes:
        return self._objects.get(key)

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[bytes]:
        return self._objects.get_ranges(key, ranges)

    async def head(self, key: str) -> ObjectInfo:
        return self._objects.head(key)

    async def list(
        self, prefix: str = "", *, after: str | None = None, limit: int = LIST_MAX
    ) -> ObjectPage:
        return self._objects.list(prefix, after=after, limit=limit)

    async def delete(self, keys: Sequence[str]) -> None:
        self._objects.delete(keys)

    async def close(self) -> None:
        """Do nothing: the store holds no files or connections."""


async def joined(key: str, parts: AsyncIterable[Buffer]) -> bytes:
    """The parts of an object, joined."""
    check_key(key)
    found = bytearray()
    async for part in parts:
        check_part(key, part)
        found += part
    return bytes(found)

"""A cache of what was read from object storage: chunks and footers, bounded in bytes.

    value = await cache.get(key, load)     `load` is awaited unless the cache has the key
    value = cache.find(key)                None unless the cache has the key
    cache.prefetch(key, size, load)        loads in the background, if there is room for it

What was used least recently goes first.  A load belongs to the cache, not to its caller: who is
cancelled leaves it to the others that wait for it, and to the cache.

Invariants
    remote.segments.C1  the values held have at most `size_max` bytes together
    remote.segments.C2  a key is loaded by one load at a time, which all who want it share
    remote.segments.C3  at most `loads_max` loads are under way; others wait for their turn, and a
                        prefetch is left out instead
    remote.segments.C4  an error is raised to all who wait for that load, and is not kept

Not here: which chunks there are (footer.py), when to read ahead (reader.py).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar, cast

from quipu.model.errors import QuipuError
from quipu.runtime.spawn import spawn

LOADS_MAX: Final = 16
READ_AHEAD_SHARE: Final = 4  # a prefetch takes at most a fourth of the cache

T = TypeVar("T")
Loaded = Callable[[], Awaitable[tuple[T, int]]]  # a value, and its bytes


@dataclass(slots=True)
class CacheCounters:
    """What has happened so far, for metrics."""

    hits: int = 0  # the value was there
    shared: int = 0  # another's load was waited for
    misses: int = 0  # a load was begun
    prefetches: int = 0  # of these, ahead of a reader
    loaded_bytes: int = 0
    evictions: int = 0
    errors: int = 0


class _Held(NamedTuple):
    value: object
    size: int


class ChunkCache:
    """The cache; one for all readers of a node."""

    def __init__(self, size_max: int, *, loads_max: int = LOADS_MAX) -> None:
        assert size_max >= 0, size_max
        assert loads_max > 0, loads_max
        self.size_max = size_max
        self.size = 0
        self.counters = CacheCounters()
        self._loads_max = loads_max
        self._held: OrderedDict[Hashable, _Held] = OrderedDict()  # from the least recently used
        self._loading: dict[Hashable, asyncio.Future[object]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(loads_max)

    @property
    def in_flight(self) -> int:
        """Loads that are under way or wait for their turn."""
        return len(self._loading)

    def invariants(self) -> None:
        """Assert what holds between two calls."""
        assert self.size == sum(held.size for held in self._held.values())  # remote.segments.C1
        assert self.size <= self.size_max, (self.size, self.size_max)  # remote.segments.C1
        assert not self._held.keys() & self._loading.keys()  # remote.segments.C2

    def holds(self, key: Hashable) -> bool:
        """Is the value there, or being loaded?  Does not count as a use of it."""
        return key in self._held or key in self._loading

    def find(self, key: Hashable) -> object | None:
        """The value, if it is held; counts as a use of it."""
        held = self._held.get(key)
        if held is None:
            return None
        self._held.move_to_end(key)
        self.counters.hits += 1
        return held.value

    async def get(self, key: Hashable, load: "Loaded[T]") -> T:
        """The value of `key`; raises what `load` raises."""
        value = self.find(key)
        if value is not None:
            return cast("T", value)
        waiting = self._loading.get(key)
        if waiting is None:
            waiting = self._begin(key, load)
        else:
            self.counters.shared += 1
        return cast("T", await asyncio.shield(waiting))

    def prefetch(self, key: Hashable, size: int, load: "Loaded[T]") -> bool:
        """Load in the background a value of about `size` bytes; False if it is left out."""
        if self.holds(key) or len(self._loading) >= self._loads_max or (
                size * READ_AHEAD_SHARE > self.size_max):
            return False
        self.counters.prefetches += 1
        self._begin(key, load)
        return True

    def forget(self, key: Hashable) -> None:
        """Drop a value, if it is held."""
        if (held := self._held.pop(key, None)) is not None:
            self.size -= held.size

    def close(self) -> None:
        """Drop everything and end all loads; who waits for one is cancelled."""
        for task in list(self._tasks):
            task.cancel()
        self._held.clear()
        self.size = 0

    # -- loads

    def _begin(self, key: Hashable, load: "Loaded[T]") -> asyncio.Future[object]:
        assert key not in self._loading, key  # remote.segments.C2
        self.counters.misses += 1
        waiting: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._loading[key] = waiting
        task = spawn(self._load(key, load, waiting), "load a chunk")
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._end(key, waiting)  # of one that was cancelled before it began

        task.add_done_callback(ended)
        return waiting

    async def _load(
        self, key: Hashable, load: "Loaded[T]", waiting: asyncio.Future[object]
    ) -> None:
        try:
            async with self._turns:  # remote.segments.C3
                value, size = await load()
        except QuipuError as error:
            self.counters.errors += 1
            waiting.set_exception(error)  # remote.segments.C4
            waiting.exception()  # it is read: of a prefetch, nobody may be waiting
        else:
            self._keep(key, _Held(value, size))
            waiting.set_result(value)
        finally:
            self._end(key, waiting)

    def _end(self, key: Hashable, waiting: asyncio.Future[object]) -> None:
        if self._loading.get(key) is waiting:
            del self._loading[key]
        if not waiting.done():
            waiting.cancel()

    def _keep(self, key: Hashable, held: _Held) -> None:
        self.counters.loaded_bytes += held.size
        if held.size > self.size_max:
            return  # it is returned, and not held
        self.size += held.size
        self._held[key] = held
        while self.size > self.size_max:  # remote.segments.C1
            _, oldest = self._held.popitem(last=False)
            self.size -= oldest.size
            self.counters.evictions += 1

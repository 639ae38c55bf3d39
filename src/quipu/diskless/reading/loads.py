"""`BlockLoads`: reads blocks from the store, each once, and those of one object together.

What is wanted of an object while its turn has not come is read by one call, which the store makes
as few requests as it can.  Hot and cold loads have turns of their own.

Invariants
    diskless.R6  a block is loaded by one load at a time, which all who want it share; an error is
                 raised to all of them, and not kept
    diskless.R7  at most `hot_max` and `cold_max` gets are under way; neither waits for the other
    diskless.R8  wrong bytes are read once more, and then are `CorruptObject` for who wants that
                 block, not for others that want blocks of the same object
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from quipu.diskless.errors import CorruptObject
from quipu.diskless.reading.block_cache import BlockCache, BlockKey
from quipu.diskless.reading.blocks import Block, block_of, first_size
from quipu.diskless.reading.stats import ReaderStats
from quipu.diskless.values import LEADER_EPOCH, NO_EPOCHS, BatchRun, LogKey
from quipu.model.errors import Code, ErrorKind, QuipuError, RequestError
from quipu.runtime.objects.errors import StoreUnavailable
from quipu.runtime.objects.store import RANGES_MAX, Buffer, ByteRange, ObjectStore
from quipu.runtime.spawn import spawn
from quipu.wire.record_batch import LENGTH_START

BLOCK_SIZE: Final = 8 << 20  # a longer run is read in several blocks
CALL_SIZE_MAX: Final = 64 << 20  # bytes that one call reads
ATTEMPTS_MAX: Final = 3
BACKOFF_SECONDS: Final = 0.05


class _Load:
    """A block that somebody wants."""

    __slots__ = ("is_second", "run", "size", "waiting")

    def __init__(self, run: BatchRun) -> None:
        self.run = run
        self.size = min(run.size, BLOCK_SIZE)
        self.is_second = False  # the first bytes were wrong
        self.waiting: asyncio.Future[Block] = asyncio.get_running_loop().create_future()


class _Class:
    """Hot or cold loads."""

    def __init__(self, gets_max: int, *, is_hot: bool) -> None:
        self.turns = asyncio.Semaphore(gets_max)
        self.gets_max = gets_max
        self.is_hot = is_hot
        self.wanted: dict[str, list[_Load]] = {}  # by object, of those whose turn has not come
        self.count = 0  # gets under way or waiting


class BlockLoads:
    """Loads of one reader."""

    def __init__(
        self, store: ObjectStore, cache: BlockCache, stats: ReaderStats, *,
        hot_max: int, cold_max: int, epochs: Mapping[LogKey, int] = NO_EPOCHS,
    ) -> None:
        """`epochs`: the leader epochs of logs that have others than LEADER_EPOCH."""
        self._store = store
        self._cache = cache
        self._stats = stats
        self._epochs = epochs
        self._hot, self._cold = _Class(hot_max, is_hot=True), _Class(cold_max, is_hot=False)
        self._loading: dict[BlockKey, _Load] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def has_turn(self, *, is_hot: bool) -> bool:
        """Whether a load would begin at once."""
        kind = self._hot if is_hot else self._cold
        return kind.count < kind.gets_max

    def is_loading(self, run: BatchRun) -> bool:
        """Whether the beginning of a run is being loaded."""
        return (run.key, run.position) in self._loading

    def begin(self, run: BatchRun, *, is_hot: bool) -> asyncio.Future[Block]:
        """Load the beginning of a run; shield the future that this returns (diskless.R6)."""
        key = run.key, run.position
        load = self._loading.get(key)
        if load is None:
            load = self._loading[key] = _Load(run)
            self._want(load, self._hot if is_hot else self._cold)
        return load.waiting

    async def close(self) -> None:
        """End all loads."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _want(self, load: _Load, kind: _Class) -> None:
        wanted = kind.wanted.get(load.run.key)
        if wanted is not None:
            wanted.append(load)
            return
        kind.wanted[load.run.key] = [load]
        kind.count += 1
        self._count()
        task = spawn(self._get(load.run.key, kind), "read an object")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _count(self) -> None:
        self._stats.hot_now, self._stats.cold_now = self._hot.count, self._cold.count

    async def _get(self, key: str, kind: _Class) -> None:
        loads: list[_Load] = []
        try:
            async with kind.turns:  # diskless.R7
                loads = kind.wanted.pop(key)
                for some in _groups(loads):
                    await self._get_some(key, some, kind)
        except BaseException:  # it was cancelled
            for load in loads or kind.wanted.pop(key, []):
                self._fail(load, RequestError(f"{key}: its reads were ended; try again",
                                              code=Code.KAFKA_STORAGE_ERROR, kind=ErrorKind.RETRY))
            raise
        finally:
            kind.count -= 1
            self._count()

    async def _get_some(self, key: str, loads: Sequence[_Load], kind: _Class) -> None:
        ranges = [ByteRange(load.run.position, load.run.position + load.size) for load in loads]
        try:
            found = await self._ranges(key, ranges)
        except QuipuError as error:
            for load in loads:
                self._fail(load, error)
            return
        for load, data in zip(loads, found, strict=True):
            self._arrived(load, data, kind)

    async def _ranges(self, key: str, ranges: Sequence[ByteRange]) -> Sequence[Buffer]:
        for attempt in range(1, ATTEMPTS_MAX + 1):
            self._stats.gets += 1
            try:
                found = await self._store.get_ranges(key, ranges)
            except StoreUnavailable:
                if attempt == ATTEMPTS_MAX:
                    raise
                self._stats.get_retries += 1
                await asyncio.sleep(BACKOFF_SECONDS * attempt)
            else:
                self._stats.get_bytes += sum(map(len, found))
                return found
        raise AssertionError(key)

    def _arrived(self, load: _Load, data: Buffer, kind: _Class) -> None:
        run = load.run
        if load.size < run.size and len(data) == load.size and (
                load.size < (needed := min(first_size(data), run.size))):
            load.size = max(needed, LENGTH_START)  # one batch that is larger than a block
            self._want(load, kind)
            return
        try:
            if len(data) != load.size:
                raise CorruptObject(f"{run.key}: ends at {run.position + len(data)}, in a batch")
            block = block_of(data, run, self._epochs.get(run.log, LEADER_EPOCH))
        except CorruptObject as error:
            self._stats.corrupt += 1
            if load.is_second:
                self._fail(load, error)
            else:
                load.is_second = True
                self._want(load, kind)  # diskless.R8
            return
        self._cache.keep((run.key, run.position), block, is_hot=kind.is_hot)
        self._loading.pop((run.key, run.position), None)
        if not load.waiting.done():
            load.waiting.set_result(block)

    def _fail(self, load: _Load, error: QuipuError) -> None:
        self._loading.pop((load.run.key, load.run.position), None)
        if not load.waiting.done():
            load.waiting.set_exception(error)
            load.waiting.exception()  # it is read: nobody may be waiting


def _groups(loads: Sequence[_Load]) -> list[list[_Load]]:
    """Loads of one object, by position, as many together as one call may read."""
    groups: list[list[_Load]] = []
    size = 0
    for load in sorted(loads, key=lambda load: load.run.position):
        if not groups or len(groups[-1]) == RANGES_MAX or size + load.size > CALL_SIZE_MAX:
            groups.append([])
            size = 0
        groups[-1].append(load)
        size += load.size
    return groups

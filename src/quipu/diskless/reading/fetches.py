"""`BlockFetches`: finds the blocks from an offset on, and reads them, or reads them ahead.

What is known is not asked for, and what is held is not read.  Of a reader that goes on where
another read ended, the next AHEAD_SIZE bytes are read ahead.

Not here: which reads wait for what (reader.py), single loads (loads.py).
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from quipu.diskless.reading.block_cache import BlockCache
from quipu.diskless.reading.blocks import Block, rest_of
from quipu.diskless.reading.coordinates import Coordinates, LogKnowledge
from quipu.diskless.reading.finds import RunFinds
from quipu.diskless.reading.loads import BlockLoads
from quipu.diskless.reading.stats import ReaderStats
from quipu.diskless.values import BatchRun, LogBounds, LogKey
from quipu.model.errors import (
    Code,
    ErrorKind,
    OffsetOutOfRange,
    QuipuError,
    RecordsInTier,
    RequestError,
)
from quipu.model.ids import Offset
from quipu.runtime.objects.errors import InvalidObjectRequest, ObjectNotFound

ATTEMPTS_MAX: Final = 2  # to find a run, if its object has gone
AHEAD_SIZE: Final = 8 << 20  # bytes that are read ahead, and whose places are asked for
ENDS_MAX: Final = 10_000  # ends of reads that are remembered
RUNS_MAX: Final = 100  # that one read loads
ReadKey = tuple[LogKey, Offset]


class BlockFetches:
    """The blocks that one reader needs."""

    def __init__(
        self, coordinates: Coordinates, cache: BlockCache, loads: BlockLoads, finds: RunFinds, *,
        monotonic: Callable[[], float], stats: ReaderStats, following_seconds: float,
    ) -> None:
        self._following_seconds = following_seconds  # for which a read waits for more blocks
        self._coordinates = coordinates
        self._cache = cache
        self._loads = loads
        self._finds = finds
        self._monotonic = monotonic
        self._stats = stats
        self._ends: OrderedDict[ReadKey, None] = OrderedDict()
        self._ahead: set[LogKey] = set()  # that something is read ahead of

    def held(self, known: LogKnowledge, offset: Offset) -> Iterator[Block]:
        """Yield the blocks that the cache holds from an offset on, without gaps."""
        now = self._monotonic()
        while True:
            run = known.find(offset, now)
            if run is None:
                return
            block = self._cache.find((run.key, run.position))
            if block is None or not block.base_offset <= offset < block.end_offset:
                return
            yield block
            offset = block.end_offset

    async def blocks(self, key: ReadKey, max_bytes: int, *, is_hot: bool) -> Sequence[Block]:
        """The blocks from an offset on; none at the high watermark."""
        missing: QuipuError | None = None
        for _ in range(ATTEMPTS_MAX):
            run = await self._run_at(key, max_bytes)
            if run is None:
                return ()
            try:
                return await self._load(key, run, max_bytes, is_hot=is_hot)
            except (ObjectNotFound, InvalidObjectRequest) as error:  # it has moved (diskless.R10)
                missing = error
                self._stats.missing += 1
                self._coordinates.forget_object(key[0], run.key)
        raise retry_error(f"{key[0]}: offset {key[1]} is in an object that is not there: {missing}")

    async def _run_at(self, key: ReadKey, max_bytes: int) -> BatchRun | None:
        """The run that holds an offset; None at the high watermark."""
        log, offset = key
        known = self._coordinates.log(log)
        if known is not None and offset < known.bounds.high_watermark:
            run = known.find(offset, self._monotonic())
            if run is not None:
                return run
        found = await self._finds.find(log, offset, max(max_bytes, AHEAD_SIZE))
        known = self._coordinates.log(log)
        bounds = found.bounds if known is None else known.bounds
        assert bounds is not None, log  # `find` has raised
        if offset < bounds.diskless_start_offset:
            raise below_error(log, offset, bounds)
        if offset > bounds.high_watermark:  # diskless.R9
            raise OffsetOutOfRange(
                str(log), offset, bounds.log_start_offset, bounds.high_watermark)
        if offset == bounds.high_watermark:
            return None
        for run in found.runs:
            if run.base_offset <= offset < run.end_offset:
                return run
        raise retry_error(f"{log}: the control plane has no run with offset {offset}; try again")

    async def _load(
        self, key: ReadKey, run: BatchRun, max_bytes: int, *, is_hot: bool
    ) -> list[Block]:
        """The block that holds an offset, and those after it that are known, up to `max_bytes`."""
        log, offset = key
        following = self._following(log, run, max_bytes)
        self._begin_load(run, is_hot=is_hot)
        later = deque(following)
        self._begin_some(later, is_hot=is_hot)
        while True:
            block = await self.block(run, is_hot=is_hot)
            rest = rest_of(run, block)
            if rest is not None:  # a long run is known by its parts from now on
                self._coordinates.learn_parts(log, run, rest)
            if offset < block.end_offset:
                break
            assert rest is not None, (key, run)
            run = rest
        blocks = [block]
        with suppress(QuipuError, TimeoutError):  # who reads it is told
            async with asyncio.timeout(self._following_seconds):
                for each in following if rest is None else ():
                    block = await self.block(each, is_hot=is_hot)
                    blocks.append(block)
                    self._begin_some(later, is_hot=is_hot)
                    if block.end_offset < each.end_offset:
                        break
        return blocks

    def _begin_some(self, runs: deque[BatchRun], *, is_hot: bool) -> None:
        """Begin loads that nobody waits for yet, as long as no other load has to wait for them."""
        while runs and self._loads.has_turn(is_hot=is_hot):
            self._begin_load(runs.popleft(), is_hot=is_hot)

    def _following(self, log: LogKey, run: BatchRun, max_bytes: int) -> list[BatchRun]:
        """The runs known after one, until all have `max_bytes`."""
        known = self._coordinates.log(log)
        found: list[BatchRun] = []
        now, size = self._monotonic(), run.size
        while known is not None and size < max_bytes and len(found) < RUNS_MAX:
            following = known.find(run.end_offset, now)
            if following is None:
                break
            found.append(run := following)
            size += run.size
        return found

    def _begin_load(self, run: BatchRun, *, is_hot: bool) -> None:
        if not self._cache.holds((run.key, run.position)):
            self._loads.begin(run, is_hot=is_hot)

    async def block(self, run: BatchRun, *, is_hot: bool) -> Block:
        """The block at the beginning of a run."""
        block = self._cache.find((run.key, run.position))
        if block is None:
            block = await asyncio.shield(self._loads.begin(run, is_hot=is_hot))
        return block

    # -- reading ahead

    def should_read_ahead(self, key: ReadKey, known: LogKnowledge, end: Offset) -> bool:
        """Whether `read_ahead` should be called after a read at `key` that ended at `end`.

        If so, it must be.
        """
        self._ends[key[0], end] = None
        is_sequential = self._ends.pop(key, key) is None
        if len(self._ends) > ENDS_MAX:
            self._ends.popitem(last=False)
        if not is_sequential or key[0] in self._ahead or known.is_ahead(end) or (
                not self._loads.has_turn(is_hot=False)):
            return False
        self._ahead.add(key[0])
        return True

    async def read_ahead(self, log: LogKey, offset: Offset) -> None:
        """Load what a sequential reader at `offset` will want."""
        try:
            with suppress(QuipuError):  # who reads it is told
                run = await self._run_at((log, offset), AHEAD_SIZE)
                known = self._coordinates.log(log)
                if run is None or known is None:
                    return
                runs = [run, *self._following(log, run, AHEAD_SIZE)]
                for each in runs:
                    if not self._cache.holds((each.key, each.position)):
                        self._stats.read_ahead += 1
                        self._loads.begin(each, is_hot=known.is_hot(each.base_offset))
                known.note_ahead(offset, runs[len(runs) // 2].base_offset)
        finally:
            self._ahead.discard(log)


def below_error(log: LogKey, offset: Offset, bounds: LogBounds) -> OffsetOutOfRange:
    """The error of a read below the diskless start."""
    kind = OffsetOutOfRange if offset < bounds.log_start_offset else RecordsInTier
    return kind(str(log), offset, bounds.log_start_offset, bounds.high_watermark)


def retry_error(message: str) -> RequestError:
    """An error that clients retry."""
    return RequestError(message, code=Code.KAFKA_STORAGE_ERROR, kind=ErrorKind.RETRY)

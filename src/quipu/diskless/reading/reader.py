"""`DisklessReader`: reads batches of diskless topics, whichever node wrote them.

    read -> the cache holds the batches -> they are returned at once
            else PendingRead; a task asks the control plane where they are, unless it is known,
            and reads them from their objects; then the read is repeated, and gets them

A reader that goes on where another read ended is sequential: what follows is read ahead.

Invariants
    diskless.R9   an offset is out of range only by what the control plane said: below the log
                  start, which never gets lower, or above a high watermark that was asked for after
                  the read came
    diskless.R10  a read returns whole batches of its own log with the offsets that the control
                  plane gave them, the first of which holds the offset, or an error, never others;
                  an object that is not there any more is looked for once more
    diskless.R11  reads of one offset share one task, which ends within `read_ms_max`; at most
                  `pending_max` wait, of hot and of cold ones; one more is refused with an error
                  that clients retry
    diskless.R12  `on_advance` is called for a log whenever its known high watermark has grown; the
                  bounds of a log are asked for as soon as its log start has moved, and those of
                  logs that are being read every POLL_SECONDS, since notifications may be lost

Not here: records in the remote tier (`RecordsInTier` says so), Fetch requests (broker/diskless).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from quipu.diskless.control_plane.interface import (
    LIMIT_MAX,
    MOVED_START,
    BatchOutcome,
    ControlPlane,
)
from quipu.diskless.reading.block_cache import BlockCache
from quipu.diskless.reading.blocks import Block
from quipu.diskless.reading.committed import committed_runs
from quipu.diskless.reading.coordinates import Coordinates, LogKnowledge
from quipu.diskless.reading.fetches import (
    BlockFetches,
    ReadKey,
    below_error,
    retry_error,
)
from quipu.diskless.reading.finds import RunFinds
from quipu.diskless.reading.loads import BlockLoads
from quipu.diskless.reading.stats import ReaderStats
from quipu.diskless.reading.times import TimeSearch
from quipu.diskless.values import BatchRun, LogBounds, LogKey, NewObject
from quipu.diskless.writing.buffer import BufferedLog
from quipu.model.errors import (
    QuipuError,
)
from quipu.model.ids import Offset
from quipu.model.partition_log import RunLong, TimestampAndOffset
from quipu.runtime.clock import Clock
from quipu.runtime.log_limits import LimitedLog
from quipu.runtime.objects.errors import InvalidObjectRequest, ObjectNotFound
from quipu.runtime.objects.store import ObjectStore
from quipu.runtime.shared_reads import SharedRead, WaitingRead
from quipu.runtime.spawn import spawn

_log = logging.getLogger(__name__)
POLL_SECONDS: Final = 1.0
LAG_RUNS_MAX: Final = 1000  # of a log, looked at for the newest one that is cached
FOLLOWING_SHARE: Final = 4  # a read waits for more than its first block for a part of its time
_SharedRead = SharedRead[ReadKey, Block]


class DisklessRead(NamedTuple):
    """Batches from one offset on; none at the high watermark."""

    bounds: LogBounds
    buffers: list[memoryview]
    size: int


class ReaderLags(NamedTuple):
    """What a reader lacks of one log, in offsets."""

    known: int  # that it had not heard of when the control plane last told it the high watermark
    cached: int  # from the newest that it holds to the high watermark


class ReaderLimits(NamedTuple):
    """Bounds of a reader."""

    cache_bytes: int = 256 << 20
    hot_reads_max: int = 16  # gets of recent records at the same time
    cold_reads_max: int = 8  # of others
    pending_max: int = 1000  # reads that wait, of hot and of cold ones
    read_ms_max: int = 30_000
    coordinates_ms_max: int = 30_000  # half of an object's grace period


class DisklessReader:
    """The reader of one node; all calls come from its event loop."""

    def __init__(
        self, store: ObjectStore, plane: ControlPlane, clock: Clock, *,
        limits: ReaderLimits, on_advance: Callable[[LogKey], None] | None = None,
        stats: ReaderStats | None = None,
    ) -> None:
        self.stats = ReaderStats() if stats is None else stats
        self.on_advance = on_advance
        self.epochs: dict[LogKey, int] = {}  # leader epochs of logs that were on disks
        self._plane = plane
        self._monotonic = clock.monotonic
        self._limits = limits
        self._coordinates = Coordinates(seconds_max=limits.coordinates_ms_max / 1000)
        self._cache = BlockCache(limits.cache_bytes, self.stats)
        self._loads = BlockLoads(store, self._cache, self.stats, hot_max=limits.hot_reads_max,
                                 cold_max=limits.cold_reads_max, epochs=self.epochs)
        finds = RunFinds(plane, self._coordinates, self.stats, monotonic=clock.monotonic,
                         learn_bounds=self.learn_bounds)
        self._fetches = BlockFetches(
            self._coordinates, self._cache, self._loads, finds, monotonic=clock.monotonic,
            stats=self.stats, following_seconds=limits.read_ms_max / 1000 / FOLLOWING_SHARE)
        self._reads: dict[ReadKey, _SharedRead] = {}
        self._running = [0, 0]  # tasks of cold and of hot reads
        self._read: set[LogKey] = set()  # since their bounds were last asked for
        self._tasks: set[asyncio.Task[None]] = set()
        self._unwatch: Callable[[], None] | None = None
        self._limited = LimitedLog(_log, clock.monotonic)

    def start(self) -> None:
        """Watch the control plane, which is open."""
        self._unwatch = self._plane.watch(self._noticed)
        self._spawn(self._poll(), "look for commits")

    async def close(self) -> None:
        """End all reads; those who wait get an error."""
        if self._unwatch is not None:
            self._unwatch()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._loads.close()
        self._cache.clear()

    def _spawn(self, work: Coroutine[object, object, None], name: str) -> None:
        task = spawn(work, name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- bounds

    def bounds(self, log: LogKey) -> LogBounds | None:
        """The last known bounds."""
        known = self._coordinates.log(log)
        return None if known is None else known.bounds

    async def refresh(self, logs: Sequence[LogKey]) -> None:
        """Ask for bounds: those known then are not older than the call."""
        for start in range(0, len(logs), LIMIT_MAX):
            some = logs[start : start + LIMIT_MAX]
            self.stats.bounds_asked += 1
            for log, bounds in zip(some, await self._plane.bounds(some), strict=True):
                if bounds is None:
                    self._coordinates.forget_log(log)
                else:
                    self.learn_bounds(log, bounds)

    def lags(self, log: LogKey) -> ReaderLags | None:
        """What is lacking of a log; None if nothing is known of it.  Asks nobody."""
        known = self._coordinates.log(log)
        if known is None:
            return None
        _, start, end, _ = known.bounds
        newest = next((run.end_offset for run, _ in islice(reversed(known.runs), LAG_RUNS_MAX)
                       if self._cache.holds((run.key, run.position))), start)
        return ReaderLags(known.lag(self._monotonic()), max(0, end - max(start, newest)))

    def learn_bounds(self, log: LogKey, bounds: LogBounds) -> None:
        """Take over bounds that the control plane has returned to somebody."""
        known = self._coordinates.log(log)
        if known is not None:
            known.note_answer(bounds.high_watermark, self._monotonic())
        self._learn(log, bounds)

    def _learn(self, log: LogKey, bounds: LogBounds) -> None:
        if self._coordinates.learn_bounds(log, bounds, self._monotonic()) and self.on_advance:
            self.on_advance(log)  # diskless.R12

    def forget_log(self, log: LogKey) -> None:
        """Forget a log: its topic is deleted."""
        self._coordinates.forget_log(log)
        self._read.discard(log)
        self.epochs.pop(log, None)

    def _noticed(self, log: LogKey | None, high_watermark: Offset) -> None:
        """A change by some node; None: changes may have been missed (diskless.R12)."""
        if log is None:
            self._read.update(self._coordinates.logs())
            self._spawn(self._ask_bounds(), "look for commits")
            return
        known = self._coordinates.log(log)
        if known is not None and high_watermark == MOVED_START:
            self._read.add(log)
            self._spawn(self._ask_bounds(), "learn a log start")
        elif known is not None:
            known.note_notice(high_watermark)
            if high_watermark > known.bounds.high_watermark:
                self._learn(log, known.bounds._replace(high_watermark=high_watermark))

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await self._ask_bounds()

    async def _ask_bounds(self) -> None:
        """Ask for the bounds of logs that are being read (diskless.R12)."""
        logs, self._read = list(self._read), set()
        if logs:
            try:
                async with asyncio.timeout(self._limits.read_ms_max / 1000):
                    await self.refresh(logs)
            except (QuipuError, TimeoutError) as error:
                self._read.update(logs)
                self._limited.warning("poll", "the control plane cannot be asked: %r", error)

    def committed(
        self, new: NewObject, outcomes: Sequence[BatchOutcome], logs: Sequence[BufferedLog]
    ) -> None:
        """What this node has committed: it is known and held without asking; `logs` are given."""
        now = self._monotonic()
        for run, block, bounds in committed_runs(new, outcomes, logs, self.epochs):
            known = self._coordinates.log(run.log)
            size = 0 if known is None else known.bounds.size
            self._coordinates.learn_bounds(
                run.log, bounds._replace(size=size + run.size), now)
            self._coordinates.learn_runs(run.log, (run,), now)
            self._cache.keep((run.key, run.position), block, is_hot=True)
            if self.on_advance is not None:
                self.on_advance(run.log)

    # -- reads

    def read(
        self, log: LogKey, offset: Offset, max_bytes: int, *, min_one: bool
    ) -> DisklessRead | WaitingRead:
        """Batches from the one that holds `offset` on, or a read that waits for them.

        At most `max_bytes`, but with `min_one` the first batch may be larger.  Raises
        `OffsetOutOfRange`, `RecordsInTier`, or what the read has failed with.
        """
        key = log, offset
        shared = self._reads.get(key)
        known = self._coordinates.log(log)
        if shared is not None and shared.is_done and shared.error is not None:
            raise shared.error
        if known is not None:
            bounds = known.bounds
            if offset < bounds.diskless_start_offset:
                raise below_error(log, offset, bounds)  # diskless.R9
            self._read.add(log)
            if offset == bounds.high_watermark:
                return DisklessRead(bounds, [], 0)
            if offset < bounds.high_watermark:
                arrived = () if shared is None else shared.found
                blocks = arrived or self._fetches.held(known, offset)
                found = self._serve(key, known, blocks, max_bytes, min_one=min_one)
                if found is not None:
                    self.stats.hits += not arrived
                    return found
        if shared is None or shared.is_done:
            shared = self._begin(key, known, max_bytes)
        return shared.wait()

    def _serve(
        self, key: ReadKey, known: LogKnowledge, blocks: Iterable[Block], max_bytes: int, *,
        min_one: bool,
    ) -> DisklessRead | None:
        """Batches of consecutive blocks; None if there are no blocks (diskless.R10)."""
        offset = key[1]
        buffers: list[memoryview] = []
        size = 0
        for block in blocks:
            found = block.read(offset, max_bytes - size, min_one=min_one and not buffers)
            if found is None:
                if not buffers:
                    return DisklessRead(known.bounds, [], 0)  # the first is larger than allowed
                break
            buffers.append(found.buffer)
            size += len(found.buffer)
            offset = found.end_offset
            if offset < block.end_offset or size >= max_bytes:
                break
        if not buffers:
            return None
        self.stats.reads += 1
        self.stats.read_bytes += size
        if offset < known.bounds.high_watermark and (
                self._fetches.should_read_ahead(key, known, offset)):
            self._spawn(self._fetches.read_ahead(key[0], offset), f"read ahead {key[0]}")
        return DisklessRead(known.bounds, buffers, size)

    def _begin(self, key: ReadKey, known: LogKnowledge | None, max_bytes: int) -> _SharedRead:
        is_hot = known is None or known.is_hot(key[1])
        if self._running[is_hot] >= self._limits.pending_max:  # diskless.R11
            self.stats.refused += 1
            raise retry_error(f"{key[0]}: {self._limits.pending_max} reads wait for objects; "
                              "try again")
        self._running[is_hot] += 1
        shared = SharedRead(self._reads, key)
        self._spawn(self._fetch(key, shared, max_bytes, is_hot=is_hot), f"read {key[0]}")
        return shared

    async def _fetch(
        self, key: ReadKey, shared: _SharedRead, max_bytes: int, *, is_hot: bool
    ) -> None:
        blocks: Sequence[Block] = ()
        error: QuipuError | None = None
        self.stats.pending += 1
        try:
            async with asyncio.timeout(self._limits.read_ms_max / 1000):  # diskless.R11
                blocks = await self._fetches.blocks(key, max_bytes, is_hot=is_hot)
        except QuipuError as failed:
            error = failed
        except TimeoutError:
            error = retry_error(f"{key[0]}: offset {key[1]} was not read in time; try again")
        except BaseException as failed:
            error = retry_error(f"{key[0]}: a read failed: {failed!r}")
            raise
        finally:
            if error is not None:
                self.stats.errors += 1
                self._limited.info("read", "%s: offset %d: %s", key[0], key[1], error)
            self._running[is_hot] -= 1
            shared.complete(blocks, error)

    # -- times

    async def find_timestamp(
        self, log: LogKey, timestamp_ms: int, run_long: RunLong
    ) -> TimestampAndOffset | None:
        """The first record from the diskless start on that is not before a time."""
        return await self._times(log, run_long).find(timestamp_ms)

    async def find_max_timestamp(
        self, log: LogKey, run_long: RunLong
    ) -> TimestampAndOffset | None:
        """The first of the records with the largest timestamp, from the diskless start on."""
        return await self._times(log, run_long).find_max()

    def _times(self, log: LogKey, run_long: RunLong) -> TimeSearch:
        async def load(run: BatchRun) -> Block:
            try:
                return await self._fetches.block(run, is_hot=False)
            except (ObjectNotFound, InvalidObjectRequest) as error:
                self._coordinates.forget_object(log, run.key)
                raise retry_error(f"{log}: {error}; try again") from error

        async def start() -> Offset | None:
            await self.refresh([log])
            bounds = self.bounds(log)
            return None if bounds is None else bounds.diskless_start_offset

        return TimeSearch(log, self._plane, start=start, load=load, run_long=run_long)

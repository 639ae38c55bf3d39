"""Reads of records from the tier: for fetches, for searches by time, and for repairs.

    fetch -> read: the cache holds the bytes -> the fetch gets them
             nothing is here yet -> PendingRead; the fetch parks
             a task finds the segment, and reads it in ranges      (bounded in number)
             the bytes have arrived -> the fetch reads again, and gets them

A consumer that nears the end of a segment has the beginning of the next one fetched ahead.

Invariants
    broker.tiering.F1  reads of one offset share one task; its result is held while a fetch waits
                       for it, and no longer
    broker.tiering.F2  at most `pending_max` reads wait or run, of which `running_max` run, together
                       with searches; one more is refused with KAFKA_STORAGE_ERROR, which clients
                       retry
    broker.tiering.F3  a read returns batches of the log's own history, or an error, never others:
                       the segment is found by the leader epoch that the log has for the offset
    broker.tiering.F4  of a partition, the segment that was read last is remembered, at most
                       RECENT_MAX of them; it is read again only for offsets of the same epoch in it

Not here: parking (broker/serving/pending_fetch.py), fetches that wait for a read
(runtime/shared_reads.py), ranges and the cache (remote/segments).
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import suppress
from heapq import heapify, heappop
from itertools import count
from struct import Struct
from typing import Final
from uuid import UUID

from quipu.broker.observing.stats import Stats
from quipu.broker.tiering.deleting import remote_segment
from quipu.broker.tiering.expiry import LogHistory
from quipu.broker.tiering.roles import MetadataRoles, partition_of
from quipu.model.errors import Code, ErrorKind, OffsetOutOfRange, QuipuError, RequestError
from quipu.model.ids import LogOffset, Offset
from quipu.model.partition_log import PartitionLog, TimestampAndOffset
from quipu.model.token_bucket import TokenBucket
from quipu.remote.metadata.errors import RemoteResourceNotFound
from quipu.remote.metadata.interface import RemoteLogMetadataManager
from quipu.remote.metadata.segment_metadata import RemoteLogSegmentMetadata
from quipu.remote.segments.errors import SegmentMissing
from quipu.remote.segments.reader import SegmentReader
from quipu.remote.segments.remote_storage import RemoteStorage
from quipu.runtime.clock import Clock
from quipu.runtime.log_limits import LimitedLog
from quipu.runtime.shared_reads import SharedRead, WaitingRead
from quipu.runtime.slots import Slots
from quipu.runtime.spawn import spawn

_log = logging.getLogger(__name__)
_BATCH_HEAD: Final = Struct(">qi")  # base offset, length of what follows
WALK_TURN: Final = 200  # segments looked up before other tasks get the loop
FIND_ATTEMPTS_MAX: Final = 2  # if a segment is deleted between finding and reading it
RECENT_MAX: Final = 1000
_PartitionKey = tuple[UUID, int]
_Key = tuple[UUID, int, Offset]
_SharedRead = SharedRead[_Key, memoryview]


class _RecentSegment:
    """The segment that a partition was read from last: what one of its epochs has there."""

    __slots__ = ("epoch", "first", "is_next_prepared", "last", "reader", "segment_end")

    def __init__(
        self, segment: RemoteLogSegmentMetadata, epoch: int, reader: SegmentReader
    ) -> None:
        (offsets,) = (each for each in segment.epoch_ranges() if each.epoch == epoch)
        self.epoch, self.first, self.last = offsets
        self.segment_end = segment.end_offset
        self.reader = reader
        self.is_next_prepared = False

    def holds(self, epoch: int, offset: Offset) -> bool:
        """Is `offset` of `epoch` in it (broker.tiering.F3)?"""
        return epoch == self.epoch and self.first <= offset <= self.last


class TierReads:
    """Reads of one node; implements `quipu.model.tiered_log.RemoteReads`."""

    def __init__(
        self, metadata: RemoteLogMetadataManager, roles: MetadataRoles,
        storage: RemoteStorage, *, clock: Clock, stats: Stats, running_max: int,
        pending_max: int, throttle: TokenBucket | None = None,
    ) -> None:
        self._metadata = metadata
        self._roles = roles
        self._storage = storage
        self._clock = clock
        self._stats = stats
        self._pending_max = pending_max
        self._running = Slots(running_max)
        self._throttle = throttle
        self._reads: dict[_Key, _SharedRead] = {}
        self._recent: OrderedDict[_PartitionKey, _RecentSegment] = OrderedDict()
        self._limited = LimitedLog(_log, clock.monotonic)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def _is_throttled(self) -> bool:
        return self._throttle is not None and self._throttle.is_limited

    def resize(self, running_max: int) -> None:
        """Let `running_max` reads run at a time from now on."""
        self._running.resize(running_max)

    async def close(self) -> None:
        """End all reads; those who wait get an error."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def pending(self) -> int:
        """The number of reads that wait or run."""
        return sum(not read.is_done for read in self._reads.values())

    # -- fetches

    def read(
        self, log: PartitionLog, offset: Offset, max_bytes: int, *, min_one: bool, end: Offset
    ) -> list[memoryview] | WaitingRead:
        """Batches from the one that holds `offset` on, or a read that waits for them."""
        key = log.topic_id, log.topic_partition.partition, offset
        read = self._reads.get(key)
        if read is not None and read.is_done:
            if read.error is not None:
                raise read.error
            return fitting(read.found, max_bytes, min_one=min_one, end=end)
        if read is None:
            held = self._read_held(log, offset, max_bytes, min_one=min_one, end=end)
            if held is not None:
                return held
            if len(self._reads) >= self._pending_max:  # broker.tiering.F2
                self._stats.remote.fetch_errors += 1
                raise RequestError(
                    f"{log.topic_partition}: {self._pending_max} reads wait for the remote tier "
                    "(remote.log.reader.max.pending.tasks); try again",
                    code=Code.KAFKA_STORAGE_ERROR, kind=ErrorKind.RETRY)
            read = SharedRead(self._reads, key)  # broker.tiering.F1
            self._spawn(self._fetch(key, read, log, max_bytes, end),
                        f"remote read {log.topic_partition}")
        return read.wait()

    def _read_held(
        self, log: PartitionLog, offset: Offset, max_bytes: int, *, min_one: bool, end: Offset
    ) -> list[memoryview] | None:
        """What the cache holds of the segment that was read last; None if it is not held."""
        recent = self._recent.get((log.topic_id, log.topic_partition.partition))
        if recent is None or self._is_throttled or not recent.holds(
                log.tier.epoch_for_offset(offset), offset):  # broker.tiering.F4
            return None
        try:
            buffers = recent.reader.read_held(offset, max_bytes, end=end, min_one=min_one)
        except QuipuError:  # a task reads it again, and reports it
            return None
        if buffers is None:
            return None
        self._stats.remote.fetch_requests += 1
        self._stats.remote.fetch_bytes += sum(map(len, buffers))
        self._prepare_next(log, offset, recent)
        return buffers

    def _spawn(self, work: Coroutine[object, object, None], name: str) -> None:
        task = spawn(work, name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _fetch(
        self, key: _Key, read: _SharedRead, log: PartitionLog, max_bytes: int, end: Offset
    ) -> None:
        buffers: list[memoryview] = []
        error: QuipuError | None = None
        self._stats.remote.fetch_requests += 1
        try:
            async with self._running:  # broker.tiering.F2
                buffers = await self._read_segment(log, key[2], max_bytes, end)
            size = sum(map(len, buffers))
            self._stats.remote.fetch_bytes += size
            if self._throttle is not None and self._throttle.is_limited:
                await asyncio.sleep(self._throttle.take(size, self._clock.monotonic()))
        except QuipuError as failed:
            error = failed
            self._stats.remote.fetch_errors += 1
            self._limited.warning(
                str(log.topic_partition), "%s: offset %d cannot be read from the remote tier: %s",
                log.topic_partition, key[2], failed)
        except BaseException as failed:
            error = RequestError(f"{log.topic_partition}: a read of the remote tier failed: "
                                 f"{failed!r}", code=Code.KAFKA_STORAGE_ERROR)
            raise
        finally:
            read.complete(buffers, error)

    async def _read_segment(
        self, log: PartitionLog, offset: Offset, max_bytes: int, end: Offset
    ) -> list[memoryview]:
        missing: SegmentMissing | None = None
        for _ in range(FIND_ATTEMPTS_MAX):
            segment = await self._find(log, offset)
            if segment is None:
                missing = None
                break
            try:
                reader = self._storage.reader(remote_segment(segment))
                buffers = await reader.read(offset, max_bytes, end=end, min_one=True)
                self._remember(log, offset, segment, reader)
                return buffers
            except SegmentMissing as error:  # deleted, or replaced, since it was found
                missing = error
        if offset < log.log_start_offset:
            raise OffsetOutOfRange(str(log.topic_partition), offset, log.log_start_offset, end)
        if missing is not None:
            raise missing
        raise RequestError(
            f"{log.topic_partition}: no segment of the remote tier has offset {offset}",
            code=Code.KAFKA_STORAGE_ERROR, kind=ErrorKind.RETRY)

    def _remember(
        self, log: PartitionLog, offset: Offset, segment: RemoteLogSegmentMetadata,
        reader: SegmentReader,
    ) -> None:
        """Remember the segment that `offset` was read from (broker.tiering.F4)."""
        epoch = log.tier.epoch_for_offset(offset)
        if epoch not in segment.segment_leader_epochs:
            return  # the log has changed meanwhile
        key = log.topic_id, log.topic_partition.partition
        recent = self._recent[key] = _RecentSegment(segment, epoch, reader)
        self._recent.move_to_end(key)
        if len(self._recent) > RECENT_MAX:
            self._recent.popitem(last=False)
        self._prepare_next(log, offset, recent)

    def _prepare_next(self, log: PartitionLog, offset: Offset, recent: _RecentSegment) -> None:
        """Fetch the beginning of the next segment, if a reader will soon want it."""
        if recent.is_next_prepared or self._running.locked() or not recent.reader.ends_soon(offset):
            return
        recent.is_next_prepared = True
        self._spawn(self._prepare(log, Offset(recent.segment_end + 1)),
                    f"read ahead {log.topic_partition}")

    async def _prepare(self, log: PartitionLog, offset: Offset) -> None:
        with suppress(QuipuError):  # whoever reads it is told
            async with self._running:  # broker.tiering.F2
                segment = await self._find(log, offset)
                if segment is not None and segment.start_offset == offset:
                    await self._storage.reader(remote_segment(segment)).prepare()

    async def _find(self, log: PartitionLog, offset: Offset) -> RemoteLogSegmentMetadata | None:
        """The segment that holds `offset`, by the log's own epochs (broker.tiering.F3)."""
        partition = partition_of(log)
        await self._roles.follow(partition)
        epoch = log.tier.epoch_for_offset(offset)
        if epoch < 0:
            return None
        with suppress(RemoteResourceNotFound):  # its remote segments were deleted meanwhile
            return await self._metadata.remote_log_segment_metadata(partition, epoch, offset)
        return None

    # -- repairs

    async def stored_batches(
        self, log: PartitionLog, offset: Offset, start: LogOffset, end: LogOffset, *,
        size_max: int,
    ) -> bytes:
        """The batches from log offset `start` up to `end`, as they were stored."""
        segment = await self._find(log, offset)
        history = LogHistory(log.tier.epochs(), log.log_end_offset)
        if segment is None or not history.has(segment):  # broker.tiering.F3
            raise RequestError(
                f"{log.topic_partition}: no segment of the remote tier has offset {offset}",
                code=Code.KAFKA_STORAGE_ERROR, kind=ErrorKind.RETRY)
        data = bytearray()
        async with self._running:  # broker.tiering.F2
            async for header, stored in self._storage.reader(
                    remote_segment(segment)).batches(start):
                if header.log_offset >= end or len(data) + len(stored) > size_max:
                    break
                data += stored
        return bytes(data)

    # -- searches by time

    async def find_timestamp(
        self, log: PartitionLog, timestamp_ms: int, *, start: Offset, end: Offset
    ) -> TimestampAndOffset | None:
        """The first record from `start` up to `end` that is not older than `timestamp_ms`."""
        async for segment in self._segments(log, start, end):
            if segment.max_timestamp_ms >= timestamp_ms:
                found = await self._search(segment, timestamp_ms, start)
                if found is not None:
                    return found if found.offset < end else None
        return None

    async def find_max_timestamp(
        self, log: PartitionLog, *, start: Offset, end: Offset
    ) -> TimestampAndOffset | None:
        """The first of the records with the largest timestamp from `start` up to `end`."""
        newest = [(-segment.max_timestamp_ms, segment.start_offset, segment)
                  async for segment in self._segments(log, start, end)]
        heapify(newest)
        while newest:  # the newest record of the first one may be below `start`
            _, _, segment = heappop(newest)
            found = await self._search(segment, segment.max_timestamp_ms, start)
            if found is not None and found.offset < end:
                return found
        return None

    async def _search(
        self, segment: RemoteLogSegmentMetadata, timestamp_ms: int, start: Offset
    ) -> TimestampAndOffset | None:
        async with self._running:  # broker.tiering.F2
            reader = self._storage.reader(remote_segment(segment))
            return await reader.find_timestamp(timestamp_ms, start_offset=start)

    async def _segments(
        self, log: PartitionLog, start: Offset, end: Offset
    ) -> AsyncIterator[RemoteLogSegmentMetadata]:
        """The segments of the log's own history from `start` to `end`, each once, in order.

        They are looked up one after the other, and other tasks get the loop after every few: there
        may be 100,000 of them.
        """
        history = LogHistory(log.tier.epochs(), log.log_end_offset)
        for step in count(1):
            if start >= end:
                return
            segment = await self._find(log, start)
            if start < log.log_start_offset:  # it has expired meanwhile
                start = log.log_start_offset
                continue
            if segment is None or segment.end_offset < start or not history.has(segment):
                raise RequestError(
                    f"{log.topic_partition}: no segment of the remote tier has offset {start}",
                    code=Code.KAFKA_STORAGE_ERROR, kind=ErrorKind.RETRY)
            yield segment
            start = Offset(segment.end_offset + 1)
            if step % WALK_TURN == 0:
                await asyncio.sleep(0)


def fitting(
    buffers: Sequence[memoryview], max_bytes: int, *, min_one: bool, end: Offset
) -> list[memoryview]:
    """The first batches of `buffers` that a read may return: they were read for another limit."""
    size, found = 0, []
    for buffer in buffers:
        position = 0
        while position < len(buffer):
            base_offset, length = _BATCH_HEAD.unpack_from(buffer, position)
            batch_size = _BATCH_HEAD.size + length
            is_first = min_one and size == 0
            if base_offset >= end or (size + batch_size > max_bytes and not is_first):
                break
            size += batch_size
            position += batch_size
        if position:
            found.append(buffer[:position])
        if position < len(buffer):
            break
    return found

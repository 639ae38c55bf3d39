"""What nodes of the world (world.py) share: the log, and wires to the store and the metadata."""

import asyncio
from collections.abc import AsyncIterable, Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast
from uuid import UUID

from quipu.model.batch_types import DATA
from quipu.model.errors import Code, QuipuError, RequestError
from quipu.model.ids import Epoch, LogOffset, Offset, TimestampMs, TopicPartition
from quipu.model.partition_log import NOTHING_TIERED
from quipu.model.tiered_log import TierableSegment
from quipu.remote.metadata.errors import BackendUnavailable, OutcomeUnknown
from quipu.remote.metadata.storage.backend import ExpectValue, Operation
from quipu.remote.metadata.storage.memory import MemoryBackend
from quipu.runtime.objects.errors import StoreUnavailable
from quipu.runtime.objects.memory import MemoryStore, joined
from quipu.runtime.objects.store import Buffer, ByteRange, ObjectInfo
from quipu.wire.record_batch import Record, encode_batch
from quipu.wire.stored_batch import pack_prefix
from tests.looped import LoopClock

T = TypeVar("T")

if TYPE_CHECKING:  # it has all of these
    from tests.broker.tiering.world import TierWorld

SEGMENT_RECORDS_MAX = 5
TOPIC_ID = UUID(int=77)


def now(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as stop:
        return cast("T", stop.value)
    raise AssertionError("it waits")


class ModelSegment(NamedTuple):
    """A complete segment of the log."""

    described: TierableSegment
    data: bytes


class SharedLog:
    """What the replicas of the partition have committed, and who leads."""

    def __init__(self) -> None:
        self.segments: list[ModelSegment] = []  # all that ever were
        self.values: list[bytes] = []  # by offset
        self.epochs: list[tuple[Epoch, Offset]] = []
        self.log_start = Offset(0)
        self.local_start = Offset(0)
        self.tiered = Offset(NOTHING_TIERED)
        self.leader_epoch = Epoch(0)
        self.log_offset = 0

    @property
    def end(self) -> Offset:
        return Offset(len(self.values))

    def append(self, batch_sizes: Sequence[int], now_ms: int) -> None:
        """Commit one more complete segment."""
        base, base_log, data = self.end, self.log_offset, b""
        if not self.epochs or self.epochs[-1][0] != self.leader_epoch:
            self.epochs.append((self.leader_epoch, base))
        for size in batch_sizes:
            values = [b"record %d" % (self.end + delta) for delta in range(size)]
            batch = encode_batch([Record(None, value, (), now_ms) for value in values],
                                 base_offset=self.end, leader_epoch=self.leader_epoch)
            data += pack_prefix(batch, batch_type=DATA, log_offset=self.log_offset) + batch
            self.values += values
            self.log_offset += size
        self.segments.append(ModelSegment(TierableSegment(
            base, self.end, LogOffset(base_log), LogOffset(self.log_offset), len(data),
            TimestampMs(now_ms), ((self.leader_epoch, base, LogOffset(base_log)),)), data))

    def epoch_of(self, offset: int) -> Epoch:
        return max((epoch for epoch, start in self.epochs if start <= offset), default=Epoch(-1))

    def trim_locally(self, kept: int) -> None:
        """Delete segments that the tier has, but the last `kept`."""
        for segment, _ in self.segments[:-kept]:
            if segment.end_offset - 1 <= self.tiered:
                self.local_start = max(self.local_start, segment.end_offset)


class ModelTier:
    """`PartitionLog.tier` of one leader."""

    is_enabled = is_copied = True
    is_sealed = False
    retention_ms = -1

    def __init__(self, log: "LeaderLog", world: "TierWorld") -> None:
        self._log, self._world, self._shared = log, world, world.log

    @property
    def has_copies(self) -> bool:
        return self._shared.tiered != NOTHING_TIERED

    @property
    def retention_bytes(self) -> int:
        return self._world.retention_bytes

    @property
    def only_local_bytes(self) -> int:
        return sum(segment.size for segment, _ in self._shared.segments
                   if segment.end_offset - 1 > self._shared.tiered)

    def segments(self, count_max: int = 100) -> list[TierableSegment]:
        start = max(self._shared.tiered + 1, self._shared.log_start)
        return [segment for segment, _ in self._shared.segments
                if segment.end_offset > start][:count_max]

    def open(self, segment: TierableSegment) -> object:
        if segment.base_offset < self._shared.local_start:
            raise RequestError("not kept any more", code=Code.OFFSET_OUT_OF_RANGE)
        data = next(data for found, data in self._shared.segments if found == segment)
        return SimpleNamespace(data=memoryview(data), producers=b"", release=lambda: None)

    async def note_tiered(
        self, last_offset: Offset, now_ms: int, *, timeout_ms: int | None = None
    ) -> None:
        del now_ms, timeout_ms
        await self._log.commit(lambda: setattr(
            self._shared, "tiered", max(self._shared.tiered, last_offset)))

    def epochs(self) -> list[tuple[Epoch, Offset]]:
        first = self._shared.epoch_of(self._shared.log_start)
        return [each for each in self._shared.epochs if each[0] >= first]

    def epoch_for_offset(self, offset: Offset) -> Epoch:
        return self._shared.epoch_of(offset)


class LeaderLog:
    """The partition as the leader of one epoch has it: what broker/tiering uses of it."""

    topic_id = TOPIC_ID
    topic_partition = TopicPartition("t", 0)

    def __init__(self, world: "TierWorld", epoch: Epoch) -> None:
        self._world, self._shared = world, world.log
        self.leader_epoch = epoch
        self.tier = ModelTier(self, world)
        self.is_active_leader = True  # as far as it knows

    log_start_offset = property(lambda self: self._shared.log_start)
    local_start_offset = property(lambda self: self._shared.local_start)
    log_end_offset = last_stable_offset = high_watermark = property(lambda self: self._shared.end)
    highest_tiered_offset = property(lambda self: self._shared.tiered)

    def check_leader(self) -> None:
        if self._shared.leader_epoch != self.leader_epoch:
            raise RequestError("deposed", code=Code.NOT_LEADER_OR_FOLLOWER)

    async def commit(self, change: Callable[[], None]) -> None:
        """Change what is committed, if this is the leader; it may be, though this raises."""
        await asyncio.sleep(self._world.dice.between(0, 0.02))
        self.check_leader()
        change()
        if self._world.is_faulty and self._world.dice.flip(0.05):
            raise RequestError("timed out", code=Code.REQUEST_TIMED_OUT)

    def delete_records(
        self, offset: Offset, now_ms: int, *, timeout_ms: int, done: Callable[[object], None]
    ) -> None:
        del now_ms, timeout_ms

        def change() -> None:
            self._shared.log_start = max(self._shared.log_start, offset)
            self._shared.local_start = max(self._shared.local_start, self._shared.log_start)

        async def move() -> None:
            try:
                await self.commit(change)
                done(offset)
            except QuipuError as error:
                done(error)

        self._world.keep(asyncio.ensure_future(move()))


class Wire:
    """What happens to requests on their way: they are carried out once, or not at all."""

    def __init__(self, world: "TierWorld", name: str) -> None:
        self._world = world
        self._dice = world.dice.fork(name)

    async def carry(
        self, work: Callable[[], T], *, refused: Callable[[], Exception],
        lost: Callable[[], Exception],
    ) -> T:
        dice, is_faulty = self._dice, self._world.is_faulty
        delay = dice.between(0.001, 0.02)
        if is_faulty and dice.flip(0.05):
            delay *= 50
        if is_faulty and dice.flip(0.08):
            await asyncio.sleep(delay)
            raise refused()
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()

        def carry_out() -> None:
            try:
                found = work()
            except QuipuError as error:
                if not result.done():
                    result.set_exception(error)
            else:
                if not result.done():
                    result.set_result(found)

        loop.call_later(delay, carry_out)
        if is_faulty and dice.flip(0.06):
            await asyncio.sleep(dice.between(0, 2 * delay))
            if result.done():
                result.exception()
            result.cancel()
            raise lost()
        return await result


class WorldStore(MemoryStore):
    """The store of one process."""

    def __init__(self, world: "TierWorld") -> None:
        super().__init__(LoopClock().now_ms)
        self._objects, self._wire, self._world = world.objects, world.store_wire, world

    async def _do(self, work: Callable[[], T]) -> T:
        return await self._wire.carry(work, refused=lambda: StoreUnavailable("refused"),
                                      lost=lambda: StoreUnavailable("no response"))

    async def put(  # type: ignore[override]
        self, key: str, data: Sequence[Buffer], **_: object
    ) -> ObjectInfo:
        return await self._do(lambda: self._objects.put(key, data))

    async def put_parts(self, key: str, parts: AsyncIterable[Buffer]) -> ObjectInfo:
        data = await joined(key, parts)
        return await self._do(lambda: self._objects.put_unchecked(key, data))

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[bytes]:
        return await self._do(lambda: self._objects.get_ranges(key, ranges))

    async def delete(self, keys: Sequence[str]) -> None:
        def work() -> None:
            self._world.check_deletion(keys)
            self._objects.delete(keys)

        await self._do(work)


class WorldBackend(MemoryBackend):
    """The metadata's storage, as one process reaches it."""

    def __init__(self, world: "TierWorld") -> None:
        super().__init__()
        self._store, self._wire = world.metadata, world.metadata_wire
        self._table = world.metadata._table

    async def execute(self, operations: Sequence[Operation]) -> None:
        await self._write(lambda: now(self._store.execute(operations)))

    async def remove_like(self, key: str, *, expected: Sequence[ExpectValue] = ()) -> None:
        await self._write(lambda: now(self._store.remove_like(key, expected=expected)))

    async def _write(self, work: Callable[[], None]) -> None:
        await self._wire.carry(work, refused=lambda: BackendUnavailable("refused"),
                               lost=lambda: OutcomeUnknown("no response"))

    async def get(self, key: str) -> bytes | None:
        await asyncio.sleep(0.001)
        return await super().get(key)

    async def page(self, parent: str, after: str | None, limit: int) -> Any:
        await asyncio.sleep(0.001)
        return await super().page(parent, after, limit)

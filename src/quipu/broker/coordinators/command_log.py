"""The commands of one shard in a partition of an internal topic, written while this node leads it.

Invariants
    broker.coordinators.H1  after `close` nothing is written, even if this node leads the partition
                            again: the log of the next leadership has read the partition, and must
                            be its only writer
    broker.coordinators.H2  `append` returns when the commands are committed; on a sole replica,
                            when they are also flushed
    broker.coordinators.H3  an append is tried again for a while if the partition cannot take it
                            now, as when its chain begins an epoch or too few nodes serve; loading
                            waits for as long as this node leads, also while it holds no lease

Not here: the order of writes and when snapshots are due (command_writer.py).
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from quipu.model.batch_types import BatchType
from quipu.model.errors import Code, QuipuError, RequestError
from quipu.model.ids import LogOffset
from quipu.model.partition_log import InternalBatch, PartitionLog
from quipu.runtime.clock import Clock
from quipu.storage.state_log import Apply, StateLog

COMMIT_TIMEOUT_MS: Final = 5_000  # as Kafka's offsets.commit.timeout.ms
RETRY_SECONDS: Final = 0.05
STEPS_PER_TURN: Final = 64  # of reading a log, at most, before other tasks run, ...
TURN_SECONDS: Final = 0.005  # ... and about this long at most
RETRIES_MAX: Final = int(COMMIT_TIMEOUT_MS / 1000 / RETRY_SECONDS)
_FOR_NOW: Final = frozenset({Code.NOT_LEADER_OR_FOLLOWER, Code.NOT_ENOUGH_REPLICAS})
_WAITED_FOR: Final = _FOR_NOW | {Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND}


async def take_all_steps(steps: Iterable[None]) -> None:
    """Take all `steps`, and let other tasks run in between."""
    loop = asyncio.get_running_loop()
    turned = loop.time()
    for number, _ in enumerate(steps):
        if number % STEPS_PER_TURN == 0 or loop.time() - turned > TURN_SECONDS:
            await asyncio.sleep(0)
            turned = loop.time()


class RetryLater(RequestError):
    """Nothing was written; the same write may succeed soon."""


async def retried(write: Callable[[], None]) -> None:
    """Call `write`, again and again for a while if it raises `RetryLater`."""
    for _ in range(RETRIES_MAX):
        try:
            return write()
        except RetryLater:
            await asyncio.sleep(RETRY_SECONDS)  # broker.coordinators.H3
    return write()


async def all_committed(partition: PartitionLog, storage: "PartitionStorage") -> None:
    """Return when all that is in the log is committed."""
    log_end = partition.log_end
    while True:
        try:
            return await partition.committed(log_end)
        except QuipuError as error:
            if error.code not in _WAITED_FOR or storage.is_closed:
                raise
            await asyncio.sleep(RETRY_SECONDS)  # broker.coordinators.H3


class PartitionCommandLog:
    """The command log of one shard, for as long as this node leads its partition."""

    must_snapshot = False

    def __init__(self, partition: PartitionLog, batch_type: BatchType, clock: Clock) -> None:
        self._partition = partition
        self._storage = PartitionStorage(partition)
        self._state_log = StateLog(self._storage, batch_type, clock)

    def close(self) -> None:
        """Write nothing more (broker.coordinators.H1)."""
        self._storage.is_closed = True

    # -- called by the writer

    @property
    def commands_size(self) -> int:
        """Bytes of commands since the last snapshot."""
        return self._state_log.commands_size

    def size_of(self, command: bytes) -> int:
        return len(command)

    async def load(self, apply: Apply) -> None:
        """Call `apply` with every command; return when all of them are committed."""
        await take_all_steps(self._state_log.replaying(apply))
        await all_committed(self._partition, self._storage)

    async def append(self, commands: Sequence[bytes]) -> None:
        """Append `commands`.  If this raises, they may be in the log all the same."""
        for _ in range(RETRIES_MAX):
            try:
                return await self._state_log.append(commands)
            except RetryLater:
                await asyncio.sleep(RETRY_SECONDS)  # broker.coordinators.H3
        return await self._state_log.append(commands)

    async def snapshot(self, commands: Iterable[bytes]) -> None:
        """Replace all earlier commands by `commands`."""
        await self._state_log.snapshot(commands)


def trim_steps(partition: PartitionLog, batch_type: BatchType, clock: Clock) -> Iterator[None]:
    """Drop the segments before the newest committed snapshot, on a replica that does not lead."""
    if partition.failure is None and partition.internal.segment_count >= 2:
        state_log = StateLog(PartitionStorage(partition), batch_type, clock)
        yield from state_log.trimming(partition.committed_end)


class PartitionStorage:
    """A partition as the storage of a `StateLog`; see `storage.state_log.StateStorage`."""

    def __init__(self, partition: PartitionLog) -> None:
        self._partition = partition
        self._records = partition.internal
        self.is_closed = False

    @property
    def name(self) -> str:
        return str(self._partition.topic_partition)

    @property
    def failure(self) -> QuipuError | None:
        return self._partition.failure

    @property
    def log_end(self) -> LogOffset:
        return self._partition.log_end

    @property
    def first_log_offset(self) -> LogOffset:
        return self._records.first_log_offset

    def append(
        self, batch_type: BatchType, records: Sequence[tuple[bytes | None, bytes | None]],
        now_ms: int,
    ) -> None:
        """Append to the partition; an error that may pass soon is raised as `RetryLater`."""
        self._check_open()
        try:
            self._records.append(batch_type, records, now_ms)
        except QuipuError as error:
            raise _for_now(error) from error

    def roll(self, now_ms: int) -> None:
        """Begin a segment; an error that may pass soon is raised as `RetryLater`."""
        self._check_open()
        try:
            self._records.roll(now_ms)
        except QuipuError as error:
            raise _for_now(error) from error

    def read(self, start: LogOffset) -> Iterator[InternalBatch]:
        """Every batch from the one that holds `start` on."""
        return self._records.read(start)

    def drop_before(self, log_offset: LogOffset) -> int:
        """Remove complete segments below `log_offset`; returns how many."""
        return self._records.drop_before(log_offset)

    async def committed(self) -> None:
        """Return when everything is committed, and on a sole replica also flushed."""
        await self._partition.committed(self._partition.log_end, timeout_ms=COMMIT_TIMEOUT_MS)
        if self._partition.is_sole_replica:
            await self._partition.flush()  # broker.coordinators.H2

    def _check_open(self) -> None:
        if self.is_closed:  # broker.coordinators.H1
            raise RequestError(f"{self._partition.topic_partition}: this node does not lead it",
                               code=Code.NOT_COORDINATOR)


def _for_now(error: QuipuError) -> QuipuError:
    return RetryLater(str(error), code=error.code) if error.code in _FOR_NOW else error

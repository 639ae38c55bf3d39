"""The log of one shard: a partition of `__consumer_offsets`, written while this node leads it.

Invariants
    H1  after `close` nothing is written, whatever the partition becomes again: who leads it later
        has read the log, and counts on being its only writer
    H2  what is kept is committed; on a node that is alone it is durable as well
    H3  a write waits for a while if the partition cannot take it now, as when its chain begins a
        new epoch or is short of nodes; loading waits for as long as this node leads, also while
        its lease has run out

Not here: the order of writes and when snapshots are due (group_log.py).
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from quipu.model.batch_types import GROUP, BatchType
from quipu.model.errors import Code, QuipuError, RequestError
from quipu.model.ids import LogOffset, TopicPartition
from quipu.runtime.clock import Clock
from quipu.storage.log import Appended, Log
from quipu.storage.state_log import Apply, StateLog
from quipu.wire.record_batch import Record

COMMIT_TIMEOUT_MS: Final = 5_000  # as Kafka's offsets.commit.timeout.ms
RETRY_SECONDS: Final = 0.05
STEPS_PER_TURN: Final = 64  # of reading a log, at most, before others get their turn, ...
TURN_SECONDS: Final = 0.005  # ... and no longer than that, about
RETRIES_MAX: Final = int(COMMIT_TIMEOUT_MS / 1000 / RETRY_SECONDS)
_FOR_NOW: Final = frozenset({Code.NOT_LEADER_OR_FOLLOWER, Code.NOT_ENOUGH_REPLICAS})
_WAITED_FOR: Final = _FOR_NOW | {Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND}


async def in_turns(steps: Iterable[None]) -> None:
    """Take all `steps`, and let the loop turn in between."""
    loop = asyncio.get_running_loop()
    turned = loop.time()
    for number, _ in enumerate(steps):
        if number % STEPS_PER_TURN == 0 or loop.time() - turned > TURN_SECONDS:
            await asyncio.sleep(0)
            turned = loop.time()


class _NotNow(RequestError):
    """Nothing was written; it may go better soon."""


class LedPartition(Protocol):
    """What is asked of a partition; see `broker.partition.Partition`."""

    topic_partition: TopicPartition
    log: Log
    is_alone: bool

    @property
    def is_current(self) -> bool:
        """May this node speak for the partition, as far as it leads it?"""
        ...

    def append_records(
        self, batch_type: BatchType, records: Sequence[Record], now_ms: int
    ) -> Appended: ...
    def roll(self, now_ms: int) -> None: ...
    async def committed(
        self, log_end: LogOffset, *, timeout_ms: int | None = None
    ) -> None: ...


class ShardLog:
    """The command log of one shard, for as long as this node leads its partition."""

    def __init__(self, partition: LedPartition, clock: Clock) -> None:
        self._partition = partition
        self._keeper = _Keeper(partition)
        self._state_log = StateLog(partition.log, GROUP, clock, self._keeper)

    def close(self) -> None:
        """Write nothing more (H1)."""
        self._keeper.is_closed = True

    # -- what the writer of groups asks

    @property
    def commands_size(self) -> int:
        """Bytes of commands since the last snapshot."""
        return self._state_log.commands_size

    async def load(self, apply: Apply) -> None:
        """Give every command to `apply`; returns when all of them are committed."""
        await in_turns(self._state_log.replaying(apply))
        log_end = self._partition.log.log_end
        while True:
            try:
                return await self._partition.committed(log_end)
            except QuipuError as error:
                if error.code not in _WAITED_FOR or self._keeper.is_closed:
                    raise
                await asyncio.sleep(RETRY_SECONDS)  # H3

    async def append(self, commands: Sequence[bytes]) -> None:
        """Keep `commands`.  If this raises they may be in the log all the same."""
        for _ in range(RETRIES_MAX):
            try:
                return await self._state_log.append(commands)
            except _NotNow:
                await asyncio.sleep(RETRY_SECONDS)  # H3
        return await self._state_log.append(commands)

    async def snapshot(self, commands: Iterable[bytes]) -> None:
        """Replace all that was kept before by `commands`."""
        await self._state_log.snapshot(commands)


class _Keeper:
    """Writes through the partition; see `storage.state_log.Keeper`."""

    def __init__(self, partition: LedPartition) -> None:
        self._partition = partition
        self.is_closed = False

    def append(self, batch_type: BatchType, records: Sequence[Record], now_ms: int) -> None:
        self._check_open()
        try:
            self._partition.append_records(batch_type, records, now_ms)
        except QuipuError as error:
            raise (_NotNow(str(error), code=error.code) if error.code in _FOR_NOW else error
                   ) from error

    def roll(self, now_ms: int) -> None:
        self._check_open()
        self._partition.roll(now_ms)

    async def kept(self) -> None:
        log = self._partition.log
        await self._partition.committed(log.log_end, timeout_ms=COMMIT_TIMEOUT_MS)
        if self._partition.is_alone:
            await log.flush()  # H2

    def _check_open(self) -> None:
        if self.is_closed:  # H1
            raise RequestError(f"{self._partition.topic_partition}: this node does not lead it",
                               code=Code.NOT_COORDINATOR)

"""One partition as the broker sees it: its log, its rules, and the fetches that wait for it.

Invariants
    P1  a batch is checked before it is appended: what is stored is what a client may fetch
    P2  clients see no record at or above the high watermark
    P3  a fetch that waits hears of every advance of the high watermark
"""

import logging
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from quipu.model.errors import Code, QuipuError, RequestError
from quipu.model.ids import Epoch, Offset, TopicPartition
from quipu.runtime.disk import DiskError
from quipu.storage.log import Appended, Log, LogConfig
from quipu.wire.fast import check_batch
from quipu.wire.record_batch import TRANSACTIONAL_BIT, BatchHeader, set_log_append_time

NO_LIMIT_MS: Final = (1 << 63) - 1
ACKS_ALL: Final = -1
REPLICA_COUNT: Final = 1  # this node alone
TELL_AGAIN_MS: Final = 10_000

_log = logging.getLogger(__name__)


class Rules(NamedTuple):
    """What a partition's topic says about batches; see the settings of the same names."""

    batch_size_max: int
    append_time: bool  # message.timestamp.type=LogAppendTime
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    min_insync_replicas: int


class Waiter(Protocol):
    """Someone who waits for records."""

    def advanced(self, size: int) -> None:
        """About `size` more bytes can be read; 0 says: look again, something else changed."""
        ...

    def finish(self) -> None:
        """The wait is over."""
        ...


class Partition:
    """A partition that this node serves."""

    __slots__ = (
        "_told_ms", "_waiters", "acks_wait", "leader_epoch", "log", "rules", "topic_id",
        "topic_partition",
    )

    def __init__(
        self, topic_partition: TopicPartition, topic_id: UUID, log: Log, rules: Rules
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.rules = rules
        self.acks_wait = log.config.is_durable  # is a batch acknowledged only when flushed?
        self.leader_epoch = Epoch(0)
        self._waiters: set[Waiter] = set()
        self._told_ms = 0  # when the disk's refusal was last logged

    def configure(self, config: LogConfig, rules: Rules) -> None:
        """Live by other settings from now on."""
        self.log.config = config
        self.rules = rules
        self.acks_wait = config.is_durable

    @property
    def failed(self) -> QuipuError | None:
        """Why the partition cannot be served, if it cannot."""
        return self.log.failure

    @property
    def high_watermark(self) -> Offset:
        """Clients see what is below this (P2)."""
        return self.log.high_watermark

    def append(self, batch: memoryview, now_ms: int, acks: int) -> Appended:
        """Append one batch of a producer; `batch` is changed in place."""
        rules = self.rules
        if acks == ACKS_ALL and rules.min_insync_replicas > REPLICA_COUNT:
            raise RequestError(
                f"{self.topic_partition}: min.insync.replicas = {rules.min_insync_replicas}, but "
                f"there is {REPLICA_COUNT} replica", code=Code.NOT_ENOUGH_REPLICAS)
        header = check_batch(batch, size_max=rules.batch_size_max)
        if header.attributes & TRANSACTIONAL_BIT:
            raise RequestError("transactions are not served", code=Code.INVALID_TXN_STATE)
        if rules.append_time:
            header = set_log_append_time(batch, now_ms)
        else:
            self._check_time(header, now_ms)
        try:
            appended = self.log.append(batch, header, epoch=self.leader_epoch, now_ms=now_ms)
        except DiskError as error:
            self._tell(error, now_ms)
            raise
        if self._waiters and not self.acks_wait:
            self._advanced(len(batch))
        return appended

    def _tell(self, error: DiskError, now_ms: int) -> None:
        """Log that the disk refuses writes; once in a while, for producers try again and again."""
        if now_ms - self._told_ms >= TELL_AGAIN_MS:
            self._told_ms = now_ms
            _log.error("%s: a batch was refused: %s", self.topic_partition, error)

    def _check_time(self, header: BatchHeader, now_ms: int) -> None:
        """Refuse batches from too far in the past or the future; looks at no single record."""
        rules = self.rules
        if header.max_timestamp > now_ms + rules.timestamp_after_max_ms:
            raise RequestError(
                f"{self.topic_partition}: timestamp {header.max_timestamp} is more than "
                f"{rules.timestamp_after_max_ms} ms ahead of the broker's clock, {now_ms} "
                "(message.timestamp.after.max.ms)", code=Code.INVALID_TIMESTAMP)
        if (
            rules.timestamp_before_max_ms != NO_LIMIT_MS
            and 0 <= header.base_timestamp < now_ms - rules.timestamp_before_max_ms
        ):
            raise RequestError(
                f"{self.topic_partition}: timestamp {header.base_timestamp} is more than "
                f"{rules.timestamp_before_max_ms} ms behind the broker's clock, {now_ms} "
                "(message.timestamp.before.max.ms)", code=Code.INVALID_TIMESTAMP)

    def when_kept(
        self, appended: Appended, size: int, done: Callable[[Exception | None], None]
    ) -> None:
        """Call `done` once the batch is as safe as the flush policy promises."""
        def flushed(error: Exception | None) -> None:
            if error is None and self._waiters:
                self._advanced(size)
            done(error)

        self.log.when_flushed(Offset(appended.last_offset + 1), flushed)

    # -- fetches that wait

    def wait(self, waiter: Waiter) -> None:
        """Tell `waiter` of every advance, until `leave` (P3)."""
        self._waiters.add(waiter)

    def leave(self, waiter: Waiter) -> None:
        """Forget `waiter`."""
        self._waiters.discard(waiter)

    def wake(self) -> None:
        """Let everyone who waits look again: the partition failed or was deleted."""
        self._advanced(0)

    def _advanced(self, size: int) -> None:
        for waiter in list(self._waiters):
            waiter.advanced(size)

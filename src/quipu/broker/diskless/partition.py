"""One diskless partition on one node: its batches go to the writer, its records come from objects.

Every node has every diskless partition, takes its writes and serves its records; the control plane
gives the offsets.  So there is no leader that could change, and nothing on this node's disk.

Invariants
    broker.diskless.P1  a batch is checked before it is given to the writer, so every stored batch
                        may be given to clients
    broker.diskless.P2  an append completes with a result only after its object is stored and
                        committed, whatever `acks` is; if that takes longer than the request's
                        timeout, with REQUEST_TIMED_OUT, and the writer goes on
    broker.diskless.P3  a batch that is refused here for a passing reason is made known to the
                        writer, so that later ones of its producer are not taken before it
                        (diskless.W4)

What this node knows of the bounds may be old; requests for an end offset call `refresh` first.

Not here: what the writer and the reader do (quipu.diskless), reads of the tier (tier_reads.py).
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable
from operator import itemgetter
from typing import Final
from uuid import UUID

from quipu.broker.diskless import appends, tier_reads
from quipu.broker.diskless.appends import DisklessAppend, EarlyAppends
from quipu.broker.diskless.services import DisklessServices
from quipu.broker.diskless.tier import DisklessTier
from quipu.broker.error_codes import code_of
from quipu.broker.partitions import batch_checks
from quipu.broker.partitions.fetch_waiters import FetchWaiters
from quipu.broker.partitions.partition_errors import OffsetNotAvailable
from quipu.diskless.errors import ControlPlaneUnavailable
from quipu.diskless.reading.reader import DisklessRead
from quipu.diskless.values import LEADER_EPOCH, Lineage, LogBounds, LogKey
from quipu.model.batch_rules import BatchRules, rules_of
from quipu.model.errors import (
    Code,
    ErrorKind,
    OffsetOutOfRange,
    QuipuError,
    RecordsInTier,
    RequestError,
)
from quipu.model.ids import NO_NODE, Epoch, LogOffset, NodeId, Offset, TopicPartition
from quipu.model.partition_log import (
    NO_OFFSET,
    NOTHING_TIERED,
    AppendResult,
    CheckedRecords,
    FetchWaiter,
    InternalRecords,
    PendingAppend,
    PendingRead,
    ProducerInfo,
    ReadResult,
    ReplicationStatus,
    RunLong,
    TimestampAndOffset,
)
from quipu.model.settings import TopicSettings
from quipu.wire.record_batch import parse_header

_UNKNOWN: Final = LogBounds(NO_OFFSET, NO_OFFSET, NO_OFFSET, 0)
ANY_SIZE: Final = 1 << 40  # bytes, that may be readable now: more than a fetch waits for
_NO_EPOCH: Final = Epoch(-1)


class DisklessPartition:
    """A partition of a diskless topic; implements `quipu.model.partition_log.PartitionLog`."""

    __slots__ = ("_appends", "_early", "_notified", "key", "lineage", "rules", "services",
                 "settings", "topic_id", "topic_partition", "waiters")

    def __init__(
        self, topic_partition: TopicPartition, topic_id: UUID, settings: TopicSettings,
        services: DisklessServices, *, epoch: int = LEADER_EPOCH,
    ) -> None:
        """`epoch`: the leader epoch, for ever (controller.D2)."""
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.key = LogKey(topic_id, topic_partition.partition)
        self.settings = settings
        self.rules: BatchRules = rules_of(settings)
        self.services = services
        # Leader epochs; of a partition that was on a chain, all of them when the log is known.
        self.lineage: Lineage = ((epoch, Offset(0)),)
        if epoch != LEADER_EPOCH:
            services.reader.epochs[self.key] = epoch
        self.waiters = FetchWaiters()
        self._early: EarlyAppends | None = EarlyAppends(self.key)  # until the log is known
        self._appends: appends.AppendQueue = {}  # whose outcome is awaited, oldest first
        self._notified = Offset(0)  # the high watermark that waiters know of

    def configure(self, settings: TopicSettings) -> None:
        """Use other settings from now on."""
        self.settings = settings
        self.rules = rules_of(settings)

    # -- whether the control plane knows the log

    @property
    def is_known(self) -> bool:
        """Whether the control plane knows the log, so that it can be written to and read."""
        return self._early is None

    def learn_lineage(self, lineage: Lineage | None) -> None:
        """Take over the leader epochs that the control plane knows, if they are this log's."""
        if lineage is not None and lineage[-1][0] == self.leader_epoch:
            self.lineage = lineage

    def became_known(self) -> None:
        """The control plane knows the log from now on."""
        if self._early is None:
            return
        early, self._early = self._early.take(), None
        self._release(early)
        appends.write(self.services.writer, self.key, early)
        self.waiters.advanced(ANY_SIZE)

    def fail_early(self, error: QuipuError) -> None:
        """The control plane could not be asked: refuse the batches that wait for it."""
        if self._early is not None:
            early = self._early.take(error)
            self._release(early)
            appends.fail(self.services.writer, self.key, early, error)

    def removed(self) -> None:
        """The topic is deleted."""
        self.fail_early(RequestError(f"{self.topic_partition}: the topic is deleted",
                                     code=Code.UNKNOWN_TOPIC_OR_PARTITION, kind=ErrorKind.REFRESH))
        self.services.reader.forget_log(self.key)
        self.wake_fetches()

    def _release(self, early: list[appends.EarlyAppend]) -> None:
        self.services.early_size -= sum(len(each.batch) for each in early)

    # -- bounds, as far as this node knows

    @property
    def failure(self) -> QuipuError | None:
        """None: what fails is a request, not the partition."""
        return None

    @property
    def bounds(self) -> LogBounds:
        """What this node knows; offsets of -1 if it knows nothing yet."""
        return self.services.reader.bounds(self.key) or _UNKNOWN

    @property
    def log_start_offset(self) -> Offset:
        return self.bounds.log_start_offset

    @property
    def local_start_offset(self) -> Offset:
        """The first offset that is not in the remote tier alone."""
        return self.bounds.diskless_start_offset

    @property
    def highest_tiered_offset(self) -> Offset:
        start = self.bounds.diskless_start_offset
        has_tier = self.settings.remote_storage_enable and start > 0
        return Offset(start - 1) if has_tier else NOTHING_TIERED

    @property
    def last_stable_offset(self) -> Offset:
        return self.bounds.high_watermark

    @property
    def high_watermark(self) -> Offset:
        return self.bounds.high_watermark

    @property
    def log_end_offset(self) -> Offset:
        """The high watermark: a record has an offset once it is committed."""
        return self.bounds.high_watermark

    @property
    def log_end(self) -> LogOffset:
        return LogOffset(self.bounds.high_watermark)

    @property
    def committed_end(self) -> LogOffset:
        return LogOffset(self.bounds.high_watermark)

    async def refresh(self) -> None:
        """Learn the bounds from the control plane; they are not older than the call then."""
        if self._early is not None:
            await self._early.known()
        await self.services.refreshes.refresh(self.key)

    # -- leadership: every node leads

    @property
    def is_diskless(self) -> bool:
        return True

    @property
    def leader_epoch(self) -> Epoch:
        return Epoch(self.lineage[-1][0])

    @property
    def is_leader(self) -> bool:
        return True

    @property
    def has_lease(self) -> bool:
        return True

    @property
    def is_active_leader(self) -> bool:
        return True

    def check_leader(self) -> None:
        """Return: every node takes writes."""

    @property
    def is_sole_replica(self) -> bool:
        """Consumers are served here; an end that another node has shown is asked for."""
        return True

    @property
    def is_readable(self) -> bool:
        return True

    def why_unreadable(self, *, dirty: bool = False) -> QuipuError | None:
        del dirty
        return None

    @property
    def preferred_read_replica(self) -> NodeId:
        return NO_NODE

    def replication_status(self) -> ReplicationStatus | None:
        """None: there are no replicas."""
        return None

    # -- appending

    def append(
        self, batch: memoryview, now_ms: int, acks: int, timeout_ms: int,
        checked: CheckedRecords | QuipuError | None = None,
    ) -> AppendResult | PendingAppend:
        """Check a batch, and give it to the writer (broker.diskless.P1, broker.diskless.P2)."""
        if isinstance(checked, QuipuError):
            if checked.kind is not ErrorKind.INVALID:  # broker.diskless.P3
                self.services.writer.note_refused(self.key, parse_header(batch))
            raise checked
        rules, services = self.rules, self.services
        header = batch_checks.check(batch, rules, now_ms, self.topic_partition, checked)
        pending = DisklessAppend(
            self.topic_partition, header, now_ms if rules.append_time else -1)
        if self._early is None:
            services.writer.append(self.key, batch, header, pending.complete)
        else:
            try:
                services.early_size += self._early.add(batch, header, pending, services.early_size)
            except QuipuError:
                services.writer.note_refused(self.key, header)  # broker.diskless.P3
                raise
        if acks != 0:  # nobody waits for the outcome otherwise
            pending.end_by(services.deadlines, timeout_ms, self._appends)
        return pending

    # -- reading

    def read(
        self, offset: Offset, max_bytes: int, *, min_one: bool, dirty: bool = False
    ) -> ReadResult | PendingRead:
        """Read batches from the one that holds `offset` on; there are no uncommitted ones."""
        del dirty
        if self._early is not None:
            return ReadResult(Code.OFFSET_NOT_AVAILABLE)
        if max_bytes <= 0 and not min_one:  # nothing has to be fetched for that (model.P5)
            bounds = self.services.reader.bounds(self.key)
            if bounds is not None and bounds.log_start_offset <= offset <= bounds.high_watermark:
                return _result(0, bounds)
        try:
            found = self.services.reader.read(self.key, offset, max_bytes, min_one=min_one)
        except RecordsInTier:
            return tier_reads.read(self, offset, max_bytes, min_one=min_one)
        except OffsetOutOfRange:
            return _result(Code.OFFSET_OUT_OF_RANGE, self.bounds)
        except QuipuError as error:
            return ReadResult(code_of(error))
        if not isinstance(found, DisklessRead):
            return found
        bounds, buffers, size = found
        end = bounds.high_watermark
        return ReadResult(0, end, end, bounds.log_start_offset, buffers, size)

    def add_waiter(self, waiter: FetchWaiter) -> None:
        """Notify `waiter` of every advance, until `remove_waiter` (model.P7)."""
        self.waiters.waiting[waiter] = None

    def remove_waiter(self, waiter: FetchWaiter) -> None:
        """Notify `waiter` no more."""
        self.waiters.waiting.pop(waiter, None)

    def wake_fetches(self) -> None:
        """Let every waiting fetch read again."""
        self.waiters.advanced(0)

    def advanced(self) -> None:
        """Notify the waiting fetches that the high watermark has grown (model.P7).

        How many bytes that is, is known for the log as a whole only: its average is taken.
        """
        _, start, end, size = self.bounds
        grown, self._notified = end - self._notified, end
        if self.waiters.waiting and grown > 0:
            self.waiters.advanced(grown * max(1, size // max(1, end - start)))

    # -- looking up

    async def find_timestamp(
        self, timestamp_ms: int, run_long: RunLong
    ) -> TimestampAndOffset | None:
        """The first record whose timestamp is not before `timestamp_ms`."""
        await self.refresh()
        return await tier_reads.find_timestamp(self, timestamp_ms, run_long)

    async def find_max_timestamp(self, run_long: RunLong) -> TimestampAndOffset | None:
        """The first of the records with the largest timestamp."""
        await self.refresh()
        return await tier_reads.find_max_timestamp(self, run_long)

    def epoch_end(self, epoch: Epoch) -> tuple[Epoch, Offset]:
        """The last epoch at or before `epoch`, and where it ended; (-1, -1) if none is known."""
        if self._early is not None and epoch != self.leader_epoch != LEADER_EPOCH:
            raise OffsetNotAvailable(f"{self.topic_partition}: its earlier leader epochs are not "
                                     "known yet; try again")
        index = bisect_right(self.lineage, epoch, key=itemgetter(0))
        if index == 0 or epoch > self.leader_epoch:
            return _NO_EPOCH, NO_OFFSET
        end = self.lineage[index][1] if index < len(self.lineage) else self.high_watermark
        return Epoch(self.lineage[index - 1][0]), end

    async def producers(self) -> list[ProducerInfo]:
        """The idempotent producers that the control plane remembers."""
        return [ProducerInfo(*each) for each in await self.services.plane.producers(self.key)]

    # -- sizes

    @property
    def size_bytes(self) -> int:
        """0: this node's disk has nothing of it."""
        return 0

    @property
    def object_bytes(self) -> int:
        """Bytes of its batches in objects, as far as this node knows."""
        return self.bounds.size

    @property
    def offset_lag(self) -> int:
        return 0

    # -- deleting

    def delete_records(
        self, before: Offset, now_ms: int, *, timeout_ms: int,
        done: Callable[[Offset | QuipuError], None],
    ) -> None:
        """Move the log start to `before`, or to the high watermark for -1."""
        self.services.spawn(self._delete_records(before, now_ms, timeout_ms, done),
                            f"delete records of {self.topic_partition}")

    async def _delete_records(
        self, before: Offset, now_ms: int, timeout_ms: int,
        done: Callable[[Offset | QuipuError], None],
    ) -> None:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                bounds = await self.services.plane.delete_records(self.key, before, now_ms)
        except QuipuError as error:
            done(error)
            return
        except TimeoutError:
            done(RequestError(f"{self.topic_partition}: the control plane did not respond in time",
                              code=Code.REQUEST_TIMED_OUT, kind=ErrorKind.RETRY))
            return
        except BaseException:
            done(ControlPlaneUnavailable(f"{self.topic_partition}: the node stops"))
            raise
        if bounds is None:
            done(RequestError(f"{self.topic_partition} does not exist",
                              code=Code.UNKNOWN_TOPIC_OR_PARTITION, kind=ErrorKind.REFRESH))
            return
        self.services.reader.learn_bounds(self.key, bounds)
        if before > bounds.high_watermark:
            done(OffsetOutOfRange(str(self.topic_partition), before, bounds.log_start_offset,
                                  bounds.high_watermark))
        else:
            done(bounds.log_start_offset)

    def apply_retention(self, now_ms: int) -> int:
        """Do nothing: retention is applied in the control plane, by one node for all."""
        del now_ms
        return 0

    @property
    def tier(self) -> DisklessTier:
        """What the partition offers to a remote tier."""
        return DisklessTier(self)

    # -- commitment: what has an offset is committed

    def when_committed(
        self, log_end: LogOffset, done: Callable[[Exception | None], None],
        *, timeout_ms: int | None = None,
    ) -> None:
        del log_end, timeout_ms
        done(None)

    async def committed(self, log_end: LogOffset, *, timeout_ms: int | None = None) -> None:
        """Return: everything with an offset is committed."""
        del log_end, timeout_ms

    async def flush(self) -> None:
        """Return once everything that was appended here is stored and committed, or refused."""
        await self.services.writer.flush()

    @property
    def internal(self) -> InternalRecords:
        raise AssertionError(f"{self.topic_partition}: a diskless log has no internal records")


def _result(code: int, bounds: LogBounds) -> ReadResult:
    end = bounds.high_watermark
    return ReadResult(code, end, end, bounds.log_start_offset)

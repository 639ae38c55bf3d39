"""One partition: its storage log, its role in the chain, and the requests that wait for it.

Invariants
    broker.partitions.P1  a batch is checked before it is appended, so every stored batch may be
                          given to clients
    broker.partitions.P2  clients get no record at or above the high watermark
    broker.partitions.P3  only the head of the chain appends, while it leads and holds its lease
    broker.partitions.P4  `is_sole_replica` means that this node leads, and that no other node is
                          sent anything.  Then the commit point is that of the log, and appends are
                          not given to the replication core
    broker.partitions.P5  an idempotent batch that skips sequences is appended, or refused as out of
                          order, only if no earlier batch can have been refused here
                          (sequence_guard.py)
    broker.partitions.P6  clients get the commit point of an epoch only after its configuration is
                          committed; so it is not below one that they got in an earlier epoch
    broker.partitions.P7  only a node that holds its lease responds that there are no newer records,
                          or that an offset above its own end is out of range

Not here: which nodes are in the chain and which records they have (replication/).
"""

from collections.abc import Callable
from uuid import UUID

from quipu.broker.error_codes import code_of
from quipu.broker.partitions import acknowledgements, batch_checks, removal, tiered_reads
from quipu.broker.partitions.acknowledgements import Done, UnacknowledgedAppend
from quipu.broker.partitions.chain_driver import ChainDriver, status_of
from quipu.broker.partitions.commit_waiters import FOREVER, CommitWaiters
from quipu.broker.partitions.disk_errors import DiskErrorLog
from quipu.broker.partitions.fetch_waiters import FetchWaiters
from quipu.broker.partitions.internal_records import PartitionInternalRecords
from quipu.broker.partitions.lease import ALWAYS, Lease
from quipu.broker.partitions.min_insync import why_too_few
from quipu.broker.partitions.partition_errors import NotLeader, OffsetNotAvailable
from quipu.broker.partitions.partition_tier import PartitionTier
from quipu.broker.partitions.sealing import NoteRefused, check_open
from quipu.broker.partitions.sequence_guard import SequenceGuard
from quipu.controller.internal_topics import refuse
from quipu.model.batch_rules import BatchRules
from quipu.model.chains import ReplicaSet
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
    ACKS_ALL,
    NOTHING_TIERED,
    AppendResult,
    CheckedRecords,
    FetchWaiter,
    PendingAppend,
    PendingRead,
    ProducerInfo,
    ReadResult,
    ReplicationStatus,
    RunLong,
    TimestampAndOffset,
)
from quipu.model.tiered_log import RemoteReads
from quipu.model.topics import is_internal
from quipu.runtime.disks.disk import DiskError
from quipu.storage.appended import NO_LOG_OFFSET
from quipu.storage.log import AppendedBatch, Log, LogConfig
from quipu.storage.repeats import find_repeat
from quipu.wire.record_batch import BatchHeader


class ReplicatedPartition:
    """A partition that this node is a replica of."""

    is_diskless, object_bytes = False, 0
    __slots__ = (
        "_acks_wait", "_began_with", "_disk_errors", "_epoch_log", "_gate", "_guard",
        "_is_internal", "_lease", "chain", "commit_waiters", "is_epoch_start_due", "is_leader",
        "is_readable", "is_sealed", "is_serving", "is_sole_replica", "leader_epoch", "log",
        "note_refused", "remote_reads", "replica_set", "rules", "shortages", "topic_id",
        "topic_partition", "waiters",
    )

    def __init__(
        self, topic_partition: TopicPartition, topic_id: UUID, log: Log, rules: BatchRules,
        lease: Lease = ALWAYS, *, remote_reads: RemoteReads | None = None,
    ) -> None:
        self.topic_partition, self.topic_id = topic_partition, topic_id
        self.log, self.rules = log, rules
        self.remote_reads = remote_reads
        self.note_refused: NoteRefused | None = None  # broker.partitions.S1
        self.chain: ChainDriver | None = None
        self.commit_waiters = CommitWaiters()
        self.replica_set: ReplicaSet | None = None
        self.leader_epoch = Epoch(0)
        self.is_serving = False  # whether clients may read committed records here
        self.is_leader = False  # whether this node may append
        self.is_sealed = False  # whether it takes no batches of clients (sealing.py)
        self.is_sole_replica = False  # broker.partitions.P4
        self.is_epoch_start_due = False  # whether the first append must begin the epoch
        self.is_readable = False  # is the configuration committed (broker.partitions.P6)?
        self._is_internal = is_internal(topic_partition.topic)
        self._acks_wait = True  # whether an append may have to wait to complete
        self._began_with: ReplicaSet | None = None  # the first replica set of the epoch
        self._lease = lease
        self._guard = SequenceGuard(lease.monotonic)
        self._gate = True  # whether `_admit` must be called for each append
        self.shortages: tuple[str | None, str | None] = None, None  # for acks=all, other acks
        self.waiters = FetchWaiters()
        self._disk_errors = DiskErrorLog(topic_partition)
        self._epoch_log = LogOffset(0)  # where the epoch's configuration is, while this node serves

    def configure(self, config: LogConfig, rules: BatchRules) -> None:
        """Use other settings from now on."""
        self.log.configure(config)
        self.rules = rules
        self._update_gate()

    @property
    def failure(self) -> QuipuError | None:
        """The error of the log, if it has failed."""
        return self.log.failure

    # -- bounds

    @property
    def log_start_offset(self) -> Offset:
        return self.log.log_start_offset

    @property
    def local_start_offset(self) -> Offset:
        return self.log.local_start_offset

    @property
    def highest_tiered_offset(self) -> Offset:
        """The last offset of which the remote tier has a copy; -1 if there is no tier."""
        return self.log.tiered.offset if self.log.config.is_tiered else NOTHING_TIERED

    @property
    def tier(self) -> PartitionTier:
        """What the partition offers to a remote tier."""
        return PartitionTier(self)

    @property
    def last_stable_offset(self) -> Offset:
        """The high watermark: there are no transactions."""
        return self.high_watermark

    @property
    def high_watermark(self) -> Offset:
        """Consumers are given records below this (broker.partitions.P2)."""
        return self.log.high_watermark if self.is_sole_replica else self.commit_waiters.committed

    @property
    def log_end_offset(self) -> Offset:
        return self.log.end_offset

    @property
    def log_end(self) -> LogOffset:
        return self.log.log_end

    @property
    def committed_end(self) -> LogOffset:
        """The high watermark as a log offset, which also counts internal batches."""
        if not self.is_sole_replica:
            return self.commit_waiters.committed_log
        return self.log.flusher.flushed_log if self.log.is_durable else self.log.log_end

    @property
    def size_bytes(self) -> int:
        return self.log.size_bytes

    @property
    def offset_lag(self) -> int:
        return max(0, self.high_watermark - self.log.end_offset)

    # -- this node's role in the chain, set by the chain driver

    def set_role(
        self, replica_set: ReplicaSet, *, serving: bool, leading: bool, sole: bool,
        epoch_start_due: bool = False,
    ) -> None:
        """Take the role that this node has in `replica_set`: serving, leading, the sole replica.

        With `epoch_start_due` the chain's core must begin the epoch before the first append.
        """
        assert serving or not leading
        assert leading or not sole
        was_serving, was_sole = self.is_serving, self.is_sole_replica
        if was_sole and not sole:
            self._take_committed_from_log()
        if leading and not (self.is_leader and replica_set.epoch == self.leader_epoch) and not (
                sole and self._lease.is_endless):
            self._guard.refused()  # until now this node has refused all batches
        self.replica_set, self.leader_epoch = replica_set, replica_set.epoch
        self.is_serving, self.is_leader, self.is_sole_replica = serving, leading, sole
        self.is_sealed = replica_set.is_sealed
        self.is_epoch_start_due = epoch_start_due
        if serving and not sole:
            self._epoch_log = self.log.epochs.by_log_offset()[-1][1]
        self.is_readable = sole or (serving and self.commit_waiters.committed_log > self._epoch_log)
        self._update_gate()
        if (was_serving and not serving) or (sole and not was_sole):
            self.wake_fetches()

    def announce_replicas(self, replica_set: ReplicaSet) -> None:
        """Fail waiting acks=all requests at once if the set is below min.insync.replicas."""
        if self._began_with is None or replica_set.epoch > self._began_with.epoch:
            self._began_with = replica_set
            if self.replica_set is not None:
                self._update_gate()
        if len(self.commit_waiters) and (why := self._too_few(replica_set, ACKS_ALL)):
            self._guard.refused()
            self.commit_waiters.fail(RequestError(why, code=Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                                           kind=ErrorKind.RETRY))

    def advance_committed(self, committed_log: LogOffset, committed: Offset) -> None:
        """Move the commit point, and notify the appends and fetches that wait for it."""
        before, end = self.commit_waiters.committed, self.log.end_offset
        if committed_log < self.commit_waiters.committed_log or committed < before:
            return  # what the sole replica committed stays committed
        self.commit_waiters.advance(committed_log, committed)
        if not self.is_readable and self.is_serving and committed_log > self._epoch_log:
            self.is_readable = True
            self.wake_fetches()
        if committed > before and not self.is_sole_replica:
            self.waiters.committed(before, committed, end)

    def fail_waiting_appends(self) -> None:
        """Fail appends that wait for other nodes: the next leader may or may not have them."""
        if len(self.commit_waiters):
            self._guard.refused()
            self.commit_waiters.fail(
                NotLeader(f"{self.topic_partition}: this node leads it no longer"))

    def check_waits(self) -> None:
        """Fail appends that wait past their timeouts, or all if this node's lease has run out."""
        if len(self.commit_waiters) and self.commit_waiters.expire(self._lease.monotonic()):
            self._guard.refused()
        if len(self.commit_waiters) and not self._lease.holds():
            self.fail_waiting_appends()

    def note_received(self, size: int) -> None:
        """Count an entry of `size` bytes that was received from the predecessor."""
        self.waiters.unread_size += size

    def _take_committed_from_log(self) -> None:
        """Take the log's commit point: from now on it depends on other nodes too."""
        log = self.log
        end = (log.flusher.flushed_log, log.flusher.flushed_offset) if log.is_durable else (
            log.log_end, log.end_offset)
        if end[0] > self.commit_waiters.committed_log and end[1] >= self.commit_waiters.committed:
            self.commit_waiters.advance(*end)

    def _update_gate(self) -> None:
        """Compute in advance whether appends may wait, and whether `_admit` must be called."""
        self._acks_wait = self.log.is_durable or not self.is_sole_replica
        replica_set = self.replica_set
        self.shortages = (None, None) if replica_set is None else (
            self._too_few(replica_set, ACKS_ALL), self._too_few(replica_set, 1))
        self._gate = not (
            self.is_sole_replica and not self.is_epoch_start_due and self._lease.is_endless
            and self.shortages[0] is None and not self._is_internal and not self.is_sealed)

    # -- appending

    def _too_few(self, replica_set: ReplicaSet, acks: int) -> str | None:
        return why_too_few(self.topic_partition, self.rules.min_insync_replicas, replica_set,
                           self._began_with, acks)

    def _admit(self, acks: int) -> None:
        """Raise unless this node may append now (broker.partitions.P3)."""
        if self.log.failure is not None:
            raise self.log.failure
        if not self.is_leader:
            raise NotLeader(f"{self.topic_partition}: this node does not lead it")
        if not self._lease.holds():
            raise NotLeader(f"{self.topic_partition}: this node has had no response from the "
                            "controller for too long to lead")
        why = self.shortages[acks != ACKS_ALL]
        if why is not None:
            raise RequestError(why, code=Code.NOT_ENOUGH_REPLICAS, kind=ErrorKind.RETRY)
        if self.is_epoch_start_due:
            assert self.chain is not None
            self.chain.begin_epoch()
            self.is_epoch_start_due = False
            self._update_gate()

    def append(
        self, batch: memoryview, now_ms: int, acks: int, timeout_ms: int,
        checked: CheckedRecords | QuipuError | None = None,
    ) -> AppendResult | PendingAppend:
        """Append one batch of a producer, which is changed in place."""
        # model.P1, model.P2, model.P3
        if isinstance(checked, QuipuError):
            raise self._refused(checked)
        if self._gate:
            if self._is_internal:
                refuse(self.topic_partition.topic, "written to by clients")
            try:
                check_open(self, batch)
                self._admit(acks)
            except QuipuError:
                self._guard.refused()
                raise
        rules, log = self.rules, self.log  # broker.partitions.P1
        header = batch_checks.check(batch, rules, now_ms, self.topic_partition, checked)
        if self._guard.is_on and header.producer_id >= 0 and self._guard.forbids(
                header, log.producers):  # broker.partitions.P5
            raise NotLeader(
                f"{self.topic_partition}: sequence {header.base_sequence} of producer "
                f"{header.producer_id} came before others that were refused a moment ago: send "
                "again what is not acknowledged, in order")
        try:
            appended = log.append(batch, header, epoch=self.leader_epoch, now_ms=now_ms)
        except QuipuError as error:
            appended = self._not_appended(error, header, now_ms)
        result = AppendResult(
            appended.base_offset, appended.last_offset, log.log_start_offset,
            now_ms if rules.append_time else -1, appended.duplicate)
        if not self.is_sole_replica:
            assert self.chain is not None
            self.waiters.unread_size += len(batch)
            self.chain.appended_batch(appended, batch)
        elif not self._acks_wait:
            if self.waiters.waiting:
                self.waiters.advanced(len(batch))
            return result
        if acks != ACKS_ALL and not log.is_durable:
            return result
        return UnacknowledgedAppend(self, result, len(batch), acks=acks, timeout_ms=timeout_ms)

    def _not_appended(self, error: QuipuError, header: BatchHeader, now_ms: int) -> AppendedBatch:
        """The earlier append of the same batch, if its response may have been lost; else raise."""
        if error.code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER and self._guard.is_on and (
                found := find_repeat(self.log, header)) is not None:
            return AppendedBatch(found, Offset(found + header.last_offset_delta), NO_LOG_OFFSET,
                                 duplicate=True)
        if isinstance(error, DiskError):
            self._disk_errors.note(error, now_ms)
        raise self._refused(error)

    def _refused(self, error: QuipuError) -> QuipuError:
        """Note that a batch is refused, if `error` is passing (broker.partitions.P5)."""
        if error.kind is not ErrorKind.INVALID:
            self._guard.refused()
        return error

    @property
    def internal(self) -> PartitionInternalRecords:
        """The cluster's own records in this log."""
        return PartitionInternalRecords(self)

    def admit_internal(self) -> None:
        """Raise unless this node may append internal records now."""
        # broker.partitions.P3
        if self._gate:
            self._admit(ACKS_ALL)

    def appended_internal(self) -> None:
        """Replicate internal records that were appended."""
        if not self.is_sole_replica:
            assert self.chain is not None
            self.chain.appended()

    # -- waiting until appends are committed

    def when_committed(
        self, log_end: LogOffset, done: Done, *, timeout_ms: int | None = None
    ) -> None:
        acknowledgements.when_committed(self, log_end, done, timeout_ms)

    async def committed(self, log_end: LogOffset, *, timeout_ms: int | None = None) -> None:
        await acknowledgements.committed(self, log_end, timeout_ms)

    async def flush(self) -> None:
        await self.log.flusher.flush()

    async def refresh(self) -> None:
        """Do nothing: this node's log is what there is to know."""

    def deadline(self, timeout_ms: int | None) -> float:
        """When a wait that begins now is over, in the clock's monotonic seconds."""
        return FOREVER if timeout_ms is None else self._lease.monotonic() + timeout_ms / 1000

    # -- reading

    def read(
        self, offset: Offset, max_bytes: int, *, min_one: bool, dirty: bool = False
    ) -> ReadResult | PendingRead:
        """Read batches from the one that holds `offset` on; at once, if this node has it."""
        log = self.log
        if log.failure is not None:
            return ReadResult(code_of(log.failure))
        if dirty:
            end = log.end_offset
        elif self.is_sole_replica:
            end = log.flusher.flushed_offset if log.is_durable else log.end_offset
        else:
            end = self.commit_waiters.committed
        if offset == end:  # as for consumers that have read everything
            if not (self.is_sole_replica or dirty or self._lease.holds()):
                return ReadResult(Code.NOT_LEADER_OR_FOLLOWER)  # broker.partitions.P7
            return ReadResult(0, end, end, log.log_start_offset)
        try:
            buffers = log.read(offset, max_bytes, end=end, min_one=min_one)
        except RecordsInTier:
            return tiered_reads.read(self, offset, max_bytes, min_one=min_one, end=end)
        except OffsetOutOfRange:
            if offset > end and not (self.is_sole_replica or dirty or self._lease.holds()):
                return ReadResult(Code.NOT_LEADER_OR_FOLLOWER)  # other nodes may have more records
            return ReadResult(Code.OFFSET_OUT_OF_RANGE, end, end, log.log_start_offset)
        except QuipuError as error:
            return ReadResult(code_of(error))
        return ReadResult(
            0, end, end, log.log_start_offset, buffers,
            len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers)))

    def why_unreadable(self, *, dirty: bool = False) -> QuipuError | None:
        """The error if records cannot be read here; a dirty read needs only a log that works."""
        if (failure := self.log.failure) is not None:
            return failure
        if self.is_readable or dirty:
            return None
        if self.is_serving:  # broker.partitions.P6
            return OffsetNotAvailable(f"{self.topic_partition}: its epoch is not committed yet")
        return NotLeader(f"{self.topic_partition}: this node does not serve it")

    async def find_timestamp(
        self, timestamp_ms: int, run_long: RunLong
    ) -> TimestampAndOffset | None:
        """The first record whose timestamp is not before `timestamp_ms`."""
        return await tiered_reads.find_timestamp(self, timestamp_ms, run_long)

    async def find_max_timestamp(self, run_long: RunLong) -> TimestampAndOffset | None:
        """The first of the records with the largest timestamp."""
        return await tiered_reads.find_max_timestamp(self, run_long)

    def epoch_end(self, epoch: Epoch) -> tuple[Epoch, Offset]:
        """The last epoch at or before `epoch` and where it ended; (-1, -1) if none is known."""
        return self.log.epoch_end(epoch)

    async def producers(self) -> list[ProducerInfo]:
        return self.log.producers.infos()

    # -- leadership

    @property
    def preferred_read_replica(self) -> NodeId:
        """The tail of the chain, which is the first to know that a record is committed."""
        return NO_NODE if self.replica_set is None else self.replica_set.tail

    def replication_status(self) -> ReplicationStatus | None:
        """This node's role and lag; None before it was given a role."""
        return status_of(self)

    def check_leader(self) -> None:
        """Raise unless this node leads and holds its lease."""
        if (failed := self.failure) is not None:
            raise failed
        if not self.is_active_leader:
            raise NotLeader(f"{self.topic_partition}: this node does not lead it")

    @property
    def is_active_leader(self) -> bool:
        """Does this node lead, and does its lease last?"""
        return self.is_leader and self._lease.holds()

    @property
    def has_lease(self) -> bool:  # broker.partitions.P7
        return self._lease.holds()

    # -- removing records

    def delete_records(
        self, before: Offset, now_ms: int, *, timeout_ms: int,
        done: Callable[[Offset | QuipuError], None],
    ) -> None:
        """Move the log start offset, to the high watermark for -1; `done` once it is committed."""
        removal.delete_records(self, before, now_ms, timeout_ms=timeout_ms, done=done)

    def apply_retention(self, now_ms: int) -> int:
        """Remove old segments; returns how many.  Only the leader may roll a segment for that."""
        return removal.apply_retention(self, now_ms)

    # -- fetches that wait

    def add_waiter(self, waiter: FetchWaiter) -> None:
        """Notify `waiter` of every advance, until `remove_waiter` (model.P7)."""
        self.waiters.waiting[waiter] = None

    def remove_waiter(self, waiter: FetchWaiter) -> None:
        """Notify `waiter` no more."""
        self.waiters.waiting.pop(waiter, None)

    def wake_fetches(self) -> None:
        """Let every waiting fetch read again: the partition failed, moved or was deleted."""
        self.waiters.advanced(0)

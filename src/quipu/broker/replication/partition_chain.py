"""Drives the replication core of one partition: gives it events, carries out its effects.

Invariants
    broker.replication.R1  the effects of one event are carried out, in order, before the next event
                           is handled; if one fails, the rest of them are dropped, and the core
                           notices from the log's end and tries again
    broker.replication.R2  entries are appended from the buffer that they came in, and sent from
                           there, or read from the log when they are sent: no record is decoded, and
                           no batch copied.  Only the head copies its clients' batches, and at most
                           RECENT_SIZE_MAX bytes in a turn (recent_entries.py)
    broker.replication.R3  the partition gets its role (serving, leading, sole replica) after every
                           event that can change it, and the commit points in the order in which the
                           core found them
    broker.replication.R4  after its log was opened again, a core is created only for a later
                           version of the replica set than the one before

A partition without other replicas has no core until something is appended, so that a start with ten
thousand of them is cheap.  Such a core does not get every append either; it reads the end of the
log when other replicas join.

Not here: which event is for which partition, and when it is handled (replication.py).
"""

import logging
from collections import deque
from typing import TYPE_CHECKING, Final, assert_never
from uuid import UUID

from quipu.broker.partitions.partition_errors import Halted, NotLeader
from quipu.broker.partitions.replicated_partition import ReplicatedPartition
from quipu.broker.replication.configuration import configuration_record
from quipu.broker.replication.log_view import StoredLog
from quipu.broker.replication.recent_entries import AT_ONCE_SIZE_MIN, RecentEntries
from quipu.chain.codec import encode, encode_entries
from quipu.chain.effects import (
    AdvanceCommitted,
    Append,
    AppendConfiguration,
    ConfirmEpoch,
    Effect,
    Halt,
    ReportInSync,
    Restart,
    SendEntries,
    SendMessage,
    SetServing,
    TruncateTo,
    WarnEpochIgnored,
)
from quipu.chain.events import (
    FLUSHED,
    LOG_CHANGED,
    TICK,
    Configured,
    Drained,
    EntriesSent,
    Event,
    SendRefused,
)
from quipu.chain.messages import BEGIN, ENTRIES_MAX, Ack, Mark, Message
from quipu.chain.replica import Replica
from quipu.model.batch_types import CONFIGURATION
from quipu.model.chains import MemberState, ReplicaSet
from quipu.model.errors import QuipuError
from quipu.model.ids import LogOffset, NodeId
from quipu.runtime.disks.disk import TransientDiskError
from quipu.storage.log import AppendedBatch, Log, LogEntry

if TYPE_CHECKING:
    from quipu.broker.replication.replication import ChainReplication

STEPS_MAX: Final = 100_000  # steps of one event; more must be an endless loop

_log = logging.getLogger(__name__)


class PartitionChain:
    """Drives the core of one partition on one node."""

    __slots__ = (
        "_flush_awaited", "_held_ack", "_is_role_current", "_is_running", "_logged_failure",
        "_node", "_queue", "_recent", "_reopened_version", "_reported_failure",
        "_serving_reported", "_session", "key", "partition", "replica", "replica_set",
    )

    def __init__(self, node: "ChainReplication", partition: ReplicatedPartition) -> None:
        self._node = node
        self.partition = partition
        self.replica: Replica | None = None
        self.replica_set: ReplicaSet | None = None
        self.key = (partition.topic_id.bytes, partition.topic_partition.partition)
        self._queue: deque[Event] = deque()
        self._recent = RecentEntries()
        self._is_running = False
        self._flush_awaited = False
        self._is_role_current = True  # whether the partition has the role that the core has
        self._logged_failure = ""  # the last failure of an effect
        self._reported_failure: QuipuError | None = None  # of the log, reported last
        self._serving_reported = -1  # the last version that was reported as serving
        self._held_ack: tuple[NodeId, Ack] | None = None  # the last one (throttling.py)
        self._session = 0  # the last session of the core before this one
        self._reopened_version = -1  # broker.replication.R4: when the log was opened again

    # -- configurations, appends, ticks

    def configure(self, replica_set: ReplicaSet) -> None:
        """Use `replica_set` from now on; one that is older than the current one is ignored."""
        known = self.replica_set
        if known is not None and (replica_set.epoch, replica_set.version) < (
                known.epoch, known.version):
            return
        if self.partition.log.failure is not None:
            self.replica_set = replica_set
            self._leave_service(replica_set)
            return
        self.replica_set = replica_set
        if replica_set.version <= self._reopened_version:
            return  # broker.replication.R4
        self.partition.announce_replicas(replica_set)
        if self.replica is None and self._is_alone(replica_set):
            self.partition.set_role(
                replica_set, serving=True, leading=True, sole=True, epoch_start_due=True)
            self._node.role_changed(self)
            return
        self._configure_core(replica_set)

    def _configure_core(self, replica_set: ReplicaSet) -> None:
        """Give `replica_set` to the core, after the appends that it was not given."""
        if self.replica is not None:
            self.handle(LOG_CHANGED)  # as the sole replica, it was not given every append
        elif not self._create_core():
            return
        self._is_role_current = False
        self.handle(Configured(replica_set))

    def begin_epoch(self) -> None:
        """Begin the epoch in the log, before the first append of the sole replica."""
        assert self.replica_set is not None
        self._configure_core(self.replica_set)
        if not self.partition.is_leader:
            raise self.partition.failure or NotLeader(
                f"{self.partition.topic_partition}: this node cannot lead it yet")

    def appended(self) -> None:
        """Give the core a `LogChanged` at the end of this turn: the head has appended."""
        self._node.schedule_turn(self)

    def appended_batch(self, appended: AppendedBatch, batch: memoryview) -> None:
        """As `appended`, for a batch that may be sent from memory (broker.replication.M3)."""
        node = self._node
        if not appended.duplicate:
            prefix, turn_buffer = appended.prefix, node.turn_buffer
            copied_end = turn_buffer.add(prefix, batch)
            if copied_end:
                self._recent.copied(appended.log_offset, self.partition.log.log_end, turn_buffer,
                                   copied_end, len(prefix) + len(batch))
        node.schedule_turn(self)

    def tick(self) -> None:
        """Let the core repeat messages that may be lost, and fail appends after their timeouts."""
        self.handle(TICK)
        failure = self.partition.log.failure
        if failure is not None and failure is not self._reported_failure and (
                self.replica_set is not None):
            self._leave_service(self.replica_set)  # it failed elsewhere, as in a flush
        self.partition.check_waits()

    @property
    def is_head(self) -> bool:
        """Whether this node leads, or will once it has recovered."""
        partition, replica_set = self.partition, self.replica_set
        return (replica_set is not None and replica_set.head == self._node.node_id
                and partition.failure is None)

    @property
    def is_quiet(self) -> bool:
        """Whether ticks may be left out."""
        if self.replica is None or self.partition.is_sole_replica:
            return True
        return self.replica.is_quiet and not len(self.partition.commit_waiters)

    def _is_alone(self, replica_set: ReplicaSet) -> bool:
        return replica_set.path == (self._node.node_id,) and (
            replica_set.state_of(self._node.node_id) is MemberState.SERVING)

    def _create_core(self) -> bool:
        """Create the core, now that it is needed; return False if the log cannot be used."""
        log = self.partition.log
        try:
            view = StoredLog(log)
            log_offset = min(log.committed_log, log.log_end)
            offset = log.offset_at(log_offset)
        except QuipuError as error:
            self._effect_failed(error)
            return False
        committed = Mark(log_offset, offset) if offset is not None else BEGIN
        self.replica = Replica(
            self._node.node_id, view, committed=committed, broker_epoch=self._node.broker_epoch,
            window_size=self._node.window_size, session=self._session)
        self.partition.advance_committed(*self.replica.committed)
        return True

    # -- a log that has failed

    @property
    def partition_key(self) -> tuple[UUID, int]:
        return self.partition.topic_id, self.key[1]

    def report_failure(self) -> None:
        """Report to the controller that the log has failed; may be repeated."""
        why = self.partition.log.failure
        if why is not None:
            self._node.reporter.report_failure(*self.partition_key, str(why))

    def log_reopened(self, log: Log) -> None:
        """Use `log` instead of the one that has failed; it may have failed as well."""
        if self.replica is not None:
            self._session = self.replica.session
        self.partition.log = log
        self.replica, self._flush_awaited, self._logged_failure = None, False, ""
        self._recent.forget()
        if log.failure is None and self.replica_set is not None:
            self._reopened_version = self.replica_set.version
            self._node.reporter.report_repair(*self.partition_key)

    # -- events and effects

    def handle(self, event: Event) -> None:
        """Have the core handle `event`, and carry out its effects (broker.replication.R1)."""
        replica = self.replica
        if replica is None or self.partition.log.failure is not None:
            return
        if self._is_running:
            self._queue.append(event)  # caused by an effect: handled next
            return
        self._is_running = True
        try:
            self._run(replica, event)
        except Exception as error:  # noqa: BLE001 a bug in one partition must not stop the others
            _log.exception("%s: the chain's core failed", self.partition.topic_partition)
            self._halt(f"a bug: {error!r}")
        finally:
            self._is_running = False
            self._queue.clear()
            if self._recent.is_lent:
                self._recent.forget()
        if not self._is_role_current:
            self._update_role()
        self._node.needs_ticks(self)

    def _run(self, replica: Replica, event: Event) -> None:
        queue, has_failed = self._queue, False
        for _ in range(STEPS_MAX):
            log_changed = False
            try:
                for effect in replica.handle(event):
                    if self._carry_out(effect):
                        log_changed = True
            except QuipuError as error:
                self._effect_failed(error)
                # Some effects may be done, and the rest of the message still counts.
                log_changed, has_failed = not has_failed, True
            if self.partition.log.failure is not None:
                return
            if log_changed:
                event = LOG_CHANGED
            elif queue:
                event = queue.popleft()
            else:
                return
        raise AssertionError(f"{self.partition.topic_partition}: events without end")

    def _carry_out(self, effect: Effect) -> bool:
        """Carry out `effect`; return whether the log has changed.  The usual ones first."""
        if isinstance(effect, SendEntries):
            self._send_entries(effect)
            return False
        if isinstance(effect, Append):
            self._change_log(effect)
            return True
        if isinstance(effect, SendMessage):
            self._send(*effect)
            return False
        if isinstance(effect, AdvanceCommitted):
            committed = effect.committed
            self.partition.log.note_committed(committed.log)
            self.partition.advance_committed(*committed)
            self._report_serving(committed)
            return False
        match effect:
            case SetServing():
                self._is_role_current = False
            case ReportInSync(node, version):
                self._node.reporter.report_in_sync(
                    self.partition.topic_id, self.key[1], node, version=version)
            case Halt(reason):
                self._halt(reason)
            case ConfirmEpoch():
                self._node.chain_fenced(self)
            case WarnEpochIgnored(sender, epoch):
                self._node.epoch_ignored(self, sender, epoch)
            case AppendConfiguration() | TruncateTo() | Restart():
                self._change_log(effect)
                return True
            case _:
                assert_never(effect)
        return False

    def _send(self, to: NodeId, message: Message) -> None:
        key = self.key
        if not isinstance(message, Ack):
            self._node.post(to, encode(*key, message))
            return
        replica = self.replica
        assert replica is not None
        if replica.relay.is_catching_up and not self._node.throttle.may_acknowledge(
                key, self._release_ack):
            self._held_ack = to, message
            return
        self._held_ack = None
        self._node.post(to, encode(*key, message), replaces=key)

    def _release_ack(self) -> None:
        """Send the acknowledgement that was held back; if it is out of date, it has no effect."""
        if self._held_ack is not None:
            self._send(*self._held_ack)

    def _change_log(self, effect: Append | AppendConfiguration | TruncateTo | Restart) -> None:
        log, now_ms = self.partition.log, self._node.now_ms()
        if self.is_head and not isinstance(effect, AppendConfiguration):
            self._node.leadership_lost(self.partition)  # another replica's log was chosen
        match effect:
            case Append(entries):
                self._append(entries, now_ms)
            case Restart(log_start, entries):
                self._recent.forget()  # broker.replication.M1
                log.restart(memoryview(entries[0]), now_ms, log_start=log_start,
                            epoch_max=self._epoch)
                self._append(entries[1:], now_ms)
            case TruncateTo(log_end):
                self._recent.forget()  # broker.replication.M1
                log.truncate(log_end, now_ms)
            case AppendConfiguration(replica_set):
                log.append_records(CONFIGURATION, [configuration_record(replica_set, now_ms)],
                                   epoch=replica_set.epoch, now_ms=now_ms)
        if log.is_durable:
            self._await_flush()

    def _append(self, entries: tuple[bytes | memoryview, ...], now_ms: int) -> None:
        partition = self.partition
        log = partition.log
        start, epoch = log.log_end, self._epoch
        if self._recent.size:
            self._recent.forget()
        for entry in entries:
            log.append_entry(
                entry if isinstance(entry, memoryview) else memoryview(entry), now_ms,
                epoch_max=epoch)  # broker.replication.R2
            partition.note_received(len(entry))
        self._recent.lend(start, log.log_end, entries)
        if self.replica is not None and self.replica.relay.is_catching_up:
            self._node.throttle.received(self.key, self._recent.size)

    @property
    def _epoch(self) -> int:
        """The epoch of the chain: no replicated batch has a later one."""
        assert self.replica is not None
        return self.replica.epoch

    def _send_entries(self, effect: SendEntries) -> None:
        """Read and send entries; the core's next event says whether they were sent."""
        to, start_log, size_max, message = effect
        node, recent, replica = self._node, self._recent, self.replica
        if not node.can_send(to, self):
            self._queue.append(SendRefused(to))
            return
        catches_up = replica is not None and replica.relay.catches_up(to)  # broker.replication.L1
        if catches_up:
            size_max = node.throttle.room_to_send(
                self.key, to, size_max, lambda: self.handle(Drained(to)))
            if not size_max:
                self._queue.append(SendRefused(to))
                return
        if start_log == recent.start and recent.size <= size_max and node.has_room(to, recent.size):
            next_log, size, sizes = recent.end, recent.size, recent.sizes
            at_once = size >= AT_ONCE_SIZE_MIN
            data = recent.buffers if at_once else recent.copy()  # broker.replication.M4
            recent.forget()
        else:
            entries = self._read_entries(start_log, size_max)
            if not entries:
                self._queue.append(SendRefused(to))
                return
            data, at_once = [entry.data for entry in entries], False
            sizes = list(map(len, data))
            next_log, size = entries[-1].next_log, sum(sizes)
        if node.send(to, encode_entries(*self.key, message, sizes, data), self, at_once=at_once):
            self._queue.append(EntriesSent(to, message.session, next_log, size))
            if catches_up:
                node.throttle.sent(self.key, to, size)
        else:
            self._queue.append(SendRefused(to))

    def _read_entries(self, start_log: LogOffset, size_max: int) -> list[LogEntry]:
        try:
            entries = self.partition.log.read_entries(start_log, size_max)
        except QuipuError as error:
            self._effect_failed(error)
            return []
        return entries[:ENTRIES_MAX]

    def _await_flush(self) -> None:
        """Notify the core of the next flush, and of more while there is something to flush."""
        log = self.partition.log
        if self._flush_awaited or log.flusher.flushed_log >= log.log_end:
            return
        self._flush_awaited = True
        log.flusher.when_log_flushed(log.log_end, self._flushed)

    def _flushed(self, error: Exception | None) -> None:
        self._flush_awaited = False
        if error is None:
            self.handle(FLUSHED)
            if not self.partition.is_sole_replica or len(self.partition.commit_waiters):
                self._await_flush()
        elif self.partition.log.failure is not None:
            self._update_role()

    def end_turn(self) -> None:
        """Notify the core of the head's appends in this turn of the event loop."""
        self.handle(LOG_CHANGED)
        self._recent.forget()  # broker.replication.M2
        if self.partition.log.is_durable:
            self._await_flush()

    def _report_serving(self, committed: Mark) -> None:
        """Report, once per version and as head, that the epoch's configuration is committed."""
        partition, replica_set = self.partition, self.replica_set
        if (replica_set is not None and replica_set.version != self._serving_reported
                and partition.is_leader and partition.leader_epoch == replica_set.epoch
                and committed.log > partition.log.epochs.by_log_offset()[-1][1]):
            self._serving_reported = replica_set.version
            self._node.reporter.report_serving(
                partition.topic_id, self.key[1], version=replica_set.version)

    # -- the partition's role

    def _update_role(self) -> None:
        """Give the partition the role that the core has (broker.replication.R3)."""
        self._is_role_current = True
        replica, replica_set = self.replica, self.replica_set
        if replica is None or replica_set is None:
            return
        if self.partition.log.failure is not None:
            self._leave_service(replica_set)
            return
        leading = replica.is_leader
        partition = self.partition
        now = (replica_set, replica.is_serving, leading,
               leading and self._is_alone(replica_set), False)
        before = (partition.replica_set, partition.is_serving, partition.is_leader,
                  partition.is_sole_replica, partition.is_epoch_start_due)
        if now != before:
            was_serving = partition.is_serving
            partition.set_role(replica_set, serving=now[1], leading=leading, sole=now[3])
            if now[3] and partition.log.is_durable:
                self._await_flush()  # for appends that have waited for other nodes
            if was_serving != partition.is_serving or leading != before[2]:
                _log.info("chain", extra={
                    "partition": str(partition.topic_partition), "epoch": replica_set.epoch,
                    "serving": partition.is_serving, "leading": leading})
        self._node.role_changed(self)
        self._report_serving(replica.committed)

    def _leave_service(self, replica_set: ReplicaSet) -> None:
        """Stop serving, because the log has failed, and report that."""
        partition = self.partition
        self._reported_failure = partition.log.failure
        partition.set_role(replica_set, serving=False, leading=False, sole=False)
        self._node.role_changed(self)
        if not isinstance(partition.log.failure, TransientDiskError):  # opened again soon
            self.report_failure()
            self._node.log_failed(self)

    def _halt(self, reason: str) -> None:
        """Fail the log, because the core has halted; LogRepairs opens it again later."""
        partition = self.partition
        _log.error("%s: replication has halted here, and other nodes go on without this replica; "
                   "an operator should look at it: %s", partition.topic_partition, reason)
        partition.log.fail(Halted(f"{partition.topic_partition}: halted: {reason}"))
        if self.replica_set is not None:
            self._leave_service(self.replica_set)

    def _effect_failed(self, error: QuipuError) -> None:
        """Log that an effect could not be carried out; the core will try it again."""
        if str(error) != self._logged_failure:
            self._logged_failure = str(error)
            _log.error("%s: replication: %s", self.partition.topic_partition, error)
        if self.partition.log.failure is not None and self.replica_set is not None:
            self._leave_service(self.replica_set)

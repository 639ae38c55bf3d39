"""One partition's part in its chain: carries out what the core wants, tells it what happened.

Invariants
    R1  the effects of one event are carried out, in order, before the next event is handled; if
        one fails, the rest of them are dropped, and the core finds out and tries again
    R2  entries are appended from the buffer that they came in, and sent from there, or read from
        the log when they are sent: no record is decoded, and no batch copied.  Only the head
        copies, what its clients sent, and no more than a turn's worth (fresh.py)
    R3  the partition is told what it is (serving, leading, alone) after every event that can
        change it, and of an advance of the commit point in the order in which the core saw it
    R4  after its log was opened again, the core begins with a later version than it had before

A partition without other nodes has no core until something is appended: to open ten thousand of
them at a start costs nothing.  Nor is the core told of every append then; it looks at the log when
others join.

Not here: which event is for which partition, and when there is time for it (replication.py).
"""

import logging
from collections import deque
from typing import TYPE_CHECKING, Final, assert_never
from uuid import UUID

from quipu.broker.partition import Halted, NotLeader, Partition
from quipu.broker.replication.configuration import configuration_record
from quipu.broker.replication.fresh import AT_ONCE_SIZE_MIN, Fresh
from quipu.broker.replication.log_view import StoredLog
from quipu.chain.codec import encode, encode_entries
from quipu.chain.effects import (
    Advance,
    Append,
    AppendConfiguration,
    AskEpoch,
    CutTo,
    Disbelieve,
    Effect,
    Halt,
    ReportInSync,
    Restart,
    Send,
    SendEntries,
    Serve,
)
from quipu.chain.events import APPENDED, FLUSHED, TICK, Configured, Event, Refused, Sent
from quipu.chain.messages import BEGIN, ENTRIES_MAX, Ack, Mark, Message
from quipu.chain.replica import Replica
from quipu.model.batch_types import CONFIGURATION
from quipu.model.chains import MemberState, ReplicaSet
from quipu.model.errors import QuipuError
from quipu.model.ids import LogOffset, NodeId
from quipu.runtime.disk import TransientDiskError
from quipu.storage.log import Appended, Entry, Log

if TYPE_CHECKING:
    from quipu.broker.replication.replication import Replication

STEPS_MAX: Final = 100_000  # of one event; more can only be a loop

_log = logging.getLogger(__name__)


class PartitionChain:
    """Drives the core of one partition."""

    __slots__ = (
        "_failure", "_flush_awaited", "_fresh", "_is_running", "_node", "_queue", "_serving_told",
        "_session", "_stands", "_told_failure", "_waits_after", "key", "partition", "replica",
        "replica_set",
    )

    def __init__(self, node: "Replication", partition: Partition) -> None:
        self._node = node
        self.partition = partition
        self.replica: Replica | None = None
        self.replica_set: ReplicaSet | None = None
        self.key = (partition.topic_id.bytes, partition.topic_partition.partition)
        self._queue: deque[Event] = deque()
        self._fresh = Fresh()
        self._is_running = False
        self._flush_awaited = False
        self._stands = True  # has the partition been told what it is?
        self._failure = ""  # the last that was logged
        self._told_failure: QuipuError | None = None  # of the log, for which this node stood aside
        self._serving_told = -1  # the version of which the controller knows that all serve
        self._session = 0  # the last of the core before this one
        self._waits_after = -1  # the version in which the log was opened again (R4)

    # -- what happens

    def configure(self, replica_set: ReplicaSet) -> None:
        """These are the members; a set that is older than the last is ignored."""
        known = self.replica_set
        if known is not None and (replica_set.epoch, replica_set.version) < (
                known.epoch, known.version):
            return
        if self.partition.log.failure is not None:
            self.replica_set = replica_set
            self._stand_aside(replica_set)
            return
        self.replica_set = replica_set
        if replica_set.version <= self._waits_after:
            return  # R4
        self.partition.foresee(replica_set)
        if self.replica is None and self._is_alone(replica_set):
            self.partition.stand(
                replica_set, serving=True, leading=True, alone=True, fresh=True)
            self._node.stood(self)
            return
        self._go_on(replica_set)

    def _go_on(self, replica_set: ReplicaSet) -> None:
        if self.replica is not None:
            self.tell(APPENDED)  # of what was appended while nobody had to know
        elif not self._make_core():
            return
        self._stands = False
        self.tell(Configured(replica_set))

    def begin(self) -> None:
        """Something is about to be appended alone, for the first time in this epoch."""
        assert self.replica_set is not None
        self._go_on(self.replica_set)
        if not self.partition.is_leading:
            raise self.partition.failed or NotLeader(
                f"{self.partition.topic_partition}: this node cannot lead it yet")

    def appended(self) -> None:
        """The head has appended: the core hears of it at the end of this turn."""
        self._node.touch(self)

    def appended_batch(self, appended: Appended, batch: memoryview) -> None:
        """The same, of a batch that the next node may be sent from memory (M3)."""
        node = self._node
        if not appended.duplicate:
            prefix, copies = appended.prefix, node.copies
            copied_end = copies.add(prefix, batch)
            if copied_end:
                self._fresh.copied(appended.log_offset, self.partition.log.log_end, copies,
                                   copied_end, len(prefix) + len(batch))
        node.touch(self)

    def tick(self) -> None:
        self.tell(TICK)
        failure = self.partition.log.failure
        if failure is not None and failure is not self._told_failure and (
                self.replica_set is not None):
            self._stand_aside(self.replica_set)  # it failed in other hands, such as a flush
        self.partition.expire_waits()
        self.partition.check_lease()

    @property
    def is_head(self) -> bool:
        """Does this node lead, or will it once it has what the others have?"""
        partition, replica_set = self.partition, self.replica_set
        return (replica_set is not None and replica_set.head == self._node.node_id
                and partition.failed is None)

    @property
    def is_quiet(self) -> bool:
        """May ticks be left out?"""
        if self.replica is None or self.partition.is_alone:
            return True
        return self.replica.is_quiet and not len(self.partition.commits)

    def _is_alone(self, replica_set: ReplicaSet) -> bool:
        return replica_set.path == (self._node.node_id,) and (
            replica_set.state_of(self._node.node_id) is MemberState.SERVING)

    def _make_core(self) -> bool:
        """Make the core, now that it is needed; false if the log cannot be used."""
        log = self.partition.log
        try:
            view = StoredLog(log)
            log_offset = min(log.committed_mark, log.log_end)
            offset = log.offset_at(log_offset)
        except QuipuError as error:
            self._failed(error)
            return False
        committed = Mark(log_offset, offset) if offset is not None else BEGIN
        self.replica = Replica(
            self._node.node_id, view, committed=committed, life=self._node.life,
            window_size=self._node.window_size, session=self._session)
        self.partition.commit(*self.replica.committed)
        return True

    # -- a log that has failed

    @property
    def partition_key(self) -> tuple[UUID, int]:
        return self.partition.topic_id, self.key[1]

    def tell_failure(self) -> None:
        """Say that the log has failed; may be said again and again."""
        why = self.partition.log.failure
        if why is not None:
            self._node.reporter.report_failure(*self.partition_key, str(why))

    def opened_again(self, log: Log) -> None:
        """`log` is in the place of the one that has failed, and may have failed as well."""
        if self.replica is not None:
            self._session = self.replica.session
        self.partition.log = log
        self.replica, self._flush_awaited, self._failure = None, False, ""
        self._fresh.forget()
        if log.failure is None and self.replica_set is not None:
            self._waits_after = self.replica_set.version
            self._node.reporter.report_repair(*self.partition_key)

    # -- events and effects

    def tell(self, event: Event) -> None:
        """Have the core handle `event`, and carry out what it wants (R1)."""
        replica = self.replica
        if replica is None or self.partition.log.failure is not None:
            return
        if self._is_running:
            self._queue.append(event)  # an effect made something happen: its turn comes
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
            if self._fresh.is_lent:
                self._fresh.forget()
        if not self._stands:
            self._stand()
        self._node.restless(self)

    def _run(self, replica: Replica, event: Event) -> None:
        queue, has_failed = self._queue, False
        for _ in range(STEPS_MAX):
            log_changed = False
            try:
                for effect in replica.handle(event):
                    if self._carry_out(effect):
                        log_changed = True
            except QuipuError as error:
                self._failed(error)
                # Some of it may be done, and what a message says besides its batches counts.
                log_changed, has_failed = not has_failed, True
            if self.partition.log.failure is not None:
                return
            if log_changed:
                event = APPENDED
            elif queue:
                event = queue.popleft()
            else:
                return
        raise AssertionError(f"{self.partition.topic_partition}: events without end")

    def _carry_out(self, effect: Effect) -> bool:
        """Do it; true if the log is not what it was.  The usual ones first."""
        if isinstance(effect, SendEntries):
            self._send_entries(effect)
            return False
        if isinstance(effect, Append):
            self._change_log(effect)
            return True
        if isinstance(effect, Send):
            self._send(*effect)
            return False
        if isinstance(effect, Advance):
            committed = effect.committed
            self.partition.log.note_committed(committed.log)
            self.partition.commit(*committed)
            self._report_serving(committed)
            return False
        match effect:
            case Serve():
                self._stands = False
            case ReportInSync(node, version):
                self._node.reporter.report_in_sync(
                    self.partition.topic_id, self.key[1], node, version=version)
            case Halt(reason):
                self._halt(reason)
            case AskEpoch():
                self._node.doubted(self)
            case Disbelieve(sender, epoch):
                self._node.disbelieved(self, sender, epoch)
            case AppendConfiguration() | CutTo() | Restart():
                self._change_log(effect)
                return True
            case _:
                assert_never(effect)
        return False

    def _send(self, to: NodeId, message: Message) -> None:
        key = self.key
        is_ack = isinstance(message, Ack)
        self._node.post(to, encode(*key, message), replaces=key if is_ack else None)

    def _change_log(self, effect: Append | AppendConfiguration | CutTo | Restart) -> None:
        log, now_ms = self.partition.log, self._node.now_ms()
        if self.is_head and not isinstance(effect, AppendConfiguration):
            self._node.lost(self.partition)  # another log than its own was chosen
        match effect:
            case Append(entries):
                self._append(entries, now_ms)
            case Restart(entries):
                self._fresh.forget()  # M1
                log.restart(memoryview(entries[0]), now_ms, epoch_max=self._epoch)
                self._append(entries[1:], now_ms)
            case CutTo(log_end):
                self._fresh.forget()  # M1
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
        if self._fresh.size:
            self._fresh.forget()
        for entry in entries:
            log.append_stored(
                entry if isinstance(entry, memoryview) else memoryview(entry), now_ms,
                epoch_max=epoch)  # R2
            partition.received(len(entry))
        self._fresh.lend(start, log.log_end, entries)

    @property
    def _epoch(self) -> int:
        """Of the chain: nothing that it replicates is of a later one."""
        assert self.replica is not None
        return self.replica.epoch

    def _send_entries(self, effect: SendEntries) -> None:
        """Send entries on; the answer to the core is the next event."""
        to, start_log, size_max, message = effect
        node, fresh = self._node, self._fresh
        if not node.can_send(to, self):
            self._queue.append(Refused(to))
            return
        if start_log == fresh.start and fresh.size <= size_max and node.has_room(to, fresh.size):
            next_log, size, sizes = fresh.end, fresh.size, fresh.sizes
            at_once = size >= AT_ONCE_SIZE_MIN
            data = fresh.buffers if at_once else fresh.own()  # R2, M4
            fresh.forget()
        else:
            entries = self._read_entries(start_log, size_max)
            if not entries:
                self._queue.append(Refused(to))
                return
            data, at_once = [entry.data for entry in entries], False
            sizes = list(map(len, data))
            next_log, size = entries[-1].next_log, sum(sizes)
        if node.send(to, encode_entries(*self.key, message, sizes, data), self, at_once=at_once):
            self._queue.append(Sent(to, message.session, next_log, size))
        else:
            self._queue.append(Refused(to))

    def _read_entries(self, start_log: LogOffset, size_max: int) -> list[Entry]:
        try:
            entries = self.partition.log.read_entries(start_log, size_max)
        except QuipuError as error:
            self._failed(error)
            return []
        return entries[:ENTRIES_MAX]

    def _await_flush(self) -> None:
        """Hear of the next flush, and of those after it while there is something to flush."""
        log = self.partition.log
        if self._flush_awaited or log.flushed_end >= log.log_end:
            return
        self._flush_awaited = True
        log.when_log_flushed(log.log_end, self._flushed)

    def _flushed(self, error: Exception | None) -> None:
        self._flush_awaited = False
        if error is None:
            self.tell(FLUSHED)
            if not self.partition.is_alone or len(self.partition.commits):
                self._await_flush()
        elif self.partition.log.failure is not None:
            self._stand()

    def turn(self) -> None:
        """The end of a turn in which the head has appended."""
        self.tell(APPENDED)
        self._fresh.forget()  # M2
        if self.partition.log.is_durable:
            self._await_flush()

    def _report_serving(self, committed: Mark) -> None:
        """Tell, once per version, that the epoch's configuration is committed (by the head)."""
        partition, replica_set = self.partition, self.replica_set
        if (replica_set is not None and replica_set.version != self._serving_told
                and partition.is_leading and partition.leader_epoch == replica_set.epoch
                and committed.log > partition.log.epochs_log()[-1][1]):
            self._serving_told = replica_set.version
            self._node.reporter.report_serving(
                partition.topic_id, self.key[1], version=replica_set.version)

    # -- what the partition is told

    def _stand(self) -> None:
        self._stands = True
        replica, replica_set = self.replica, self.replica_set
        if replica is None or replica_set is None:
            return
        if self.partition.log.failure is not None:
            self._stand_aside(replica_set)
            return
        leading = replica.is_leading
        partition = self.partition
        now = (replica_set, replica.is_serving, leading,
               leading and self._is_alone(replica_set), False)
        before = (partition.replica_set, partition.is_serving, partition.is_leading,
                  partition.is_alone, partition.is_fresh)
        if now != before:
            was_serving = partition.is_serving
            partition.stand(replica_set, serving=now[1], leading=leading, alone=now[3],
                            fresh=False)
            if now[3] and partition.log.is_durable:
                self._await_flush()  # for those who waited for other nodes until now
            if was_serving != partition.is_serving or leading != before[2]:
                _log.info("chain", extra={
                    "partition": str(partition.topic_partition), "epoch": replica_set.epoch,
                    "serving": partition.is_serving, "leading": leading})
        self._node.stood(self)
        self._report_serving(replica.committed)

    def _stand_aside(self, replica_set: ReplicaSet) -> None:
        """The log has failed: this node has no more part in it, and says so."""
        partition = self.partition
        self._told_failure = partition.log.failure
        partition.stand(replica_set, serving=False, leading=False, alone=False, fresh=False)
        self._node.stood(self)
        if not isinstance(partition.log.failure, TransientDiskError):  # else it is opened anew soon
            self.tell_failure()
            self._node.failed(self)

    def _halt(self, reason: str) -> None:
        """Stop; as with a log that has failed, others are told, and it is tried again later."""
        partition = self.partition
        _log.error("%s: replication has halted here, and others go on without this replica; "
                   "someone should look: %s", partition.topic_partition, reason)
        partition.log.fail(Halted(f"{partition.topic_partition}: halted: {reason}"))
        if self.replica_set is not None:
            self._stand_aside(self.replica_set)

    def _failed(self, error: QuipuError) -> None:
        """An effect could not be carried out; the core finds out and tries again."""
        if str(error) != self._failure:
            self._failure = str(error)
            _log.error("%s: replication: %s", self.partition.topic_partition, error)
        if self.partition.log.failure is not None and self.replica_set is not None:
            self._stand_aside(self.replica_set)

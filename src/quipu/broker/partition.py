"""One partition as the broker sees it: its log, its rules, and those who wait for it.

Invariants
    P1  a batch is checked before it is appended: what is stored is what a client may fetch
    P2  clients see no record at or above the high watermark
    P3  a fetch that waits hears of every advance of the high watermark
    P4  only the head of the chain appends, while it leads and while its lease lasts
    P5  `is_alone` means: leading, and no other node is sent anything.  Then the log itself knows
        what is committed, and nobody but this object looks at an append
    P6  an idempotent batch that skips sequences is taken, or refused as out of order, only if no
        batch before it can have been refused here (sequence_guard.py)
    P7  what is committed is told to clients only once the epoch's configuration is: so nobody is
        shown less than any node has shown in an earlier epoch

Not here: who the nodes of the chain are and what they have (replication/).
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from quipu.broker.commits import FOREVER, Commits, Done
from quipu.broker.lease import ALWAYS, Lease
from quipu.broker.partition_parts import Chain, Waiter
from quipu.broker.rules import Rules, check_time
from quipu.broker.sequence_guard import SequenceGuard
from quipu.controller.internal_topics import refuse
from quipu.model.batch_types import BatchType
from quipu.model.chains import ReplicaSet
from quipu.model.errors import Code, Kind, QuipuError, RequestError
from quipu.model.ids import Epoch, LogOffset, Offset, TopicPartition
from quipu.model.topics import is_internal
from quipu.runtime.disk import DiskError
from quipu.storage.appended import NO_LOG_OFFSET
from quipu.storage.log import Appended, Log, LogConfig
from quipu.storage.repeats import find_repeat
from quipu.wire.fast import check_batch
from quipu.wire.record_batch import (
    TRANSACTIONAL_BIT,
    BatchHeader,
    Record,
    set_log_append_time,
    set_max_timestamp,
)
from quipu.wire.record_check import check_records
from quipu.wire.records import RecordsSeen, are_plain

ACKS_ALL: Final = -1
ALL_MEMBERS: Final = 0  # min.insync.replicas: every node of the chain, for any write
TELL_AGAIN_MS: Final = 10_000

_log = logging.getLogger(__name__)


class NotLeader(RequestError):
    """The node asked is not the one that can do it; metadata tells which is."""

    kind = Kind.REFRESH
    code = Code.NOT_LEADER_OR_FOLLOWER


class OffsetNotAvailable(RequestError):
    """This node does not know yet how much is committed; it soon will, or another leads."""

    kind = Kind.RETRY
    code = Code.OFFSET_NOT_AVAILABLE


class Halted(QuipuError):
    """This node's replica and another node's cannot both be right: a person must look.

    To others it is a replica whose log has failed.
    """

    kind = Kind.CORRUPT
    code = Code.KAFKA_STORAGE_ERROR


class Partition:
    """A partition that this node is a replica of."""

    __slots__ = (
        "_began_with", "_epoch_log", "_gate", "_guard", "_lease", "_shortages", "_told_ms",
        "_unread_size", "_waiters", "acks_wait",
        "chain", "commits", "is_alone", "is_fresh", "is_leading", "is_serving",
        "is_sure", "leader_epoch", "log", "replica_set", "rules", "topic_id", "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        log: Log,
        rules: Rules,
        lease: Lease = ALWAYS,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.rules = rules
        self.chain: Chain | None = None
        self.commits = Commits()
        self.replica_set: ReplicaSet | None = None
        self.leader_epoch = Epoch(0)
        self.is_serving = False  # may this node's committed records be read?
        self.is_leading = False  # may this node append?
        self.is_alone = False  # P5
        self.is_fresh = False  # is the first append of the epoch still to come?
        self.is_sure = False  # is the epoch's configuration committed (P7)?
        self.acks_wait = True  # must an answer to Produce wait for anything?
        self._began_with: ReplicaSet | None = None  # the first replica set of the epoch
        self._lease = lease
        self._guard = SequenceGuard(lease.monotonic)
        self._gate = True  # must an append be looked at more closely?
        # Why there are too few nodes for a write with acks=all, and for any other; None: enough.
        self._shortages: tuple[str | None, str | None] = None, None
        self._waiters: dict[Waiter, None] = {}  # in the order in which they came
        self._unread_size = 0  # bytes appended that the waiters have not been told of
        self._told_ms = 0  # when the disk's refusal was last logged
        self._epoch_log = LogOffset(0)  # of the epoch's configuration, while this node serves

    def configure(self, config: LogConfig, rules: Rules) -> None:
        """Live by other settings from now on."""
        self.log.config = config
        self.rules = rules
        self._stand()

    @property
    def failed(self) -> QuipuError | None:
        """Why the partition cannot be served, if it cannot."""
        return self.log.failure

    @property
    def high_watermark(self) -> Offset:
        """Clients see what is below this (P2)."""
        return self.log.high_watermark if self.is_alone else self.commits.committed

    @property
    def committed_log(self) -> LogOffset:
        """The same by log offset, which also counts internal batches."""
        if not self.is_alone:
            return self.commits.committed_log
        return self.log.flushed_end if self.log.is_durable else self.log.log_end

    # -- this node's part in the chain, as the driver tells

    def stand(
        self, replica_set: ReplicaSet, *, serving: bool, leading: bool, alone: bool, fresh: bool
    ) -> None:
        """Take over what this node is for the partition."""
        assert serving or not leading
        assert leading or not alone
        was_serving, was_alone = self.is_serving, self.is_alone
        if was_alone and not alone:
            self._keep_committed()
        if leading and not (self.is_leading and replica_set.epoch == self.leader_epoch) and not (
                alone and self._lease.is_endless):
            self._guard.refused()  # until now this node has refused what came
        self.replica_set, self.leader_epoch = replica_set, replica_set.epoch
        self.is_serving, self.is_leading, self.is_alone = serving, leading, alone
        self.is_fresh = fresh
        if serving and not alone:
            self._epoch_log = self.log.epochs_log()[-1][1]
        self.is_sure = alone or (serving and self.commits.committed_log > self._epoch_log)
        self._stand()
        if (was_serving and not serving) or (alone and not was_alone):
            self.wake()

    def foresee(self, replica_set: ReplicaSet) -> None:
        """These will be the replicas: if they are too few, nobody waits for their word."""
        if self._began_with is None or replica_set.epoch > self._began_with.epoch:
            self._began_with = replica_set
            if self.replica_set is not None:
                self._stand()
        if len(self.commits) and (why := self._shortage(replica_set, ACKS_ALL)):
            self._guard.refused()
            self.commits.fail(RequestError(why, code=Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                                           kind=Kind.RETRY))

    def commit(self, committed_log: LogOffset, committed: Offset) -> None:
        """All below these offsets is committed: tell those who wait."""
        before, end = self.commits.committed, self.log.end_offset
        if committed_log < self.commits.committed_log or committed < before:
            return  # what was committed alone is so, whoever has not heard of it
        self.commits.advance(committed_log, committed)
        if not self.is_sure and self.is_serving and committed_log > self._epoch_log:
            self.is_sure = True
            self.wake()
        if committed > before and not self.is_alone:
            unread = self._unread_size
            told = unread if committed >= end else unread * (committed - before) // (end - before)
            self._unread_size = unread - told
            if self._waiters:
                self._advanced(max(told, 1))

    def abdicate(self) -> None:
        """Others decide what becomes of the batches that someone waits for."""
        if len(self.commits):
            self._guard.refused()
            self.commits.fail(NotLeader(f"{self.topic_partition}: this node leads it no longer"))

    def expire_waits(self) -> None:
        """Tell those whose patience is over."""
        if len(self.commits) and self.commits.expire(self._lease.monotonic()):
            self._guard.refused()

    def check_lease(self) -> None:
        """Without one, others may lead by now: whoever waits here should ask them."""
        if len(self.commits) and not self._lease.holds():
            self.abdicate()

    def received(self, size: int) -> None:
        """A predecessor's entry of `size` bytes was appended."""
        self._unread_size += size

    def _keep_committed(self) -> None:
        """The log knew what is committed; from now on others have a say in what becomes so."""
        log = self.log
        end = (log.flushed_end, log.flushed_offset) if log.is_durable else (
            log.log_end, log.end_offset)
        if end[0] > self.commits.committed_log and end[1] >= self.commits.committed:
            self.commits.advance(*end)

    def _stand(self) -> None:
        """What the paths of Produce look at first: is there anything to look at?"""
        self.acks_wait = self.log.is_durable or not self.is_alone
        replica_set = self.replica_set
        self._shortages = (None, None) if replica_set is None else (
            self._shortage(replica_set, ACKS_ALL), self._shortage(replica_set, 1))
        self._gate = not (
            self.is_alone and not self.is_fresh and self._lease.is_endless
            and self._shortages[0] is None and not is_internal(self.topic_partition.topic))

    # -- appending

    def _shortage(self, replica_set: ReplicaSet, acks: int) -> str | None:
        """Why there are too few nodes for a write with `acks`, if there are."""
        least, serving = self.rules.min_insync_replicas, len(replica_set.serving)
        if least == ALL_MEMBERS:  # not those who have joined since: nobody waits for newcomers
            known = replica_set if self._began_with is None else self._began_with
            least = len(set(known.replicas) & set(replica_set.replicas))
        elif acks != ACKS_ALL:
            return None
        if serving >= least:
            return None
        return (f"{self.topic_partition}: {serving} of the chain's nodes serve, and "
                f"min.insync.replicas = {self.rules.min_insync_replicas} asks for {least}")

    def _admit(self, acks: int) -> None:
        """Raise unless this node may append now (P4)."""
        if self.log.failure is not None:
            raise self.log.failure
        if not self.is_leading:
            raise NotLeader(f"{self.topic_partition}: this node does not lead it")
        if not self._lease.holds():
            raise NotLeader(f"{self.topic_partition}: this node has not heard of the controller "
                            "for too long to lead")
        why = self._shortages[acks != ACKS_ALL]
        if why is not None:
            raise RequestError(why, code=Code.NOT_ENOUGH_REPLICAS, kind=Kind.RETRY)
        if self.is_fresh:
            assert self.chain is not None
            self.chain.begin()
            self.is_fresh = False
            self._stand()

    def append(
        self, batch: memoryview, now_ms: int, acks: int, seen: RecordsSeen | None = None
    ) -> Appended:
        """Append one batch of a producer; `batch` is changed in place.

        `seen` is what its records are like, if someone has looked at them already.
        """
        if self._gate:
            refuse(self.topic_partition.topic, "written to by clients")
            try:
                self._admit(acks)
            except QuipuError:
                self._guard.refused()
                raise
        rules = self.rules
        header = check_batch(batch, size_max=rules.batch_size_max)
        if header.attributes & TRANSACTIONAL_BIT:
            raise RequestError("transactions are not served", code=Code.INVALID_TXN_STATE)
        if seen is None and (
                rules.checks_compressed if header.attributes
                else rules.checks_plain and not (
                    rules.takes_any_age and are_plain(batch, rules.keyed))):
            seen = check_records(
                batch, header, keyed=rules.keyed, size_max=rules.decompressed_size_max)
        if rules.append_time:
            header = set_log_append_time(batch, now_ms)
        elif seen is None:
            check_time(rules, header, now_ms, self.topic_partition)
        else:
            if seen.newest != header.max_timestamp:
                header = set_max_timestamp(batch, seen.newest)
            check_time(rules, header, now_ms, self.topic_partition, seen.oldest)
        if self._guard.is_on and header.producer_id >= 0 and self._guard.forbids(
                header, self.log.state.producers):
            raise NotLeader(
                f"{self.topic_partition}: sequence {header.base_sequence} of producer "
                f"{header.producer_id} came before others that were refused a moment ago: send "
                "again what is not acknowledged, in order")
        try:
            appended = self.log.append(batch, header, epoch=self.leader_epoch, now_ms=now_ms)
        except QuipuError as error:
            appended = self._not_appended(error, header, now_ms)
        if not self.is_alone:
            assert self.chain is not None
            self._unread_size += len(batch)
            self.chain.appended_batch(appended, batch)
        elif self._waiters and not self.acks_wait:
            self._advanced(len(batch))
        return appended

    def _not_appended(self, error: QuipuError, header: BatchHeader, now_ms: int) -> Appended:
        """Where the batch is already, if its first answer may have been an error; else raise."""
        if error.code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER and self._guard.is_on and (
                found := find_repeat(self.log, header)) is not None:
            return Appended(found, Offset(found + header.last_offset_delta), NO_LOG_OFFSET,
                            duplicate=True)
        if isinstance(error, DiskError):
            self._tell(error, now_ms)
        if error.kind is not Kind.INVALID:
            self._guard.refused()
        raise error

    def refused_before(self, error: QuipuError) -> None:
        """A batch was refused with `error` and is not given to `append` (P6)."""
        if error.kind is not Kind.INVALID:
            self._guard.refused()

    def append_records(
        self, batch_type: BatchType, records: Sequence[Record], now_ms: int
    ) -> Appended:
        """Append a batch of the cluster's own; see `when_log_committed` for its fate."""
        if self._gate:
            self._admit(ACKS_ALL)
        appended = self.log.append_records(
            batch_type, records, epoch=self.leader_epoch, now_ms=now_ms)
        if not self.is_alone:
            self._appended()
        return appended

    def roll(self, now_ms: int) -> None:
        """Start a segment, here and on every other node."""
        if self._gate:
            self._admit(ACKS_ALL)
        self.log.roll(now_ms)
        if not self.is_alone:
            self._appended()

    def _appended(self) -> None:
        assert self.chain is not None
        self.chain.appended()

    def _tell(self, error: DiskError, now_ms: int) -> None:
        """Log that the disk refuses writes; once in a while, for producers try again and again."""
        if now_ms - self._told_ms >= TELL_AGAIN_MS:
            self._told_ms = now_ms
            _log.error("%s: a batch was refused: %s", self.topic_partition, error)

    # -- what was appended, until it is safe

    def when_kept(
        self, appended: Appended, size: int, done: Done, *, acks: int = 1,
        timeout_ms: int | None = None,
    ) -> None:
        """Call `done` once the batch is as safe as `acks` and the flush policy promise."""
        end = Offset(appended.last_offset + 1)
        if acks == ACKS_ALL and not self.is_alone:
            self.commits.wait(end, self._deadline(timeout_ms), done)
            return

        def flushed(error: Exception | None) -> None:
            if error is None and acks == ACKS_ALL and not self.is_alone:  # others joined meanwhile
                self.commits.wait(end, self._deadline(timeout_ms), done)
                return
            if error is None and self._waiters and self.is_alone:
                self._advanced(size)
            done(error)

        if self.log.is_durable:
            self.log.when_flushed(end, flushed)
        else:
            done(None)

    def when_log_committed(
        self, log_end: LogOffset, done: Done, *, timeout_ms: int | None = None
    ) -> None:
        """Call `done` once everything below `log_end` is committed, internal batches too."""
        if not self.is_alone:
            self.commits.wait_log(log_end, self._deadline(timeout_ms), done)
        elif self.log.is_durable:
            def flushed(error: Exception | None) -> None:
                if error is None and not self.is_alone:  # others joined meanwhile
                    self.commits.wait_log(log_end, self._deadline(timeout_ms), done)
                else:
                    done(error)

            self.log.when_log_flushed(log_end, flushed)
        else:
            done(None)

    async def committed(self, log_end: LogOffset, *, timeout_ms: int | None = None) -> None:
        """Return once everything below `log_end` is committed; raise if it will not be."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: Exception | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        self.when_log_committed(log_end, done, timeout_ms=timeout_ms)
        await future

    def _deadline(self, timeout_ms: int | None) -> float:
        return FOREVER if timeout_ms is None else self._lease.monotonic() + timeout_ms / 1000

    # -- reading

    def readable(self, *, dirty: bool = False) -> QuipuError | None:
        """Why records cannot be read here, if they cannot; dirty reads go anywhere."""
        if (failed := self.failed) is not None:
            return failed
        if self.is_sure or dirty:
            return None
        if self.is_serving:  # P7
            return OffsetNotAvailable(f"{self.topic_partition}: the epoch has only begun")
        return NotLeader(f"{self.topic_partition}: this node does not serve it")

    def must_lead(self) -> None:
        """Raise unless this node leads, and may say what the newest record is."""
        if (failed := self.failed) is not None:
            raise failed
        if not self.may_lead:
            raise NotLeader(f"{self.topic_partition}: this node does not lead it")

    @property
    def may_lead(self) -> bool:
        """Does this node lead, and does its lease last?"""
        return self.is_leading and self._lease.holds()

    @property
    def is_current(self) -> bool:
        """May this node say that there is nothing newer than what it knows?"""
        return self._lease.holds()

    # -- what goes

    def delete_records(self, before: Offset, now_ms: int) -> Offset:
        """Move the log start offset, to the high watermark for -1; gives it."""
        self.must_lead()
        if self._gate:
            self._admit(ACKS_ALL)
        start = self.log.delete_records(before, now_ms, high_watermark=self.high_watermark)
        if not self.is_alone:
            self._appended()
        return start

    def apply_retention(self, now_ms: int) -> int:
        """Remove old segments; gives how many.  Only who leads may begin a new one for that."""
        if self.failed is not None:
            return 0
        log = self.log
        log_end = log.log_end
        count = log.apply_retention(
            now_ms, high_watermark=self.high_watermark, may_roll=self.is_leading)
        if log.log_end != log_end and not self.is_alone:
            self._appended()
        return count

    # -- fetches that wait

    def wait(self, waiter: Waiter) -> None:
        """Tell `waiter` of every advance, until `leave` (P3)."""
        self._waiters[waiter] = None

    def leave(self, waiter: Waiter) -> None:
        """Forget `waiter`."""
        self._waiters.pop(waiter, None)

    def wake(self) -> None:
        """Let everyone who waits look again: the partition failed, moved or was deleted."""
        self._advanced(0)

    def _advanced(self, size: int) -> None:
        for waiter in list(self._waiters):
            waiter.advanced(size)

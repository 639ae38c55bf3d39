"""`PartitionLog`: the protocol by which handlers, coordinators and metrics use a partition's log.

A log may be kept on this node alone, by a chain of nodes, in part by a remote tier, or with no
local copy at all; callers need not know which.  Two calls may complete later:

    append   returns an `AppendResult` if the offsets are known at once, else a `PendingAppend`
             that takes a callback for the result
    read     returns a `ReadResult` with the buffers, or a `PendingRead`: the bytes are being
             fetched, and the caller repeats the read once they have arrived

Everything else returns at once or is a coroutine.  All calls come from the one event loop that owns
the log; none of them blocks.

Invariants, of every implementation (tests/contract/partition_log)
    model.P1  an append that raises stores nothing; an accepted one completes exactly once, with
              its `AppendResult` or with a QuipuError, after which the batch may or may not be
              stored
    model.P2  a completed append fulfils `acks`: with 0 and 1, the batch is in the leader's log
              (and on its disk if flush.messages is 1); with -1 (all), it is committed: no change
              of leaders loses it, and consumers may read it
    model.P3  a batch that its producer sent before is not appended again: the result has the
              offsets of the first append, and `duplicate` is set
    model.P4  a read returns whole batches, the first of which holds the requested offset, all
              below the high watermark (below the log end, for a dirty read), with the log's
              bounds at the time of the read
    model.P5  a pending read calls back exactly once, unless it is cancelled; until then a read of
              the same offset returns what has arrived, buffers or an error
    model.P6  log_start_offset <= local_start_offset, log_start_offset <= last_stable_offset <=
              high_watermark <= log_end_offset, and highest_tiered_offset < log_end_offset
    model.P7  a waiter is notified of every advance of the high watermark from `add_waiter` to
              `remove_waiter`, and when the partition fails, moves or is deleted
    model.P8  while a log has failed, every call that needs it raises or returns `failure`

Not here: which partitions this node has, and finding one by name (broker/partitions/partitions.py).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar
from uuid import UUID

from quipu.model.batch_rules import BatchRules
from quipu.model.batch_types import BatchType
from quipu.model.errors import QuipuError
from quipu.model.ids import (
    Epoch,
    LogOffset,
    NodeId,
    Offset,
    ProducerId,
    TimestampMs,
    TopicPartition,
)
from quipu.model.tiered_log import TieredLog

ACKS_ALL: Final = -1  # acks of a Produce request: every in-sync replica
NOTHING_TIERED: Final = Offset(-1)
NO_OFFSET: Final = Offset(-1)

T = TypeVar("T")


class RunLong(Protocol):
    """Runs work that would block the event loop for too long, for example in a thread."""

    async def __call__(self, work: Callable[[], T], /) -> T: ...


class AppendResult(NamedTuple):
    """The offsets of an appended batch, and the other fields of its Produce response."""

    base_offset: Offset
    last_offset: Offset
    log_start_offset: Offset
    log_append_time: int  # -1 unless message.timestamp.type is LogAppendTime
    duplicate: bool  # the log had the batch already (model.P3)


AppendDone = Callable[[AppendResult | QuipuError], None]


class PendingAppend(Protocol):
    """An accepted batch whose offsets or acknowledgements are not known yet."""

    def when_done(self, done: AppendDone) -> None:
        """Call `done` once with the result, or with the error of the append (model.P1).

        The caller calls this once, in the same turn of the event loop as `append`; `done` may be
        called before this returns.
        """
        ...


class ReadResult(NamedTuple):
    """Batches from one offset on, or an error code, with the log's bounds at that time."""

    error_code: int
    high_watermark: Offset = NO_OFFSET
    last_stable_offset: Offset = NO_OFFSET
    log_start_offset: Offset = NO_OFFSET
    buffers: list[memoryview] = []  # noqa: RUF012 never changed: an empty default
    size: int = 0  # bytes in all buffers


class PendingRead(Protocol):
    """A read whose bytes are being fetched; it holds them once they arrive (model.P5)."""

    def when_arrived(self, arrived: Callable[[], None]) -> None:
        """Call `arrived` when repeating the read will return buffers or an error.

        The caller calls this once; `arrived` may be called before this returns.
        """
        ...

    def cancel(self) -> None:
        """Release the bytes and do not call back; may be called at any time, more than once."""
        ...


class TimestampAndOffset(NamedTuple):
    """A record found by its timestamp."""

    timestamp: TimestampMs
    offset: Offset
    leader_epoch: Epoch


class ProducerInfo(NamedTuple):
    """What a log remembers of one idempotent producer, for DescribeProducers."""

    producer_id: ProducerId
    producer_epoch: int
    last_sequence: int
    last_timestamp: TimestampMs


class ReplicationStatus(NamedTuple):
    """This node's role and progress in the replication of a partition, for metrics."""

    role: str
    epoch: Epoch
    is_only_member: bool  # no other node is a replica of the partition
    is_leader: bool
    is_under_replicated: bool  # this node leads, and some replica is not in sync
    is_under_min_isr: bool  # this node leads, and too few replicas are in sync for a write
    is_halted: bool
    lag: int  # records, of any type, that the predecessor has and this node lacks
    lag_after: int  # records that this node has and its successor has not acknowledged
    in_flight_size: int


class InternalBatch(NamedTuple):
    """A stored batch of any type; keys and values are decoded as they are iterated over."""

    batch_type: int
    log_offset: LogOffset
    next_log_offset: LogOffset
    records: Iterator[tuple[bytes | None, bytes | None]]


class InternalRecords(Protocol):
    """Records of the cluster's own in a partition's log.

    In logs of internal topics they hold a coordinator's state; other logs hold only records about
    the log itself.  Clients see those of type DATA, and no others.
    """

    @property
    def first_log_offset(self) -> LogOffset:
        """The first log offset that is stored; above 0 once segments have been removed."""
        ...

    @property
    def segment_count(self) -> int: ...

    def append(
        self, batch_type: BatchType, records: Sequence[tuple[bytes | None, bytes | None]],
        now_ms: int,
    ) -> None:
        """Append keys and values as one batch; raise if it is refused.

        To learn when it is committed, call `when_committed` with the log end after this call.
        """
        ...

    def roll(self, now_ms: int) -> None:
        """Start a new segment, here and on every other replica."""
        ...

    def read(self, start: LogOffset) -> Iterator[InternalBatch]:
        """Yield every batch, of any type, from the one that holds `start` on, checked."""
        ...

    def drop_before(self, log_offset: LogOffset) -> int:
        """Remove complete segments that lie below `log_offset`; return their number."""
        ...


class CheckedRecords(Protocol):
    """The result of decompressing and checking a batch's records: their range of timestamps."""

    @property
    def oldest(self) -> int: ...
    @property
    def newest(self) -> int: ...


class FetchWaiter(Protocol):
    """A fetch that waits for records of some partitions."""

    def advanced(self, size: int) -> None:
        """About `size` more bytes can be read; 0 means that something else changed: read again."""
        ...

    def finish(self) -> None:
        """End the wait, and respond with the records available now."""
        ...


class PartitionLog(Protocol):
    """One partition on this node; see the module for what every implementation promises."""

    # -- identity

    @property
    def topic_partition(self) -> TopicPartition: ...
    @property
    def topic_id(self) -> UUID: ...
    @property
    def rules(self) -> BatchRules:
        """Which batches the partition accepts."""
        ...

    @property
    def failure(self) -> QuipuError | None:
        """Why the partition cannot be served on this node; None if it can (model.P8)."""
        ...

    # -- bounds (model.P6)

    @property
    def log_start_offset(self) -> Offset:
        """The first offset that can be read, from this node or a remote tier."""
        ...

    @property
    def local_start_offset(self) -> Offset:
        """The first offset stored on this node; equal to the log start if nothing is tiered."""
        ...

    @property
    def highest_tiered_offset(self) -> Offset:
        """The last offset of which a remote tier has a copy; -1 if there is none."""
        ...

    @property
    def last_stable_offset(self) -> Offset:
        """The end of what a read_committed consumer may read: the high watermark, as long as
        there are no transactions.
        """
        ...

    @property
    def high_watermark(self) -> Offset:
        """The end of the committed records, as far as this node knows: consumers read below it."""
        ...

    @property
    def log_end_offset(self) -> Offset:
        """The offset that the next record gets."""
        ...

    @property
    def log_end(self) -> LogOffset:
        """The end of the log, counting internal records; `when_committed` takes such an offset."""
        ...

    @property
    def committed_end(self) -> LogOffset:
        """The end of what this node knows to be committed, counting internal records."""
        ...

    async def refresh(self) -> None:
        """Learn the bounds if another process orders the log (`is_diskless`); else do nothing.

        They are not older than the call then.  Raise if they cannot be learnt.
        """
        ...

    # -- leadership

    @property
    def is_diskless(self) -> bool:
        """Whether records are in object storage alone: every node leads and has the same records,
        none of them on its disk, and the bounds are those that this node has learnt last.
        """
        ...

    @property
    def leader_epoch(self) -> Epoch: ...
    @property
    def is_leader(self) -> bool:
        """Whether this node accepts appends, as far as it knows."""
        ...

    @property
    def has_lease(self) -> bool:
        """Whether this node may rely on its metadata: no other node can lead in a newer epoch."""
        ...

    @property
    def is_active_leader(self) -> bool:
        """Whether this node leads, and its lease has not expired."""
        ...

    def check_leader(self) -> None:
        """Raise NOT_LEADER_OR_FOLLOWER, or the log's failure, unless `is_active_leader`."""
        ...

    @property
    def is_sole_replica(self) -> bool:
        """Whether no other node is sent this log's records.

        Then no other node can have shown a reader a later end, and consumers are not redirected.
        """
        ...

    @property
    def is_readable(self) -> bool:
        """Whether this node may serve committed records to consumers."""
        ...

    def why_unreadable(self, *, dirty: bool = False) -> QuipuError | None:
        """Why records cannot be read here; None if they can.

        A dirty read needs only a log that has not failed.
        """
        ...

    @property
    def preferred_read_replica(self) -> NodeId:
        """The node to which a leader redirects consumers: the tail, which commits first."""
        ...

    def replication_status(self) -> ReplicationStatus | None:
        """Role and progress of this replica; None before the replicas are known."""
        ...

    # -- appending

    def append(
        self, batch: memoryview, now_ms: int, acks: int, timeout_ms: int,
        checked: CheckedRecords | QuipuError | None = None,
    ) -> AppendResult | PendingAppend:
        """Append one batch of a producer; raise if it is refused (model.P1, model.P2, model.P3).

        `batch` is borrowed: it is changed in place, and copied if it is needed after the call.
        With acks=-1 the append completes within about `timeout_ms`.  `checked` is the result of
        an earlier check of the batch's records, if there was one: an error refuses the batch.
        """
        ...

    # -- reading

    def read(
        self, offset: Offset, max_bytes: int, *, min_one: bool, dirty: bool = False
    ) -> ReadResult | PendingRead:
        """Read batches from the one that holds `offset` on (model.P4, model.P5).

        At most `max_bytes`, but with `min_one` the first batch may be larger.  A read at the end
        returns no buffers and no error; one outside the log returns an error code.  With `dirty`,
        uncommitted batches are returned as well.
        """
        ...

    def add_waiter(self, waiter: FetchWaiter) -> None:
        """Notify `waiter` of every advance, until `remove_waiter` (model.P7)."""
        ...

    def remove_waiter(self, waiter: FetchWaiter) -> None:
        """Stop notifying `waiter`; it need not have been added."""
        ...

    # -- looking up

    async def find_timestamp(
        self, timestamp_ms: int, run_long: RunLong
    ) -> TimestampAndOffset | None:
        """The first record whose timestamp is not before `timestamp_ms`, committed or not.

        Batches that take long to decompress are passed to `run_long`.
        """
        ...

    async def find_max_timestamp(self, run_long: RunLong) -> TimestampAndOffset | None:
        """The first of the records with the largest timestamp, committed or not."""
        ...

    def epoch_end(self, epoch: Epoch) -> tuple[Epoch, Offset]:
        """The last epoch at or before `epoch` and where it ended; (-1, -1) if none is known."""
        ...

    async def producers(self) -> list[ProducerInfo]:
        """The idempotent producers whose sequence numbers the log remembers."""
        ...

    # -- sizes

    @property
    def size_bytes(self) -> int:
        """Bytes on this node's disk."""
        ...

    @property
    def object_bytes(self) -> int:
        """Bytes in objects of a diskless log, as far as this node knows; 0 of other logs."""
        ...

    @property
    def offset_lag(self) -> int:
        """Number of records below the high watermark that this replica lacks."""
        ...

    # -- deleting

    def delete_records(
        self, before: Offset, now_ms: int, *, timeout_ms: int,
        done: Callable[[Offset | QuipuError], None],
    ) -> None:
        """Move the log start to `before`, or to the high watermark for -1; raise if refused.

        `done` is called once: with the log start offset when the move is committed, or with the
        error if it may not be.  A `before` below the log start changes nothing and is no error.
        """
        ...

    def apply_retention(self, now_ms: int) -> int:
        """Remove segments beyond retention.ms and retention.bytes; return their number.

        Of a topic with a remote tier: local segments that the tier has, beyond local.retention.*.
        """
        ...

    @property
    def tier(self) -> TieredLog:
        """What the log offers to a remote tier."""
        ...

    # -- commitment

    def when_committed(
        self, log_end: LogOffset, done: Callable[[Exception | None], None],
        *, timeout_ms: int | None = None,
    ) -> None:
        """Call `done` with None when all below `log_end` is committed, else with the error."""
        ...

    async def committed(self, log_end: LogOffset, *, timeout_ms: int | None = None) -> None:
        """Return once everything below `log_end` is committed; raise if it may not be."""
        ...

    async def flush(self) -> None:
        """Return once everything that this node has appended is on its disk."""
        ...

    @property
    def internal(self) -> InternalRecords:
        """The internal records of this log."""
        ...

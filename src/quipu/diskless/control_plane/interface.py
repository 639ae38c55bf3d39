"""`ControlPlane`: assigns offsets to the batches of objects, and knows where each batch is.

Writers store an object first and commit it then; a commit gives every batch its offsets in one
atomic step, so all writers of a log share one order.  Readers ask which objects have the batches
from an offset on.  Nothing here reads or writes objects.

Invariants, of every implementation (tests/contract/control_plane)
    diskless.C1  the offsets of a log are dense: the base offset of an accepted batch is the high
                 watermark at its commit, which grows by the batch's record count
    diskless.C2  a commit is durable before it returns; it is carried out whole or not at all, each
                 batch with an outcome of its own.  A commit of a key that was committed before
                 changes nothing, and returns the outcomes of the first time
    diskless.C3  a batch of an idempotent producer is accepted if it follows the producer's last
                 batch in that log (after sequence 2^31 - 1 comes 0), or is the first of its epoch
                 and has sequence 0, or if the log knows no batch of that producer, as in Kafka; it
                 is a duplicate if one of the producer's last PRODUCER_BATCHES batches has the same
                 epoch and sequences; a lower epoch is INVALID_PRODUCER_EPOCH, anything else
                 OUT_OF_ORDER_SEQUENCE_NUMBER.  Batches of one commit count in their order
    diskless.C4  log_start_offset <= diskless_start_offset <= high_watermark, and none of them ever
                 gets lower
    diskless.C5  every offset from diskless_start_offset up to the high watermark is in exactly one
                 run; a run's object is committed and not marked for deletion
    diskless.C6  an object is marked for deletion in the step that takes away its last run (a commit
                 that accepts nothing included); it never gets a run again
    diskless.C7  the cost of an operation depends on what it returns or changes, not on the length
                 of the log
    diskless.C8  a deleted topic stays deleted: its logs are not created again, and commits to them
                 are UNKNOWN_TOPIC_OR_PARTITION
    diskless.C9  who watches is called after each commit, of whichever node, once it is visible to
                 `find`; after a lost connection, listeners are called with `None`, and look again.
                 They are called with MOVED_START after `delete_records`, `retain` or
                 `advance_log_start` of whichever node has moved the start of a log
    diskless.C10  an object that was condemned or forgotten never gets a run: a commit of its key
                  refuses every batch with KAFKA_STORAGE_ERROR, a rewrite to it returns False.  This
                  holds for ever, and takes one row for each writer (fences.py)
    diskless.C11  a control plane belongs to the cluster that was the first to bind it, for ever
    diskless.C12  a log is adopted whole or not at all, in the leader epoch of its head: an adoption
                  in a later epoch replaces an earlier one, as long as nothing was committed; one in
                  an earlier epoch, or of a log that has been written to, changes nothing.  Its
                  offsets go on where they ended, its producers' batches are judged as if they had
                  been committed here, and claims have later epochs than the head's

Every operation may raise `ControlPlaneUnavailable`: nothing was changed; or
`CommitOutcomeUnknown`, after which it may be repeated: all operations are idempotent.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from quipu.diskless.values import BatchRun, Lineage, LogBounds, LogKey, NewObject
from quipu.model.errors import Code
from quipu.model.ids import NodeId, Offset, ProducerId, TimestampMs

PRODUCER_BATCHES: Final = 5  # of a producer in a log that are remembered, as in Kafka
COMMIT_BATCHES_MAX: Final = 10_000  # of one object
FIND_RUNS_MAX: Final = 1000  # returned for one log by one call
LIMIT_MAX: Final = 1000  # objects or logs returned by one call


class BatchOutcome(NamedTuple):
    """What a commit did with one batch."""

    code: Code = Code.NONE
    base_offset: Offset = Offset(-1)  # also of a duplicate: where it was the first time
    log_start_offset: Offset = Offset(-1)
    is_duplicate: bool = False


class FindRequest(NamedTuple):
    """Which runs of a log a reader wants."""

    log: LogKey
    offset: Offset
    max_bytes: int  # runs are returned until they have so many bytes, but at least one


class FoundRuns(NamedTuple):
    """The runs from an offset on, in order and without gaps, with the log's bounds.

    `bounds` is None if there is no such log.  There are no runs if the offset is at the high
    watermark, or out of range (below diskless_start_offset, or above the high watermark).
    """

    bounds: LogBounds | None
    runs: tuple[BatchRun, ...] = ()


class ProducerState(NamedTuple):
    """What a log remembers of an idempotent producer."""

    producer_id: ProducerId
    producer_epoch: int
    last_sequence: int
    last_timestamp: TimestampMs


class RetentionRule(NamedTuple):
    """How long and how much of a log is kept; -1: no limit.

    The oldest runs go while their newest record is older than `retention_ms`, and while the log
    without them has at least `retention_bytes`.  A run without timestamps is as old as its commit.
    """

    log: LogKey
    retention_ms: int
    retention_bytes: int


class ObjectState(NamedTuple):
    """An object as the control plane knows it."""

    key: str
    uploader: NodeId
    size: int
    live_size: int  # bytes of its runs
    run_count: int
    committed_ms: TimestampMs
    marked_ms: TimestampMs | None  # since when nothing refers to it; None: it is in use


class Replacement(NamedTuple):
    """A run that moves to another object: the same batches at another place."""

    old: BatchRun
    key: str
    position: int


class TieringClaim(NamedTuple):
    """The right of one node to move old records of a log to the remote tier."""

    log: LogKey
    epoch: int  # grows with every new owner; used as the leader epoch that fences the tier
    owner: str
    until_ms: TimestampMs


class AdoptedProducer(NamedTuple):
    """An idempotent producer of a log that is adopted."""

    producer_id: ProducerId
    producer_epoch: int
    batches: Sequence[tuple[int, int, int]]  # first and last sequence, base offset; oldest first
    last_timestamp: TimestampMs


class AdoptedLog(NamedTuple):
    """A log that was on disks until now, and takes no more writes there."""

    log: LogKey
    epoch: int  # in which its head enters it; that of its objects
    epochs: Lineage  # of its records so far
    log_start_offset: Offset
    end_offset: Offset  # all records before it are in the remote tier
    producers: Sequence[AdoptedProducer] = ()


MOVED_START: Final = Offset(-1)  # what listeners get instead of a high watermark

# A log and its high watermark, or MOVED_START: ask for its bounds; None: any log.
Listener = Callable[[LogKey | None, Offset], None]


class ControlPlane(Protocol):
    """See the module for what every implementation guarantees."""

    async def open(self) -> None:
        """Connect, and bring the schema up to date; other nodes may do the same meanwhile."""
        ...

    async def close(self) -> None:
        """Release all resources; operations under way end first."""
        ...

    async def bind(self, cluster_id: str) -> str:
        """Let it belong to a cluster, unless it does already; return to which (diskless.C11).

        Who gets another id than its own must not use this control plane: `belong` raises then.
        """
        ...

    # -- logs

    async def create_logs(self, topic_id: UUID, topic: str, partition_count: int) -> None:
        """Create the logs that a topic does not have yet, from partition 0 on (diskless.C8)."""
        ...

    async def delete_topic(self, topic_id: UUID, now_ms: int) -> None:
        """Delete the logs of a topic, with their runs and producers; no error if unknown."""
        ...

    async def topics(self) -> dict[UUID, tuple[str, int]]:
        """Names and partition counts of all topics that are not deleted."""
        ...

    # -- writing

    async def commit(self, new: NewObject, now_ms: int) -> Sequence[BatchOutcome]:
        """Give offsets to the batches of a stored object; one outcome for each, in order."""
        ...

    async def producers(self, log: LogKey) -> Sequence[ProducerState]:
        """The idempotent producers that a log remembers."""
        ...

    async def expire_producers(self, before_ms: int, limit: int) -> int:
        """Forget producers whose last commit was before a time; return how many."""
        ...

    # -- reading

    async def bounds(self, logs: Sequence[LogKey]) -> Sequence[LogBounds | None]:
        """The bounds of each log, all from after the call; None if there is no such log."""
        ...

    async def find(
        self, requests: Sequence[FindRequest], *, runs_max: int = FIND_RUNS_MAX
    ) -> Sequence[FoundRuns]:
        """The runs that each request asks for, at most `runs_max` of one log."""
        ...

    async def find_timestamp(
        self, log: LogKey, timestamp_ms: int, *, from_offset: int = 0
    ) -> BatchRun | None:
        """The first run with a record that is not before a time, of those after `from_offset`.

        If a run begins below the log start, that record may be gone: look in the next runs then.
        """
        ...

    async def find_max_timestamp(self, log: LogKey, *, from_offset: int = 0) -> BatchRun | None:
        """The first of the runs after `from_offset` with the largest timestamp."""
        ...

    def watch(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` after changes, in the event loop (diskless.C9); returns what ends it."""
        ...

    # -- removing

    async def delete_records(self, log: LogKey, before: Offset, now_ms: int) -> LogBounds | None:
        """Move the log start to `before`, -1: to the high watermark; None if there is no such log.

        A `before` above the high watermark changes nothing: compare it with the bounds.
        """
        ...

    async def retain(
        self, rules: Sequence[RetentionRule], now_ms: int, *, runs_max: int = FIND_RUNS_MAX
    ) -> Sequence[LogBounds | None]:
        """Remove the oldest runs that a rule does not keep, at most `runs_max` of each log.

        Call it again while log starts move.
        """
        ...

    # -- objects

    async def objects(self, *, after: str = "", limit: int = LIMIT_MAX) -> Sequence[ObjectState]:
        """Objects in the order of their keys, those marked for deletion too."""
        ...

    async def known_objects(self, keys: Sequence[str]) -> set[str]:
        """Those of the keys that are committed, or marked for deletion."""
        ...

    async def deletable_objects(self, marked_before_ms: int, limit: int) -> Sequence[str]:
        """Keys of objects that nothing refers to since before a time."""
        ...

    async def forget_objects(self, keys: Sequence[str]) -> None:
        """Remove what is known of objects that are deleted; ignores those that are in use.

        Their keys are fenced in the same step (diskless.C10).
        """
        ...

    async def condemn_objects(self, keys: Sequence[str]) -> set[str]:
        """Fence the keys that are not known, so that they are never committed (diskless.C10).

        Returns those: nothing refers to such an object, nor ever will, so it may be deleted.  Keys
        that are known, in use or marked for deletion, are left as they are.
        """
        ...

    async def identity(self) -> UUID:
        """A random id of this control plane's data, made with it; another database has another."""
        ...

    async def object_runs(self, key: str) -> Sequence[BatchRun]:
        """The runs in an object, by position."""
        ...

    async def sparse_objects(
        self, *, live_size_max: int, live_share_max: float, committed_before_ms: int, limit: int
    ) -> Sequence[ObjectState]:
        """Objects in use, oldest first, that are small or mostly dead."""
        ...

    async def rewrite(
        self, new: NewObject, replacements: Sequence[Replacement], now_ms: int
    ) -> bool:
        """Let runs be read from another object, all or none: False if one is not there any more.

        `new.batches` is empty: the runs have their offsets.  Old objects in which nothing is left
        are marked for deletion (diskless.C6).
        """
        ...

    # -- the remote tier

    async def claim_tiering(
        self, log: LogKey, owner: str, now_ms: int, lease_ms: int
    ) -> TieringClaim | None:
        """Claim a log for tiering, or renew the claim; None while another owner has it."""
        ...

    async def aged_runs(
        self, log: LogKey, before_ms: int, *, limit: int = FIND_RUNS_MAX
    ) -> Sequence[BatchRun]:
        """The oldest runs of a log, up to the first with a record that is not before a time."""
        ...

    async def note_tiered(
        self, claim: TieringClaim, end_offset: Offset, now_ms: int
    ) -> LogBounds | None:
        """Records below `end_offset` are in the remote tier: their runs go (diskless.C6).

        None, and nothing changes, if another owner has claimed the log since.
        """
        ...

    async def advance_log_start(
        self, log: LogKey, log_start: Offset, now_ms: int
    ) -> LogBounds | None:
        """The remote tier has expired records below `log_start`, which is in the tier."""
        ...

    # -- logs that were on disks

    async def adopt_log(self, adopted: AdoptedLog, now_ms: int) -> bool:
        """Enter a log that exists here, and has its records in the remote tier (diskless.C12).

        Returns whether it is entered as this head says: now, or by an earlier call.
        """
        ...

    async def lineages(self, logs: Sequence[LogKey]) -> Sequence[Lineage | None]:
        """The leader epochs of each log; None if there is no such log."""
        ...

    async def restore_lineage(self, log: LogKey, lineage: Lineage) -> None:
        """Give a log the leader epochs that it had when it was adopted, unless it has such.

        Claims have later epochs than its last one.
        """
        ...

    # -- rebuilding

    async def restore_objects(
        self, objects: Sequence[tuple[NewObject, Sequence[Offset]]], now_ms: int
    ) -> None:
        """Enter objects whose batches have these base offsets (-1: the batch is not in use).

        High watermarks and producers follow from the batches.  Objects that are known or fenced
        already, batches of topics that do not exist, and those whose offsets another run has, are
        ignored.
        It is fastest if the runs of each log come in the order of their offsets.
        """
        ...

    async def restore_bounds(
        self, log: LogKey, log_start: Offset, diskless_start: Offset, high_watermark: Offset
    ) -> None:
        """Raise the bounds of a log to at least these."""
        ...

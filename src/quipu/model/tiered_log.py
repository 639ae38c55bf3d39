"""A log whose old records are in a remote tier: what it offers to the tier, and what it needs.

`PartitionLog.tier` is the log's side: the code that copies segments asks it for those that may be
copied, and tells it when the tier has them.  `RemoteReads` is the tier's side: the log asks it for
records that it has no more itself.  Neither side knows how the other stores anything.

    leader    for segment in log.tier.segments(): source = log.tier.open(segment); copy it;
              source.release(); await log.tier.note_tiered(segment.end_offset - 1, now_ms)
    replicas  learn of it from the log, and may then delete the segment locally

Records leave both tiers when the log start passes them: `PartitionLog.delete_records`.

Not here: where segments are stored and how they are found again (remote/), when they are copied and
when they expire (broker/tiering).
"""

from typing import TYPE_CHECKING, NamedTuple, Protocol

from quipu.model.ids import Epoch, LogOffset, Offset, TimestampMs

if TYPE_CHECKING:  # a log has one of these
    from quipu.model.partition_log import PartitionLog, PendingRead, TimestampAndOffset


class TierableSegment(NamedTuple):
    """A complete segment that a tier may copy: all its records are committed."""

    base_offset: Offset
    end_offset: Offset  # of the record after its last one
    base_log: LogOffset  # the same, counting internal records
    log_end: LogOffset
    size: int  # bytes
    max_timestamp: TimestampMs
    leader_epochs: tuple[tuple[Epoch, Offset, LogOffset], ...]  # in it, and where each begins


class SegmentSource(Protocol):
    """The bytes of a segment; they stay as they are until `release`, whatever the log does."""

    @property
    def data(self) -> memoryview:
        """All batches as they are stored, each with its prefix, internal ones too."""
        ...

    @property
    def index(self) -> bytes:
        """Entries by which batches are found; see storage/segments/index.py."""
        ...

    @property
    def producers(self) -> bytes:
        """Idempotent producers after its last batch; see storage/derived/checkpoint.py."""
        ...

    def check(self) -> None:
        """Raise `CorruptLog` unless every batch is intact; takes long, and may run in a thread."""
        ...

    def release(self) -> None:
        """Give up the bytes; may be called more than once."""
        ...


class TieredLog(Protocol):
    """What a partition's log offers to the tier; only the leader calls what appends."""

    @property
    def is_enabled(self) -> bool:
        """Whether the topic has a remote tier: remote.storage.enable."""
        ...

    @property
    def has_copies(self) -> bool:
        """Whether the log knows of copies in the tier, also if the topic has no tier any more."""
        ...

    @property
    def is_copied(self) -> bool:
        """Whether segments are to be copied: unless remote.log.copy.disable."""
        ...

    @property
    def is_sealed(self) -> bool:
        """Whether the log is about to become diskless: nothing of it may expire meanwhile."""
        ...

    @property
    def retention_ms(self) -> int:
        """How long records are kept in both tiers together; -1: for ever."""
        ...

    @property
    def retention_bytes(self) -> int:
        """How many bytes are kept in both tiers together; -1: all."""
        ...

    def segments(self, count_max: int = 100) -> list[TierableSegment]:
        """The next segments to copy, oldest first: those after what the tier is known to have.

        Each is complete, ends at or below the last stable offset, and has records at or after the
        log start.  None if the topic has no tier, or nothing is to be copied.
        """
        ...

    def open(self, segment: TierableSegment) -> SegmentSource:
        """The bytes of one of `segments`; raise if the log has it no more, or it is damaged."""
        ...

    async def note_tiered(
        self, last_offset: Offset, now_ms: int, *, timeout_ms: int | None = None
    ) -> None:
        """Record that the tier has everything up to `last_offset`; return when it is committed.

        From then on every replica may delete it locally.  Raise if this node does not lead, or if
        the offset is not below the last stable one.  An offset that is known already is no error.
        """
        ...

    async def forget_tier(self, now_ms: int, *, timeout_ms: int | None = None) -> None:
        """Record that the tier has nothing: the log starts where it starts locally, from now on."""
        ...

    @property
    def only_local_bytes(self) -> int:
        """Bytes of the local segments that hold records which the tier is not known to have."""
        ...

    def epochs(self) -> list[tuple[Epoch, Offset]]:
        """The leader epochs of the log, down to the log start, and where each begins."""
        ...

    def epoch_for_offset(self, offset: Offset) -> Epoch:
        """The leader epoch of the record at `offset`; -1 if it is not known."""
        ...


class RemoteReads(Protocol):
    """Reads of records that only the tier has, or that a disk has damaged.

    All calls come from the event loop, and none of them blocks.  Raised errors are QuipuErrors
    with the code for the client.
    """

    def read(
        self, log: "PartitionLog", offset: Offset, max_bytes: int, *, min_one: bool, end: Offset
    ) -> "list[memoryview] | PendingRead":
        """Data batches from the one that holds `offset` on, without prefixes, as they are sent.

        Only batches below `end`.  At most `max_bytes`, but with `min_one` the first may be larger.
        If the bytes have to be fetched, a `PendingRead`; the same read is then repeated once they
        have arrived (model.P5).
        """
        ...

    async def find_timestamp(
        self, log: "PartitionLog", timestamp_ms: int, *, start: Offset, end: Offset
    ) -> "TimestampAndOffset | None":
        """The first record from `start` up to `end` that is not older than `timestamp_ms`."""
        ...

    async def find_max_timestamp(
        self, log: "PartitionLog", *, start: Offset, end: Offset
    ) -> "TimestampAndOffset | None":
        """The first of the records with the largest timestamp from `start` up to `end`."""
        ...

    async def stored_batches(
        self, log: "PartitionLog", offset: Offset, start: LogOffset, end: LogOffset, *,
        size_max: int,
    ) -> bytes:
        """The batches from log offset `start` up to `end` as they were stored, internal ones too.

        For the repair of a local segment; `offset` is that of the first record from `start` on.
        """
        ...

"""What a diskless partition offers to a remote tier: no segments, only what the tier has.

Old records are moved to the tier by a pass of its own, not from a log on this node's disk.
"""

from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING

from quipu.model.errors import Code, RequestError
from quipu.model.ids import NO_EPOCH, Epoch, Offset
from quipu.model.tiered_log import SegmentSource, TierableSegment

if TYPE_CHECKING:  # it makes this
    from quipu.broker.diskless.partition import DisklessPartition


class DisklessTier:
    """The tier of one partition; implements `quipu.model.tiered_log.TieredLog`."""

    __slots__ = ("_partition",)

    def __init__(self, partition: "DisklessPartition") -> None:
        self._partition = partition

    @property
    def is_enabled(self) -> bool:
        return self._partition.settings.remote_storage_enable

    @property
    def has_copies(self) -> bool:
        return self._partition.local_start_offset > self._partition.log_start_offset

    @property
    def is_copied(self) -> bool:
        return self.is_enabled and not self._partition.settings.remote_log_copy_disable

    @property
    def is_sealed(self) -> bool:
        return False

    @property
    def retention_ms(self) -> int:
        return self._partition.settings.retention_ms

    @property
    def retention_bytes(self) -> int:
        return self._partition.settings.retention_bytes

    def segments(self, count_max: int = 100) -> list[TierableSegment]:
        """None: there is no log on this node's disk to copy from."""
        del count_max
        return []

    def open(self, segment: TierableSegment) -> SegmentSource:
        raise _no_log(self._partition, segment)

    async def note_tiered(
        self, last_offset: Offset, now_ms: int, *, timeout_ms: int | None = None
    ) -> None:
        del now_ms, timeout_ms
        raise _no_log(self._partition, last_offset)

    async def forget_tier(self, now_ms: int, *, timeout_ms: int | None = None) -> None:
        del now_ms, timeout_ms
        raise _no_log(self._partition, "forget_tier")

    @property
    def only_local_bytes(self) -> int:
        return 0

    def epochs(self) -> list[tuple[Epoch, Offset]]:
        # A segment that begins below the log start is of the same history.
        return [(Epoch(epoch), start) for epoch, start in self._partition.lineage]

    def epoch_for_offset(self, offset: Offset) -> Epoch:
        lineage = self._partition.lineage
        index = bisect_right(lineage, offset, key=itemgetter(1))
        return Epoch(lineage[index - 1][0]) if index else NO_EPOCH


def _no_log(partition: "DisklessPartition", what: object) -> RequestError:
    return RequestError(f"{partition.topic_partition} is diskless: it has no segments on this "
                        f"node ({what})", code=Code.INVALID_REQUEST)

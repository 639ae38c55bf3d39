"""Which remote segments may be deleted, and where the log starts then.  Pure.

A segment goes for one of these reasons:

    its deletion has begun                       it is repeated until it is finished
    its copy was abandoned                       the leader that began it is gone, or it failed
    it lies below the log start                  DeleteRecords, or retention before
    it is of epochs before the log's first one   nothing of it can be found any more
    retention.ms, retention.bytes                oldest first; the first one that stays ends it

Retention moves the log start first; only when that is committed may the segments below it go.
Sizes count what lies in the tier once, and what lies only on the leader's disk.

Invariants
    broker.tiering.X1  a segment whose copy is finished goes only if no offset at or above the new
                       log start is found in it by the log's own epochs
    broker.tiering.X2  retention only considers segments of the log's own history
                       (`LogHistory`): what a deposed leader copied of a history that was cut
                       away counts for nothing
    broker.tiering.X3  a ledger that was told of every copy and deletion plans what one plans that
                       is made anew
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain, islice, pairwise
from operator import attrgetter
from typing import NamedTuple
from uuid import UUID

from quipu.model.ids import Epoch, Offset
from quipu.remote.metadata.segment_metadata import RemoteLogSegmentMetadata
from quipu.remote.metadata.states import COPY_FINISHED, RemoteLogSegmentState

Lineage = Sequence[tuple[Epoch, Offset]]  # leader epochs of a log, and where each begins


class RetentionRules(NamedTuple):
    """The retention of a topic over both tiers; -1: none."""

    retention_ms: int
    retention_bytes: int


class ExpiryBounds(NamedTuple):
    """Where a log begins and ends, and the bytes of it that are not in the tier."""

    log_start: Offset
    log_end: Offset
    local_only_bytes: int


class ExpiryPlan(NamedTuple):
    """The log start to move to, and the segments to delete once that is committed."""

    log_start: Offset
    deleted: tuple[RemoteLogSegmentMetadata, ...]
    kept_bytes: int  # in the tier, of segments that the log can find


class LogHistory:
    """The leader epochs of a log up to its end: which segments are of this history."""

    __slots__ = ("_ends", "_first", "_log_end", "_starts")

    def __init__(self, lineage: Lineage, log_end: Offset) -> None:
        self._starts = dict(lineage)
        self._ends = {epoch: end for (epoch, _), (_, end) in pairwise(lineage)}
        self._first = lineage[0] if lineage else None
        self._log_end = log_end

    def has(self, segment: RemoteLogSegmentMetadata) -> bool:
        """Whether all records of `segment` from the log start on are of this history."""
        if self._first is None or segment.end_offset >= self._log_end:
            return False
        first_epoch, first_start = self._first
        is_verified = False
        for number, start, end in segment.epoch_ranges():
            epoch = Epoch(number)
            if end < start:
                continue  # no record of it
            if epoch < first_epoch and end < first_start:
                continue  # below the log start: what follows it in the segment tells
            own_start = self._starts.get(epoch)
            if own_start is None or start < own_start or end >= self._ends.get(
                    epoch, self._log_end):
                return False
            is_verified = True
        return is_verified


def covered_end(
    segments: Sequence[RemoteLogSegmentMetadata], lineage: Lineage, start: Offset, log_end: Offset
) -> Offset:
    """The first offset from `start` on that no finished segment of the log's history has."""
    end, history = start, LogHistory(lineage, log_end)
    for segment in sorted(segments, key=_by_offsets):
        if segment.start_offset > end:
            break
        if (segment.end_offset >= end and segment.state is COPY_FINISHED
                and history.has(segment)):
            end = Offset(segment.end_offset + 1)
    return end


class TierLedger:
    """The remote segments of a partition, in order, for as long as one leader works on them.

    It is made from all segments once; then the leader, who alone changes them, notes what it has
    copied and deleted.  So a plan costs what it deletes, however many segments stay.
    """

    __slots__ = ("_others", "_own", "_own_bytes")

    def __init__(
        self, segments: Iterable[RemoteLogSegmentMetadata], lineage: Lineage, log_end: Offset
    ) -> None:
        self._own: list[RemoteLogSegmentMetadata] = []  # finished, of the log's history; in order
        self._own_bytes = 0
        self._others = {each.segment_id.id: each for each in segments}  # few, in the end
        self._adopt(LogHistory(lineage, log_end))

    def __len__(self) -> int:
        return len(self._own) + len(self._others)

    def copied(self, segment: RemoteLogSegmentMetadata) -> None:
        """Note that the copy of `segment` is finished."""
        assert segment.state is COPY_FINISHED, segment
        last = self._own[-1] if self._own else None
        self._own.append(segment)  # broker.tiering.X3
        if last is None or segment.start_offset > last.end_offset:
            self._own_bytes += segment.segment_size_bytes
        else:
            self._put_in_order()

    def deleted(self, segments: Collection[RemoteLogSegmentMetadata]) -> None:
        """Note that `segments`, which a plan named, are gone."""
        own = [each for each in segments if self._others.pop(each.segment_id.id, None) is None]
        gone = {each.segment_id.id for each in own}
        front = self._front(Offset(max((each.end_offset for each in own), default=-1) + 1))
        kept = [each for each in front if each.segment_id.id not in gone]
        self._own_bytes -= _size(front) - _size(kept)
        self._own[:len(front)] = kept  # broker.tiering.X3

    def plan(
        self, lineage: Lineage, bounds: ExpiryBounds, rules: RetentionRules, *, now_ms: int,
        being_copied: AbstractSet[UUID] = frozenset(),
    ) -> ExpiryPlan:
        """Decide about all segments; `being_copied` are this leader's own copies."""
        self._adopt(LogHistory(lineage, bounds.log_end))
        deleted = self._others_to_delete(lineage, bounds, being_copied)
        below = self._front(bounds.log_start)
        stay = [each for each in below if each.end_offset >= bounds.log_start]
        own_bytes = self._own_bytes - _size(below) + _size(stay)
        log_start = _retained_start(
            chain(stay, islice(self._own, len(below), None)), own_bytes, bounds, rules, now_ms)
        front = self._front(log_start)
        kept = [each for each in front if each.end_offset >= log_start]
        deleted += [each for each in front if each.end_offset < log_start]  # broker.tiering.X1
        assert log_start >= bounds.log_start, (log_start, bounds)
        return ExpiryPlan(
            log_start, tuple(deleted), self._own_bytes - _size(front) + _size(kept))

    def _adopt(self, history: LogHistory) -> None:
        """Take in segments that turn out to be of the log's history (broker.tiering.X2)."""
        found = [each for each in self._others.values()
                 if each.state is COPY_FINISHED and history.has(each)]
        for each in found:
            self._own.append(self._others.pop(each.segment_id.id))
        if found:
            self._put_in_order()

    def _others_to_delete(
        self, lineage: Lineage, bounds: ExpiryBounds, being_copied: AbstractSet[UUID]
    ) -> list[RemoteLogSegmentMetadata]:
        first_epoch = lineage[0][0] if lineage else Epoch(0)
        deleted: list[RemoteLogSegmentMetadata] = []
        for segment in self._others.values():
            match segment.state:
                case RemoteLogSegmentState.COPY_SEGMENT_STARTED:
                    is_gone = segment.segment_id.id not in being_copied
                case RemoteLogSegmentState.COPY_SEGMENT_FINISHED:  # of another history
                    is_gone = (segment.end_offset < bounds.log_start
                               or max(segment.segment_leader_epochs) < first_epoch)
                case _:
                    is_gone = True
            if is_gone:
                deleted.append(segment)
        return deleted

    def _front(self, offset: Offset) -> list[RemoteLogSegmentMetadata]:
        """The log's own segments that begin below `offset`."""
        end = bisect_left(self._own, offset, key=attrgetter("start_offset"))
        return self._own[:end]

    def _put_in_order(self) -> None:
        self._own.sort(key=_by_offsets)
        self._own_bytes = _size(self._own)

    def invariants(self) -> None:
        """Assert what holds between two calls."""
        assert self._own == sorted(self._own, key=_by_offsets)
        assert self._own_bytes == _size(self._own)


def _retained_start(
    own: Iterable[RemoteLogSegmentMetadata], own_bytes: int, bounds: ExpiryBounds,
    rules: RetentionRules, now_ms: int,
) -> Offset:
    """Where the log starts after retention; `own` are its segments in order, of that size."""
    log_start = bounds.log_start
    surplus = (own_bytes + bounds.local_only_bytes - rules.retention_bytes
               if rules.retention_bytes >= 0 else -1)
    for segment in own:
        is_old = 0 <= rules.retention_ms < now_ms - segment.max_timestamp_ms
        is_surplus = surplus >= segment.segment_size_bytes
        if not (is_old or is_surplus):
            break
        surplus -= segment.segment_size_bytes
        log_start = max(log_start, Offset(segment.end_offset + 1))
    return log_start


def _by_offsets(segment: RemoteLogSegmentMetadata) -> tuple[int, int]:
    return segment.start_offset, segment.end_offset


def _size(segments: Iterable[RemoteLogSegmentMetadata]) -> int:
    """Bytes of segments, of which a second copy of the same offsets counts for nothing."""
    total, covered = 0, -1
    for segment in segments:
        if segment.end_offset > covered:
            total += segment.segment_size_bytes
            covered = segment.end_offset
    return total

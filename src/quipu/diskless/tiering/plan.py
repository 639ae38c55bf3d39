"""Aged runs of a log -> the segments to make of them.  Pure: the same runs give the same segments.

Runs are taken in order until the next one would make the segment too large.  What is left after the
last full segment waits for more, unless it is old enough to go by itself: else every flush would
become a segment of its own.

Invariants
    diskless.T1  the segments of a plan follow each other without a gap, and begin where the runs
                 begin; each has whole runs, at least one, and no more bytes than allowed unless it
                 is one run
    diskless.T2  a segment's id follows from its log, its offsets and the epoch of the claim under
                 which it is made.  So a step that is repeated under its claim names the same
                 segment, and what a later owner deletes of an earlier one is never its own

Not here: which runs are aged (the control plane), their bytes (merge.py).
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from uuid import UUID, uuid5

from quipu.diskless.values import LEADER_EPOCH, BatchRun, LogKey
from quipu.model.ids import Offset, TimestampMs
from quipu.wire.stored_batch import PREFIX_SIZE

SEGMENT_SIZE_MAX: Final = 64 << 20  # bytes: a segment is merged in memory
SEGMENTS_MAX: Final = 16  # of one plan
AS_RETENTION: Final = -2


class SegmentPlan(NamedTuple):
    """A segment to make, and the runs of which it is made."""

    log: LogKey
    topic: str
    segment_id: UUID
    start_offset: Offset
    end_offset: Offset  # of the record after its last one
    size: int  # bytes of its stored batches
    max_timestamp: TimestampMs
    runs: tuple[BatchRun, ...]
    leader_epoch: int = LEADER_EPOCH  # of all of its batches


class PlanRules(NamedTuple):
    """How large segments are, and when a smaller one is made."""

    segment_size: int  # bytes
    rest_before_ms: int  # a smaller segment is made if its first run is older than that


def plan_segments(
    runs: Sequence[BatchRun], rules: PlanRules, *, topic: str, claim_epoch: int,
    segments_max: int = SEGMENTS_MAX, leader_epoch: int = LEADER_EPOCH,
) -> list[SegmentPlan]:
    """The segments to make of `runs`, which follow each other; at most `segments_max`."""
    size_max = min(rules.segment_size, SEGMENT_SIZE_MAX)
    found: list[SegmentPlan] = []
    group: list[BatchRun] = []
    size = 0
    for run in runs:
        assert not group or group[-1].end_offset == run.base_offset, (group[-1], run)
        run_size = stored_size(run)
        if group and size + run_size > size_max:
            found.append(_segment(group, topic, claim_epoch, leader_epoch))
            group, size = [], 0
            if len(found) == segments_max:
                return found
        group.append(run)
        size += run_size
    if group and (size >= size_max or group[0].max_timestamp < rules.rest_before_ms):
        found.append(_segment(group, topic, claim_epoch, leader_epoch))
    return found


def local_retention(local_retention_ms: int, retention_ms: int) -> int:
    """The age in milliseconds from which records are moved; -1: never.

    As in Kafka, a local.retention.ms of -2 is the topic's retention.ms.
    """
    return retention_ms if local_retention_ms == AS_RETENTION else local_retention_ms


def stored_size(run: BatchRun) -> int:
    """Bytes that the batches of a run take in a segment."""
    return run.size + PREFIX_SIZE * run.batch_count


def segment_id(log: LogKey, start: int, end: int, claim_epoch: int) -> UUID:
    """The id of a segment of these offsets, made under that claim (diskless.T2)."""
    return uuid5(log.topic_id, f"{log.partition} {start} {end} {claim_epoch}")


def _segment(
    runs: Iterable[BatchRun], topic: str, claim_epoch: int, leader_epoch: int
) -> SegmentPlan:
    runs = tuple(runs)
    log, start, end = runs[0].log, runs[0].base_offset, runs[-1].end_offset  # diskless.T1
    return SegmentPlan(
        log, topic, segment_id(log, start, end, claim_epoch), start, end,
        sum(map(stored_size, runs)), TimestampMs(max(run.max_timestamp for run in runs)), runs,
        leader_epoch)

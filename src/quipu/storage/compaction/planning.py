"""Which segments of a log are compacted, and when.  Pure: decides, and changes nothing.

A log is divided by two log offsets:

    | cleaned segments   | dirty segments     | not cleanable: the active segment, what is too new,
    | from the first     | from the cleaned   | or not committed and flushed
    | one on             | end on             |

A *pass* notes the last offset of each key from the cleaned end on, as far as its memory allows,
and rewrites all segments up to there.  A pass *for tombstones* notes none, and rewrites only the
segments that have tombstones whose time is over.

Invariants
    storage.KP1  only what is committed, flushed and complete is compacted; and so is at least the
        checkpoint after it, so the derived state of the log never depends on compacted batches
    storage.KP2  a record is not removed before it is min.compaction.lag.ms old: dirty segments with
        a newer record are not cleanable, nor are those after them
    storage.KP3  neighbours are merged only if together they are no larger than one segment may be
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from quipu.storage.compaction.fillers import SPAN_MAX
from quipu.storage.compaction.marks import NO_MARK, CompactionMark
from quipu.storage.config import LogConfig

GROUP_SEGMENTS_MAX: Final = 1000  # that are merged into one


class SegmentFacts(NamedTuple):
    """What is known of a complete segment."""

    base_log: int
    log_end: int
    size: int
    base_offset: int
    end_offset: int
    newest_ms: int  # timestamp of its newest record
    created_ms: int
    mark: CompactionMark = NO_MARK


class CompactionPlan(NamedTuple):
    """What one run does; `dirty_ratio` says how urgent it is."""

    groups: tuple[tuple[int, ...], ...]  # base log offsets of segments that become one
    first_dirty: int  # the log offset from which keys are noted
    end: int  # the log offset up to which they are noted at most; first_dirty: none are
    dirty_ratio: float
    dirty_size: int


def cleaned_end(segments: Sequence[SegmentFacts]) -> int:
    """The log offset below which the log is compacted (storage.KM1); its first one if none is."""
    ends = [segment.mark.cleaned_end for segment in segments
            if segment.base_log < segment.mark.cleaned_end <= segment.log_end]
    return max(ends, default=segments[0].base_log if segments else 0)


def make_plan(
    segments: Sequence[SegmentFacts], config: LogConfig, *, bound: int, now_ms: int
) -> CompactionPlan | None:
    """What to compact of these complete segments; None if nothing is due.

    `bound` is the log offset below which everything is committed and flushed.
    """
    clean_end = cleaned_end(segments)
    cleanable: list[SegmentFacts] = []
    for segment in segments:
        if segment.log_end >= bound:  # storage.KP1
            break
        is_young = 0 < config.min_compaction_lag_ms > now_ms - segment.newest_ms
        if segment.log_end > clean_end and is_young:
            break  # storage.KP2
        cleanable.append(segment)
    dirty = [segment for segment in cleanable if segment.log_end > clean_end]
    size = sum(segment.size for segment in cleanable)
    dirty_size = sum(segment.size for segment in dirty)
    ratio = dirty_size / size if size else 0.0
    if dirty and (ratio >= config.min_cleanable_dirty_ratio or _is_overdue(dirty, config, now_ms)):
        return CompactionPlan(_grouped(cleanable, config.segment_bytes), clean_end,
                              dirty[-1].log_end, ratio, dirty_size)
    expired = [segment for segment in cleanable
               if segment.log_end <= clean_end and segment.mark.horizon_ms <= now_ms]
    if expired:
        return CompactionPlan(tuple((segment.base_log,) for segment in expired), clean_end,
                              clean_end, ratio, dirty_size)
    return None


def _is_overdue(dirty: Sequence[SegmentFacts], config: LogConfig, now_ms: int) -> bool:
    """Does max.compaction.lag.ms demand it, whatever the ratio is?"""
    return any(now_ms - segment.created_ms >= config.max_compaction_lag_ms for segment in dirty)


def _grouped(
    segments: Sequence[SegmentFacts], segment_bytes: int
) -> tuple[tuple[int, ...], ...]:
    """Neighbours that become one segment (storage.KP3)."""
    groups: list[list[SegmentFacts]] = []
    for segment in segments:
        group = groups[-1] if groups else []
        if group and (sum(each.size for each in group) + segment.size <= segment_bytes
                      and segment.log_end - group[0].base_log <= SPAN_MAX
                      and len(group) < GROUP_SEGMENTS_MAX):
            group.append(segment)
        else:
            groups.append([segment])
    return tuple(tuple(segment.base_log for segment in group) for group in groups)

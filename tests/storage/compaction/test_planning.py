"""Which segments are compacted, and when: values in, values out."""

from dataclasses import replace

import pytest

from quipu.storage.compaction.marks import CompactionMark
from quipu.storage.compaction.planning import SegmentFacts, cleaned_end, make_plan
from quipu.storage.config import LogConfig

NOW_MS = 1_000_000
CONFIG = LogConfig(compacts=True, segment_bytes=1000, min_cleanable_dirty_ratio=0.5)


def segments(count: int, *, size: int = 400, cleaned: int = 0) -> list[SegmentFacts]:
    """Segments of ten records each; the first `cleaned` of them are compacted."""
    return [SegmentFacts(
        number * 10, number * 10 + 10, size, number * 10, number * 10 + 10, NOW_MS - 100,
        NOW_MS - 200, CompactionMark(cleaned * 10) if number < cleaned else CompactionMark(-1))
        for number in range(count)]


@pytest.mark.parametrize(("bound", "groups"), [
    (1000, ((0, 10), (20, 30))), (40, ((0, 10), (20,))), (31, ((0, 10), (20,))),
    (21, ((0, 10),)), (10, None)])
def test_only_what_is_committed_and_flushed_is_compacted(
    bound: int, groups: tuple[tuple[int, ...], ...] | None
) -> None:
    """K5: and the checkpoint after it is, too (storage.KP1); neighbours that fit are merged."""
    plan = make_plan(segments(4), CONFIG, bound=bound, now_ms=NOW_MS)
    assert (None if plan is None else plan.groups) == groups


def test_the_cleaned_end_is_that_of_the_segment_that_holds_it() -> None:
    """K5: a pass that was cut off before its last segment was switched has cleaned nothing.

    Shows storage.KM1.
    """
    assert cleaned_end(segments(4, cleaned=2)) == 20
    first, second, *rest = segments(4, cleaned=2)
    assert cleaned_end([first, second._replace(mark=CompactionMark(-1)), *rest]) == 0


@pytest.mark.parametrize(("lag_ms", "is_due"), [(0, True), (100, True), (101, False)])
def test_young_records_are_left_alone(lag_ms: int, is_due: bool) -> None:
    """K5: min.compaction.lag.ms counts from the newest record of a segment (storage.KP2)."""
    config = replace(CONFIG, min_compaction_lag_ms=lag_ms)
    assert (make_plan(segments(3), config, bound=99, now_ms=NOW_MS) is not None) == is_due


@pytest.mark.parametrize(("cleaned", "ratio", "lag_ms", "is_due"), [
    (2, 0.5, 1 << 40, True), (3, 0.5, 1 << 40, False), (3, 0.25, 1 << 40, True),
    (3, 0.5, 200, True), (3, 0.5, 201, False), (4, 0.0, 1, False)])
def test_a_log_is_compacted_when_it_is_dirty_enough_or_late(
    cleaned: int, ratio: float, lag_ms: int, is_due: bool
) -> None:
    """K5: min.cleanable.dirty.ratio, unless max.compaction.lag.ms is over."""
    config = replace(CONFIG, min_cleanable_dirty_ratio=ratio, max_compaction_lag_ms=lag_ms)
    plan = make_plan(segments(4, cleaned=cleaned), config, bound=99, now_ms=NOW_MS)
    assert (plan is not None) == is_due

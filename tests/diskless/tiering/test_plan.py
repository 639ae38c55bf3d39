"""Aged runs become segments that are dense, bounded, and named by what is in them."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from quipu.diskless.tiering.plan import PlanRules, plan_segments, segment_id, stored_size
from quipu.diskless.values import BatchRun
from quipu.model.ids import Offset, TimestampMs
from tests.diskless.tiering.made import LOG, TOPIC

ALL = 1 << 62


def runs_of(sizes: list[int], *, first: int = 0) -> list[BatchRun]:
    """Runs of these sizes, one record and one millisecond each."""
    return [BatchRun(LOG, Offset(first + at), Offset(first + at + 1), f"objects/{at}", 8, size, 1,
                     TimestampMs(at)) for at, size in enumerate(sizes)]


@given(st.lists(st.integers(61, 400), min_size=1, max_size=60), st.integers(1, 1_000))
def test_segments_are_dense_and_bounded(sizes: list[int], size_max: int) -> None:
    """D8: the segments of a plan follow each other (diskless.T1)."""
    runs = runs_of(sizes, first=50)

    plans = plan_segments(runs, PlanRules(size_max, ALL), topic=TOPIC, claim_epoch=1,
                          segments_max=1000)

    assert [run for plan in plans for run in plan.runs] == runs
    assert (plans[0].start_offset, plans[-1].end_offset) == (50, 50 + len(sizes))
    assert all(a.end_offset == b.start_offset for a, b in pairwise(plans))
    for plan in plans:
        assert plan.size == sum(map(stored_size, plan.runs))
        assert plan.size <= size_max or len(plan.runs) == 1
        assert plan.max_timestamp == plan.runs[-1].max_timestamp


@given(st.lists(st.integers(61, 400), min_size=1, max_size=60), st.integers(100, 1_000),
       st.integers(0, 60))
def test_more_runs_change_no_full_segment(sizes: list[int], size_max: int, more: int) -> None:
    """D8: a step that is taken again names the same segments, whatever has aged meanwhile."""
    rules = PlanRules(size_max, 0)
    plans = plan_segments(runs_of(sizes), rules, topic=TOPIC, claim_epoch=4, segments_max=1000)
    later = plan_segments(runs_of(sizes + [99] * more), rules, topic=TOPIC, claim_epoch=4,
                          segments_max=1000)

    full = [plan for plan in plans if plan.end_offset < len(sizes)]
    assert later[: len(full)] == full


def test_a_rest_waits_until_it_is_old() -> None:
    """D8: what does not fill a segment goes only when its first record is old enough."""
    runs = runs_of([100, 100, 100])

    assert plan_segments(runs, PlanRules(1000, 0), topic=TOPIC, claim_epoch=1) == []
    (plan,) = plan_segments(runs, PlanRules(1000, 1), topic=TOPIC, claim_epoch=1)
    assert plan.end_offset == 3


def test_a_plan_is_bounded() -> None:
    """D8: a long backlog is moved in several steps."""
    plans = plan_segments(runs_of([100] * 50), PlanRules(100, ALL), topic=TOPIC, claim_epoch=1,
                          segments_max=7)

    assert [plan.end_offset for plan in plans] == [1, 2, 3, 4, 5, 6, 7]


def test_ids_follow_from_offsets_and_claim() -> None:
    """D8: one id for one segment of one claim, and another for everything else (diskless.T2)."""
    ids = {segment_id(LOG._replace(partition=partition), start, end, epoch)
           for partition in (0, 1) for start in (0, 5) for end in (10, 11) for epoch in (1, 2)}

    assert len(ids) == 16
    assert segment_id(LOG, 0, 10, 1) == segment_id(LOG, 0, 10, 1)

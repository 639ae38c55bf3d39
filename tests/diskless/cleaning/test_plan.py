"""Which sparse objects are written together: bounded, worth the work, and nothing twice."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from quipu.diskless.cleaning.plan import (
    PlanLimits,
    SparseObject,
    in_new_order,
    is_mostly_dead,
    plan_rewrites,
)
from quipu.diskless.control_plane.interface import ObjectState
from quipu.diskless.values import BatchRun, LogKey
from quipu.model.ids import NodeId, Offset, TimestampMs

LIMITS = PlanLimits(object_bytes=1000, pass_bytes=3000, live_share=0.25, objects_min=4, runs_max=20)
LOG = LogKey(UUID(int=1), 0)


def sparse(key: str, *sizes: int, dead: int = 0) -> SparseObject:
    """An object with runs of these sizes, and `dead` bytes that nothing refers to."""
    runs = tuple(BatchRun(LOG, Offset(index), Offset(index + 1), key, 16, size, 1, TimestampMs(0))
                 for index, size in enumerate(sizes))
    return SparseObject(ObjectState(key, NodeId(0), sum(sizes) + dead, sum(sizes), len(runs),
                                    TimestampMs(0), None), runs)


def keys(plan: list[tuple[SparseObject, ...]]) -> list[list[str]]:
    return [[each.state.key for each in group] for group in plan]


def test_small_objects_become_one_if_they_are_enough() -> None:
    """D7: fewer than `objects_min` small objects are left alone until there are more."""
    some = [sparse(name, 100) for name in "abc"]
    assert plan_rewrites(some, LIMITS) == []
    assert keys(plan_rewrites([*some, sparse("d", 100)], LIMITS)) == [["a", "b", "c", "d"]]


def test_a_mostly_dead_object_is_rewritten_alone() -> None:
    """D7: one log of long retention does not keep the bytes of all others."""
    assert keys(plan_rewrites([sparse("a", 100, dead=2900), sparse("b", 100)], LIMITS)) == [["a"]]


def test_an_object_too_large_for_a_new_one_is_left() -> None:
    """D7: a plan never makes an object above its bound, and a large one does not stop others."""
    found = [sparse("a", 1001, dead=100_000), sparse("b", 10, dead=900)]
    assert keys(plan_rewrites(found, LIMITS)) == [["b"]]


def test_an_object_without_runs_is_left() -> None:
    """D7: it has lost its last run since it was found, and is marked for deletion."""
    assert plan_rewrites([sparse("a", dead=900)], LIMITS) == []


found_objects = st.lists(st.tuples(
    st.lists(st.integers(61, 1200), max_size=25), st.sampled_from([0, 50, 5000])), max_size=40).map(
        lambda found: [sparse(f"{index:03}", *sizes, dead=dead)
                       for index, (sizes, dead) in enumerate(found)])


@given(found_objects)
def test_every_plan_is_bounded_and_worth_it(found: list[SparseObject]) -> None:
    """D7: whatever is found, sizes are bounded, and each group replaces many or frees most."""
    plan = plan_rewrites(found, LIMITS)
    planned = [each for group in plan for each in group]
    assert planned == [each for each in found if each in planned]  # in order, none twice
    assert sum(each.live_size for each in planned) <= LIMITS.pass_bytes
    for group in plan:
        assert group
        assert sum(each.live_size for each in group) <= LIMITS.object_bytes
        assert sum(len(each.runs) for each in group) <= LIMITS.runs_max
        assert len(group) >= LIMITS.objects_min or all(
            is_mostly_dead(each, LIMITS.live_share) for each in group)
        runs = in_new_order(group)
        assert sorted(runs) == sorted(run for each in group for run in each.runs)
        assert [(run.log, run.base_offset) for run in runs] == sorted(
            (run.log, run.base_offset) for run in runs)


@given(st.integers(1, 300))
def test_a_record_is_copied_a_few_times_at_most(count: int) -> None:
    """D7: objects that are put together again and again grow by a factor each time."""
    objects = [sparse(f"{index:03}", 100) for index in range(count)]
    limits = LIMITS._replace(object_bytes=100_000, pass_bytes=1 << 40, runs_max=1000)
    copies = 0
    for turn in range(20):
        groups = plan_rewrites([each for each in objects if each.live_size < 6_400], limits)
        if not groups:
            break
        done = {each for group in groups for each in group}
        copies += sum(each.live_size for each in done)
        objects = [each for each in objects if each not in done] + [
            sparse(f"{turn}-{index}", *(run.size for each in group for run in each.runs))
            for index, group in enumerate(groups)]
    assert copies <= 4 * 100 * count  # 6400 is 100 times 4 to the power of 3

"""Which sparse objects are written together as one new object (core).

Objects become sparse in two ways.  A node with little traffic writes small ones; and of an object
that many logs share, the last run pins all bytes, however long its retention is.

Goals
    * bytes that nothing needs go, within a bounded factor: of an object that is rewritten alone at
      most `live_share` of its bytes are copied
    * few objects: small ones are put together until a new one is large
    * bounded cost: a record is copied a few times in its life, not once in every pass.  Small
      objects are put together only if they are `objects_min` or more, so with each copy the size
      grows by about that factor, up to the size at which an object is not small any more

Not here: reading and writing (rewriting.py).
"""

from collections.abc import Sequence
from typing import NamedTuple

from quipu.diskless.control_plane.interface import ObjectState
from quipu.diskless.objects.footer import index_size
from quipu.diskless.values import BatchRun


class SparseObject(NamedTuple):
    """An object with the runs that are left in it."""

    state: ObjectState
    runs: tuple[BatchRun, ...]

    @property
    def live_size(self) -> int:
        """Bytes of its runs."""
        return sum(run.size for run in self.runs)


class PlanLimits(NamedTuple):
    """The bounds of a plan; see `CleaningLimits`."""

    object_bytes: int  # of the batches of one new object
    pass_bytes: int  # of all of them
    live_share: float
    objects_min: int
    runs_max: int  # of one new object


def is_mostly_dead(found: SparseObject, live_share: float) -> bool:
    """Whether rewriting the object alone frees enough bytes; it does not twice in a row."""
    index = index_size(len({run.log for run in found.runs}),
                       sum(run.batch_count for run in found.runs))
    return found.live_size + index <= found.state.size * live_share


def plan_rewrites(
    found: Sequence[SparseObject], limits: PlanLimits
) -> list[tuple[SparseObject, ...]]:
    """Groups of objects, each to become one; objects that are better left alone are in none.

    `found` is in the order in which the objects were committed, and so are the members of a group:
    records that were written at the same time stay together.
    """
    groups: list[tuple[SparseObject, ...]] = []
    group: list[SparseObject] = []
    size = runs = total = 0
    for each in found:
        live = each.live_size
        if not each.runs or live > limits.object_bytes or len(each.runs) > limits.runs_max:
            continue
        if total + live > limits.pass_bytes:
            break
        if size + live > limits.object_bytes or runs + len(each.runs) > limits.runs_max:
            groups.append(tuple(group))
            group, size, runs = [], 0, 0
        group.append(each)
        size += live
        runs += len(each.runs)
        total += live
    groups.append(tuple(group))
    worthy = (_worthy(each, limits) for each in groups)
    return [each for each in worthy if each]


def _worthy(
    group: tuple[SparseObject, ...], limits: PlanLimits
) -> tuple[SparseObject, ...]:
    """All of a group if one object replaces many; else those whose bytes are mostly dead."""
    if len(group) >= limits.objects_min:
        return group
    return tuple(each for each in group if is_mostly_dead(each, limits.live_share))


def in_new_order(group: Sequence[SparseObject]) -> list[BatchRun]:
    """The runs of a group as they lie in the new object: by log, then by offset."""
    return sorted((run for each in group for run in each.runs),
                  key=lambda run: (run.log, run.base_offset))

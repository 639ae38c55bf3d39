"""The records that bring diskless partitions to their target, a bounded number at a time.

One call looks at the partitions of one topic, from a given one on, and stops when it has looked at
or moved enough: the caller goes on from there (broker/cluster/reconciliation.py).
"""

from typing import NamedTuple

from quipu.controller.decision import Decision, Numbers
from quipu.controller.diskless import DisklessMoves
from quipu.controller.managed.planning import Planner
from quipu.controller.placement import DisklessPlacement
from quipu.controller.state import ClusterState
from quipu.controller.topic_state import Topic


class Progress(NamedTuple):
    """How far a call came."""

    next_partition: int  # where the next call goes on; the number of partitions at the end
    drifted: int  # partitions, of those looked at, that are not at their target
    moves: int  # replicas that are added or removed


class Bounds(NamedTuple):
    """How much one call may do."""

    looked_at: int  # partitions
    moves: int  # replicas that may be added or removed; 0: look only


def reconcile(
    state: ClusterState, topic: Topic, first: int, planner: Planner, bounds: Bounds
) -> Decision[Progress]:
    """Take the next step for partitions of `topic`, from number `first` on.

    A step is taken as a whole, so the last one may exceed `bounds.moves`.
    """
    moves = DisklessMoves(Numbers(state))
    drifted = moved = 0
    index = first
    end = min(len(topic.partitions), first + bounds.looked_at)
    while index < end:
        placement = topic.partitions[index].placement
        assert isinstance(placement, DisklessPlacement), topic.name
        found = planner.assess(placement.replicas, placement.leader)
        if found.is_drifted:
            if bounds.moves and moved >= bounds.moves:
                break
            drifted += 1
            step = (planner.next_step(placement.replicas, placement.leader)
                    if bounds.moves else None)
            if step is not None:
                moves.add(topic, index, step.replicas, step.leader)
                moved += step.moves
        index += 1
    return Decision(moves.records, [Progress(index, drifted, moved)])

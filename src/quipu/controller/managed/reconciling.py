"""The records that bring diskless partitions to their target, a bounded number at a time.

One call looks at the partitions of one topic, from a given one on, and stops when it has looked at
enough: the caller goes on from there (broker/cluster/reconciliation.py).
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
    drifted: int = 0  # partitions, of those looked at, that are not at their target
    moves: int = 0  # replicas that are added or removed
    is_cut: bool = False  # more could have been moved than was allowed


class Bounds(NamedTuple):
    """How much one call may do."""

    looked_at: int  # partitions
    moves: int  # replicas that may be added or removed; 0: look only


def reconcile(
    state: ClusterState, topic: Topic, first: int, planner: Planner, bounds: Bounds
) -> Decision[Progress]:
    """Take the next step for partitions of `topic`, from number `first` on.

    The last step may be a part of one, so that `bounds.moves` holds.
    """
    made = DisklessMoves(Numbers(state))
    drifted = moves = 0
    is_cut = False
    end = min(len(topic.partitions), first + bounds.looked_at)
    for index in range(first, end):
        placement = topic.partitions[index].placement
        assert isinstance(placement, DisklessPlacement), topic.name
        replicas, leader = placement.replicas, placement.leader
        if not planner.assess(replicas, leader).is_drifted:
            continue
        drifted += 1
        left = bounds.moves - moves
        if not left:
            is_cut = True
            continue
        step = planner.next_step(replicas, leader, left)
        if step is not None:
            made.add(topic, index, step.replicas, step.leader)
            moves += step.moves
    assert moves <= bounds.moves, (moves, bounds)  # broker.cluster.R1
    return Decision(made.records, [Progress(end, drifted, moves, is_cut)])

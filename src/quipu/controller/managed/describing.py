"""The placement of diskless partitions as administrators see it.

    steady        the replicas are as they should be, as far as brokers are up
    reconciling   they are not, and the controller changes them
    frozen        they are not, and the controller leaves them: diskless.managed.rf.auto.reconcile
                  is false

A rack that should have a replica and has no broker that is up is the exception
`missingRackCapacity`, whether or not a replica is assigned there.

Not here: how this is sent (broker/handlers), or counted (broker/observing).
"""

from enum import IntEnum
from typing import Final, NamedTuple

from quipu.controller.managed.planning import Assessment, assess
from quipu.controller.managed.topology import Topology
from quipu.controller.placement import DisklessPlacement
from quipu.controller.topic_state import PartitionState

MISSING_RACK_CAPACITY: Final = "missingRackCapacity"
FULL_COVERAGE: Final = 100  # percent


class PlacementState(IntEnum):
    """What the controller does about a partition; metrics and responses have these numbers."""

    STEADY = 0
    RECONCILING = 1
    FROZEN = 2


class PlacementDescription(NamedTuple):
    """The placement of one partition."""

    target_racks: tuple[str, ...]
    assigned_racks: tuple[str, ...]  # of its replicas, in their order; repeated if there are two
    rack_coverage: int  # percent of the target racks where a replica is up
    state: PlacementState
    is_drifted: bool
    exceptions: tuple[str, ...]


def describe(
    partition: PartitionState, topology: Topology, *, auto_reconcile: bool
) -> PlacementDescription:
    """The placement of a diskless partition."""
    placement = partition.placement
    assert isinstance(placement, DisklessPlacement), partition
    found = assess(placement.replicas, placement.leader, topology)
    racks = [topology.rack_of.get(node_id) for node_id in placement.replicas]
    up = {rack for node_id, rack in zip(placement.replicas, racks, strict=True)
          if node_id in topology.up}
    covered = sum(rack in up for rack in topology.racks)
    return PlacementDescription(
        target_racks=topology.racks,
        assigned_racks=tuple(rack for rack in racks if rack is not None),
        rack_coverage=(FULL_COVERAGE * covered // len(topology.racks) if topology.racks else 0),
        state=_state(found, auto_reconcile=auto_reconcile),
        is_drifted=found.is_drifted,
        exceptions=exceptions(topology))


def exceptions(topology: Topology) -> tuple[str, ...]:
    """What keeps partitions from having a live replica in each rack."""
    has_all = all(rack in topology.eligible for rack in topology.racks)
    return () if has_all else (MISSING_RACK_CAPACITY,)


def _state(found: Assessment, *, auto_reconcile: bool) -> PlacementState:
    if not found.is_drifted:
        return PlacementState.STEADY
    return PlacementState.RECONCILING if auto_reconcile else PlacementState.FROZEN

"""Placements of diskless partitions at one moment, for responses, pages and metrics.

Any node can describe them, from its own metadata; what the controller does about them follows from
diskless.managed.rf.auto.reconcile as it applies to the node, which should be the same on all nodes.
"""

from quipu.broker.serving.context import Broker
from quipu.controller.managed.describing import PlacementDescription, describe
from quipu.controller.managed.topology import Topology
from quipu.controller.placement import DisklessPlacement
from quipu.controller.racks import racks_of
from quipu.controller.topic_state import PartitionState
from quipu.model.ids import NodeId


class Placements:
    """Describes partitions; those that are placed alike are compared with the racks once."""

    def __init__(self, broker: Broker) -> None:
        self.racks = racks_of(broker.cluster.state.brokers.values())
        self.topology = Topology.of_racks(self.racks)
        settings = broker.cluster.settings  # the dynamic ones included
        self.auto_reconcile = settings.diskless_managed_rf_auto_reconcile
        self.threshold_ms = settings.diskless_managed_rf_rack_unavailable_threshold_ms
        self._known: dict[tuple[tuple[NodeId, ...], NodeId], PlacementDescription] = {}

    @property
    def effective_factor(self) -> int:
        """The number of replicas that each diskless partition should have."""
        return self.topology.effective_factor

    def of(self, partition: PartitionState) -> PlacementDescription:
        """The placement of a diskless partition."""
        placement = partition.placement
        assert isinstance(placement, DisklessPlacement), partition
        key = placement.replicas, placement.leader
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = describe(
                partition, self.topology, auto_reconcile=self.auto_reconcile)
        return found

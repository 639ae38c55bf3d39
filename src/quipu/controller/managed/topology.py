"""The racks of the cluster as planning sees them: plain values, made once for many partitions."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from quipu.controller.members import BrokerState
from quipu.controller.racks import Rack, RackState, racks_of
from quipu.model.ids import NodeId


class Topology(NamedTuple):
    """Which brokers may hold replicas, and in which racks replicas are wanted."""

    racks: tuple[str, ...]  # where each partition should have a replica, in order (the target)
    rack_of: Mapping[NodeId, str]  # of every registered broker
    eligible: Mapping[str, tuple[NodeId, ...]]  # by rack, of HEALTHY ones: brokers that are up
    up: frozenset[NodeId]  # the same, of all racks
    gone: frozenset[NodeId] = frozenset()  # brokers that leave their replicas, see `of`

    @classmethod
    def of(cls, brokers: Iterable[BrokerState]) -> "Topology":
        """The topology of these brokers.

        Racks that are given up are left out: nothing is placed there, and all of their brokers
        are gone.  So are single ones that are given up in a rack that is HEALTHY.  Those of a
        DEGRADED rack are not: its replicas stay, on whichever broker they are.
        """
        return cls.of_racks(racks_of(brokers))

    @classmethod
    def of_racks(cls, racks: Mapping[str, Rack]) -> "Topology":
        return cls(
            racks=tuple(name for name, rack in racks.items()
                        if rack.state is not RackState.UNAVAILABLE),
            rack_of={node_id: name for name, rack in racks.items() for node_id in rack.brokers},
            eligible={name: rack.eligible for name, rack in racks.items() if rack.eligible},
            up=frozenset(node_id for rack in racks.values() for node_id in rack.eligible),
            gone=frozenset(node_id for rack in racks.values()
                           if rack.state is not RackState.DEGRADED for node_id in rack.given_up))

    @property
    def effective_factor(self) -> int:
        """The number of replicas that a partition should have: the number of racks."""
        return len(self.racks)

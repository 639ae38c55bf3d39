"""What a client in a zone is shown of a diskless partition: the replica in its zone, and no other.

Any broker takes writes and serves reads of any diskless partition, so a client that uses one in its
own zone saves the traffic between zones.  Placement is the controller's: here it is filtered, and
never calculated.

    a live replica in the zone     it alone is leader, replicas and ISR
    several of them                the leader, if it is one of them, else the first
    none                           leader, replicas and ISR as the controller has them

Invariants
    broker.serving.Z3  whoever is shown in place of the leader is a replica in the metadata that
                       this node has applied, is not fenced, and has the listener of the client: a
                       placement that is decided and not yet committed is shown to nobody
    broker.serving.Z4  a consumer is sent to a replica in its rack by a node in another rack only,
                       and once in a while for each connection, so it is never sent in circles

Not here: which zone a client is in (client_zone.py), how views are kept (topic_views.py).
"""

from typing import Final, NamedTuple

from quipu.broker.serving.context import Broker
from quipu.broker.serving.routing import find_topic
from quipu.controller.racks import UNKNOWN_RACK, rack_of
from quipu.controller.topic_state import PartitionState
from quipu.model.ids import NO_NODE, NodeId
from quipu.model.listeners import ClientListener

Nodes = frozenset[NodeId]
NOWHERE: Final[Nodes] = frozenset()


class ZoneHits(NamedTuple):
    """How many partitions of a topic were shown to clients with a zone, and how many from it."""

    hits: int = 0
    shown: int = 0

    @property
    def ratio(self) -> float:
        return self.hits / self.shown if self.shown else 0.0


def nodes_in(broker: Broker, zone: str, listener: ClientListener) -> Nodes:
    """The brokers in a zone that are not fenced, and that clients of `listener` can reach."""
    # broker.serving.Z3
    return frozenset(
        known.node_id for known in broker.cluster.state.brokers.values()
        if not known.fenced and rack_of(known) == zone
        and known.endpoint(listener.name) is not None)


def replica_in(state: PartitionState, near: Nodes) -> NodeId:
    """The replica among the nodes `near` that clients there are shown; NO_NODE if none is."""
    if state.leader in near and state.leader in state.replicas:
        return state.leader
    return next((node_id for node_id in state.replicas if node_id in near), NO_NODE)


def projected(state: PartitionState, near: Nodes) -> PartitionState:
    """A diskless partition as clients see it whose zone has the nodes `near`."""
    node_id = replica_in(state, near)
    if node_id == NO_NODE:
        return state
    return state._replace(leader=node_id, replicas=(node_id,), isr=(node_id,))


# -- consumers that say their rack (KIP-392)


def nodes_nearer(broker: Broker, rack: str, listener: ClientListener) -> Nodes:
    """The nodes in a consumer's rack, to which it may be sent; none if this node is in it."""
    if rack == (broker.settings.broker_rack or UNKNOWN_RACK):
        return NOWHERE  # broker.serving.Z4
    return frozenset(node_id for node_id in nodes_in(broker, rack, listener)
                     if broker.cluster.is_settled(node_id))


def nearer_replica(
    broker: Broker, topic: str | bytes, partition: int, near: Nodes
) -> NodeId:
    """The replica of a diskless partition that a consumer should read from instead of here."""
    found = find_topic(broker, topic)
    if found is None or not 0 <= partition < len(found.partitions):
        return NO_NODE
    node_id = replica_in(found.partitions[partition], near)
    return NO_NODE if node_id == broker.node_id else node_id

"""The racks of the cluster: which there are, and whether they can hold replicas.

    HEALTHY      some broker of the rack is up
    DEGRADED     no broker of it is up, for less than the threshold: replicas stay where they are
    UNAVAILABLE  no broker of it is up, and the controller has given the rack up: its replicas are
                 removed, until a broker of it is up again

A broker without a rack is in the rack `unknown`, which is a rack like the others.

A state follows from the metadata alone: each broker has the time at which it was fenced, and
whether its rack was given up since (`BrokerState.fenced_at_ms`, `BrokerState.rack_given_up`).  So
every node sees the same states, and a new controller goes on with the deadline of the one before.

Invariants
    controller.K1  a rack with a broker that is up is HEALTHY; no rack is given up before all of its
                   brokers have been fenced for longer than the threshold
    controller.K2  a rack that is given up stays so until a broker of it is unfenced; one whose
                   first broker has registered counts as given up until then
    controller.K3  a state changes only as TRANSITIONS has it

Not here: what a time is, and when it is looked at (broker/cluster/reconciliation.py); what follows
for replicas (managed/planning.py).
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from quipu.controller.members import BrokerState
from quipu.controller.records import BrokerFencingChanged, Record
from quipu.model.ids import NodeId

UNKNOWN_RACK: Final = "unknown"


class RackState(IntEnum):
    """The liveness of a rack; metrics and responses have these numbers."""

    HEALTHY = 0
    DEGRADED = 1
    UNAVAILABLE = 2


class RackEvent(IntEnum):
    """What changes the state of a rack."""

    LAST_BROKER_DOWN = 0  # its heartbeats are missing, or it stops
    THRESHOLD_EXCEEDED = 1  # since the last broker went down
    BROKER_UP = 2  # any of the rack


# controller.K3: an event that is missing in a state cannot happen, or changes nothing.
TRANSITIONS: Final[Mapping[RackState, Mapping[RackEvent, RackState]]] = {
    RackState.HEALTHY: {RackEvent.LAST_BROKER_DOWN: RackState.DEGRADED},
    RackState.DEGRADED: {RackEvent.THRESHOLD_EXCEEDED: RackState.UNAVAILABLE,
                         RackEvent.BROKER_UP: RackState.HEALTHY},
    RackState.UNAVAILABLE: {RackEvent.BROKER_UP: RackState.HEALTHY},
}


class Rack(NamedTuple):
    """A rack at one moment."""

    name: str
    state: RackState
    degraded_since_ms: int  # when its last broker went down; 0: one is up, or it is not known
    brokers: tuple[NodeId, ...]  # all that are registered
    eligible: tuple[NodeId, ...]  # those that may get replicas


def rack_of(broker: BrokerState) -> str:
    """The name of a broker's rack."""
    return broker.rack or UNKNOWN_RACK


def racks_of(brokers: Iterable[BrokerState]) -> dict[str, Rack]:
    """The racks of these brokers, by name and in the order of their names."""
    members: dict[str, list[BrokerState]] = {}
    for broker in brokers:
        members.setdefault(rack_of(broker), []).append(broker)
    return {name: _rack(name, members[name]) for name in sorted(members)}


def _rack(name: str, members: list[BrokerState]) -> Rack:
    members = sorted(members, key=lambda broker: broker.node_id)
    eligible = tuple(broker.node_id for broker in members if not broker.fenced)
    state, since = RackState.HEALTHY, 0
    if not eligible:  # controller.K1
        since = max(broker.fenced_at_ms for broker in members)
        given_up = all(broker.rack_given_up for broker in members)
        state = RackState.UNAVAILABLE if given_up else RackState.DEGRADED
    return Rack(name, state, since, tuple(broker.node_id for broker in members), eligible)


def is_given_up(brokers: Iterable[BrokerState], rack: str) -> bool:
    """Whether a broker that registers in `rack`, and is not up yet, finds it given up.

    So does the first broker of a rack: nothing is placed there before it is up (controller.K2).
    """
    found = racks_of(broker for broker in brokers if rack_of(broker) == rack).get(rack)
    return found is None or found.state is RackState.UNAVAILABLE


def overdue(brokers: Mapping[NodeId, BrokerState], now_ms: int, threshold_ms: int) -> list[Rack]:
    """The DEGRADED racks that have been without a broker for longer than the threshold."""
    return [rack for rack in racks_of(brokers.values()).values()
            if rack.state is RackState.DEGRADED and _are_dated(brokers, rack)
            and now_ms - rack.degraded_since_ms > threshold_ms]


def liveness_records(
    brokers: Mapping[NodeId, BrokerState], now_ms: int, threshold_ms: int
) -> list[Record]:
    """Give up the racks that are overdue.

    A broker that an older version fenced has no time: it gets that of now, once, so that its rack
    is given its whole threshold.
    """
    given_up = {node_id for rack in overdue(brokers, now_ms, threshold_ms)
                for node_id in rack.brokers}
    records: list[Record] = []
    for node_id, broker in brokers.items():
        if not broker.fenced:
            assert node_id not in given_up, broker  # controller.K1
        elif node_id in given_up or broker.fenced_at_ms == 0:
            records.append(BrokerFencingChanged(
                node_id=node_id, fenced=True, stopping=broker.stopping,
                fenced_at_ms=broker.fenced_at_ms or now_ms,
                rack_given_up=broker.rack_given_up or node_id in given_up))
    return records


def _are_dated(brokers: Mapping[NodeId, BrokerState], rack: Rack) -> bool:
    return all(brokers[node_id].fenced_at_ms for node_id in rack.brokers)

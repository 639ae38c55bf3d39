"""The racks of the cluster: which there are, and whether they can hold replicas.

    HEALTHY      some broker of the rack is up
    DEGRADED     no broker of it is up, and some for less than the threshold: replicas stay where
                 they are
    UNAVAILABLE  no broker of it is up, and all were given up: replicas are removed, until a broker
                 of the rack is up again

A broker without a rack is in the rack `unknown`, which is a rack like the others.  A broker that
is given up while others of its rack are up leaves its replicas to them.

A state follows from the metadata alone: each broker has the time at which it was fenced, and
whether it was given up since (`BrokerState.fenced_at_ms`, `BrokerState.given_up`).  So every node
sees the same states, and a new controller goes on with the deadline of the one before.

Invariants
    controller.K1  a rack with a broker that is up is HEALTHY; no broker is given up, and so no
                   rack, before it has been fenced for longer than the threshold
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
from quipu.controller.records import BrokerFencingChanged
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
    given_up: tuple[NodeId, ...] = ()  # those that have been down for too long


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
    given_up = tuple(broker.node_id for broker in members if broker.given_up)
    state, since = RackState.HEALTHY, 0
    if not eligible:  # controller.K1
        since = max(broker.fenced_at_ms for broker in members)
        is_gone = len(given_up) == len(members)
        state = RackState.UNAVAILABLE if is_gone else RackState.DEGRADED
    return Rack(
        name, state, since, tuple(broker.node_id for broker in members), eligible, given_up)


def is_rack_given_up(brokers: Iterable[BrokerState], rack: str) -> bool:
    """Whether a broker that registers in `rack`, and is not up yet, finds it given up.

    So does the first broker of a rack: nothing is placed there before it is up (controller.K2).
    """
    found = racks_of(broker for broker in brokers if rack_of(broker) == rack).get(rack)
    return found is None or found.state is RackState.UNAVAILABLE


def liveness_records(
    brokers: Iterable[BrokerState], now_ms: int, threshold_ms: int
) -> list[BrokerFencingChanged]:
    """Give up brokers that have been fenced for longer than the threshold (controller.K1).

    A broker that an older version fenced has no time: it gets that of now, once, so that it is
    given its whole threshold.  One whose time is ahead, because the controller before had a clock
    that is, gets that of now as well: it waits for the threshold, and not for the clocks.
    """
    records = []
    for broker in brokers:
        since = broker.fenced_at_ms
        if not broker.fenced:
            continue
        if not 0 < since <= now_ms:
            since = now_ms
        is_overdue = now_ms - since > threshold_ms
        if since != broker.fenced_at_ms or (is_overdue and not broker.given_up):
            records.append(BrokerFencingChanged(
                node_id=broker.node_id, fenced=True, stopping=broker.stopping, fenced_at_ms=since,
                given_up=broker.given_up or is_overdue))
    return records

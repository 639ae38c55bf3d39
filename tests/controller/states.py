"""States to decide on, for tests of the controller."""

from collections.abc import Callable
from uuid import UUID

from quipu.controller.records import BrokerRegistered, ClusterCreated, Record
from quipu.controller.state import ClusterState


def state_with(brokers: int = 1, *records: Record) -> ClusterState:
    """A cluster of brokers 1 to `brokers`, and then `records`."""
    state = ClusterState()
    state.apply(ClusterCreated(cluster_id="cluster-of-tests"))
    for node_id in range(1, brokers + 1):
        state.apply(BrokerRegistered(node_id=node_id, host=f"host-{node_id}", port=9092))
    for record in records:
        state.apply(record)
    return state


def ids() -> Callable[[], UUID]:
    """UUIDs 1, 2, 3 and so on."""
    last = 0

    def following() -> UUID:
        nonlocal last
        last += 1
        return UUID(int=last)

    return following

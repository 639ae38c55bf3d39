"""Finds the broker that coordinates a consumer group."""

from typing import Final

from quipu.client.cluster import Cluster
from quipu.client.connection import BrokerConnection
from quipu.client.errors import ConnectionFailed, broker_refused
from quipu.model.settings_types import Address
from quipu.wire.messages.k10_find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_GROUP: Final = 0


def coordinator(cluster: Cluster, group: str) -> BrokerConnection:
    """A connection to the broker that coordinates a group."""
    request = FindCoordinatorRequest(key=group, key_type=_GROUP, coordinator_keys=[group])
    response = cluster.any_connection().ask(request, FindCoordinatorResponse)
    found = response.coordinators[0] if response.coordinators else response
    if found.error_code:
        raise broker_refused(found.error_code, f"coordinator of group {group}")
    if not found.host:
        raise ConnectionFailed(f"the coordinator of group {group} has no address")
    return cluster.connection_at(Address(found.host, found.port))

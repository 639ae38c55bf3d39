"""The brokers of a cluster, and which node is the controller."""

from typing import NamedTuple

from quipu.client.admin.routing import ask_any
from quipu.client.cluster import Cluster
from quipu.client.errors import broker_refused
from quipu.model.settings_types import Address
from quipu.wire.messages.k60_describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)


class BrokerDescription(NamedTuple):
    """A broker and its address for clients."""

    broker_id: int
    address: Address
    rack: str | None
    is_fenced: bool  # the controller gets no heartbeats from it


class ClusterDescription(NamedTuple):
    """A cluster and its brokers, in the order of their ids."""

    cluster_id: str
    controller_id: int | None  # None while there is none
    brokers: tuple[BrokerDescription, ...]


def describe_cluster(cluster: Cluster, *, fenced: bool = False) -> ClusterDescription:
    """The id, the controller and the brokers of a cluster; fenced brokers only with `fenced`."""
    request = DescribeClusterRequest(include_fenced_brokers=fenced)
    response = ask_any(cluster, request, DescribeClusterResponse).response
    if response.error_code:
        raise broker_refused(
            response.error_code, "cannot describe the cluster", response.error_message)
    brokers = [
        BrokerDescription(each.broker_id, Address(each.host, each.port), each.rack, each.is_fenced)
        for each in sorted(response.brokers, key=lambda each: each.broker_id)]
    return ClusterDescription(
        response.cluster_id, response.controller_id if response.controller_id >= 0 else None,
        tuple(brokers))

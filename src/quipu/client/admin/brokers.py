"""The brokers of a cluster, which node is the controller, and brokers that are gone for good."""

from typing import NamedTuple

from quipu.client.admin.routing import ask_any
from quipu.client.cluster import Cluster
from quipu.client.errors import broker_refused
from quipu.model.errors import Code
from quipu.model.settings_types import Address
from quipu.wire.messages.k60_describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from quipu.wire.messages.k64_unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
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


def unregister_broker(cluster: Cluster, broker_id: int) -> None:
    """Remove a broker that is down and has no partitions."""
    response, may_repeat = ask_any(
        cluster, UnregisterBrokerRequest(broker_id=broker_id), UnregisterBrokerResponse)
    done_before = Code.BROKER_ID_NOT_REGISTERED if may_repeat else None
    if response.error_code not in (Code.NONE, done_before):
        raise broker_refused(response.error_code, f"cannot unregister node {broker_id}",
                             response.error_message or "no reason was given")

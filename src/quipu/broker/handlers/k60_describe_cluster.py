"""DescribeCluster — API key 60, versions 0-2.

Behaviour
    * tells the cluster's id, its controller and its brokers that are up
    * controllers have no listener of their own here: asking for them is refused
Versions
    v1  which endpoints to tell: brokers (1) or controllers (2)
    v2  fenced brokers too, if asked for
"""

from typing import Final

from quipu.broker.context import Broker, Context
from quipu.broker.topic_views import CLUSTER_OPERATIONS, NOT_ASKED
from quipu.model.errors import Code
from quipu.wire.messages.k60_describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS: Final = 1
CONTROLLERS: Final = 2
MISMATCHED_ENDPOINT_TYPE: Final = 114
UNSUPPORTED_ENDPOINT_TYPE: Final = 115


def handle(
    broker: Broker, request: DescribeClusterRequest, context: Context
) -> DescribeClusterResponse:
    del context
    if request.endpoint_type != BROKERS:
        return _refused(request.endpoint_type)
    state = broker.cluster.state
    asked = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        error_code=Code.NONE,
        cluster_id=state.cluster_id,
        controller_id=broker.cluster.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=known.node_id, host=known.host, port=known.port,
                                  rack=known.rack, is_fenced=known.fenced)
            for known in state.brokers.values()
            if not known.fenced or request.include_fenced_brokers
        ],
        cluster_authorized_operations=CLUSTER_OPERATIONS if asked else NOT_ASKED,
    )


def _refused(endpoint_type: int) -> DescribeClusterResponse:
    if endpoint_type == CONTROLLERS:
        code, why = MISMATCHED_ENDPOINT_TYPE, "this is a broker's endpoint, not a controller's"
    else:
        code, why = UNSUPPORTED_ENDPOINT_TYPE, f"unknown endpoint type {endpoint_type}"
    return DescribeClusterResponse(
        error_code=code, error_message=why, endpoint_type=endpoint_type)

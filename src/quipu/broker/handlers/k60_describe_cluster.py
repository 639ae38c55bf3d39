"""DescribeCluster — API key 60, versions 0-2.

Behaviour
    * responds with the cluster's id, its controller and its brokers that are up, with the addresses
      of the listener that the client connected to; brokers without that listener are left out
    * there are no listeners of controllers: a request for their endpoints is refused
Versions
    v1  which endpoints to respond with: brokers (1) or controllers (2)
    v2  fenced brokers too, if requested
"""

from typing import Final

from quipu.broker.serving.context import Broker, Context
from quipu.broker.serving.routing import controller_for
from quipu.broker.serving.topic_views import CLUSTER_OPERATIONS, NOT_ASKED
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
    if request.endpoint_type != BROKERS:
        return _refused(request.endpoint_type)
    state = broker.cluster.state
    with_operations = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        error_code=Code.NONE,
        cluster_id=state.cluster_id,
        controller_id=controller_for(broker, context.listener),
        brokers=[
            DescribeClusterBroker(broker_id=known.node_id, host=there.host, port=there.port,
                                  rack=known.rack, is_fenced=known.fenced)
            for known in state.brokers.values()
            if (not known.fenced or request.include_fenced_brokers)
            and (there := known.endpoint(context.listener.name)) is not None
        ],
        cluster_authorized_operations=CLUSTER_OPERATIONS if with_operations else NOT_ASKED,
    )


def _refused(endpoint_type: int) -> DescribeClusterResponse:
    if endpoint_type == CONTROLLERS:
        code, why = MISMATCHED_ENDPOINT_TYPE, "this is a broker's endpoint, not a controller's"
    else:
        code, why = UNSUPPORTED_ENDPOINT_TYPE, f"unknown endpoint type {endpoint_type}"
    return DescribeClusterResponse(error_code=code, error_message=why)

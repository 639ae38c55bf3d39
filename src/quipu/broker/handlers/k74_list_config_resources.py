"""ListConfigResources — API key 74, versions 0-1.

Behaviour
    * responds with all topics, the brokers that are up, each with its loggers, and the groups and
      subscriptions to client metrics that have settings
    * a type that is not one of these is UNSUPPORTED_VERSION, as in Kafka
Versions
    v0  subscriptions to client metrics only
    v1  the types to list; none means all
"""

from collections.abc import Iterable
from typing import Final

from quipu.broker.serving.context import Broker, Context
from quipu.controller.resources import ResourceType
from quipu.model.errors import Code
from quipu.wire.messages.k74_list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

TYPED_SINCE: Final = 1


async def handle(
    broker: Broker, request: ListConfigResourcesRequest, context: Context
) -> ListConfigResourcesResponse:
    if context.api_version < TYPED_SINCE:
        kinds = [ResourceType.CLIENT_METRICS]
    elif any(kind not in list(ResourceType) for kind in request.resource_types):
        return ListConfigResourcesResponse(error_code=Code.UNSUPPORTED_VERSION)
    else:
        kinds = list(map(ResourceType, dict.fromkeys(request.resource_types))) or list(ResourceType)
    response = ListConfigResourcesResponse(config_resources=context.array(ConfigResource))
    for kind in kinds:
        for name in list(_names(broker, kind)):
            await context.pause()
            response.config_resources.append(
                ConfigResource(resource_name=name, resource_type=kind))
    return response


def _names(broker: Broker, kind: ResourceType) -> Iterable[str]:
    state = broker.cluster.state
    match kind:
        case ResourceType.TOPIC:
            return state.topics
        case ResourceType.GROUP:
            return state.group_configs
        case ResourceType.CLIENT_METRICS:
            return state.client_metrics_configs
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
            return [str(known.node_id) for known in state.brokers.values() if not known.fenced]

"""DescribeConfigs — API key 32, versions 1-4.

Behaviour
    * responds with the settings of topics (resource type 2), brokers (4), subscriptions to client
      metrics (16) and groups (32), and their sources; of the last two also if nothing was set
    * broker loggers (8) are those of the node that is asked: a name and its level in force
    * broker "" is the cluster's default: only what was set dynamically for all brokers
    * no list of names, or an empty one, asks for all; names that are unknown are left out
    * a sensitive setting, such as peer.secret, is marked as one and has no value, as in Kafka
    * `min.insync.replicas`, `default.replication.factor`, `node.id` and `advertised.listeners` are
      shown as what is in force, also where they are not set or say "as many as there are"
    * responds per resource: an error of one resource does not fail the others
Versions
    v1  the source of a value, and the values that it overrides (synonyms)
    v3  types and documentation      v4  flexible
"""

from collections.abc import Collection

from quipu.broker.error_codes import code_of
from quipu.broker.observing.loggers import logger_levels
from quipu.broker.serving.context import Broker, Context
from quipu.controller.configs import ConfigResource, check_resource
from quipu.controller.describe_configs import (
    ConfigEntry,
    ConfigSource,
    describe_broker,
    describe_client_metrics,
    describe_cluster_default,
    describe_group,
    describe_topic,
)
from quipu.controller.resources import ResourceType
from quipu.controller.state import CLUSTER_DEFAULT
from quipu.model.errors import Code, QuipuError, RequestError
from quipu.wire.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


async def handle(
    broker: Broker, request: DescribeConfigsRequest, context: Context
) -> DescribeConfigsResponse:
    response = DescribeConfigsResponse(results=context.array(DescribeConfigsResult))
    for resource in request.resources:
        await context.pause()
        response.results.append(_result(broker, resource, request))
    return response


def refuse(request: DescribeConfigsRequest, error: QuipuError) -> DescribeConfigsResponse:
    """Respond with the error for each resource."""
    return DescribeConfigsResponse(results=[
        DescribeConfigsResult(
            error_code=code_of(error), error_message=str(error),
            resource_type=resource.resource_type, resource_name=resource.resource_name)
        for resource in request.resources])


def _result(
    broker: Broker, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_message="",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
    names = set(resource.configuration_keys or ())
    try:
        if resource.resource_type == ResourceType.BROKER_LOGGER:
            check_node(broker, resource.resource_name)
            result.configs = _levels(names)
            return result
        entries = _entries(broker, ConfigResource(resource.resource_type, resource.resource_name))
    except QuipuError as error:
        result.error_code, result.error_message = code_of(error), str(error)
        return result
    result.configs = [
        _config(entry, request) for entry in entries if not names or entry.row.name in names]
    return result


def _entries(broker: Broker, resource: ConfigResource) -> list[ConfigEntry]:
    cluster, state = broker.cluster, broker.cluster.state
    kind = check_resource(state, resource)
    if kind is ResourceType.TOPIC:
        return describe_topic(state.topics[resource.name], cluster.layers())
    if kind is ResourceType.GROUP:
        return describe_group(state.configs(kind, resource.name))
    if kind is ResourceType.CLIENT_METRICS:
        return describe_client_metrics(state.configs(kind, resource.name))
    if resource.name == CLUSTER_DEFAULT:
        return describe_cluster_default(cluster.layers())
    return describe_broker(cluster.layers(int(resource.name)))


def check_node(broker: Broker, name: str) -> None:
    """Raise unless `name` is this node's id: loggers are asked of the node that has them."""
    if name != str(broker.node_id):
        raise RequestError(f"these are the loggers of broker {broker.node_id}; ask broker "
                           f"{name[:20]!r} for its own", code=Code.INVALID_REQUEST)


def _levels(names: Collection[str]) -> list[DescribeConfigsResourceResult]:
    return [DescribeConfigsResourceResult(
                name=name, value=level, config_source=ConfigSource.BROKER_LOGGER)
            for name, level in logger_levels().items() if not names or name in names]


def _config(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.row.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.row.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=name, value=value, source=source)
            for name, value, source in synonyms
        ],
        config_type=entry.row.kind.type,
        documentation=entry.row.documentation if request.include_documentation else None,
    )

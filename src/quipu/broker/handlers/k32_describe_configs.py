"""DescribeConfigs — API key 32, versions 1-4.

Behaviour
    * responds with the settings of topics (resource type 2) and brokers (4), and their sources
    * broker "" is the cluster's default: only what was set dynamically for all brokers
    * no list of names, or an empty one, asks for all; names that are unknown are left out
    * a sensitive setting, such as peer.secret, is marked as one and has no value, as in Kafka
    * `min.insync.replicas` of a topic is shown as a number of nodes, also where it is 0 for all
    * responds per resource: an error of one resource does not fail the others
Versions
    v1  the source of a value, and the values that it overrides (synonyms)
    v3  types and documentation      v4  flexible
"""

from quipu.broker.error_codes import code_of
from quipu.broker.serving.context import Broker, Context
from quipu.controller.configs import ConfigResource, check_resource
from quipu.controller.describe_configs import (
    ConfigEntry,
    describe_broker,
    describe_cluster_default,
    describe_topic,
)
from quipu.controller.state import CLUSTER_DEFAULT, ResourceType
from quipu.model.errors import QuipuError
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
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
    try:
        entries = _entries(broker, ConfigResource(resource.resource_type, resource.resource_name))
    except QuipuError as error:
        result.error_code, result.error_message = code_of(error), str(error)
        return result
    names = set(resource.configuration_keys or ())
    result.configs = [
        _config(entry, request) for entry in entries if not names or entry.row.name in names]
    return result


def _entries(broker: Broker, resource: ConfigResource) -> list[ConfigEntry]:
    cluster = broker.cluster
    if check_resource(cluster.state, resource) is ResourceType.TOPIC:
        return describe_topic(cluster.state.topics[resource.name], cluster.layers())
    if resource.name == CLUSTER_DEFAULT:
        return describe_cluster_default(cluster.layers())
    return describe_broker(cluster.layers(int(resource.name)))


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

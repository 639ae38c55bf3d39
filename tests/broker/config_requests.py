"""Requests to describe and to alter settings, as a client sends them to one node."""


from typing import Any, cast

from quipu.broker.handlers import (
    k32_describe_configs,
)
from quipu.broker.serving import forwarding
from quipu.broker.serving.context import Broker, Context
from quipu.wire.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from quipu.wire.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.broker.clusters import ABroker, ask

Change = tuple[str, int, str | None]


def resource(kind: int, name: str, *changes: Change) -> AlterConfigsResource:
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=[
        AlterableConfig(name=each, config_operation=operation, value=value)
        for each, operation, value in changes])


async def alter(
    broker: ABroker, *resources: AlterConfigsResource, validate_only: bool = False
) -> list[Any]:
    """The results for resources, as a client gets them from the node that it asks."""
    request = IncrementalAlterConfigsRequest(
        resources=list(resources), validate_only=validate_only)
    context = Context(1, 7, "test", "::1")
    response = await forwarding.forward(
        cast("Broker", broker), forwarding.ClientRequest(request, request.encode(1), context))
    body = (response.body if isinstance(response, forwarding.ForwardedResponse)
            else response.encode(1))
    return list(IncrementalAlterConfigsResponse.decode(body, 1).responses)


async def describe(broker: ABroker, kind: int, name: str, *keys: str) -> Any:
    request = DescribeConfigsRequest(include_synonyms=True, resources=[DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)])
    return (await ask(broker, k32_describe_configs, request, 4)).results[0]
